/**
 * YAML that people write, with the line of everything that is wrong in it: parsed within bounds, checked by a schema, all problems at once.
 *
 * Of YAML only what JSON has is taken: no aliases (a few lines of them are gigabytes), no tags, no keys given twice, one document.
 */
import { type Document, isAlias, isNode, LineCounter, parseDocument, type Scalar, visit } from 'yaml';
import type { z } from 'zod';
import type { TextProblem } from './types.ts';

export interface ReadText<T> {
  /** null when there are problems. */
  readonly value: T | null;
  readonly problems: readonly TextProblem[];
  /** Where a field stands: the line of the nearest thing above it that is there. */
  readonly lineOf: (path: readonly PropertyKey[]) => number;
}

const largestText = 4 * 2 ** 20;

/** `deploy.image.url`, `[3].bmc`. */
export const pathText = (path: readonly PropertyKey[]): string =>
  path
    .map((part) => (typeof part === 'number' ? `[${part}]` : `.${String(part)}`))
    .join('')
    .replace(/^\./, '');

export function readYaml<T>(text: string, schema: z.ZodType<T>): ReadText<T> {
  const only = (message: string): ReadText<T> => ({ value: null, problems: [{ line: 1, field: '', message }], lineOf: () => 1 });
  if (text.length > largestText) return only(`the text has ${text.length} characters, at most ${largestText} are read`);
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false, uniqueKeys: true, stringKeys: true, version: '1.2' });
  const lineAt = (offset: number): number => Math.max(1, lines.linePos(offset).line);
  const syntax = [...document.errors, ...document.warnings].map(
    ({ pos, message }): TextProblem => ({ line: lineAt(pos[0]), field: '', message: inOneLine(message) }),
  );
  const aliases = aliasesOf(document).map(
    (offset): TextProblem => ({ line: lineAt(offset), field: '', message: 'aliases (*name) are not read here: write the value out' }),
  );
  const lineOf = (path: readonly PropertyKey[]): number => lineOfPath(document, path, lineAt);
  const broken = [...syntax, ...aliases];
  if (broken.length > 0) return { value: null, problems: broken, lineOf };
  visit(document, { Scalar: (_, node) => keepDigits(node) });
  const judged = schema.safeParse(document.toJS({ maxAliasCount: 0 }));
  if (judged.success) return { value: judged.data, problems: [], lineOf };
  const problems = judged.error.issues.map(
    (issue): TextProblem => ({ line: lineOf(issue.path), field: pathText(issue.path), message: issue.message }),
  );
  return { value: null, problems: inOrder(problems), lineOf };
}

/** A serial number 007, or a digest of digits alone, is no number: what would not be written the same way again stays the text that it is. */
function keepDigits(scalar: Scalar): void {
  if (typeof scalar.value === 'number' && scalar.source !== undefined && String(scalar.value) !== scalar.source)
    scalar.value = scalar.source;
}

const inOneLine = (text: string): string => text.replaceAll(/\s+/g, ' ').trim();

/** In the order of the text. */
export const inOrder = (problems: readonly TextProblem[]): TextProblem[] => [...problems].sort((a, b) => a.line - b.line);

function aliasesOf(document: Document): number[] {
  const found: number[] = [];
  visit(document, { Alias: (_, node) => void found.push(node.range?.[0] ?? 0) });
  return found;
}

function lineOfPath(document: Document, path: readonly PropertyKey[], lineAt: (offset: number) => number): number {
  for (let length = path.length; length >= 0; length -= 1) {
    const node = document.getIn(path.slice(0, length) as unknown[], true);
    if (isNode(node) && !isAlias(node) && node.range) return lineAt(node.range[0]);
  }
  return 1;
}

/** `line 3, boot.kernel: …`, a line each; the first few. */
export function showProblems(problems: readonly TextProblem[], shown = 20): string {
  const lines = problems.slice(0, shown).map(({ line, field, message }) => `line ${line}${field === '' ? '' : `, ${field}`}: ${message}`);
  return problems.length > shown ? [...lines, `and ${problems.length - shown} more`].join('\n') : lines.join('\n');
}
