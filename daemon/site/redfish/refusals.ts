/**
 * What a controller's refusal means. Its MessageId decides, by its last part, whatever the registry and the version before it; the HTTP
 * status decides where it has none. People get the controller's own words and the request they are about (M24); our own
 * secrets are taken out of them, for some controllers repeat the value that they did not like.
 */
import { type Code, ControlError } from '../../../domain/errors.ts';
import { asObject, fieldOf, type Json, parseLoosely, printable } from './resource.ts';
import type { Exchange } from './transport.ts';
import type { RawAnswer } from './whole-answer.ts';

type Meaning = readonly [code: Code, reason: string];

/** Last part of the MessageId → meaning. Base registry, and what vendors say instead of it. */
const messages: Readonly<Record<string, Meaning>> = Object.freeze({
  SessionLimitExceeded: ['RATE_LIMITED', 'session-limit'],
  // Dell: "the maximum number of user sessions is reached".
  RAC0218: ['RATE_LIMITED', 'session-limit'],
  PasswordChangeRequired: ['PERMISSION_DENIED', 'password-change-required'],
  AccountLocked: ['RATE_LIMITED', 'locked-out'],
  ServiceTemporarilyUnavailable: ['UNAVAILABLE', 'bmc-busy'],
  ServiceShuttingDown: ['UNAVAILABLE', 'bmc-busy'],
  OperationTimeout: ['UNAVAILABLE', 'bmc-busy'],
  ActionParameterValueConflict: ['INVALID_STATE', 'bmc-conflict'],
  ResourceInUse: ['INVALID_STATE', 'bmc-conflict'],
  ResourceInStandby: ['INVALID_STATE', 'bmc-conflict'],
  NoOperation: ['INVALID_STATE', 'bmc-conflict'],
  ChassisPowerStateOnRequired: ['INVALID_STATE', 'bmc-conflict'],
  UnableToModifyDuringSystemPOST: ['NOT_YET', 'bmc-in-post'],
  PreconditionFailed: ['CONFLICT', 'etag'],
  PreconditionRequired: ['CONFLICT', 'etag'],
  OperationSupportedInFutureStateURI: ['UNSUPPORTED', 'settings-object'],
  ActionParameterNotSupported: ['UNSUPPORTED', 'bmc-parameter'],
  ActionParameterMissing: ['UNSUPPORTED', 'bmc-parameter'],
  ActionParameterValueNotInList: ['UNSUPPORTED', 'bmc-parameter'],
  PropertyValueNotInList: ['UNSUPPORTED', 'bmc-parameter'],
  PropertyNotWritable: ['UNSUPPORTED', 'bmc-parameter'],
  PropertyUnknown: ['UNSUPPORTED', 'bmc-parameter'],
  AccountNotModified: ['INVALID_INPUT', 'password-refused'],
  PropertyValueFormatError: ['INVALID_INPUT', 'bmc-value'],
  PropertyValueError: ['INVALID_INPUT', 'bmc-value'],
  InsufficientPrivilege: ['PERMISSION_DENIED', 'insufficient-privilege'],
  NoValidSession: ['UNAUTHENTICATED', 'credential-refused'],
  ResourceMissingAtURI: ['NOT_FOUND', 'bmc-missing'],
});

const statuses: Readonly<Record<number, Meaning>> = Object.freeze({
  400: ['INVALID_STATE', 'bmc-refused'],
  401: ['UNAUTHENTICATED', 'credential-refused'],
  403: ['PERMISSION_DENIED', 'bmc-refused'],
  404: ['NOT_FOUND', 'bmc-missing'],
  405: ['UNSUPPORTED', 'bmc-method'],
  409: ['INVALID_STATE', 'bmc-conflict'],
  412: ['CONFLICT', 'etag'],
  428: ['CONFLICT', 'etag'],
  429: ['RATE_LIMITED', 'bmc-busy'],
  501: ['UNSUPPORTED', 'bmc-method'],
});

const meaningOf = (status: number): Meaning => {
  if (Object.hasOwn(statuses, status)) return statuses[status] as Meaning;
  if (status >= 500) return ['UNAVAILABLE', 'bmc-unavailable'];
  return status >= 400 ? ['INVALID_STATE', 'bmc-refused'] : ['INVALID_RESPONSE', 'bad-answer'];
};

