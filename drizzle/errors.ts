/**
 * The one place where what PostgreSQL says becomes a ControlError. Callers that expect a certain violation (a duplicate id)
 * avoid it in SQL; what arrives here was not expected.
 */
import { type Code, ControlError, isControlError } from '../domain/errors.ts';

interface Translation {
  readonly code: Code;
  readonly reason: string;
  readonly message: string;
}

const away = (reason: string, message: string): Translation => ({ code: 'UNAVAILABLE', reason, message });

/** SQLSTATE or system error → what it means for a caller. Classes (two characters) after whole codes. */
const translations: Readonly<Record<string, Translation>> = Object.freeze({
  ECONNREFUSED: away('database-away', 'the database does not answer'),
  ECONNRESET: away('database-away', 'the connection to the database was cut'),
  EPIPE: away('database-away', 'the connection to the database was cut'),
  ENOTFOUND: away('database-away', 'the name of the database server does not resolve'),
  EAI_AGAIN: away('database-away', 'the name of the database server does not resolve'),
  ETIMEDOUT: away('database-away', 'the database does not answer'),
  EHOSTUNREACH: away('database-away', 'the database server cannot be reached'),
  ENOENT: away('database-away', "the database's socket does not exist"),
  '57014': away('statement-timeout', 'the database took longer than a statement may'),
  '55P03': away('lock-timeout', 'the database could not lock a row in time'),
  '40001': away('serialization', 'two changes met in the database'),
  '40P01': away('deadlock', 'two changes locked each other in the database'),
  '25P03': away('database-away', 'the database ended an idle transaction'),
  '25006': away('read-only', 'the database takes no writes at the moment'),
  '3D000': { code: 'INVALID_CONFIG', reason: 'no-database', message: 'the database does not exist' },
  '42P01': { code: 'INVALID_STATE', reason: 'not-migrated', message: 'the database lacks a table of this version: migrate it first' },
  '42703': { code: 'INVALID_STATE', reason: 'not-migrated', message: 'the database lacks a column of this version: migrate it first' },
  '23505': { code: 'CONFLICT', reason: 'duplicate', message: 'the row exists already' },
  '23503': { code: 'INVALID_STATE', reason: 'missing-reference', message: 'a row that is referred to does not exist' },
  '23514': { code: 'INVALID_INPUT', reason: 'check-violation', message: 'a value is not one of those allowed' },
  '22P05': { code: 'INVALID_INPUT', reason: 'bad-text', message: 'a text holds a character the database cannot store' },
  '22021': { code: 'INVALID_INPUT', reason: 'bad-text', message: 'a text holds a character the database cannot store' },
  '08': away('database-away', 'the connection to the database failed'),
  '28': { code: 'INVALID_CONFIG', reason: 'database-login', message: 'the database refuses the login' },
  '53': away('database-full', 'the database has no more room or connections'),
  '57': away('database-away', 'the database is shutting down or starting'),
});

/** What pg and its pool throw without a code. */
const connectionTexts: readonly RegExp[] = [
  /^Connection terminated/,
  /^timeout exceeded when trying to connect/,
  /^timeout expired/,
  /^Client was closed/,
  /^Cannot use a pool after calling end/,
  /^Client has encountered a connection error/,
  /^Query read timeout/,
];

interface PgError {
  readonly code?: unknown;
  readonly message?: unknown;
  readonly constraint?: unknown;
  readonly cause?: unknown;
  readonly errors?: unknown;
}

function find(error: PgError): Translation | undefined {
  const code = typeof error.code === 'string' ? error.code : '';
  const found = own(code) ?? (code.length === 5 ? own(code.slice(0, 2)) : undefined);
  if (found !== undefined) return found;
  const text = typeof error.message === 'string' ? error.message : '';
  return connectionTexts.some((known) => known.test(text)) ? away('database-away', 'the connection to the database failed') : undefined;
}

const own = (code: string): Translation | undefined => (Object.hasOwn(translations, code) ? translations[code] : undefined);

/** A ControlError passes unchanged; everything else becomes one, with the original as its cause. */
export function translateDatabaseError(error: unknown): ControlError {
  if (isControlError(error)) return error;
  const seen = (typeof error === 'object' && error !== null ? error : {}) as PgError;
  // drizzle wraps what pg threw; a failed dual-stack connect is an AggregateError.
  const inner = [seen, seen.cause, ...(Array.isArray(seen.errors) ? seen.errors : [])].filter(
    (e): e is PgError => typeof e === 'object' && e !== null,
  );
  const ours = inner.find(isControlError);
  if (ours !== undefined) return ours;
  for (const candidate of inner) {
    const found = find(candidate);
    if (found === undefined) continue;
    const constraint = typeof candidate.constraint === 'string' ? { constraint: candidate.constraint } : {};
    return new ControlError(found.code, found.message, { cause: error, details: { reason: found.reason, ...constraint } });
  }
  return new ControlError('INTERNAL', 'the database refused a statement', { cause: error, details: { reason: 'database-error' } });
}
