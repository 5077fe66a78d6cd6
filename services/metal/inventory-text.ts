/**
 * An inventory as people keep it, CSV with a line of names or YAML: read whole, with the line and field of everything that is wrong. What is
 * not understood is a problem, never skipped: a misspelt column would leave a machine without its pin.
 */
import { z } from 'zod';
import { readCsv } from './csv.ts';
import { problemsOfMachine } from './judge-machine.ts';
import type { NewMachine, TextProblem } from './types.ts';
import { inOrder, readYaml } from './yaml-text.ts';

export type InventoryFormat = 'csv' | 'yaml';

export interface InventoryEntry {
  readonly line: number;
  readonly machine: NewMachine;
}

export interface ReadInventory {
  readonly entries: readonly InventoryEntry[];
  readonly problems: readonly TextProblem[];
}

/** Name in the file → field. */
const columns = Object.freeze({
  id: 'id',
  site: 'siteId',
  rack: 'rack',
  bmc: 'bmcAddress',
  system: 'bmcSystemId',
  credential: 'credentialRef',
  pin: 'bmcPinSha256',
  serial: 'serial',
  uuid: 'uuid',
  macs: 'macAddresses',
  tenant: 'tenantId',
} as const satisfies Record<string, keyof NewMachine>);

type Column = keyof typeof columns;

const names = Object.keys(columns) as Column[];
const needed: readonly Column[] = ['id', 'site', 'bmc'];
const isColumn = (name: string): name is Column => Object.hasOwn(columns, name);
const columnOf = (field: string): string => names.find((name) => columns[name] === field) ?? field;

/** Of one file. */
export const maxInventory = 10_000;

/** Never throws. Without problems, every entry is one that could be added. */
export function readInventory(text: string, format: InventoryFormat): ReadInventory {
  const read = format === 'csv' ? fromCsv(text) : fromYaml(text);
  const tooMany: TextProblem[] =
    read.entries.length > maxInventory
      ? [{ line: 1, field: '', message: `${read.entries.length} machines, at most ${maxInventory} are taken at once: split the file` }]
      : [];
  const problems = [...read.problems, ...tooMany, ...read.entries.flatMap(problemsOfEntry), ...twice(read.entries)];
  return { entries: read.entries, problems: inOrder(problems) };
}

const problemsOfEntry = ({ line, machine }: InventoryEntry): TextProblem[] =>
  problemsOfMachine(machine).map(({ field, message }) => ({ line, field: columnOf(field), message }));

/** What two entries of one file may not share. */
function twice(entries: readonly InventoryEntry[]): TextProblem[] {
  const seen = new Map<string, number>();
  return entries.flatMap(({ line, machine }) =>
    keysOf(machine).flatMap(([field, key]): TextProblem[] => {
      const before = seen.get(`${field}\0${key}`);
      if (before === undefined) {
        seen.set(`${field}\0${key}`, line);
        return [];
      }
      return [{ line, field, message: `${key} stands in line ${before} already` }];
    }),
  );
}

const keysOf = ({ id, siteId, bmcAddress, bmcSystemId = '', serial, uuid, macAddresses = [] }: NewMachine): [Column, string][] => [
  ['id', id],
  ['bmc', `${bmcAddress}${bmcSystemId === '' ? '' : ` system ${bmcSystemId}`} in site ${siteId}`],
  ...(serial === undefined ? [] : [['serial', serial.trim().toUpperCase()] as [Column, string]]),
  ...(uuid === undefined ? [] : [['uuid', uuid.trim().toLowerCase()] as [Column, string]]),
  ...macAddresses.map((mac): [Column, string] => ['macs', mac.toLowerCase()]),
];

function fromCsv(text: string): ReadInventory {
  const { rows, problems } = readCsv(text);
  const [head, ...body] = rows;
  if (head === undefined) return { entries: [], problems: [...problems, { line: 1, field: '', message: 'the file is empty' }] };
  const headProblems = problemsOfHead(
    head.fields.map((name) => name.toLowerCase()),
    head.line,
  );
  // Without names nothing else means anything.
  if (headProblems.length > 0) return { entries: [], problems: [...problems, ...headProblems] };
  const header = head.fields.map((name) => name.toLowerCase() as Column);
  const odd: TextProblem[] = [];
  const entries = body.flatMap(({ line, fields }): InventoryEntry[] => {
    if (fields.length === header.length)
      return [{ line, machine: machineOf(Object.fromEntries(header.map((name, at) => [name, fields[at] ?? '']))) }];
    odd.push({ line, field: '', message: `${fields.length} fields, and the first line names ${header.length}` });
    return [];
  });
  return { entries, problems: [...problems, ...odd] };
}

function problemsOfHead(header: readonly string[], line: number): TextProblem[] {
  const unknown = header.filter((name) => !isColumn(name));
  const repeated = header.filter((name, at) => header.indexOf(name) !== at);
  const missing = needed.filter((name) => !header.includes(name));
  const say = (list: readonly string[], message: (name: string) => string): TextProblem[] =>
    list.map((name) => ({ line, field: name, message: message(name) }));
  return [
    ...say(unknown, (name) => `there is no column ${JSON.stringify(name.slice(0, 40))}; there are ${names.join(', ')}`),
    ...say(repeated, () => 'the column stands twice'),
    ...say(missing, () => 'the column is missing'),
  ];
}

type Cells = Readonly<Partial<Record<string, string>>>;

/** An empty cell says nothing. */
function machineOf(cells: Cells): NewMachine {
  const given = names.flatMap((name): [string, string | string[]][] => {
    const cell = cells[name] ?? '';
    if (cell === '' && !needed.includes(name)) return [];
    return [[columns[name], name === 'macs' ? cell.split(/[\s;,]+/).filter((mac) => mac !== '') : cell]];
  });
  return Object.fromEntries(given) as unknown as NewMachine;
}

const text = z.union([z.string(), z.number()]).transform(String);
const entry = z.strictObject({
  id: text,
  site: text.optional(),
  rack: text.optional(),
  bmc: z.string(),
  system: text.optional(),
  credential: z.string().optional(),
  pin: z.string().optional(),
  serial: text.optional(),
  uuid: z.string().optional(),
  macs: z.array(z.string()).max(64).optional(),
  tenant: z.string().optional(),
});
const document = z.strictObject({
  site: text.optional(),
  rack: text.optional(),
  tenant: z.string().optional(),
  machines: z.array(entry).min(1, 'names no machine'),
});

function fromYaml(given: string): ReadInventory {
  const { value, problems, lineOf } = readYaml(given, document);
  if (value === null) return { entries: [], problems };
  const { machines, ...defaults } = value;
  return {
    problems: [],
    entries: machines.map((one, index) => {
      const { macs, ...cells } = { ...defaults, ...one };
      const machine = machineOf({ ...cells, macs: (macs ?? []).join(' ') });
      return { line: lineOf(['machines', index]), machine };
    }),
  };
}
