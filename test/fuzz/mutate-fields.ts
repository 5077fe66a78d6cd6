/** Changes inside formats of fields: protobuf (tag, varint, length) and SSH (uint32 length before everything). */
import { byteMutators, type Mutator } from './mutate-bytes.ts';
import type { Random } from './random.ts';

interface Field {
  readonly tag: number;
  /** Bytes of a length-delimited field, else those of the value as they stood. */
  readonly value: Uint8Array;
}

function readVarint(bytes: Uint8Array, from: number): { value: number; at: number } | null {
  let value = 0;
  for (let at = from; at < bytes.length && at < from + 10; at += 1) {
    value += ((bytes[at] as number) & 0x7f) * 2 ** (7 * (at - from));
    if ((bytes[at] as number) < 0x80) return { value, at: at + 1 };
  }
  return null;
}

function varint(value: number): Uint8Array {
  const bytes: number[] = [];
  let rest = value;
  for (; rest >= 0x80; rest = Math.floor(rest / 0x80)) bytes.push((rest % 0x80) | 0x80);
  return Uint8Array.of(...bytes, rest);
}

const fixedSizes: Readonly<Record<number, number>> = { 1: 8, 5: 4 };

function readFields(bytes: Uint8Array): Field[] | null {
  const fields: Field[] = [];
  let at = 0;
  while (at < bytes.length) {
    const tag = readVarint(bytes, at);
    if (tag === null) return null;
    const end = endOfValue(bytes, tag);
    if (end === null || end.end > bytes.length) return null;
    fields.push({ tag: tag.value, value: bytes.subarray(end.start, end.end) });
    at = end.end;
  }
  return fields;
}

function endOfValue(bytes: Uint8Array, tag: { value: number; at: number }): { start: number; end: number } | null {
  const wire = tag.value % 8;
  if (wire === 2) {
    const length = readVarint(bytes, tag.at);
    return length === null ? null : { start: length.at, end: length.at + length.value };
  }
  if (wire === 0) {
    const value = readVarint(bytes, tag.at);
    return value === null ? null : { start: tag.at, end: value.at };
  }
  const size = fixedSizes[wire];
  return size === undefined ? null : { start: tag.at, end: tag.at + size };
}

const writeFields = (fields: readonly Field[]): Buffer =>
  Buffer.concat(fields.flatMap(({ tag, value }) => [varint(tag), ...(tag % 8 === 2 ? [varint(value.length)] : []), value]));

type Edit = (fields: Field[], at: number, random: Random) => void;

const protobufEdits: readonly Edit[] = [
  (fields, at) => void fields.splice(at, 1),
  (fields, at) => void fields.push(fields[at] as Field),
  (fields, at, random) => void (fields[at] = { ...(fields[at] as Field), tag: random.pick([8, 10, 18, 26, 34, 2, 13, 0x7ffffff8]) }),
  (fields, at, random) => {
    const { tag, value } = fields[at] as Field;
    fields[at] = {
      tag,
      value: tag % 8 === 2 ? mutateProtobuf(value, random, value) : varint(random.pick([0, 1, 2 ** 31, 2 ** 32 - 1, 2 ** 53])),
    };
  },
  (fields, at, random) => {
    const { tag, value } = fields[at] as Field;
    if (tag % 8 === 2) fields[at] = { tag, value: random.pick(byteMutators)(value, random, value) };
  },
  (fields, at, random) => void fields.push(...Array.from({ length: random.below(500) }, () => fields[at] as Field)),
];

export const mutateProtobuf: Mutator = (input, random) => {
  const fields = readFields(input);
  if (fields === null || fields.length === 0) return random.pick(byteMutators)(input, random, input);
  random.pick(protobufEdits)(fields, random.below(fields.length), random);
  return writeFields(fields);
};

/** Places where a big-endian length stands that fits what follows. */
function lengthsIn(bytes: Uint8Array): { at: number; length: number }[] {
  const view = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
  const found: { at: number; length: number }[] = [];
  for (let at = 0; at + 4 <= view.length; at += 1) {
    const length = view.readUInt32BE(at);
    if (length > 0 && length <= view.length - at - 4) found.push({ at, length });
  }
  return found;
}

/** What a length covers is changed, and the length with it; lengths around it are corrected when they reach over it. */
export const mutateSsh: Mutator = (input, random) => {
  const lengths = lengthsIn(input);
  if (lengths.length === 0) return random.pick(byteMutators)(input, random, input);
  const chosen = random.pick(lengths);
  const from = chosen.at + 4;
  const before = input.subarray(from, from + chosen.length);
  const after = random.chance(6) ? Buffer.alloc(0) : random.pick([...byteMutators, mutateSsh])(before, random, before);
  const out = Buffer.concat([input.subarray(0, from), after, input.subarray(from + chosen.length)]);
  const grown = after.length - before.length;
  for (const { at, length } of lengths) {
    const covers = at + 4 <= chosen.at && at + 4 + length >= from + chosen.length;
    if (at === chosen.at || (covers && at + 4 <= out.length)) out.writeUInt32BE(Math.max(0, length + grown), at);
  }
  return out;
};

/** Flag and length before each message. */
export const mutateFrames: Mutator = (input, random) => {
  const at = random.below(input.length + 1);
  const header = Buffer.alloc(5);
  header.writeUInt8(random.pick([0, 0, 0, 1, 0xff]), 0);
  header.writeUInt32BE(random.pick([0, 1, random.below(64), input.length, 2 ** 22, 2 ** 22 + 1, 2 ** 32 - 1]), 1);
  return Buffer.concat([input.subarray(0, at), header, input.subarray(at)]);
};
