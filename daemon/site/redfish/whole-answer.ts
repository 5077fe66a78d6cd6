/**
 * One request and its whole answer as text, bounded in bytes and time. Over undici's own handlers: a stream for each body, and a signal for
 * each request, cost as much as the request (metal-inventory in docs/performance.md).
 */
import type { Dispatcher } from 'undici';

export interface RawAnswer {
  readonly status: number;
  /** Lower-case names; of repeated ones the first. */
  readonly headers: Readonly<Record<string, string>>;
  readonly text: string;
}

export interface AnswerBounds {
  /** The command's end. */
  readonly signal: AbortSignal;
  /** From now to the last byte. */
  readonly withinMs: number;
  readonly maxBytes: number;
  /** What an answer of more bytes is refused with. */
  readonly tooLarge: (status: number) => Error;
}

/**
 * @throws what undici throws; the signal's reason; a DOMException TimeoutError. Then the dispatcher may still be dialling for it: the caller
 * ends it.
 */
export function wholeAnswer(
  dispatcher: Dispatcher,
  request: Dispatcher.DispatchOptions,
  { signal, withinMs, maxBytes, tooLarge }: AnswerBounds,
): Promise<RawAnswer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let under: Dispatcher.DispatchController | undefined;
    let size = 0;
    let status = 0;
    let headers: Record<string, string> = {};
    const settle = (): void => {
      clearTimeout(timer);
      forget();
    };
    const giveUp = (why: Error): void => {
      settle();
      reject(why);
      under?.abort(why);
    };
    const onAbort = (): void => giveUp(signal.reason as Error);
    const timer = setTimeout(() => giveUp(new DOMException('no whole answer in time', 'TimeoutError')), withinMs);
    const forget = whenAborted(signal, onAbort);
    if (signal.aborted) return onAbort();
    dispatcher.dispatch(request, {
      onRequestStart: (controller) => void (under = controller),
      // Also of informational ones, which the last one replaces.
      onResponseStart: (_controller, code, fields) => {
        status = code;
        headers = firstOfEach(fields);
      },
      onResponseData: (_controller, chunk) => {
        size += chunk.length;
        if (size > maxBytes) return giveUp(tooLarge(status));
        chunks.push(chunk);
      },
      onResponseEnd: () => {
        settle();
        resolve({ status, headers, text: (chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks)).toString('utf8') });
      },
      onResponseError: (_controller, error) => {
        settle();
        reject(error);
      },
    });
  });
}

/** Who waits on a signal. One listener for all requests of a command: to add and remove one costs more than the request's own handlers. */
const waiting = new WeakMap<AbortSignal, Set<() => void>>();

/** @returns how to forget it */
function whenAborted(signal: AbortSignal, act: () => void): () => void {
  const acts = waiting.get(signal) ?? new Set();
  if (!waiting.has(signal)) {
    waiting.set(signal, acts);
    const actAll = (): void => {
      for (const one of acts) one();
    };
    signal.addEventListener('abort', actAll, { once: true });
  }
  acts.add(act);
  return () => void acts.delete(act);
}

function firstOfEach(fields: Readonly<Record<string, string | string[] | undefined>>): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const name of Object.keys(fields)) {
    const value = fields[name];
    headers[name.toLowerCase()] = (Array.isArray(value) ? value[0] : value) ?? '';
  }
  return headers;
}
