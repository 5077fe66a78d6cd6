/**
 * Watches the files of a listener and hands over each changed, complete set (TLS-001, TLS-008, TLS-019).
 *
 * Judged by content hash, not by time and size (H-12): a tool that keeps the time stamp, or two writes within one tick of
 * the clock, are still seen, and a touch without a change reloads nothing. A set that does not fit together is reported and
 * tried again at the next change; what is served stays (TLS-013, TLS-014).
 */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createSystemScheduler, type Scheduler } from '../scheduler.ts';
import type { TlsMaterial } from './material.ts';

export interface TlsFiles {
  readonly key: string;
  readonly cert: string;
  readonly ca?: string;
}

export interface WatchOptions {
  /** Default 60 s (TLS-005). */
  readonly intervalMs?: number;
  onError?(error: Error): void;
  onReload?(): void;
  readonly scheduler?: Scheduler;
  /** The set that is served already; without it the first look applies what it finds. */
  readonly served?: TlsMaterial;
}

export interface FileWatch {
  /** Looks now; resolves when the look is done. */
  check(): Promise<void>;
  close(): void;
}

/** @throws whatever reading throws; a start without its files is a failed start */
export async function readTlsFiles({ key, cert, ca }: TlsFiles): Promise<TlsMaterial> {
  const [keyPem, certPem, caPem] = await Promise.all([readFile(key), readFile(cert), ca === undefined ? undefined : readFile(ca)]);
  return caPem === undefined ? { key: keyPem, cert: certPem } : { key: keyPem, cert: certPem, ca: caPem };
}

export function watchTlsFiles(files: TlsFiles, apply: (material: TlsMaterial) => void, options: WatchOptions = {}): FileWatch {
  const { intervalMs = 60_000, scheduler = createSystemScheduler() } = options;
  // The digest of what was last tried, good or bad: the same bad set is not tried, or reported, twice.
  let tried = options.served === undefined ? '' : digestOf(options.served);
  let running: Promise<void> | null = null;
  const look = async (): Promise<void> => {
    try {
      const material = await readTlsFiles(files);
      const digest = digestOf(material);
      if (digest === tried) return;
      tried = digest;
      apply(material);
      options.onReload?.();
    } catch (cause) {
      const what = cause instanceof Error ? cause.message : String(cause);
      options.onError?.(new Error(`Gateway serving certificate not reloaded: ${what}`, { cause }));
    }
  };
  const check = (): Promise<void> => {
    running ??= look().finally(() => {
      running = null;
    });
    return running;
  };
  const close = scheduler.every({ minMs: intervalMs, maxMs: intervalMs }, () => void check());
  return { check, close };
}

function digestOf({ key, cert, ca = '' }: TlsMaterial): string {
  const hash = createHash('sha256');
  for (const part of [key, cert, ca]) {
    const bytes = Buffer.from(part);
    hash.update(`${bytes.length}:`).update(bytes);
  }
  return hash.digest('hex');
}
