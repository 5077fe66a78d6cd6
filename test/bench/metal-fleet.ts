/**
 * 200 machines provisioned at once by the whole control plane on this machine: what it costs the control plane for each, in events of
 * history and in processor time of its four processes (api, gateway, both workers), from the order to the last machine that joined.
 * PostgreSQL and Temporal are told beside it, and what the SDK alone costs for as many activities. Controllers, ramdisks, systems and the site agent are processes of their own and are not
 * counted.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { WorkflowHandle } from '@temporalio/client';
import { createOperatorClient } from '../../cli/api-client.ts';
import { createMachineClient } from '../../cli/machines/client.ts';
import { createSettings } from '../../cli/settings.ts';
import { untilConnected } from '../../cli/stack/demonstration/fleet.ts';
import { profileOf } from '../../cli/stack/demonstration/metal/profile.ts';
import { credential, type RackMachine } from '../../cli/stack/demonstration/metal/rack.ts';
import { agentName, siteId, startSite } from '../../cli/stack/demonstration/metal/site.ts';
import { type Stack, startStack } from '../../cli/stack/stack.ts';
import { connectTemporal } from '../../cli/temporal.ts';
import { rotationTimes } from '../../runtime/config.ts';
import { workflowIds } from '../../temporal.config.ts';
import type { RunResult } from '../../workflows/shared/machine-messages.ts';
import { familyOf } from '../harness/live-stack.ts';
import { freePorts, processesOf, stateFolder } from '../harness/run-start.ts';
import { removeScratchFolders } from '../harness/scratch.ts';
import type { Figure } from './main.ts';
import { bareCpuMs } from './metal-fleet-bare.ts';

const goals = { events: 150, cpuMs: 60 };
const machinesAtOnce = Number(process.env['BC_BENCH_MACHINES'] ?? 200);
const words = { actor: 'bench', reason: 'metal-fleet' };
const counted = ['api', 'gateway', 'worker-control', 'worker-signing'] as const;
type Counted = (typeof counted)[number];
/** Of the kernel's clock, the same on every Linux. */
const msOfTick = 10;

const progress = (text: string): void => void (process.env['BC_BENCH_QUIET'] === '1' || process.stderr.write(`${text}\n`));

interface Used {
  readonly cpuMs: number;
  readonly residentMiB: number;
}

/** With the time of children that have ended; nothing for a process that is gone. */
function usageOf(pid: number): Used {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const pages = Number(readFileSync(`/proc/${pid}/statm`, 'utf8').split(' ')[1]);
    const ticks = fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0);
    return { cpuMs: ticks * msOfTick, residentMiB: Math.round((pages * 4096) / 2 ** 20) };
  } catch {
    return { cpuMs: 0, residentMiB: 0 };
  }
}

type Usage = Readonly<Record<Counted | 'temporal' | 'postgres', Used>>;

function usage(stack: Stack): Usage {
  const engine = (command: RegExp) => {
    const pid = processesOf(stack.home.root).find((one) => command.test(one.command))?.pid;
    const all = (pid === undefined ? [] : familyOf(pid)).map(usageOf);
    const sum = (what: 'cpuMs' | 'residentMiB'): number => all.reduce((total, one) => total + one[what], 0);
    return { cpuMs: sum('cpuMs'), residentMiB: sum('residentMiB') };
  };
  return {
    ...(Object.fromEntries(counted.map((name) => [name, usageOf(stack.pidOf(name))])) as Record<Counted, Used>),
    temporal: engine(/^\S*temporal server start-dev/),
    postgres: engine(/^\S*postgres -D/),
  };
}

interface Machines {
  readonly controllers: Readonly<Record<string, { readonly address: string; readonly pinSha256: string }>>;
  readonly image: { readonly url: string; readonly sha256: string; readonly bytes: number };
  stop(): void;
}

async function startMachines(
  folder: string,
  { bootUrl, machines }: { bootUrl: string; machines: readonly RackMachine[] },
): Promise<Machines> {
  mkdirSync(folder, { recursive: true });
  const wants = join(folder, 'wants.json');
  writeFileSync(wants, JSON.stringify({ root: folder, bootUrl, machines }));
  const ending = import.meta.url.endsWith('.ts') ? 'ts' : 'js';
  const program = new URL(`./metal-fleet-child.${ending}`, import.meta.url).pathname;
  const loader = ending === 'ts' ? ['--import', import.meta.resolve('tsx')] : [];
  const child = spawn(process.execPath, [...loader, program, wants], { stdio: ['pipe', 'pipe', 'inherit'] });
  const [line] = (await once(createInterface({ input: child.stdout }), 'line')) as [string];
  return { ...(JSON.parse(line) as Omit<Machines, 'stop'>), stop: () => void child.stdin.end() };
}

const machineOf = (_: unknown, at: number): RackMachine => {
  const four = (at + 1).toString(16).padStart(4, '0');
  return {
    name: `metal-${four}`,
    serial: `BENCH-${four}`,
    uuid: `1000${four}-7b54-4d4c-8a2e-0c0ffee0${four}`,
    macAddress: `3c:ec:ef:00:${four.slice(0, 2)}:${four.slice(2)}`,
  };
};

async function inSlices<T>(all: readonly T[], size: number, act: (one: T) => Promise<unknown>): Promise<void> {
  for (let at = 0; at < all.length; at += size) await Promise.all(all.slice(at, at + size).map(act));
}

