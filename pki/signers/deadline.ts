/** Work that somebody else does, and how long it is waited for. */
import { ControlError } from '../../domain/errors.ts';

/** Calls back after so many milliseconds; the answer takes it back. */
export type StartTimer = (ms: number, onEnd: () => void) => () => void;

export interface Deadline {
  readonly ms: number;
  readonly startTimer: StartTimer;
}

/**
 * The work's answer, when it comes in time. When it does not, the signal is aborted, so that whoever does the work can give up too,
 * and what it still answers is thrown away.
 *
 * @param name whom the message says that was waited for
 * @throws UNAVAILABLE (signer-deadline), and what the work throws
 */
export async function withDeadline<T>(name: string, { ms, startTimer }: Deadline, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const controller = new AbortController();
  let cancel: (() => void) | undefined;
  const late = new Promise<never>((_, reject) => {
    cancel = startTimer(ms, () => {
      const error = new ControlError('UNAVAILABLE', `${name} did not answer within ${ms} ms`, {
        details: { reason: 'signer-deadline', withinMs: ms },
      });
      controller.abort(error);
      reject(error);
    });
  });
  try {
    return await Promise.race([work(controller.signal), late]);
  } finally {
    cancel?.();
  }
}
