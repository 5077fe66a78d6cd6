/**
 * Reads a request body as JSON, strictly: a bound before a byte is parsed, one media type, UTF-8 or nothing, a bound on
 * nesting before the parser recurses, and an object at the top.
 */
import type { IncomingMessage } from 'node:http';
import { ControlError } from '../domain/errors.ts';

export const maxBodyBytes = 1024 * 1024;
const maxDepth = 32;

/** @throws FRAME_TOO_LARGE, UNSUPPORTED (media type) or MALFORMED, each with what was found */
export async function readJsonBody(request: IncomingMessage, maxBytes = maxBodyBytes): Promise<unknown> {
  const type = (request.headers['content-type'] ?? '').split(';', 1)[0]?.trim().toLowerCase();
  const bytes = await readBody(request, maxBytes);
  if (bytes.length === 0) return {};
  if (type !== 'application/json') {
    throw new ControlError('UNSUPPORTED', `the body is ${type === '' ? 'of no media type' : `"${type}"`}, not application/json`, {
      details: { reason: 'media-type' },
    });
  }
  return parseJson(bytes);
}

/** @throws FRAME_TOO_LARGE */
export async function readBody(request: IncomingMessage, maxBytes: number): Promise<Uint8Array> {
  const tooLarge = (): ControlError =>
    new ControlError('FRAME_TOO_LARGE', `the body is larger than ${maxBytes} bytes`, { details: { reason: 'too-large', maxBytes } });
  if (Number(request.headers['content-length'] ?? 0) > maxBytes) throw tooLarge();
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > maxBytes) throw tooLarge();
    chunks.push(chunk);
  }
  return new Uint8Array(Buffer.concat(chunks));
}

function parseJson(bytes: Uint8Array): unknown {
  const malformed = (message: string, cause?: unknown): ControlError =>
    new ControlError('MALFORMED', message, { details: { reason: 'bad-json' }, ...(cause === undefined ? {} : { cause }) });
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch (cause) {
    throw malformed('the body is not UTF-8', cause);
  }
  if (depthOf(text) > maxDepth) throw malformed(`the body nests deeper than ${maxDepth} levels`);
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw malformed(`the body is not JSON: ${(cause as Error).message}`, cause);
  }
}

/** Deepest nesting of brackets outside strings; counts before the recursive parser sees them. */
function depthOf(text: string): number {
  let depth = 0;
  let deepest = 0;
  let inString = false;
  for (let at = 0; at < text.length; at++) {
    const char = text[at];
    if (inString) {
      if (char === '\\') at++;
      else if (char === '"') inString = false;
    } else if (char === '"') inString = true;
    else if (char === '{' || char === '[') deepest = Math.max(deepest, ++depth);
    else if (char === '}' || char === ']') depth--;
  }
  return deepest;
}
