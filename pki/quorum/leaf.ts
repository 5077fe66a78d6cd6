/** The leaf of a scope: one operation, as one hash (QUO-006, QUO-007). The golden file test/golden/batch-scope.json freezes the bytes. */
import { hash } from 'node:crypto';
import type { Message } from '@bufbuild/protobuf';
import { subjectByRule } from '../../domain/batch/subjects.ts';
import { findCommandKind } from '../../domain/commands/kinds.ts';
import { ControlError } from '../../domain/errors.ts';

/** What one machine is allowed to do once: a kind of command, on a subject, with this payload or (empty) with any (QUO-012, QUO-013). */
export interface ScopeLeaf {
  readonly subject: string;
  readonly kind: string;
  /** 32 bytes; empty: any payload. */
  readonly payloadSha256: Uint8Array;
}

export const hashBytes = 32;

/**
 * SHA-256 of the input, written into `out` at `at`. Node's one-call hash makes a text of 32 characters three times as fast as it makes
 * a buffer, and writing the text costs little.
 */
export function hashInto(out: Buffer, at: number, input: Uint8Array): void {
  out.write(hash('sha256', input, 'binary'), at, 'latin1');
}

/** Longest text of a leaf: `bmc:` with a node id and an address of 255 characters fits. */
const longestText = 512;

/** Printable ASCII without spaces, so that the length is the length in bytes and two texts that differ look different. */
const leafText = new RegExp(`^[\\x21-\\x7e]{1,${longestText}}$`);

/** null, or what is wrong with a leaf. */
export function problemOfLeaf({ subject, kind, payloadSha256 }: ScopeLeaf): string | null {
  if (!leafText.test(subject)) return `subject ${shown(subject)} is not 1 to ${longestText} printable ASCII characters without a space`;
  if (!leafText.test(kind)) return `kind ${shown(kind)} is not 1 to ${longestText} printable ASCII characters without a space`;
  if (payloadSha256.length === 0 || payloadSha256.length === hashBytes) return null;
  return `payloadSha256 of ${kind} on ${subject} has ${payloadSha256.length} bytes, not ${hashBytes}`;
}

/** Escaped and cut: what a stranger wrote goes into a message. */
const shown = (text: unknown): string => JSON.stringify(String(text).slice(0, 64)).replaceAll(/[^\x20-\x7e]/g, escapeUnit);

const escapeUnit = (unit: string): string => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;

/**
 * Writes leaf inputs, 0x00 ‖ lp(batch id) ‖ lp(subject) ‖ lp(kind) ‖ lp(payload digest), over and over into one buffer: 50,000 leaves
 * differ in little, and what is left of the work is the hashing.
 */
export class LeafHasher {
  readonly #buffer: Buffer;
  readonly #batchEnd: number;

  constructor(batchId: string) {
    const id = Buffer.from(batchId, 'utf8');
    this.#buffer = Buffer.allocUnsafe(1 + 4 + id.length + 2 * (4 + longestText) + 4 + hashBytes);
    this.#buffer[0] = 0;
    this.#buffer.writeUInt32BE(id.length, 1);
    id.copy(this.#buffer, 5);
    this.#batchEnd = 5 + id.length;
  }

  /**
   * Writes the leaf's hash into `out` at `at`.
   *
   * @throws INVALID_INPUT (`bad-leaf`) for a leaf that problemOfLeaf complains about
   */
  hashInto(out: Buffer, at: number, leaf: ScopeLeaf): void {
    const problem = problemOfLeaf(leaf);
    if (problem !== null)
      throw new ControlError('INVALID_INPUT', problem, { details: { reason: 'bad-leaf', subject: leaf.subject, kind: leaf.kind } });
    const kindAt = this.#write(leaf.subject, this.#batchEnd);
    const digestAt = this.#write(leaf.kind, kindAt);
    const { length } = leaf.payloadSha256;
    this.#buffer.writeUInt32BE(length, digestAt);
    this.#buffer.set(leaf.payloadSha256, digestAt + 4);
    hashInto(out, at, this.#buffer.subarray(0, digestAt + 4 + length));
  }

  #write(text: string, at: number): number {
    this.#buffer.writeUInt32BE(text.length, at);
    this.#buffer.write(text, at + 4, 'latin1');
    return at + 4 + text.length;
  }
}

/**
 * H(0x00 ‖ lp(batch id) ‖ lp(subject) ‖ lp(kind) ‖ lp(payload digest)), lp a u32 big-endian length and the bytes.
 *
 * @throws INVALID_INPUT (`bad-leaf`)
 */
export function leafHash(batchId: string, leaf: ScopeLeaf): Buffer {
  const out = Buffer.alloc(hashBytes);
  new LeafHasher(batchId).hashInto(out, 0, leaf);
  return out;
}

/**
 * What a command acts on, from its signed body alone (QUO-027, QUO-028).
 *
 * @param payload what the body's payload decodes to
 * @throws UNSUPPORTED for a kind that does not exist; INVALID_INPUT (`bad-subject`) when the payload names no machine
 */
export function batchSubject({
  nodeId,
  kind,
  payload,
}: {
  readonly nodeId: string;
  readonly kind: string;
  readonly payload: Message;
}): string {
  const spec = findCommandKind(kind);
  if (spec === undefined)
    throw new ControlError('UNSUPPORTED', `there is no command kind ${shown(kind)}`, { details: { reason: 'unknown-kind' } });
  const subject = subjectByRule(spec.subject, { nodeId, payload });
  if (subject !== null) return subject;
  throw new ControlError('INVALID_INPUT', `the payload of ${kind} does not name what it acts on`, {
    details: { reason: 'bad-subject', kind },
  });
}
