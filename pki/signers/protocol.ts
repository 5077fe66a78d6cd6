/**
 * What a signer process and we say to each other: one JSON object a line, on its standard input and output.
 *
 *   → {"id":1,"do":"public-key","key":"…"}                     ← {"id":1,"publicKey":"<base64 SubjectPublicKeyInfo>"}
 *   → {"id":2,"do":"create-key","key":"…"}                     ← {"id":2,"publicKey":"…"}   (the key that is there, or a new one)
 *   → {"id":3,"do":"sign","key":"…","input":"<base64>"}        ← {"id":3,"signature":"<base64 r‖s, 64 bytes>"}
 *                                                              ← {"id":3,"error":{"code":"denied","message":"…"}}
 *
 * The input is handed over whole, not its digest: the signer hashes it (SHA-256) and may look at what it signs first. Nothing in
 * here can carry a private key.
 */
import { type Code, ControlError } from '../../domain/errors.ts';
import { parseBase64 } from '../bundle/canonical.ts';

export type SignerTask = 'public-key' | 'create-key' | 'sign';

export interface SignerRequest {
  readonly id: number;
  readonly do: SignerTask;
  readonly key: string;
  readonly input?: Uint8Array;
}

export type SignerAnswer = { readonly id: number } & (
  | { readonly publicKey: Uint8Array }
  | { readonly signature: Uint8Array }
  | { readonly error: { readonly code: SignerRefusal; readonly message: string } }
);

/** Longest answer: a key or a signature, with room for the words of a refusal. */
export const maxAnswerBytes = 64 * 1024;
/** Most that is signed at once: the evidence of a rotation names every machine of the fleet. */
export const maxInputBytes = 64 * 1_048_576;
/** Longest request: such an input in base64, and what stands beside it. */
const maxRequestBytes = Math.ceil(maxInputBytes / 3) * 4 + 4_096;
const maxKeyLength = 512;

interface Refusal {
  readonly code: Code;
  readonly reason: string;
  /** Not asked again by this process: repeating a wrong PIN locks the token. */
  readonly isFinal: boolean;
  readonly hint?: string;
}

/** What a signer may refuse with → what its caller gets. */
export const refusals = Object.freeze({
  'no-such-key': {
    code: 'NOT_FOUND',
    reason: 'signer-key-missing',
    isFinal: false,
    hint: 'make the key first, or let it be made: --create-signer-keys',
  },
  'unsuitable-key': {
    code: 'INVALID_CONFIG',
    reason: 'signer-key-unsuitable',
    isFinal: false,
    hint: 'it must be one P-256 key that signs and cannot be exported',
  },
  denied: {
    code: 'PERMISSION_DENIED',
    reason: 'signer-denied',
    isFinal: true,
    hint: 'correct the PIN or the rights of the signer, then start this process again',
  },
  unsupported: { code: 'UNSUPPORTED', reason: 'signer-unsupported', isFinal: false },
  unavailable: { code: 'UNAVAILABLE', reason: 'signer-unavailable', isFinal: false },
} as const satisfies Record<string, Refusal>);

export type SignerRefusal = keyof typeof refusals;

const isRefusal = (value: unknown): value is SignerRefusal => typeof value === 'string' && Object.hasOwn(refusals, value);

/** @param name whom the message names; the signer's own words follow, shortened and on one line */
export function refusalError(name: string, { code, message }: { code: SignerRefusal; message: string }): ControlError {
  const row: Refusal = refusals[code];
  return new ControlError(row.code, `${name} refused: ${oneLine(message)}`, {
    details: { reason: row.reason, ...(row.hint === undefined ? {} : { hint: row.hint }) },
  });
}

/** Foreign words in a message of ours: printable, on one line, not too many. */
export const oneLine = (text: string): string =>
  text
    .replace(/[^\x20-\x7e]+/g, ' ')
    .trim()
    .slice(0, 200) || '(no reason given)';

export const encodeRequest = ({ input, ...rest }: SignerRequest): string =>
  `${JSON.stringify({ ...rest, ...(input === undefined ? {} : { input: base64(input) }) })}\n`;

export function encodeAnswer(answer: SignerAnswer): string {
  const shown =
    'error' in answer
      ? answer
      : 'publicKey' in answer
        ? { id: answer.id, publicKey: base64(answer.publicKey) }
        : { id: answer.id, signature: base64(answer.signature) };
  return `${JSON.stringify(shown)}\n`;
}

const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64');

const malformed = (what: string): ControlError =>
  new ControlError('MALFORMED', `not a line of the signer protocol: ${what}`, { details: { reason: 'signer-line' } });

function parseLine(line: string, maxBytes: number): Readonly<Record<string, unknown>> {
  if (line.length > maxBytes) throw malformed(`it has more than ${maxBytes} characters`);
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    throw malformed('it is not JSON');
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw malformed('it is not an object');
  return value as Record<string, unknown>;
}

function readId({ id }: Readonly<Record<string, unknown>>): number {
  if (typeof id === 'number' && Number.isSafeInteger(id) && id > 0) return id;
  throw malformed('id is not a positive whole number');
}

function readBytes(value: unknown, name: string): Uint8Array {
  const bytes = parseBase64(value);
  if (bytes === null || bytes.length === 0) throw malformed(`${name} is not base64`);
  return bytes;
}

/** The signer's side. @throws MALFORMED (signer-line) */
export function parseRequest(line: string): SignerRequest {
  const value = parseLine(line, maxRequestBytes);
  const { do: task, key, input } = value as { do?: unknown; key?: unknown; input?: unknown };
  if (task !== 'public-key' && task !== 'create-key' && task !== 'sign') throw malformed('do is none of public-key, create-key and sign');
  if (typeof key !== 'string' || key.length === 0 || key.length > maxKeyLength) throw malformed('key is not a name');
  const request: SignerRequest = { id: readId(value), do: task, key };
  return task === 'sign' ? { ...request, input: readBytes(input, 'input') } : request;
}

/** Our side. @throws MALFORMED (signer-line) */
export function parseAnswer(line: string): SignerAnswer {
  const value = parseLine(line, maxAnswerBytes);
  const id = readId(value);
  if (value['signature'] !== undefined) return { id, signature: readBytes(value['signature'], 'signature') };
  if (value['publicKey'] !== undefined) return { id, publicKey: readBytes(value['publicKey'], 'publicKey') };
  const { code, message } = (value['error'] ?? {}) as { code?: unknown; message?: unknown };
  if (!isRefusal(code))
    throw malformed(`it has neither publicKey nor signature, nor an error whose code is one of ${Object.keys(refusals).join(', ')}`);
  return { id, error: { code, message: typeof message === 'string' ? message : '' } };
}
