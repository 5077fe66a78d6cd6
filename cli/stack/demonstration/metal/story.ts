/**
 * What `npm run demo:metal` shows: ten machines behind controllers, one site agent with its boot server, two of three approvers for every
 * machine's batch, wipes and images with signed evidence, and each machine's own system that joins. On the way the worker is killed, one
 * controller loses its plug for a while, and one machine, whose cable is out, is cancelled and left untouched.
 */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { ControlError } from '../../../../domain/errors.ts';
import { second } from '../../../../domain/time.ts';
import { rotationTimes } from '../../../../runtime/config.ts';
import { workflowIds } from '../../../../temporal.config.ts';
import type { RunResult, RunStatus } from '../../../../workflows/shared/machine-messages.ts';
import { createOperatorClient, type OperatorClient } from '../../../api-client.ts';
import { type BatchClient, createBatchClient } from '../../../batch/client.ts';
import type { CliIo } from '../../../io.ts';
import { createMachineClient, type MachineClient } from '../../../machines/client.ts';
import { createSettings } from '../../../settings.ts';
import { connectTemporal, type TemporalSession } from '../../../temporal.ts';
import { daemonEnv } from '../../processes.ts';
import type { Stack } from '../../stack.ts';
import { type Approvers, introduceApprovers } from '../batch/approvers.ts';
import { runOurs } from '../batch/programs.ts';
import { untilConnected } from '../fleet.ts';
import { pause } from '../watch-rotation.ts';
import { checkEvidence } from './evidence.ts';
import { hostImage, type ImageHost } from './image.ts';
import { createHardware, type Hardware } from './machine.ts';
import { machineOf, profileOf } from './profile.ts';
import { credential, type Rack, type RackMachine, startRack } from './rack.ts';
import { agentName, type Site, siteId, startSite } from './site.ts';

export interface MetalDemonstrationOptions {
  readonly stack: Stack;
  readonly io: CliIo;
  readonly machines: number;
  readonly signal: AbortSignal;
}

export interface MetalSummary {
  readonly machines: number;
  /** Which tree the controllers show → how many of them; `minimal` is the small one of the project. */
  readonly controllers: Readonly<Record<string, number>>;
  readonly joined: readonly string[];
  readonly evidence: { readonly erased: number; readonly deployed: number; readonly verified: boolean };
  readonly cancelled: { readonly machine: string; readonly end: string; readonly remains: string; readonly state: string };
  readonly workerKilled: boolean;
  readonly controllerUnplugged: string;
  readonly approvals: number;
  readonly historyEvents: { readonly least: number; readonly most: number };
  readonly seconds: number;
}

interface Scene extends MetalDemonstrationOptions {
  readonly api: OperatorClient;
  readonly machinesApi: MachineClient;
  readonly batches: BatchClient;
  readonly session: TemporalSession;
  readonly say: (line: string) => void;
  readonly keep: (close: () => Promise<void> | void) => void;
}

const actor = 'demonstration';
const words = { actor, reason: 'a demonstration' };

