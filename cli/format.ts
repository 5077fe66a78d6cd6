/**
 * Text for people: columns, times. Machines get --json. What stands in a cell was often written by somebody else (a machine's error, the
 * reason of a cancellation): one line, and nothing in it that a terminal obeys or does not show.
 */
import { about } from '../domain/rotation/gates.ts';
import { codePointEscape, showUnseen } from '../domain/text/unseen.ts';
import { showInstant } from '../domain/time.ts';

export const plain = (text: string): string => showUnseen(text, codePointEscape, { lines: false });

/** Aligned columns under a heading; the last column is not padded. */
export function table(heading: readonly string[], rows: readonly (readonly string[])[]): string {
  const all = [heading, ...rows.map((row) => row.map(plain))];
  const widths = heading.map((_, column) => Math.max(...all.map((row) => (row[column] ?? '').length)));
  return all
    .map((row) =>
      row
        .map((cell, column) => (column === row.length - 1 ? cell : cell.padEnd(widths[column] ?? 0)))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

/** Name and value, one a line. */
export function facts(rows: readonly (readonly [string, string])[]): string {
  const width = Math.max(...rows.map(([name]) => name.length));
  return rows.map(([name, value]) => `${name.padEnd(width)}  ${plain(value)}`).join('\n');
}

export const instantText = (ms: number | null): string => (ms === null ? '-' : showInstant(ms));

/** "41 s ago". */
export const agoText = (ms: number | null, now: number): string => (ms === null ? '-' : `${about(Math.max(0, now - ms))} ago`);

/** Twelve digits are enough to tell roots apart by eye. */
export const shortId = (id: string | null): string => (id === null ? '-' : id.slice(0, 12));
