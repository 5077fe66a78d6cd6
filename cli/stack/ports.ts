/**
 * Which ports the stack takes. A port that was asked for (flag or environment) is taken or refused; one that others have been
 * told (daemons know the gateway's, people bookmark the API's) stays what it was at the last start; for the rest, the usual
 * port when it is free and any free one otherwise, so that two stacks run side by side without a setting.
 */
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ControlError } from '../../domain/errors.ts';
import { cacheFolder } from '../../scripts/engines/temporal.mjs';
import { claimPort, isPortFree } from '../../scripts/lib/free-port.mjs';
import { tryLock } from '../../scripts/lib/lock.mjs';

interface PortRow {
  readonly usual: number;
  readonly who: string;
  /** null: always a free one; the run folder says which. */
  readonly setBy: string | null;
  /** Others know it: it may not move by itself. */
  readonly stays: boolean;
}

// One name cannot set four ports of one host.
const metrics = (process: string): PortRow => ({ usual: 0, who: `the metrics of ${process}`, setBy: null, stays: false });

export const portTable = Object.freeze({
  api: { usual: 8400, who: 'the operator API', setBy: 'BETTER_COMPUTE_API_PORT', stays: true },
  internal: { usual: 0, who: "the api's internal listener", setBy: 'BETTER_COMPUTE_INTERNAL_PORT', stays: false },
  gateway: { usual: 8443, who: 'the gateway', setBy: 'BETTER_COMPUTE_GATEWAY_PORT', stays: true },
  postgres: { usual: 0, who: 'the embedded PostgreSQL', setBy: 'BETTER_COMPUTE_POSTGRES_PORT', stays: false },
  temporal: { usual: 7233, who: 'the local Temporal server', setBy: 'BETTER_COMPUTE_TEMPORAL_PORT', stays: false },
  temporalUi: { usual: 8233, who: 'the Temporal UI', setBy: 'BETTER_COMPUTE_TEMPORAL_UI_PORT', stays: false },
  apiMetrics: metrics('api'),
  gatewayMetrics: metrics('gateway'),
  controlMetrics: metrics('worker control'),
  signingMetrics: metrics('worker signing'),
} as const satisfies Record<string, PortRow>);

export type PortName = keyof typeof portTable;
export type Ports = Readonly<Record<PortName, number>>;

const names = Object.keys(portTable) as PortName[];

export interface ChosenPorts {
  readonly ports: Ports;
  /** Gives the reservations back. */
  release(): void;
}

/**
 * @param file where the ports of the last start are kept
 * @throws PORT_TAKEN naming who asked; INVALID_CONFIG for a value that is no port
 */
export async function choosePorts(env: NodeJS.ProcessEnv, file: string): Promise<ChosenPorts> {
  const last = readLast(file);
  const reservations = createReservations(join(cacheFolder(env), 'ports'));
  const chosen: Partial<Record<PortName, number>> = {};
  try {
    for (const name of names) chosen[name] = await choose(name, { env, last: last[name], reserve: reservations.reserve });
  } catch (error) {
    reservations.release();
    throw error;
  }
  const ports = chosen as Ports;
  writeFileSync(`${file}.new`, `${JSON.stringify(ports, null, 2)}\n`, { mode: 0o600 });
  renameSync(`${file}.new`, file);
  return { ports, release: reservations.release };
}

interface Choice {
  readonly env: NodeJS.ProcessEnv;
  readonly last: number | undefined;
  readonly reserve: (port: number) => boolean;
}

async function choose(name: PortName, { env, last, reserve }: Choice): Promise<number> {
  const { usual, who, setBy, stays }: PortRow = portTable[name];
  const asked = setBy === null ? undefined : askedPort(env, setBy);
  if (asked !== undefined && asked !== 0) return claim(asked, who, setBy ?? '');
  if (asked === undefined && last !== undefined && stays) return claim(last, who, `the last start; ${setBy} moves it`);
  for (const wish of wishes({ last, usual, any: asked === 0 })) {
    if ((await isPortFree(wish)) && reserve(wish)) return wish;
  }
  return claimAny(who, reserve);
}

async function claimAny(who: string, reserve: Choice['reserve']): Promise<number> {
  for (;;) {
    const port = await claim(0, who, 'free choice');
    if (reserve(port)) return port;
  }
}

/** What would be nice to have, and is no loss otherwise. */
const wishes = ({ last, usual, any }: { last: number | undefined; usual: number; any: boolean }): number[] =>
  [last ?? 0, any ? 0 : usual].filter((port) => port !== 0);

/**
 * Between the choice of a port and the moment its process binds it lie seconds, in which another stack that starts beside us
 * would choose the same. A lock file a port, for the stacks of this user on this machine.
 */
function createReservations(folder: string) {
  const locks: (() => void)[] = [];
  return {
    reserve(port: number): boolean {
      const lock = tryLock(join(folder, String(port)));
      if (lock.kind === 'taken') locks.push(() => lock.release());
      return lock.kind === 'taken';
    },
    release(): void {
      for (const release of locks.splice(0)) release();
    },
  };
}

function askedPort(env: NodeJS.ProcessEnv, name: string): number | undefined {
  const value = env[name];
  if (value === undefined || value === '') return undefined;
  if (/^\d{1,5}$/.test(value) && Number(value) <= 65_535) return Number(value);
  throw new ControlError('INVALID_CONFIG', `${name} "${value}" must be a port number from 0 to 65535`, { details: { reason: 'port' } });
}

async function claim(port: number, who: string, setBy: string): Promise<number> {
  try {
    return await claimPort({ port, who, setBy });
  } catch (cause) {
    const message = cause instanceof Error ? cause.message : String(cause);
    throw new ControlError('PORT_TAKEN', message, { details: { reason: 'port-in-use', port, who, setBy }, cause });
  }
}

function readLast(file: string): Partial<Record<string, number>> {
  try {
    const ports = JSON.parse(readFileSync(file, 'utf8')) as Record<string, unknown>;
    return Object.fromEntries(Object.entries(ports).filter((entry): entry is [string, number] => typeof entry[1] === 'number'));
  } catch {
    return {};
  }
}
