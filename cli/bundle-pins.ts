/** The pins of a key bundle, read as `pki show` reads them: checked against the seal with the secret, told apart without. */
import { readFileSync } from 'node:fs';
import { ControlError } from '../domain/errors.ts';
import { authenticateBundle, readPublicBundle } from '../pki/bundle/index.ts';
import { spkiPin } from '../pki/x509/index.ts';

export interface AuditPin {
  readonly audit: string;
  /** false: nothing but the file itself vouches for the pin. */
  readonly authenticated: boolean;
}

/** @throws NOT_FOUND, INVALID_CONFIG (no bundle, or changed behind its seal), INVALID_STATE when it has no audit key */
export function readBundlePins(path: string, secret: string | null): AuditPin {
  const text = readBundle(path);
  const { auditSigning } = readPublicBundle(text);
  if (auditSigning === undefined) {
    throw new ControlError('INVALID_STATE', `the key bundle ${path} has no audit key`, { details: { reason: 'no-audit-key' } });
  }
  return { audit: spkiPin(auditSigning.spki), authenticated: secret !== null && authenticateBundle(text, secret).authenticated };
}

function readBundle(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (cause) {
    throw new ControlError('NOT_FOUND', `the key bundle ${path} cannot be read`, {
      details: { reason: 'no-bundle', hint: 'name it with --pki or BETTER_COMPUTE_PKI, or give the pin with --pin' },
      cause,
    });
  }
}
