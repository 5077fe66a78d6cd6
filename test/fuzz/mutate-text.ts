/** Changes inside JSON, inside the parts of a compact token, and inside base64 in a text. */
import { byteMutators, type Mutator } from './mutate-bytes.ts';
import { mutateDer } from './mutate-der.ts';
import type { Random } from './random.ts';

const oddValues: readonly unknown[] = [
  null,
  true,
  0,
  -1,
  1.5,
  1e308,
  -0,
  2 ** 53,
  '',
  '__proto__',
  'constructor',
  '\u0000',
  '\ud800',
  'a'.repeat(5_000),
  [],
  {},
  [[[[[[]]]]]],
  { __proto__: null, toString: 1 },
];

interface Slot {
  readonly holder: Record<string, unknown>;
  readonly key: string;
}

function slotsOf(value: unknown): Slot[] {
  if (typeof value !== 'object' || value === null) return [];
  const holder = value as Record<string, unknown>;
  return Object.keys(holder).flatMap((key) => [{ holder, key }, ...slotsOf(holder[key])]);
}

type Edit = (slot: Slot, random: Random, all: readonly Slot[]) => void;

const edits: readonly Edit[] = [
  ({ holder, key }) => void delete holder[key],
  (slot, random) => void (slot.holder[slot.key] = random.pick(oddValues)),
  (slot, random, all) => {
    const other = random.pick(all);
    slot.holder[slot.key] = structuredClone(other.holder[other.key]);
  },
  ({ holder, key }, random) =>
    void (holder[random.pick(['__proto__', 'extra', 'constructor', key.toUpperCase(), `${key} `])] = holder[key]),
  (slot, random) => {
    const { holder, key } = slot;
    if (typeof holder[key] === 'string') holder[key] = mutateString(holder[key], random);
    else if (typeof holder[key] === 'number') holder[key] += random.pick([1, -1, 0.5, 2 ** 32, 2 ** 53]);
  },
  ({ holder, key }, random) => {
    if (Array.isArray(holder[key])) holder[key] = Array.from({ length: random.below(50) }, () => (holder[key] as unknown[])[0]);
  },
];

const mutateString = (text: string, random: Random): string =>
  random.chance(2)
    ? mutateInnerBase64(text, random)
    : Buffer.from(random.pick(byteMutators)(Buffer.from(text), random, Buffer.from(text))).toString('utf8');

/** One run of base64 in the text: its bytes are changed, as DER where they are, and written again in lines as before. */
function mutateInnerBase64(text: string, random: Random): string {
  const runs = [...text.matchAll(/[A-Za-z0-9+/_-]{8,}(?:\n[A-Za-z0-9+/_-]+)*={0,2}/g)];
  if (runs.length === 0) return text;
  const run = random.pick(runs);
  const isUrl = !/[+/=]/.test(run[0]);
  const bytes = Buffer.from(run[0].replaceAll('\n', ''), isUrl ? 'base64url' : 'base64');
  const changed = (random.chance(2) ? mutateDer : random.pick(byteMutators))(bytes, random, bytes);
  const encoded = Buffer.from(changed).toString(isUrl ? 'base64url' : 'base64');
  const lines = run[0].includes('\n') ? (encoded.match(/.{1,64}/g) ?? []).join('\n') : encoded;
  return text.slice(0, run.index) + lines + text.slice(run.index + run[0].length);
}

export const mutateBase64: Mutator = (input, random) => Buffer.from(mutateInnerBase64(Buffer.from(input).toString('utf8'), random), 'utf8');

export const mutateJson: Mutator = (input, random) => {
  const text = Buffer.from(input).toString('utf8');
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return random.pick(byteMutators)(input, random, input);
  }
  const slots = slotsOf(value);
  if (slots.length === 0) return Buffer.from(JSON.stringify(random.pick(oddValues)) ?? '');
  random.pick(edits)(random.pick(slots), random, slots);
  const changed = JSON.stringify(value, null, random.chance(2) ? 2 : 0) ?? '';
  // A name twice cannot be said by an object: it is written by hand.
  return Buffer.from(random.chance(12) ? changed.replace(/"([a-zA-Z]+)":/, '"$1":0,"$1":') : changed);
};

/** header.payload.signature, each part base64url of JSON or bytes. */
export const mutateCompact: Mutator = (input, random, other) => {
  const parts = Buffer.from(input).toString('latin1').split('.');
  const at = random.below(parts.length);
  const bytes = Buffer.from(parts[at] ?? '', 'base64url');
  const change = random.pick([mutateJson, ...byteMutators.slice(0, 6)]);
  if (random.chance(10)) parts.splice(at, random.below(2), random.pick(Buffer.from(other).toString('latin1').split('.')));
  else parts[at] = Buffer.from(change(bytes, random, bytes)).toString('base64url');
  return Buffer.from(parts.join('.'), 'latin1');
};
