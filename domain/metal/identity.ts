/**
 * Who a machine is: a set of (source, value), never one number (M60). Boards and controllers disagree about serial numbers, copy them
 * from one part to another (M59), pad them, leave them empty or print what their maker forgot to fill in (M62). So:
 *
 *   - every value is normalised before it is kept or compared; one that says nothing is dropped;
 *   - values are compared within a class (serial, UUID, MAC address), whoever reported them;
 *   - a value that two machines have says nothing about either of them, and is flagged;
 *   - two sets are of one machine when they share a value that counts; when that is true of two machines, nobody guesses.
 */
export interface IdentityFact {
  /** Where it stands, such as redfish-system-serial. */
  readonly source: string;
  readonly value: string;
}

export type FactClass = 'serial' | 'uuid' | 'mac' | 'label';

/** What a source is by its ending; everything else is a label, which people read and nothing is matched by. */
const endings: readonly (readonly [RegExp, FactClass])[] = [
  // Of a part, not of the machine: parts are moved, and copy each other's numbers.
  [/^(?!.*(component|drive|disk|dimm|psu|fan|part)).*serial$/, 'serial'],
  [/uuid$/, 'uuid'],
  [/mac$/, 'mac'],
];

export const classOfSource = (source: string): FactClass => endings.find(([form]) => form.test(source))?.[1] ?? 'label';

/** What makers leave in a field that they do not fill. */
const placeholders =
  /^(?:to be filled( by o\.?e\.?m\.?)?|default string|system serial number|chassis serial number|not (specified|available|applicable|present|provided)|none|null|undefined|unknown|n\/?a|oem|empty|invalid|0?1234567890?|[0x. -]*|f+|-+|\.+)$/i;

/** Lower case with colons, or null for what is no MAC address of a machine: null, broadcast and group addresses included (M62). */
export function normaliseMac(text: string): string | null {
  const digits = text
    .trim()
    .replaceAll(/[:.\-\s]/g, '')
    .toLowerCase();
  if (!/^[0-9a-f]{12}$/.test(digits) || /^(0{12}|f{12})$/.test(digits)) return null;
  if ((Number.parseInt(digits.slice(0, 2), 16) & 1) === 1) return null;
  return (digits.match(/../g) ?? []).join(':');
}

/** Given by software, often the same one in every machine of a maker: between controller and host, of bridges and virtual functions. */
export const isLocalMac = (mac: string): boolean => (Number.parseInt(mac.slice(0, 2), 16) & 2) === 2;

const normaliseUuid = (text: string): string | null => {
  const digits = text
    .trim()
    .replaceAll(/[{}\-\s]/g, '')
    .toLowerCase();
  if (!/^[0-9a-f]{32}$/.test(digits) || /^(.)\1{31}$/.test(digits)) return null;
  return digits.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
};

/** Control characters are no part of a number; case is not either, for one board prints it in two. */
const normaliseText = (text: string): string | null => {
  const clean = text
    .replaceAll(/[\u0000-\u001f\u007f]+/g, ' ')
    .replaceAll(/\s+/g, ' ')
    .trim();
  return clean === '' || clean.length > 128 || placeholders.test(clean) ? null : clean;
};

const normalisers: Readonly<Record<FactClass, (text: string) => string | null>> = Object.freeze({
  serial: (text) => normaliseText(text)?.toUpperCase() ?? null,
  uuid: normaliseUuid,
  mac: normaliseMac,
  label: normaliseText,
});

/** The form that is kept and compared, or null for a value that says nothing. Takes what JSON may hold: null and numbers too. */
export function normaliseFact(source: string, value: unknown): IdentityFact | null {
  if (typeof value !== 'string' && typeof value !== 'number') return null;
  const name = source.trim().toLowerCase();
  if (!/^[a-z0-9][a-z0-9.-]{0,63}$/.test(name)) return null;
  const normalised = normalisers[classOfSource(name)](String(value));
  return normalised === null ? null : { source: name, value: normalised };
}

/** The distinct facts of a list, in its order. */
export function normaliseFacts(facts: readonly { readonly source: string; readonly value: unknown }[]): IdentityFact[] {
  const seen = new Map<string, IdentityFact>();
  for (const { source, value } of facts) {
    const fact = normaliseFact(source, value);
    if (fact !== null) seen.set(`${fact.source}\0${fact.value}`, fact);
  }
  return [...seen.values()];
}

/** The key under which a value is compared, or null for one that nothing is matched by. */
export function matchKey({ source, value }: IdentityFact): string | null {
  const kind = classOfSource(source);
  if (kind === 'label' || (kind === 'mac' && isLocalMac(value))) return null;
  return `${kind}:${value}`;
}

export const matchKeys = (facts: readonly IdentityFact[]): Set<string> =>
  new Set(facts.map(matchKey).filter((key): key is string => key !== null));

export interface KnownMachine {
  readonly machineId: string;
  readonly facts: readonly IdentityFact[];
}

export type MatchedMachine =
  | {
      readonly kind: 'one';
      readonly machineId: string /** class:value */;
      readonly by: readonly string[];
      readonly duplicates: readonly string[];
    }
  | { readonly kind: 'none'; readonly duplicates: readonly string[] }
  | { readonly kind: 'several'; readonly machineIds: readonly string[]; readonly duplicates: readonly string[] };

/** Values that more than one machine has (M59): `class:value` → those machines, both in order. */
export function sharedValues(known: readonly KnownMachine[]): ReadonlyMap<string, readonly string[]> {
  const owners = new Map<string, Set<string>>();
  for (const { machineId, facts } of known)
    for (const key of matchKeys(facts)) owners.set(key, (owners.get(key) ?? new Set()).add(machineId));
  const shared = [...owners].filter(([, machines]) => machines.size > 1).sort(([one], [other]) => (one < other ? -1 : 1));
  return new Map(shared.map(([key, machines]) => [key, [...machines].sort()]));
}

/** Which known machine these facts are of. */
export function matchMachine(facts: readonly IdentityFact[], known: readonly KnownMachine[]): MatchedMachine {
  const keys = matchKeys(facts);
  const shared = sharedValues(known);
  const duplicates = [...keys].filter((key) => shared.has(key)).sort();
  const found = known
    .map(({ machineId, facts: own }) => ({ machineId, by: [...matchKeys(own)].filter((key) => keys.has(key) && !shared.has(key)).sort() }))
    .filter(({ by }) => by.length > 0);
  const [first] = found;
  if (first === undefined) return { kind: 'none', duplicates };
  const machineIds = [...new Set(found.map(({ machineId }) => machineId))].sort();
  return machineIds.length === 1 ? { kind: 'one', ...first, duplicates } : { kind: 'several', machineIds, duplicates };
}

/** Whether the machine that answered is the one that was meant. `unknown`: they have no class of value in common. */
export function judgeMachine(expected: readonly IdentityFact[], seen: readonly IdentityFact[]): 'same' | 'other' | 'unknown' {
  const [mine, theirs] = [matchKeys(expected), matchKeys(seen)];
  if ([...theirs].some((key) => mine.has(key))) return 'same';
  const classes = (keys: ReadonlySet<string>): Set<string> => new Set([...keys].map((key) => key.slice(0, key.indexOf(':'))));
  const known = classes(mine);
  return [...classes(theirs)].some((kind) => known.has(kind)) ? 'other' : 'unknown';
}
