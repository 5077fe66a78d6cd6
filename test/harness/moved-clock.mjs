/**
 * Loaded before a stack starts (`node --import`), it gives every process of the stack one wall clock that a test can move while they
 * run: the file BC_TEST_CLOCK holds the milliseconds that are added, and beside it each process writes, under its pid, what it has taken.
 * Engines keep the true time, as on another host.
 */
import childProcess from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { fileURLToPath } from 'node:url';

const file = process.env.BC_TEST_CLOCK ?? '';
const trueNow = Date.now;
let movedMs = Number.NaN;

const look = () => {
  try {
    const wanted = Number(readFileSync(file, 'utf8'));
    if (wanted === movedMs || Number.isNaN(wanted)) return;
    movedMs = wanted;
    writeFileSync(`${file}.${process.pid}`, String(movedMs));
  } catch {
    // Its folder is gone: the test is over.
  }
};
if (file !== '') {
  look();
  setInterval(look, 50).unref();
}

const now = () => trueNow() + (movedMs || 0);
Date.now = now;
globalThis.Date = new Proxy(Date, {
  construct: (target, args, newTarget) =>
    args.length === 0 ? new target(now()) : Reflect.construct(target, args, newTarget === globalThis.Date ? target : newTarget),
});

// The stack gives its processes an environment of its own making: what loads this goes in beside it.
const { spawn } = childProcess;
childProcess.spawn = (command, args, options) => {
  const env = options?.env;
  if (command !== process.execPath || env?.BETTER_COMPUTE_HOME === undefined) return spawn(command, args, options);
  const moved = { NODE_OPTIONS: `--import=${fileURLToPath(import.meta.url)}`, BC_TEST_CLOCK: file };
  return spawn(command, args, { ...options, env: { ...env, ...moved } });
};
syncBuiltinESMExports();
