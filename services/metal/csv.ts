/**
 * CSV as spreadsheets write it (RFC 4180): fields in double quotes may hold commas, line feeds and doubled quotes. Strict where a guess
 * would move a value into another column.
 */
import type { TextProblem } from './types.ts';

export interface CsvRow {
  /** Where it begins; from 1. */
  readonly line: number;
  readonly fields: readonly string[];
}

export interface ReadCsv {
  readonly rows: readonly CsvRow[];
  readonly problems: readonly TextProblem[];
}

/** One field, with what ends it: quoted or bare. The bare form may hold a quote, which is reported. */
const field = /"((?:[^"]|"")*)"(,|\r?\n|$)|([^,\r\n]*)(,|\r?\n|\r|$)/y;

/** Empty lines are skipped; a byte order mark too. */
export function readCsv(given: string): ReadCsv {
  const text = given.replace(/^\ufeff/, '');
  const rows: CsvRow[] = [];
  const problems: TextProblem[] = [];
  let line = 1;
  let fields: string[] = [];
  let rowLine = 1;
  for (let at = 0; at < text.length || fields.length > 0; ) {
    field.lastIndex = at;
    const [whole = '', quoted, quotedEnd, bare = '', bareEnd = ''] = field.exec(text) ?? [];
    if (fields.length === 0) rowLine = line;
    if (quoted === undefined && bare.includes('"'))
      problems.push({
        line,
        field: '',
        message: 'a double quote stands where none belongs: a field with one is put into double quotes, and its own are doubled',
      });
    fields.push(quoted === undefined ? bare.trim() : quoted.replaceAll('""', '"').trim());
    line += whole.split('\n').length - 1;
    at += whole.length;
    if ((quotedEnd ?? bareEnd) === ',' && at <= text.length) {
      if (at < text.length) continue;
      fields.push('');
    }
    if (fields.length > 1 || fields[0] !== '') rows.push({ line: rowLine, fields });
    fields = [];
  }
  return { rows, problems };
}
