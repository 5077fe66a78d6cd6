/** Which audit key a trail is checked against (AUD-005, A-PKI-39): --pin, then BETTER_COMPUTE_AUDIT_PIN, then the key bundle. */
import { ControlError } from '../../../domain/errors.ts';
import { describePins, readPublicBundle } from '../../../pki/bundle/index.ts';
import { isSpkiPin } from '../../../pki/x509/index.ts';
import type { Ports } from '../../ports.ts';
import { readShown } from '../pki/pins-view.ts';

/** @throws INVALID_INPUT */
export function parsePin(text: string): string {
  if (isSpkiPin(text)) return text;
  throw new ControlError('INVALID_INPUT', `"${text}" is no pin: sha256/ and 44 characters of base64`, { details: { reason: 'bad-pin' } });
}

export interface AuditPin {
  readonly pin: string;
  /** null where only a pin is known. */
  readonly trustDomain: string | null;
}

/**
 * The bundle is read as pki show reads it: checked against its seal with the secret, with a warning without (AUD-007).
 *
 * @throws INVALID_INPUT for a pin that is none; what reading a bundle throws; INVALID_STATE when it has no audit key
 */
export async function readAuditPin(flags: { pin: string | null; pki: string | null }, ports: Ports): Promise<AuditPin> {
  const given = flags.pin ?? (flags.pki === null ? ports.io.env['BETTER_COMPUTE_AUDIT_PIN'] : undefined);
  if (given !== undefined && given !== '') return { pin: parsePin(given), trustDomain: null };
  const { text, authenticated } = await readShown(flags.pki, ports);
  const { auditPin, trustDomain } = describePins(readPublicBundle(text), authenticated);
  if (auditPin !== null) return { pin: auditPin, trustDomain };
  throw new ControlError('INVALID_STATE', 'the key bundle has no audit key', {
    details: { reason: 'no-audit-key', hint: 'give the pin of the audit key: --pin, or BETTER_COMPUTE_AUDIT_PIN' },
  });
}
