/** One at a time: a lock file that names the running pid. A lock whose process is gone is taken over. */
import { linkSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';

/** @param {number} pid */
export function isAlive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code === 'EPERM';
  }
}

/**
 * @param {string} path
 * @returns {{ kind: 'taken', release(): void } | { kind: 'held', pid: number }}
 */
export function tryLock(path) {
  mkdirSync(dirname(path), { recursive: true });
  const mine = `${path}.${process.pid}`;
  writeFileSync(mine, `${process.pid}\n`, { mode: 0o644 });
  try {
    for (let attempt = 0; attempt < 5; attempt++) {
      if (linked(mine, path)) return { kind: 'taken', release: () => releaseOwn(path) };
      const pid = holderOf(path);
      if (pid !== null && pid !== process.pid && isAlive(pid)) return { kind: 'held', pid };
      rmSync(path, { force: true });
    }
    return { kind: 'held', pid: holderOf(path) ?? 0 };
  } finally {
    rmSync(mine, { force: true });
  }
}

/** Waits for whoever holds the lock.
 * @param {string} path @param {{ timeoutMs: number, onWait?: (pid: number) => void }} options */
export async function waitForLock(path, { timeoutMs, onWait }) {
  const until = Date.now() + timeoutMs;
  let told = false;
  for (;;) {
    const lock = tryLock(path);
    if (lock.kind === 'taken') return lock;
    if (!told) onWait?.(lock.pid);
    told = true;
    if (Date.now() > until) return lock;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

// A link is atomic and never shows an empty file, which a create-then-write would.
function linked(from, to) {
  try {
    linkSync(from, to);
    return true;
  } catch (error) {
    if (error.code === 'EEXIST') return false;
    throw error;
  }
}

function holderOf(path) {
  try {
    const pid = Number(readFileSync(path, 'utf8'));
    return Number.isInteger(pid) && pid > 0 ? pid : null;
  } catch {
    return null;
  }
}

function releaseOwn(path) {
  if (holderOf(path) === process.pid) rmSync(path, { force: true });
}
