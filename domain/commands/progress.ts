/**
 * How far a running command is and when it may be done: what its node said last, against where its count began. A figure for
 * people; nothing is decided by it.
 */
export interface CommandProgress {
  readonly done: number;
  /** 0 when the node does not know. */
  readonly total: number;
  readonly note: string;
  /** When the node said it last. */
  readonly at: number;
  /** Where the present count began, and when: a rate is taken from there. */
  readonly firstDone: number;
  readonly firstAt: number;
}

/** A node that has said nothing for so long may be gone: the time left is no longer shown. */
export const staleProgressMs = 60_000;

/** Kinds whose count is bytes; of any other it is in a unit of its own. */
const inBytes: ReadonlySet<string> = new Set(['disk.wipe', 'deploy.image', 'logs.collect']);

export const countsBytes = (kind: string): boolean => inBytes.has(kind);

/** Per second, since the count began; null before there are two words to take it from. */
export function ratePerSecond({ done, at, firstDone, firstAt }: CommandProgress): number | null {
  return at > firstAt && done > firstDone ? ((done - firstDone) / (at - firstAt)) * 1_000 : null;
}

/** How long until `total`, as fast as so far; null when nobody can tell. */
export function remainingMs(progress: CommandProgress, now: number): number | null {
  const rate = ratePerSecond(progress);
  if (rate === null || progress.total < progress.done || progress.total === 0 || now - progress.at > staleProgressMs) return null;
  return Math.max(0, Math.round(((progress.total - progress.done) / rate) * 1_000) - Math.max(0, now - progress.at));
}
