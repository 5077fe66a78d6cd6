/** Which deployment a signature is for, where no batch says it. Everything here is the signer's own: no server is asked. */
import { readFileSync } from 'node:fs';
import { ControlError } from '../../domain/errors.ts';
import { readPublicBundle } from '../../pki/bundle/index.ts';
import { isTrustDomain } from '../../pki/x509/index.ts';
import type { Ports } from '../ports.ts';

/** --trust-domain, else BETTER_COMPUTE_TRUST_DOMAIN, else the key bundle of this host. @throws MISSING_ENV */
export function ownTrustDomain(flag: string | null, { io, settings }: Ports): string {
  const named = flag ?? (io.env['BETTER_COMPUTE_TRUST_DOMAIN'] || null);
  if (named !== null && isTrustDomain(named)) return named;
  if (named !== null)
    throw new ControlError('INVALID_INPUT', `BETTER_COMPUTE_TRUST_DOMAIN ${JSON.stringify(named.slice(0, 64))} is no trust domain`, {
      details: { reason: 'trust-domain' },
    });
  const bundle = findBundle(settings.bundlePath);
  if (bundle !== null) return readPublicBundle(bundle).trustDomain;
  throw new ControlError('MISSING_ENV', 'it is not said for which deployment to sign', {
    details: { reason: 'no-trust-domain', hint: 'name it with --trust-domain, or set BETTER_COMPUTE_TRUST_DOMAIN' },
  });
}

function findBundle(path: string): string | null {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return null;
  }
}
