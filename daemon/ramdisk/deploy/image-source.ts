/**
 * The bytes of an image over HTTP, as one stream whatever happens on the way: a connection that is cut or says nothing is taken up again
 * where it ended (Range, RFC 9110 section 14). What came is judged by its checksum, so a server that answers with another file in
 * between is found out there.
 */
import { type IncomingMessage, request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import { ControlError } from '../../../domain/errors.ts';
import { second } from '../../../domain/time.ts';

export interface SourceTiming {
  /** Longest wait for the next byte. */
  readonly stallMs: number;
  /** Tries in a row that brought nothing. */
  readonly tries: number;
  readonly retryAfterMs: number;
}

export const sourceTiming: SourceTiming = Object.freeze({ stallMs: 30 * second, tries: 8, retryAfterMs: 2 * second });

export interface ImageSourceOptions {
  readonly url: string;
  readonly signal: AbortSignal;
  readonly timing: SourceTiming;
  readonly sleep: (ms: number, signal: AbortSignal) => Promise<void>;
  readonly onResume: (why: string, received: number) => void;
}

export interface ImageSource {
  /** As the server says; null when it does not. */
  readonly totalBytes: number | null;
  readonly bytes: AsyncGenerator<Buffer, void>;
}

const redirectsMax = 5;

/** @throws INVALID_INPUT */
export function imageUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url !== null && (url.protocol === 'http:' || url.protocol === 'https:') && url.username === '' && url.password === '') return url;
  throw new ControlError('INVALID_INPUT', 'image_url must be an http or https URL without a password', {
    details: { reason: 'image-url' },
  });
}

/**
 * Opens the stream; the first answer is there when it returns.
 *
 * @throws INVALID_INPUT for the URL; NOT_FOUND, PERMISSION_DENIED or UNAVAILABLE (`image-server`, `image-stalled`) when nothing comes
 */
export async function openImageSource(options: ImageSourceOptions): Promise<ImageSource> {
  const url = imageUrl(options.url);
  const first = await retried(options, { received: 0, start: () => answerOf(url, 0, options) });
  const totalBytes = totalOf(first, 0);
  return { totalBytes, bytes: stream(options, { url, first, totalBytes }) };
}

interface StreamStart {
  readonly url: URL;
  readonly first: IncomingMessage;
  readonly totalBytes: number | null;
}

async function* stream(options: ImageSourceOptions, { url, first, totalBytes }: StreamStart): AsyncGenerator<Buffer, void> {
  let received = 0;
  let answer = first;
  let fruitless = 0;
  try {
    for (;;) {
      const before = received;
      try {
        for await (const chunk of body(answer, received, options)) {
          received += chunk.length;
          yield chunk;
        }
        if (totalBytes === null || received >= totalBytes) return;
        throw failed(`the connection ended after ${received} of ${totalBytes} bytes`);
      } catch (error) {
        options.signal.throwIfAborted();
        fruitless = received > before ? 0 : fruitless + 1;
        if (!canRetry(error) || fruitless >= options.timing.tries) throw error;
        options.onResume((error as Error).message, received);
      }
      answer.destroy();
      await options.sleep(options.timing.retryAfterMs, options.signal);
      const at = received;
      answer = await retried(options, { received, start: () => answerOf(url, at, options) });
      const total = totalOf(answer, received);
      if (totalBytes !== null && total !== null && total !== totalBytes)
        throw final('UNAVAILABLE', `the image had ${totalBytes} bytes and has ${total} now: the server changed it`);
    }
  } finally {
    answer.destroy();
  }
}

/** What is new of an answer: a server that does not know Range sends everything again. */
async function* body(answer: IncomingMessage, received: number, { timing, signal }: ImageSourceOptions): AsyncGenerator<Buffer, void> {
  let toSkip = answer.statusCode === 206 ? 0 : received;
  const iterator: AsyncIterator<Buffer> = answer[Symbol.asyncIterator]();
  for (;;) {
    const next = await within(iterator.next(), { timing, signal, answer });
    if (next.done === true) return;
    const chunk = toSkip === 0 ? next.value : next.value.subarray(Math.min(toSkip, next.value.length));
    toSkip -= Math.min(toSkip, next.value.length);
    if (chunk.length > 0) yield chunk;
  }
}

/** Only the wait for the server counts, not the time that a slow disk takes. */
async function within<T>(
  work: Promise<T>,
  { timing, signal, answer }: { timing: SourceTiming; signal: AbortSignal; answer: IncomingMessage },
): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  let onAbort = (): void => undefined;
  const interrupted = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(stalled(timing)), timing.stallMs);
    onAbort = () => reject(signal.reason as Error);
    signal.addEventListener('abort', onAbort, { once: true });
  });
  try {
    return await Promise.race([work, interrupted]);
  } catch (error) {
    answer.destroy();
    work.catch(() => undefined);
    if (error instanceof ControlError || signal.aborted) throw error;
    throw failed(`the connection was cut: ${error instanceof Error ? error.message : String(error)}`, error);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', onAbort);
  }
}

