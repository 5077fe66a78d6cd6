/** `--expect FILE`: what the approver knows from elsewhere that the batch must hold, exactly (BATCLI-016 to BATCLI-018). */
import { readFileSync } from 'node:fs';
import { maxLeaves } from '../../domain/batch/limits.ts';
import { ControlError } from '../../domain/errors.ts';
import { shown } from './printable.ts';

export interface Expected {
  readonly subject: string;
  /** null: whatever is done to it. */
  readonly kind: string | null;
}

const longestFile = 64 * 2 ** 20;

/** @throws NOT_FOUND without the file; INVALID_INPUT for one that lists nothing, or something else than subjects and commands */
export function readExpectation(path: string): readonly Expected[] {
  const text = readText(path);
  const entries = text.trimStart().startsWith('[') ? fromJson(path, text) : fromLines(text);
  if (entries.length === 0) throw bad(path, 'lists nothing: a batch has at least one operation');
  if (entries.length > maxLeaves) throw bad(path, `lists ${entries.length} entries, more than a batch can hold`);
  return entries;
}

const bad = (path: string, what: string, cause?: unknown): ControlError =>
  new ControlError('INVALID_INPUT', `${path} ${what}`, {
    details: { reason: 'bad-expectation', hint: 'one subject a line, a JSON array of subjects, or of {"subject": …, "kind": …}' },
    cause,
  });

function readText(path: string): string {
  try {
    const bytes = readFileSync(path);
    if (bytes.length <= longestFile) return bytes.toString('utf8');
  } catch (cause) {
    throw new ControlError('NOT_FOUND', `${path} cannot be read`, { details: { reason: 'no-file', path }, cause });
  }
  throw bad(path, `has more than ${longestFile} bytes`);
}

const fromLines = (text: string): Expected[] =>
  text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((subject) => ({ subject, kind: null }));

function fromJson(path: string, text: string): Expected[] {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw bad(path, 'is not JSON', cause);
  }
  return (value as unknown[]).map((entry, at) => {
    if (typeof entry === 'string') return { subject: entry, kind: null };
    const { subject, kind } = (typeof entry === 'object' && entry !== null ? entry : {}) as { subject?: unknown; kind?: unknown };
    if (typeof subject === 'string' && (kind === undefined || typeof kind === 'string')) return { subject, kind: kind ?? null };
    throw bad(path, `has no subject at entry ${at + 1}`);
  });
}

const named = 12;

const namesOf = (entries: readonly string[]): string =>
  entries.length <= named
    ? entries.map((one) => shown(one)).join(', ')
    : `${entries
        .slice(0, named)
        .map((one) => shown(one))
        .join(', ')} and ${entries.length - named} more`;

/** null, or SCOPE_UNEXPECTED naming what is missing and what is not expected. */
export function differenceTo(
  expected: readonly Expected[],
  leaves: readonly { readonly subject: string; readonly kind: string }[],
): ControlError<'SCOPE_UNEXPECTED'> | null {
  const byCommand = new Set(expected.filter(({ kind }) => kind !== null).map(({ subject, kind }) => `${kind} on ${subject}`));
  const bySubject = new Set(expected.filter(({ kind }) => kind === null).map(({ subject }) => subject));
  const held = new Set(leaves.flatMap(({ subject, kind }) => [subject, `${kind} on ${subject}`]));
  const missing = [...bySubject, ...byCommand].filter((entry) => !held.has(entry));
  const surplus = leaves
    .filter(({ subject, kind }) => !bySubject.has(subject) && !byCommand.has(`${kind} on ${subject}`))
    .map(({ subject, kind }) => `${kind} on ${subject}`);
  if (missing.length === 0 && surplus.length === 0) return null;
  const parts = [
    ...(missing.length === 0 ? [] : [`missing: ${namesOf(missing)}`]),
    ...(surplus.length === 0 ? [] : [`not expected: ${namesOf([...new Set(surplus)])}`]),
  ];
  return new ControlError('SCOPE_UNEXPECTED', `the batch does not hold exactly what was expected; ${parts.join('; ')}`, {
    details: { reason: 'scope-unexpected', missing: missing.slice(0, 1_000), unexpected: [...new Set(surplus)].slice(0, 1_000) },
  });
}
