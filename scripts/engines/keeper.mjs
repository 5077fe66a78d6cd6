/**
 * Keeps a foreign engine (PostgreSQL, Temporal) for a parent: runs it as a child and ends it when the parent is gone.
 *
 * The engine knows nothing of us and would live on when the parent is killed. The parent holds the other end of our stdin;
 * however it dies, that pipe closes, and the engine gets its stop signal, then SIGKILL after the grace. Signals to us do the
 * same. The engine's output goes to the log file named, not through us: a broken pipe cannot hurt it.
 *
 *   node keeper.mjs '{"command","args","env","stopSignal","graceMs","log","uid","gid"}'
 */
import { spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';

const { command, args, env, stopSignal, graceMs, log, uid, gid } = JSON.parse(process.argv[2] ?? '{}');
const output = openSync(log, 'a', 0o600);
const identity = uid === undefined ? {} : { uid, gid };
// A process group of its own: Ctrl-C on the terminal goes to the parent, which ends everything in order.
const engine = spawn(command, args, { stdio: ['ignore', output, output], env, cwd: '/', detached: true, ...identity });
closeSync(output);

let ending = false;
function end() {
  if (ending) return;
  ending = true;
  engine.kill(stopSignal);
  setTimeout(() => engine.kill('SIGKILL'), graceMs).unref();
}

engine.on('error', (error) => {
  process.stderr.write(`${error.message}\n`);
  process.exit(127);
});
engine.on('spawn', () => process.stdout.write(`${JSON.stringify({ pid: engine.pid })}\n`));
engine.on('exit', (code, signal) => process.exit(code ?? (signal === 'SIGKILL' ? 137 : 1)));
for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP']) process.on(signal, end);
for (const event of ['end', 'close', 'error']) process.stdin.on(event, end);
process.stdout.on('error', () => undefined);
process.stdin.resume();
