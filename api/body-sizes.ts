/** Bytes of a body beyond the usual bound, where a route needs them; checked before a byte is parsed. */
import { maxBatchPayloads, maxLeaves } from '../domain/batch/limits.ts';

/** A leaf without its payload: names, digest, and the JSON around them. */
const leafBytes = 320;

export const bodySizes = Object.freeze({
  /** Every leaf, and all payloads in base64. */
  batch: maxLeaves * leafBytes + Math.ceil((maxBatchPayloads * 4) / 3),
});