interface Measured {
  readonly before: Usage;
  readonly after: Usage;
  readonly peakMiB: Readonly<Record<Counted, number>>;
  readonly results: readonly RunResult[];
  readonly events: readonly number[];
  readonly seconds: number;
  readonly bareMs: number;
}

async function provisionAll(stack: Stack, cleanUps: (() => unknown)[]): Promise<Measured> {
  const settings = createSettings(stack.facts.env);
  const api = createOperatorClient(settings);
  const machinesApi = createMachineClient(settings);
  const { signal } = new AbortController();
  const machines = Array.from({ length: machinesAtOnce }, machineOf);
  const site = await startSite({ stack, api, rootOverlapMs: rotationTimes(stack.facts.env).overlapMs, say: () => undefined });
  cleanUps.push(() => site.stop());
  await untilConnected({ api, names: [agentName], signal });
  const hardware = await startMachines(join(stack.home.root, 'metal'), { bootUrl: site.bootUrl, machines });
  cleanUps.push(() => hardware.stop());
  const session = await connectTemporal(settings.temporalEnv());
  cleanUps.push(() => session.close());
  const handleOf = (name: string, kind: 'inspect' | 'provision'): WorkflowHandle =>
    session.client.workflow.getHandle(workflowIds.machineRun(name, kind));
  progress(`${machines.length} controllers answer`);
  const value = Buffer.from(JSON.stringify(credential)).toString('base64');
  await inSlices(machines, 2, async ({ name, macAddress }) => {
    await api.setSecret({ path: `bmc/${name}`, value, actor: words.actor });
    const bmcAddress = String(hardware.controllers[name]?.address);
    await machinesApi.add({ machine: { id: name, siteId, rack: 'r1', bmcAddress, macAddresses: [macAddress] }, actor: words.actor });
    await machinesApi.begin(name, 'inspect', words);
  });
  for (const { name } of machines) {
    const { end, failure, detail } = (await handleOf(name, 'inspect').result()) as RunResult;
    if (end !== 'done') throw new Error(`inspecting ${name} ended as ${end} (${failure}): ${detail}`);
  }
  progress(`${machines.length} machines are inspected`);

  const before = usage(stack);
  const peakMiB = Object.fromEntries(counted.map((name) => [name, 0])) as Record<Counted, number>;
  const watch = setInterval(() => {
    for (const name of counted) peakMiB[name] = Math.max(peakMiB[name], usageOf(stack.pidOf(name)).residentMiB);
  }, 1_000);
  const begun = performance.now();
  const profile = profileOf({ site, image: { ...hardware.image, close: () => undefined } });
  try {
    await inSlices(machines, 4, ({ name }) => machinesApi.provision(name, { ...words, profile }));
    progress(`${machines.length} runs have begun`);
    const results: RunResult[] = [];
    for (const { name } of machines) {
      results.push((await handleOf(name, 'provision').result()) as RunResult);
      if (results.length % 20 === 0) progress(`${results.length} have ended`);
    }
    const after = usage(stack);
    const seconds = (performance.now() - begun) / 1_000;
    const events: number[] = [];
    for (const { name } of machines) events.push((await handleOf(name, 'provision').describe()).historyLength);
    return { before, after, peakMiB, results, events, seconds, bareMs: await bareCpuMs(settings.temporalEnv(), machines.length) };
  } finally {
    clearInterval(watch);
  }
}

export async function figure(): Promise<Figure> {
  const cleanUps: (() => unknown)[] = [removeScratchFolders];
  try {
    const env = { ...process.env, ...freePorts, BETTER_COMPUTE_HOME: stateFolder() };
    const stack = await startStack({ env, now: Date.now, say: progress, signal: new AbortController().signal });
    cleanUps.push(() => stack.stop());
    return figureOf(await provisionAll(stack, cleanUps));
  } finally {
    for (const cleanUp of cleanUps.toReversed()) await cleanUp();
  }
}

function figureOf({ before, after, peakMiB, results, events, seconds, bareMs }: Measured): Figure {
  const perMachine = (name: keyof Usage): number => Math.round(((after[name].cpuMs - before[name].cpuMs) / results.length) * 10) / 10;
  const cpuMs = Math.round(counted.reduce((sum, name) => sum + perMachine(name), 0) * 10) / 10;
  const mostEvents = Math.max(...events);
  const failed = results.filter(({ end }) => end !== 'done');
  const memoryMiB = Object.fromEntries(
    counted.map((name) => [name, { before: before[name].residentMiB, peak: peakMiB[name], after: after[name].residentMiB }]),
  );
  const detail = {
    machines: results.length,
    done: results.length - failed.length,
    failed: failed.slice(0, 3).map(({ machineId, failure, detail: why }) => `${machineId}: ${failure}: ${why}`),
    seconds: Math.round(seconds),
    historyEvents: { least: Math.min(...events), most: mostEvents },
    cpuMsPerMachine: Object.fromEntries(counted.map((name) => [name, perMachine(name)])),
    /** The SDK alone, for as many activities (metal-fleet-bare.ts). */
    bareMs: Math.round(bareMs * 10) / 10,
    ofBare: Math.round((cpuMs / bareMs) * 100) / 100,
    notCounted: { temporal: perMachine('temporal'), postgres: perMachine('postgres') },
    memoryMiB,
  };
  const holds = failed.length === 0 && mostEvents <= goals.events && cpuMs <= goals.cpuMs;
  return {
    figure: 'metal-fleet',
    ratio: cpuMs,
    measured: `${cpuMs} ms, ${mostEvents} events`,
    goal: `<= ${goals.cpuMs} ms, <= ${goals.events} events`,
    holds,
    detail,
  };
}