export async function runMetalDemonstration(options: MetalDemonstrationOptions): Promise<{ summary: MetalSummary; stop(): Promise<void> }> {
  const { io, stack } = options;
  const settings = createSettings(stack.facts.env);
  const session = await connectTemporal(settings.temporalEnv());
  const begun = io.now();
  const say = (line: string): void => io.err(`${((io.now() - begun) / second).toFixed(1).padStart(6)} s  ${line}`);
  const closing: (() => Promise<void> | void)[] = [() => session.close()];
  const stop = async (): Promise<void> => {
    for (const close of closing.splice(0).toReversed()) await close();
  };
  const scene: Scene = {
    ...options,
    api: createOperatorClient(settings),
    machinesApi: createMachineClient(settings),
    batches: createBatchClient(settings),
    session,
    say,
    keep: (close) => void closing.push(close),
  };
  try {
    return { summary: await show(scene), stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function show(scene: Scene): Promise<MetalSummary> {
  const { io, say } = scene;
  const begun = io.now();
  const place = await build(scene);
  const approvers = await introduceApprovers(scene);
  say('two of three approvers are asked for everything that destroys');
  await inspectAll(scene, place);
  await Promise.all(place.machines.map(({ name }) => scene.machinesApi.provision(name, { ...words, profile: profileOf(place) })));
  say(`${place.machines.length} machines are being provisioned; nothing is sent before their batches are approved`);
  const [results] = await together(scene, (one) => [
    Promise.all(place.machines.map(({ name }) => untilEnd(one, name))),
    approveAll(one, place, approvers),
    disturb(one, place),
  ]);
  const summary = await sumUp(scene, place, { results, seconds: Math.round((io.now() - begun) / 100) / 10 });
  assertShown(summary);
  return summary;
}

/** Side by side; where one of them fails the others are ended before it is told. */
async function together<T extends readonly unknown[]>(
  scene: Scene,
  begin: (scene: Scene) => { [K in keyof T]: Promise<T[K]> },
): Promise<T> {
  const failed = new AbortController();
  const work = begin({ ...scene, signal: AbortSignal.any([scene.signal, failed.signal]) });
  try {
    return await Promise.all(work);
  } catch (error) {
    failed.abort();
    await Promise.allSettled(work);
    throw error;
  }
}

interface Place {
  readonly machines: readonly RackMachine[];
  readonly rack: Rack;
  readonly site: Site;
  readonly image: ImageHost;
  /** The one whose cable is out. */
  readonly lost: string;
  /** The one whose controller loses its plug. */
  readonly unplugged: string;
}

async function build(scene: Scene): Promise<Place> {
  const { stack, api, say, signal, keep } = scene;
  const machines = Array.from({ length: scene.machines }, machineOf);
  const rootOverlapMs = rotationTimes(stack.facts.env).overlapMs;
  const site = await startSite({ stack, api, rootOverlapMs, say });
  keep(() => site.stop());
  await untilConnected({ api, names: [agentName], signal });
  say(`the site agent is connected; its boot server is ${site.bootUrl}`);
  const image = await hostImage();
  keep(() => image.close());
  const lost = String(machines.at(-1)?.name);
  const hardware = new Map<string, Hardware>();
  const root = join(stack.home.root, 'metal');
  for (const machine of machines) {
    const folder = join(root, machine.name);
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const env = daemonEnv(stack.facts.env);
    const cabled = machine.name !== lost;
    hardware.set(machine.name, createHardware({ machine, folder, env, bootUrl: () => site.bootUrl, rootOverlapMs, cabled, say }));
  }
  keep(async () => void (await Promise.all([...hardware.values()].map((one) => one.stop()))));
  const rack = await startRack(machines, (event) => hardware.get(event.name)?.power(event));
  keep(() => rack.stop());
  const shown = Object.entries(countTrees(rack)).map(([tree, count]) => `${count} as ${tree}`);
  say(`${machines.length} controllers answer: ${shown.join(', ')}`);
  return { machines, rack, site, image, lost, unplugged: String(machines[2]?.name) };
}

function countTrees({ controllers }: Rack): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { tree } of Object.values(controllers)) counts[tree] = (counts[tree] ?? 0) + 1;
  return counts;
}

async function inspectAll(scene: Scene, { machines, rack }: Place): Promise<void> {
  const { machinesApi, say, api } = scene;
  await storeCredentials(api, machines);
  for (const [at, { name, macAddress }] of machines.entries()) {
    const bmcAddress = String(rack.controllers[name]?.address);
    const machine = { id: name, siteId, rack: `r${(at % 2) + 1}`, bmcAddress, macAddresses: [macAddress] };
    await machinesApi.add({ machine, actor });
    await machinesApi.begin(name, 'inspect', words);
  }
  for (const { name } of machines) {
    const { end, failure, detail } = await resultOf(scene, workflowIds.machineRun(name, 'inspect'));
    if (end !== 'done') throw notShown(`inspecting ${name} ended as ${end} (${failure}): ${detail}`);
  }
  say(`${machines.length} machines were inspected: identity, ports and the keys of their controllers are known`);
}

async function storeCredentials(api: OperatorClient, machines: readonly RackMachine[]): Promise<void> {
  const value = Buffer.from(JSON.stringify(credential)).toString('base64');
  for (const { name } of machines) await api.setSecret({ path: `bmc/${name}`, value, actor });
}

/** Asked again and again: a wait inside of a call would outlive the connection where the demonstration ends early. */
async function resultOf({ session, signal }: Scene, workflowId: string): Promise<RunResult> {
  const handle = session.client.workflow.getHandle<() => Promise<RunResult>>(workflowId);
  while ((await handle.describe()).status.name === 'RUNNING') {
    signal.throwIfAborted();
    await pause(second / 2, signal);
  }
  return handle.result();
}

const statusOf = (scene: Scene, name: string): Promise<RunStatus | null> =>
  scene.session.client.workflow
    .getHandle(workflowIds.machineRun(name, 'provision'))
    .query<RunStatus>('status')
    .catch(() => null);

async function untilEnd(scene: Scene, name: string): Promise<RunResult> {
  const result = await resultOf(scene, workflowIds.machineRun(name, 'provision'));
  const { end, failure, remains, detail } = result;
  scene.say(`${name}: ${end}${failure === '' ? '' : ` (${failure}: ${detail})`}${remains === null ? '' : `, ${remains}`}`);
  return result;
}

async function untilStatus(scene: Scene, name: string, holds: (status: RunStatus) => boolean): Promise<RunStatus> {
  for (;;) {
    scene.signal.throwIfAborted();
    const status = await statusOf(scene, name);
    if (status !== null && holds(status)) return status;
    if (status?.end != null) throw notShown(`${name} ended as ${status.end} (${status.failure}) too early`);
    await pause(300, scene.signal);
  }
}

/** Alice and Bob, each with the program that approvers use; machine by machine, as their batches come. */
async function approveAll(scene: Scene, { machines }: Place, { keys }: Approvers): Promise<void> {
  for (const { name } of machines) {
    const { batchId } = await untilStatus(scene, name, ({ phase }) => phase === 'waiting-approvals');
    const { root } = await scene.batches.get(String(batchId));
    const approve = (key: string | undefined): Promise<string> =>
      runOurs(scene.stack, [
        'batch',
        'approve',
        String(batchId),
        '--key',
        String(key),
        '--root',
        root,
        '--yes',
        '--allow-unbound',
        '--max-hours',
        '168',
      ]);
    await Promise.all(keys.slice(0, 2).map(approve));
    scene.say(`${name}: alice and bob approved batch ${batchId}`);
  }
}

async function disturb(scene: Scene, { machines, rack, unplugged, lost }: Place): Promise<void> {
  const { say, stack, machinesApi, signal } = scene;
  rack.plug(unplugged, false);
  say(`${unplugged}: its controller has lost its plug`);
  await untilStatus(
    scene,
    String(machines[0]?.name),
    ({ phase }) => phase !== 'waiting-approvals' && phase !== 'planning' && phase !== 'booting',
  );
  process.kill(stack.pidOf('worker-control'), 'SIGKILL');
  say('the worker is killed in the middle of it; the supervisor starts another one');
  await untilStatus(scene, unplugged, ({ step }) => step === 'boot');
  await pause(8 * second, signal);
  rack.plug(unplugged, true);
  say(`${unplugged}: its controller answers again`);
  await untilStatus(scene, lost, ({ phase }) => phase === 'waiting-ramdisk');
  await machinesApi.steer(lost, 'cancel', { actor, reason: 'its cable is out' });
  say(`${lost}: nothing boots there; it is cancelled`);
}

async function sumUp(
  scene: Scene,
  place: Place,
  { results, seconds }: { results: readonly RunResult[]; seconds: number },
): Promise<MetalSummary> {
  const { machinesApi, session, say, api, signal } = scene;
  const done = results.filter(({ end }) => end === 'done').map(({ machineId }) => machineId);
  await untilConnected({ api, names: done, signal });
  const joined: string[] = [];
  for (const name of done) {
    const { state, connected } = await machinesApi.get(name);
    if (state === 'provisioned' && connected) joined.push(name);
  }
  const evidence = await checkEvidence(scene, joined);
  say(`the evidence of ${joined.length} machines was exported and verified again`);
  const events = await Promise.all(
    done.map(async (name) => (await session.client.workflow.getHandle(workflowIds.machineRun(name, 'provision')).describe()).historyLength),
  );
  const lost = results.find(({ machineId }) => machineId === place.lost);
  const { state } = await machinesApi.get(place.lost);
  return {
    machines: results.length,
    controllers: countTrees(place.rack),
    joined,
    evidence,
    cancelled: { machine: place.lost, end: String(lost?.end), remains: String(lost?.remains), state },
    workerKilled: true,
    controllerUnplugged: place.unplugged,
    approvals: 2 * results.length,
    historyEvents: { least: Math.min(...events), most: Math.max(...events) },
    seconds,
  };
}

const notShown = (message: string): ControlError =>
  new ControlError('INTERNAL', `the demonstration did not show what it is for: ${message}`, { details: { reason: 'demonstration' } });

/** A demonstration that shows less than it says has failed. */
function assertShown({ machines, joined, evidence, cancelled }: MetalSummary): void {
  if (joined.length !== machines - 1) throw notShown(`${joined.length} of ${machines} machines joined, not ${machines - 1}`);
  if (!evidence.verified || evidence.erased !== joined.length || evidence.deployed !== joined.length)
    throw notShown(`evidence of ${evidence.erased} wipes and ${evidence.deployed} images`);
  if (cancelled.end !== 'cancelled' || cancelled.remains !== 'untouched')
    throw notShown(`${cancelled.machine} ended as ${cancelled.end}, ${cancelled.remains}`);
}
