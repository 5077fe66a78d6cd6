/**
 * The list of a fleet's TPMs: CSV with a line of names, one endorsement key each. Who is not in it does not join by its TPM, however
 * genuine it is. Read whole, with the line and field of everything that is wrong.
 */
import { isNodeId } from '../../domain/commands/ids.ts';
import { formatSpiffeId } from '../../pki/x509/index.ts';
import { readCsv } from '../metal/csv.ts';
import type { TextProblem } from '../metal/types.ts';
import { defaultTenant, isTenantId } from '../tenants.ts';
import type { TpmEnrolment } from './types.ts';

const columns = ['ek_sha256', 'site', 'node', 'role', 'tenant'] as const;
type Column = (typeof columns)[number];
const needed: readonly Column[] = ['ek_sha256', 'site'];

export interface ReadTpmInventory {
  readonly enrolments: readonly TpmEnrolment[];
  readonly problems: readonly TextProblem[];
}

/** Never throws. Without problems, every enrolment is one that could join. */
export function readTpmInventory(text: string): ReadTpmInventory {
  const { rows, problems } = readCsv(text);
  const [head, ...body] = rows;
  if (head === undefined) return { enrolments: [], problems: [...problems, { line: 1, field: '', message: 'the file is empty' }] };
  const header = head.fields.map((name) => name.toLowerCase());
  const headProblems = problemsOfHead(header, head.line);
  // Without names nothing else means anything.
  if (headProblems.length > 0) return { enrolments: [], problems: [...problems, ...headProblems] };
  const seen = new Map<string, number>();
  const read = body.map(({ line, fields }) => readRow({ line, fields, header }, seen));
  return { enrolments: read.map(({ enrolment }) => enrolment), problems: [...problems, ...read.flatMap((one) => one.problems)] };
}

function problemsOfHead(header: readonly string[], line: number): TextProblem[] {
  const isColumn = (name: string): boolean => (columns as readonly string[]).includes(name);
  const unknown = header.filter((name) => !isColumn(name));
  const missing = needed.filter((name) => !header.includes(name));
  const repeated = header.filter((name, at) => isColumn(name) && header.indexOf(name) !== at);
  const say = (names: readonly string[], message: (name: string) => string): TextProblem[] =>
    names.map((field) => ({ line, field: field.slice(0, 40), message: message(field) }));
  return [
    ...say(unknown, () => `is no column: there are ${columns.join(', ')}`),
    ...say(missing, () => 'the column is missing'),
    ...say(repeated, () => 'the column stands twice'),
  ];
}

interface Row {
  readonly line: number;
  readonly fields: readonly string[];
  readonly header: readonly string[];
}

/** Column → what its value must be, and how a wrong one is told. An empty one that may be empty is never asked. */
const rules: readonly (readonly [Column, (value: string) => boolean, string])[] = [
  ['ek_sha256', (value) => /^[0-9a-f]{64}$/.test(value), 'must be 64 hex digits: the SHA-256 of the DER public key'],
  ['site', (value) => canBeNamed(value, 'node'), 'cannot be the name of a site'],
  ['node', (value) => isNodeId(value) && canBeNamed('site', value), 'cannot be the name of a node'],
  ['role', (value) => value === 'node' || value === 'site', 'must be node or site'],
  ['tenant', isTenantId, 'cannot be the name of a tenant'],
];
const unique: readonly Column[] = ['ek_sha256', 'node'];

function readRow({ line, fields, header }: Row, seen: Map<string, number>): { enrolment: TpmEnrolment; problems: TextProblem[] } {
  const cell = (name: Column): string => fields[header.indexOf(name)] ?? '';
  const cells: Readonly<Record<Column, string>> = {
    ek_sha256: cell('ek_sha256').toLowerCase(),
    site: cell('site'),
    node: cell('node'),
    role: cell('role') || 'node',
    tenant: cell('tenant') || defaultTenant,
  };
  const asked = rules.filter(([name]) => name !== 'node' || cells.node !== '');
  const problems = [
    ...(fields.length === header.length
      ? []
      : [{ line, field: '', message: `has ${fields.length} fields, the first line has ${header.length}` }]),
    ...asked.filter(([name, fits]) => !fits(cells[name])).map(([field, , message]) => ({ line, field, message })),
    ...repeated(cells, line, seen),
  ];
  const { ek_sha256: ekSha256, site: siteId, node, role, tenant: tenantId } = cells;
  return {
    enrolment: { ekSha256, siteId, role: role === 'site' ? 'site' : 'node', tenantId, nodeId: node === '' ? null : node },
    problems,
  };
}

/** Two machines under one name would take the identity from each other for ever. */
function repeated(cells: Readonly<Record<Column, string>>, line: number, seen: Map<string, number>): TextProblem[] {
  return unique.flatMap((field) => {
    const value = cells[field];
    if (value === '') return [];
    const before = seen.get(`${field}\0${value}`);
    if (before !== undefined) return [{ line, field, message: `${value.slice(0, 80)} stands in line ${before} already` }];
    seen.set(`${field}\0${value}`, line);
    return [];
  });
}

function canBeNamed(siteId: string, nodeId: string): boolean {
  try {
    return formatSpiffeId({ trustDomain: 'x', siteId, nodeId }) !== '';
  } catch {
    return false;
  }
}