const stalled = ({ stallMs }: SourceTiming): ControlError =>
  new ControlError('UNAVAILABLE', `the image server sent nothing for ${stallMs / second} s`, { details: { reason: 'image-stalled' } });
const failed = (message: string, cause?: unknown): ControlError =>
  new ControlError('UNAVAILABLE', message, { cause, details: { reason: 'image-server' } });
const final = (code: 'UNAVAILABLE' | 'NOT_FOUND' | 'PERMISSION_DENIED' | 'UNSUPPORTED', message: string): ControlError =>
  new ControlError(code, message, { details: { reason: 'image-server', final: true } });

const canRetry = (error: unknown): boolean =>
  error instanceof ControlError && error.code === 'UNAVAILABLE' && error.details['final'] !== true;

async function retried(
  { timing, signal, sleep, onResume }: ImageSourceOptions,
  { received, start }: { received: number; start: () => Promise<IncomingMessage> },
): Promise<IncomingMessage> {
  for (let tried = 1; ; tried += 1) {
    try {
      return await start();
    } catch (error) {
      signal.throwIfAborted();
      if (!canRetry(error) || tried >= timing.tries) throw error;
      onResume((error as Error).message, received);
      await sleep(timing.retryAfterMs * tried, signal);
    }
  }
}

async function answerOf(url: URL, from: number, options: ImageSourceOptions): Promise<IncomingMessage> {
  let at = url;
  for (let hop = 0; hop <= redirectsMax; hop += 1) {
    const answer = await ask(at, from, options);
    const status = answer.statusCode ?? 0;
    if (status === 200 || status === 206) return checkedRange(answer, from);
    answer.resume();
    answer.destroy();
    if (status < 300 || status >= 400) throw refusal(at, status);
    at = redirected(at, answer.headers.location);
  }
  throw final('UNAVAILABLE', `${url.host} redirects more than ${redirectsMax} times`);
}

function refusal(url: URL, status: number): ControlError {
  const message = `${url.host} answered ${status} for ${url.pathname}`;
  if (status === 404 || status === 410) return final('NOT_FOUND', message);
  if (status === 401 || status === 403) return final('PERMISSION_DENIED', message);
  return status >= 500 || status === 429 || status === 408 ? failed(message) : final('UNAVAILABLE', message);
}

function redirected(from: URL, location = ''): URL {
  const to = imageUrl(URL.canParse(location, from.href) ? new URL(location, from.href).href : location);
  if (from.protocol === 'https:' && to.protocol === 'http:') throw final('UNAVAILABLE', `${from.host} redirects to ${to.host} without TLS`);
  return to;
}

function checkedRange(answer: IncomingMessage, from: number): IncomingMessage {
  if (answer.statusCode !== 206) return answer;
  const range = /^bytes (\d+)-\d+\/(?:\d+|\*)$/.exec(answer.headers['content-range'] ?? '');
  if (Number(range?.[1]) === from) return answer;
  answer.destroy();
  throw final(
    'UNAVAILABLE',
    `the image server was asked for bytes from ${from} and sent "${answer.headers['content-range'] ?? 'no range'}"`,
  );
}

function totalOf(answer: IncomingMessage, from: number): number | null {
  const total = /\/(\d+)$/.exec(answer.headers['content-range'] ?? '')?.[1];
  if (total !== undefined) return Number(total);
  const length = answer.headers['content-length'];
  if (length === undefined || !/^\d+$/.test(length)) return null;
  return answer.statusCode === 206 ? from + Number(length) : Number(length);
}

function ask(url: URL, from: number, { timing, signal }: ImageSourceOptions): Promise<IncomingMessage> {
  const request = url.protocol === 'https:' ? requestHttps : requestHttp;
  return new Promise((resolve, reject) => {
    // The bytes as they are: a coding on the way would not match the checksum.
    const headers = { 'accept-encoding': 'identity', ...(from === 0 ? {} : { range: `bytes=${from}-` }) };
    const call = request(url, { headers, signal }, resolve);
    call.setTimeout(timing.stallMs, () => call.destroy(stalled(timing)));
    call.once('response', () => call.setTimeout(0));
    call.once('error', (cause) => {
      if (signal.aborted) reject(signal.reason as Error);
      else reject(cause instanceof ControlError ? cause : failed(`${url.host} cannot be reached: ${cause.message}`, cause));
    });
    call.end();
  });
}
