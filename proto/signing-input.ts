/**
 * The bytes a signature covers (ENV-005, ENV-006), and the one registry of purposes (ENV-008).
 *
 *   input = "bettercompute.v1/" || purpose || 0x00 || part_1 || ... || part_n
 *   part  = uint32_be(length in bytes) || bytes
 *
 * The purpose separates domains: a signature made for one purpose never verifies under another (ENV-009), because the
 * prefix differs and no purpose contains 0x00. The parts are length-prefixed, so no two lists of parts share an input.
 */
const prefix = 'bettercompute.v1/';

/** Purpose → the names of its parts, in order. The count is checked when an input is built. */
export const purposes = Object.freeze({
  command: ['body'],
  'desired-state': ['body'],
  'root-command': ['trust_domain', 'body'],
  'join-response': ['body'],
  'trust-bundle': ['body'],
  health: ['trust_domain', 'nonce', 'body'],
  renew: ['csr', 'node_id', 'time_ms'],
  x509pop: ['challenge', 'csr'],
  // The digest of it is what a TPM's quote carries; `request` is the challenge's secret at a join, the signed statement at a renewal.
  'key-attestation': ['spki', 'request'],
  'batch-approval': ['batch_id', 'root', 'size', 'not_after_ms', 'trust_domain'],
  'approver-set': ['epoch', 'set_sha256', 'trust_domain'],
  // What k approvers answer for when a rotation is forced, leaves a node behind or is aborted while a quorum is set (H-08).
  'rotation-override': ['rotation_id', 'kind', 'subject', 'reason', 'trust_domain'],
  'workload-token': ['request_id', 'instance_id', 'audience', 'epk'],
  'secret-request': ['ref', 'workflow_id', 'step_id', 'allocation_id', 'epk', 'request_id'],
  event: ['body'],
  discovery: ['body'],
  // Each end of a WebSocket proves itself, for the TLS around it ends at a proxy.
  'ws-node': ['trust_domain', 'node_id', 'nonce', 'time_ms'],
  'ws-gateway': ['trust_domain', 'node_id', 'nonce', 'time_ms'],
  'audit-checkpoint': ['body'],
  'rotation-evidence': ['body'],
  'erase-evidence': ['body'],
  'deploy-evidence': ['body'],
  // By a release key that machines pin; no key of the bundle makes it.
  'daemon-release': ['body'],
} as const);

export type Purpose = keyof typeof purposes;

const text = new TextEncoder();

/** Big-endian unsigned 64-bit, for the integer parts. */
export function u64be(value: bigint | number): Uint8Array {
  const n = BigInt(value);
  if (n < 0n || n > 0xffff_ffff_ffff_ffffn) throw new RangeError(`not an unsigned 64-bit integer: ${n}`);
  const out = new Uint8Array(8);
  new DataView(out.buffer).setBigUint64(0, n);
  return out;
}

/**
 * Builds the signed bytes of `purpose`.
 *
 * @param parts one entry for each name in `purposes[purpose]`; strings are encoded as UTF-8
 * @throws RangeError when the number of parts is not the registry's
 */
export function signingInput(purpose: Purpose, parts: readonly (Uint8Array | string)[]): Uint8Array {
  const names = purposes[purpose];
  if (names === undefined || parts.length !== names.length) {
    throw new RangeError(`purpose ${purpose} takes ${names?.length ?? 0} part(s), got ${parts.length}`);
  }
  const encoded = parts.map((part) => (typeof part === 'string' ? text.encode(part) : part));
  const head = text.encode(`${prefix}${purpose}\0`);
  const out = new Uint8Array(encoded.reduce((size, part) => size + 4 + part.length, head.length));
  const view = new DataView(out.buffer);
  out.set(head, 0);
  let at = head.length;
  for (const part of encoded) {
    view.setUint32(at, part.length);
    out.set(part, at + 4);
    at += 4 + part.length;
  }
  return out;
}
