/** Changes that know nothing of the format. */
import type { Random } from './random.ts';

export type Mutator = (input: Uint8Array, random: Random, other: Uint8Array) => Uint8Array;

const interesting = [0, 1, 2, 3, 0x7f, 0x80, 0x81, 0x82, 0x84, 0xfe, 0xff, 0x30, 0x0a, 0x20, 0x22, 0x2e, 0x5c, 0x7b];

export const replaced = (input: Uint8Array, [at, end]: readonly [number, number], by: Uint8Array): Uint8Array =>
  Buffer.concat([input.subarray(0, at), by, input.subarray(end)]);

const rangeIn = (input: Uint8Array, random: Random): readonly [number, number] => {
  const at = random.below(input.length + 1);
  return [at, Math.min(input.length, at + 1 + random.below(random.chance(4) ? 256 : 8))];
};

const setByte = (input: Uint8Array, random: Random, value: (before: number) => number): Uint8Array => {
  if (input.length === 0) return Uint8Array.of(value(0));
  const out = Uint8Array.from(input);
  const at = random.below(out.length);
  out[at] = value(out[at] as number);
  return out;
};

const lengthWords = [0n, 1n, 0x7fn, 0x80n, 0xffn, 0xffffn, 0x7fff_ffffn, 0x8000_0000n, 0xffff_ffffn];

const setWord: Mutator = (input, random) => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(Number(random.pick(lengthWords)));
  const at = random.below(input.length + 1);
  return replaced(input, [at, Math.min(input.length, at + 4)], bytes);
};

export const byteMutators: readonly Mutator[] = [
  (input, random) => setByte(input, random, (before) => before ^ (1 << random.below(8))),
  (input, random) => setByte(input, random, () => random.pick(interesting)),
  (input, random) => setByte(input, random, (before) => before + random.pick([-1, 1, 0x80])),
  (input, random) => replaced(input, rangeIn(input, random), new Uint8Array()),
  (input, random) => replaced(input, [input.length, input.length], random.bytes(1 + random.below(16))),
  (input, random) => input.subarray(0, random.below(input.length + 1)),
  (input, random) => {
    const [at, end] = rangeIn(input, random);
    return replaced(input, [end, end], input.subarray(at, end));
  },
  (input, random) => {
    const [at] = rangeIn(input, random);
    return replaced(input, [at, at], random.bytes(1 + random.below(8)));
  },
  (input, random, other) => replaced(input, rangeIn(input, random), other.subarray(...rangeIn(other, random))),
  (input, random, other) =>
    Buffer.concat([input.subarray(0, random.below(input.length + 1)), other.subarray(random.below(other.length + 1))]),
  setWord,
];

/** Above this a structure is left alone: a change that repeats a part would be one of the fuzzer's memory. */
const largestStructure = 128 * 1024;

/** A change that reads the structure first, on inputs that are not too large for it. */
export const onStructure =
  (mutate: Mutator): Mutator =>
  (input, random, other) =>
    (input.length > largestStructure ? random.pick(byteMutators) : mutate)(input, random, other);

/** The same part, again and again, up to the bound: what grows faster than its input shows. */
export const growTo =
  (maxBytes: number): Mutator =>
  (input, random) => {
    const [at, end] = rangeIn(input, random);
    const part = end > at ? input.subarray(at, end) : Uint8Array.of(random.pick(interesting));
    const times = Math.floor((maxBytes - input.length) / part.length);
    if (times <= 0) return input;
    const wanted = random.chance(2) ? times : 1 + random.below(times);
    const grown = Buffer.alloc(part.length * wanted, part);
    return replaced(input, [end, end], grown);
  };
