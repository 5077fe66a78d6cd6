/**
 * The TLS files of a process: read at its start, watched from then on, and each changed, complete set handed over (TLS-001,
 * TLS-008, TLS-019).
 *
 * Judged by content hash, not by time and size (H-12): a tool that keeps the time stamp, or two writes within one tick of
 * the clock, are still seen, and a touch without a change reloads nothing. A set that does not fit together is reported and
 * tried again at the next change; what is served stays (TLS-013, TLS-014).
 */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { minute } from '../domain/time.ts';

/** PEM of one end of TLS. */
export interface TlsFileContent {
  readonly key: Buffer;
  readonly cert: Buffer;
  /** The authorities that the other end must chain to. */
  readonly ca?: Buffer;
}

export interface TlsFiles {
  readonly key: string;
  readonly cert: string;
  readonly ca?: string;
}

export const tlsIntervalMs = minute;

export interface WatchOptions {
  /** Default 60 s (TLS-005). */
  readonly intervalMs?: number;
  /** What the files are, at the beginning of a report. */
  readonly what: string;
  onError?(error: Error): void;
  onReload?(): void;
  /** Looks again and again until what it returns is called; the system's timer by default. */
  every?(pause: { readonly minMs: number; readonly maxMs: number }, look: () => void): () => void;
  /** The set that is served already; without it the first look applies what it finds. */
  readonly served?: TlsFileContent;
}

export interface FileWatch {
  /** Looks now; resolves when the look is done. */
  check(): Promise<void>;
  close(): void;
}

/** @throws whatever reading throws; a start without its files is a failed start */
export async function readTlsFiles({ key, cert, ca }: TlsFiles): Promise<TlsFileContent> {
  const [keyPem, certPem, caPem] = await Promise.all([readFile(key), readFile(cert), ca === undefined ? undefined : readFile(ca)]);
  return caPem === undefined ? { key: keyPem, cert: certPem } : { key: keyPem, cert: certPem, ca: caPem };
}

export function watchTlsFiles(files: TlsFiles, apply: (content: TlsFileContent) => void, options: WatchOptions): FileWatch {
  const { intervalMs = tlsIntervalMs, what, every = everyBySystemTimer } = options;
  // The digest of what was last tried, good or bad: the same bad set is not tried, or reported, twice.
  let tried = options.served === undefined ? '' : digestOf(options.served);
  let running: Promise<void> | null = null;
  const look = async (): Promise<void> => {
    try {
      const content = await readTlsFiles(files);
      const digest = digestOf(content);
      if (digest === tried) return;
      tried = digest;
      apply(content);
      options.onReload?.();
    } catch (cause) {
      const why = cause instanceof Error ? cause.message : String(cause);
      options.onError?.(new Error(`${what} not reloaded: ${why}`, { cause }));
    }
  };
  const check = (): Promise<void> => {
    running ??= look().finally(() => {
      running = null;
    });
    return running;
  };
  const close = every({ minMs: intervalMs, maxMs: intervalMs }, () => void check());
  return { check, close };
}

const everyBySystemTimer: NonNullable<WatchOptions['every']> = ({ minMs }, look) => {
  const timer = setInterval(look, minMs);
  timer.unref();
  return () => clearInterval(timer);
};

function digestOf({ key, cert, ca = Buffer.alloc(0) }: TlsFileContent): string {
  const hash = createHash('sha256');
  for (const bytes of [key, cert, ca]) hash.update(`${bytes.length}:`).update(bytes);
  return hash.digest('hex');
}