export interface BmcMessage {
  /** The last part. */
  readonly id: string;
  readonly fullId: string;
  readonly text: string;
  readonly args: readonly string[];
}

/** The extended information of an answer: a list, a single one instead of it, or none. */
export function messagesOf(body: Json | undefined): BmcMessage[] {
  if (body === undefined) return [];
  const found = fieldOf(body, 'error', '@Message.ExtendedInfo') ?? fieldOf(body, '@Message.ExtendedInfo');
  return [found]
    .flat()
    .slice(0, 16)
    .flatMap((value) => {
      const message = asObject(value);
      const fullId = message?.['MessageId'] ?? message?.['MessageID'];
      if (message === undefined || typeof fullId !== 'string') return [];
      const args = [message['MessageArgs']].flat().filter((arg): arg is string => typeof arg === 'string');
      return [{ id: fullId.split('.').at(-1) ?? '', fullId: printable(fullId, 80), text: textIn(message), args }];
    });
}

const textIn = (message: Json): string => (typeof message['Message'] === 'string' ? printable(message['Message'], 300) : '');

export interface Refused {
  readonly address: string;
  readonly exchange: Exchange;
  readonly answer: RawAnswer;
  /** Ours, sent along as X-Request-Id. */
  readonly requestId: string;
  /** Taken out of whatever the controller says. */
  readonly secrets: readonly string[];
}

/** details: reason, status, messageIds, retryAfterMs (null: none), changePasswordAt (the message's argument, unjudged). */
export function refusalOf({ address, exchange, answer, requestId, secrets }: Refused): ControlError {
  const body = parseLoosely(answer);
  const said = messagesOf(body);
  const known = said.find(({ id }) => Object.hasOwn(messages, id));
  const [code, reason] = known === undefined ? meaningOf(answer.status) : (messages[known.id] as Meaning);
  const shown = known ?? said[0];
  const words = shown === undefined ? wordsOf(body, answer) : `"${shown.text}" (${shown.fullId})`;
  const text = `${address} refused ${exchange.method} ${exchange.path} with ${answer.status}: ${words}; request ${idsOf(answer, requestId)}`;
  return new ControlError(code, without(text, secrets), {
    details: {
      reason,
      status: answer.status,
      messageIds: said.map(({ id }) => id),
      retryAfterMs: secondsIn(known?.id === 'ServiceTemporarilyUnavailable' ? known.args[0] : answer.headers['retry-after']),
      ...(known?.id === 'PasswordChangeRequired' ? { changePasswordAt: known.args[0] ?? '' } : {}),
    },
  });
}

/** Ours, and the controller's own where it has one. */
function idsOf({ headers }: RawAnswer, requestId: string): string {
  const theirs = headers['x-request-id'] ?? headers['request-id'] ?? requestId;
  return theirs === requestId ? requestId : `${requestId}, the controller's ${printable(theirs, 80)}`;
}

function wordsOf(body: Json | undefined, { text }: RawAnswer): string {
  const message = body === undefined ? undefined : fieldOf(body, 'error', 'message');
  if (typeof message === 'string') return `"${printable(message, 300)}"`;
  // The beginning of a page says it, and is all that is searched: of 8 MiB of "<" each would look for its end up to the last one.
  const plain = printable(text.slice(0, 2_048).replaceAll(/<[^>]*>/g, ' '), 120).trim();
  return plain === '' ? 'without a word' : `"${plain}"`;
}

const secondsIn = (text: string | undefined): number | null =>
  text !== undefined && /^[0-9]{1,5}$/.test(text.trim()) ? Number(text) * 1000 : null;

export function without(text: string, secrets: readonly string[]): string {
  return secrets.filter((secret) => secret.length >= 4).reduce((rest, secret) => rest.replaceAll(secret, '[secret]'), text);
}

/** Whether a failure is a refusal for one of these reasons. */
export const isRefusal = (error: unknown, ...reasons: readonly string[]): error is ControlError =>
  error instanceof ControlError && reasons.includes(String(error.details['reason']));
