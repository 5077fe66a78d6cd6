/**
 * The management controllers of the demonstration: fakes that behave, in a process of their own, which chooses what they show and says
 * it. They are part of the tests, so the demonstration of bare metal runs from a clone of the project and from nothing less.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { ControlError } from '../../../../domain/errors.ts';
import { minute } from '../../../../domain/time.ts';

export interface PowerEvent {
  readonly name: string;
  readonly power: 'On' | 'Off';
  /** In the controller's words: Pxe, UefiHttp, Hdd, None. */
  readonly target: string;
}

export interface Rack {
  /** Name → host:port, SHA-256 of the key, and which tree it shows: one that was captured of real hardware, or `minimal`. */
  readonly controllers: Readonly<Record<string, { readonly address: string; readonly pinSha256: string; readonly tree: string }>>;
  /** Pulls the plug of a controller, or puts it back: the machine behind it goes on. */
  plug(name: string, plugged: boolean): void;
  stop(): Promise<void>;
}

export interface RackMachine {
  readonly name: string;
  readonly serial: string;
  readonly uuid: string;
  readonly macAddress: string;
}

export const credential = Object.freeze({ username: 'operator', password: 'set-by-the-maker-1' });

/** Where the clone is, above the sources or what was compiled of them. */
function programOfRack(): string {
  for (let folder = dirname(fileURLToPath(import.meta.url)); ; folder = dirname(folder)) {
    const program = join(folder, 'test', 'fakes', 'bmc', 'rack.ts');
    if (existsSync(program)) return program;
    if (folder === dirname(folder)) break;
  }
  throw new ControlError('NOT_FOUND', 'the fake controllers of test/fakes/bmc are not here: this demonstration runs from a clone', {
    details: { reason: 'no-clone' },
  });
}

export async function startRack(machines: readonly RackMachine[], onPower: (event: PowerEvent) => void): Promise<Rack> {
  const args = ['--import', import.meta.resolve('tsx'), programOfRack(), JSON.stringify({ credential, machines })];
  const { PATH } = process.env;
  const child = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'inherit'], env: PATH === undefined ? {} : { PATH } });
  child.stdin.on('error', () => undefined);
  const controllers = await readyOf(child, onPower);
  return {
    controllers,
    plug: (name, plugged) => void child.stdin.write(`${JSON.stringify({ name, plugged })}\n`),
    async stop() {
      const ended = new Promise<void>((resolve) => child.once('close', () => resolve()));
      child.stdin.end();
      if (child.exitCode === null) await ended;
    },
  };
}

function readyOf(child: ChildProcess, onPower: (event: PowerEvent) => void): Promise<Rack['controllers']> {
  return new Promise((resolve, reject) => {
    const fail = (how: string): void =>
      reject(new ControlError('UNAVAILABLE', `the fake controllers did not start: ${how}`, { details: { reason: 'no-rack' } }));
    const timer = setTimeout(() => fail('no answer within a minute'), minute);
    child.once('close', (code) => fail(`exit code ${code}`));
    const lines = createInterface({ input: child.stdout as NonNullable<ChildProcess['stdout']> });
    lines.on('line', (line) => {
      const told = JSON.parse(line) as { ready?: true; controllers?: Rack['controllers'] } & PowerEvent;
      if (told.ready !== true) return onPower(told);
      clearTimeout(timer);
      resolve(told.controllers ?? {});
    });
  });
}
