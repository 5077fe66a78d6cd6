/**
 * The bytes of a journal record: u32 length, u32 CRC-32 of the payload (both big-endian), payload as JSON in UTF-8. A
 * segment starts with eight bytes that name the format. Reading stops at the first record that is not whole.
 */
import { crc32 } from 'node:zlib';
import { z } from 'zod';
import { isCommandId } from '../../domain/commands/ids.ts';
import type { JournalEntry, JournalRecord } from './journal.ts';

export const segmentHeader = Buffer.from('bcjrnl1\n');
const frameHeaderBytes = 8;
/** A command body and a result are at most 1 MiB each, in base64. */
export const recordMaxBytes = 4 * 1024 * 1024;

export function encodeRecord(record: JournalRecord): Buffer {
  const payload = Buffer.from(JSON.stringify(record, toJson));
  const out = Buffer.alloc(frameHeaderBytes + payload.length);
  out.writeUInt32BE(payload.length, 0);
  out.writeUInt32BE(crc32(payload), 4);
  payload.copy(out, frameHeaderBytes);
  return out;
}

export interface ReadRecords {
  readonly records: readonly JournalRecord[];
  /** Bytes from here on are no whole record; equal to the length when all is well. */
  readonly goodUntil: number;
}

/** Reads the records of a segment, header included, up to the first that is not whole. */
export function decodeRecords(segment: Buffer): ReadRecords {
  if (!segment.subarray(0, segmentHeader.length).equals(segmentHeader)) return { records: [], goodUntil: 0 };
  const records: JournalRecord[] = [];
  let at = segmentHeader.length;
  for (let next = readOne(segment, at); next !== undefined; next = readOne(segment, at)) {
    records.push(next.record);
    at = next.end;
  }
  return { records, goodUntil: at };
}

function readOne(segment: Buffer, at: number): { record: JournalRecord; end: number } | undefined {
  if (segment.length - at < frameHeaderBytes) return undefined;
  const length = segment.readUInt32BE(at);
  const end = at + frameHeaderBytes + length;
  if (length > recordMaxBytes || end > segment.length) return undefined;
  const payload = segment.subarray(at + frameHeaderBytes, end);
  if (crc32(payload) !== segment.readUInt32BE(at + 4)) return undefined;
  const record = parseRecord(payload);
  return record === undefined ? undefined : { record, end };
}

/** True when a whole record stands anywhere at or after `from`: then what is broken before it was no interrupted write. */
export function hasRecordAfter(segment: Buffer, from: number): boolean {
  for (let at = from + 1; at + frameHeaderBytes < segment.length; at++) {
    if (segment.readUInt32BE(at) !== 0 && readOne(segment, at) !== undefined) return true;
  }
  return false;
}

function toJson(_key: string, value: unknown): unknown {
  if (typeof value === 'bigint') return value.toString();
  // Buffer has a toJSON of its own that runs first.
  if (isBufferJson(value)) return Buffer.from(value.data).toString('base64');
  return value instanceof Uint8Array ? Buffer.from(value).toString('base64') : value;
}

const isBufferJson = (value: unknown): value is { data: number[] } =>
  typeof value === 'object' &&
  value !== null &&
  (value as { type?: unknown }).type === 'Buffer' &&
  Array.isArray((value as { data?: unknown }).data);

const bytes = z.base64().transform((text): Uint8Array => new Uint8Array(Buffer.from(text, 'base64')));
const bigint = z
  .string()
  .regex(/^\d{1,20}$/)
  .transform(BigInt);
const id = z.string().refine(isCommandId);
const ms = z.number().int();
const note = z.record(z.string(), z.string());
const claim = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('leaf'), leaf: z.string().length(64), notAfterMs: ms }),
  z.object({ kind: z.literal('slot'), atMs: ms }),
]);
const known = { id, kind: z.string(), digest: z.string().length(64), seq: bigint, expiresAtMs: ms, claim: claim.exactOptional() };

const entry = z.discriminatedUnion('state', [
  z.object({ ...known, state: z.literal('received'), body: bytes }),
  z.object({ ...known, state: z.literal('started'), body: bytes, startedAtMs: ms, note }),
  z.object({ ...known, state: z.literal('finished'), finishedAtMs: ms, result: bytes }),
  z.object({ ...known, state: z.literal('receipted'), result: bytes }),
]) satisfies z.ZodType<JournalEntry>;

const recordSchema = z.discriminatedUnion('type', [
  z.object({ type: z.literal('received'), command: z.object({ ...known, body: bytes }) }),
  z.object({ type: z.literal('started'), id, atMs: ms, note }),
  z.object({ type: z.literal('finished'), id, atMs: ms, result: bytes }),
  z.object({ type: z.literal('receipted'), id, result: bytes }),
  z.object({ type: z.literal('entry'), entry }),
  z.object({ type: z.literal('snapshot'), highestSeq: bigint }),
]) satisfies z.ZodType<JournalRecord>;

function parseRecord(payload: Buffer): JournalRecord | undefined {
  let value: unknown;
  try {
    value = JSON.parse(payload.toString('utf8'));
  } catch {
    return undefined;
  }
  const parsed = recordSchema.safeParse(value);
  return parsed.success ? parsed.data : undefined;
}
