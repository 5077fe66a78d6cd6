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

interface Field {
  readonly value: string;
  /** Characters that it takes, with what ends it. */
  readonly length: number;
  readonly lineFeeds: number;
  /** Another one stands behind it in its row. */
  readonly goesOn: boolean;
  readonly isOdd: boolean;
}

function readField(text: string, at: number): Field {
  field.lastIndex = at;
  const [whole = '', quoted, quotedEnd, bare = '', bareEnd = ''] = field.exec(text) ?? [];
  return {
    value: quoted === undefined ? bare.trim() : quoted.replaceAll('""', '"').trim(),
    length: whole.length,
    lineFeeds: whole.split('\n').length - 1,
    goesOn: (quotedEnd ?? bareEnd) === ',',
    isOdd: quoted === undefined && bare.includes('"'),
  };
}

const oddQuote = 'a double quote stands where none belongs: a field with one is put into double quotes, and its own are doubled';

/** Empty lines are skipped; a byte order mark too. */
export function readCsv(given: string): ReadCsv {
  const text = given.replace(/^\ufeff/, '');
  const rows: CsvRow[] = [];
  const problems: TextProblem[] = [];
  let at = 0;
  for (let line = 1; at < text.length; ) {
    const begins = line;
    const fields: string[] = [];
    for (let goesOn = true; goesOn; ) {
      const next = readField(text, at);
      if (next.isOdd) problems.push({ line, field: '', message: oddQuote });
      fields.push(next.value);
      at += next.length;
      line += next.lineFeeds;
      goesOn = next.goesOn;
    }
    if (fields.length > 1 || fields[0] !== '') rows.push({ line: begins, fields });
  }
  return { rows, problems };
}
