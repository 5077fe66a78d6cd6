/**
 * What a machine shows that is enrolled over SSH (attestor `enrolment`), one form for the machine that writes it and the JoinService that reads it:
 * `check:<enrolment id>` asks whether this is the control plane that the enrolment is of, `<enrolment id>` asks for the identity. An id names a row and
 * is no secret: what counts with it is the key that was read on the machine itself.
 */
export type EnrolmentEvidence = { readonly asks: 'health' | 'identity'; readonly id: string };

const idForm = /^[A-Za-z0-9][A-Za-z0-9-]{7,63}$/;
const healthPrefix = 'check:';

/** True for 8 to 64 letters, digits and hyphens. */
export const isEnrolmentId = (text: string): boolean => idForm.test(text);

export const encodeEnrolmentEvidence = ({ asks, id }: EnrolmentEvidence): Uint8Array =>
  Buffer.from(asks === 'health' ? `${healthPrefix}${id}` : id, 'utf8');

/** null for bytes that are none. */
export function readEnrolmentEvidence(bytes: Uint8Array): EnrolmentEvidence | null {
  const text = Buffer.from(bytes).toString('latin1');
  const asks = text.startsWith(healthPrefix) ? 'health' : 'identity';
  const id = asks === 'health' ? text.slice(healthPrefix.length) : text;
  return isEnrolmentId(id) ? { asks, id } : null;
}
