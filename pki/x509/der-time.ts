/**
 * Instants in certificates: UTCTime through 2049 and GeneralizedTime from 2050, in UTC, to the second, with no fraction
 * (RFC 5280 4.1.2.5). Nothing else is read or written.
 */
import { ControlError } from '../../domain/errors.ts';
import { type DerReader, tags } from './der-reader.ts';
import { encodeDer } from './der-writer.ts';
import { malformed } from './malformed.ts';

const firstGeneralized = Date.UTC(2050, 0, 1);
const earliest = Date.UTC(1950, 0, 1);
const latest = Date.UTC(9999, 11, 31, 23, 59, 59);

/** The instant, cut to its second; INVALID_INPUT outside 1950 to 9999. */
export const encodeDerTime = (ms: number): Uint8Array => {
  if (!(ms >= earliest && ms < latest + 1_000))
    throw new ControlError('INVALID_INPUT', `an X.509 time cannot hold ${ms}`, { details: { reason: 'time-range' } });
  const digits = new Date(ms).toISOString().slice(0, 19).replace(/[-:T]/g, '');
  return ms < firstGeneralized
    ? encodeDer(tags.utcTime, Buffer.from(`${digits.slice(2)}Z`, 'latin1'))
    : encodeDer(tags.generalizedTime, Buffer.from(`${digits}Z`, 'latin1'));
};

const digitsAt = (content: Uint8Array, at: number, count: number): number => {
  let value = 0;
  for (let i = at; i < at + count; i++) {
    const digit = (content[i] as number) - 0x30;
    if (!(digit >= 0 && digit <= 9)) throw malformed('time', 'a time holds something else than digits');
    value = value * 10 + digit;
  }
  return value;
};

const monthDays = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

const daysOf = (year: number, month: number): number => {
  const isLeap = (year % 4 === 0 && year % 100 !== 0) || year % 400 === 0;
  return month === 2 && isLeap ? 29 : (monthDays[month - 1] as number);
};

/** Unix milliseconds. MALFORMED for a form or a date that does not exist, and for GeneralizedTime before 2050. */
export const readDerTime = (reader: DerReader): number => {
  const isUtc = reader.peek() === tags.utcTime;
  const content = reader.read(isUtc ? tags.utcTime : tags.generalizedTime);
  const yearDigits = isUtc ? 2 : 4;
  if (content.length !== yearDigits + 11 || content.at(-1) !== 0x5a)
    throw malformed('time', 'a time is not in the form YYMMDDHHMMSSZ or YYYYMMDDHHMMSSZ');
  const written = digitsAt(content, 0, yearDigits);
  const year = !isUtc ? written : written < 50 ? 2000 + written : 1900 + written;
  const ms = instantOf(year, content.subarray(yearDigits));
  if (!isUtc && ms < firstGeneralized) throw malformed('time', 'a time before 2050 is written as GeneralizedTime');
  return ms;
};

/** `rest` is MMDDHHMMSSZ. */
const instantOf = (year: number, rest: Uint8Array): number => {
  const month = digitsAt(rest, 0, 2);
  const date = digitsAt(rest, 2, 2);
  const hours = digitsAt(rest, 4, 2);
  const minutes = digitsAt(rest, 6, 2);
  const seconds = digitsAt(rest, 8, 2);
  const isDate = month >= 1 && month <= 12 && date >= 1 && date <= daysOf(year, month);
  if (!isDate || hours > 23 || minutes > 59 || seconds > 59) throw malformed('time', 'a time names a date that does not exist');
  return Date.UTC(year, month - 1, date, hours, minutes, seconds);
};
