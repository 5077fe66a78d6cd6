/**
 * What `npm start` shows: real daemons join, a command runs on each of them every second, the command root is rotated under
 * that traffic with one daemon stopped on purpose, and at the end the evidence is checked and the figures are told.
 *
 * A rotation that is already under way (a stack that was ended in the middle of one) is gone on with instead of started.
 */
import { randomUUID } from 'node:crypto';
import { relative } from 'node:path';
import { ControlError, isControlError } from '../../../domain/errors.ts';
import { second } from '../../../domain/time.ts';
import { rotationTimes } from '../../../runtime/config.ts';
import { createOperatorClient, type OperatorClient } from '../../api-client.ts';
import { shortId } from '../../format.ts';
import type { CliIo } from '../../io.ts';
import type { RotationPort } from '../../rotation-port.ts';
import { createSettings } from '../../settings.ts';
import { connectTemporal, type TemporalSession } from '../../temporal.ts';
import { createRotationPort } from '../../temporal-rotation.ts';
import type { Stack } from '../stack.ts';
import { checkEvidence } from './evidence.ts';
import { type Fleet, startFleet, untilConnected } from './fleet.ts';
import { stallOne } from './stalled-daemon.ts';
import { createSummary, type Summary } from './summary.ts';
import { startTraffic, type Traffic } from './traffic.ts';
import { pause, type Watched, watchRotation } from './watch-rotation.ts';

export interface DemonstrationOptions {
  readonly stack: Stack;
  readonly io: CliIo;
  readonly nodes: number;
  readonly signal: AbortSignal;
}

export interface Demonstration {
  readonly summary: Summary;
  /** Ends the traffic and the daemons; before this they go on. */
  stop(): Promise<void>;
}

interface Scene extends DemonstrationOptions {
  readonly api: OperatorClient;
  readonly session: TemporalSession;
  readonly rotation: Omit<RotationPort, 'close'>;
  readonly say: (line: string) => void;
}

/** Traffic before and after the rotation, so that both roots are seen at work. */
const aroundMs = 3 * second;

export async function runDemonstration(options: DemonstrationOptions): Promise<Demonstration> {
  const { io, stack } = options;
  const settings = createSettings(stack.facts.env);
  const session = await connectTemporal(settings.temporalEnv());
  const begun = io.now();
  const say = (line: string): void => io.err(`${((io.now() - begun) / second).toFixed(1).padStart(6)} s  ${line}`);
  const scene: Scene = { ...options, api: createOperatorClient(settings), session, rotation: createRotationPort(session.client), say };
  const closing: (() => Promise<void> | void)[] = [() => session.close()];
  const stop = async (): Promise<void> => {
    for (const close of closing.splice(0).toReversed()) await close();
  };
  try {
    const fleet = await gather(scene);
    closing.push(() => fleet.stop());
    const traffic = startTraffic(session.client, { run: `demonstration-${randomUUID().slice(0, 8)}`, nodes: fleet.names });
    closing.push(() => traffic.stop());
    return { summary: await rotate(scene, fleet, traffic), stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function gather({ stack, api, nodes, say, signal }: Scene): Promise<Fleet> {
  const rootOverlapMs = rotationTimes(stack.facts.env).overlapMs;
  const fleet = await startFleet({ stack, api, count: nodes, rootOverlapMs, say });
  try {
    await untilConnected({ api, names: fleet.names, signal });
  } catch (error) {
    await fleet.stop();
    throw error;
  }
  const found = fleet.names.length - fleet.joined;
  say(`${fleet.names.length} daemons are connected (${fleet.joined} joined by token${found === 0 ? '' : `, ${found} found again`})`);
  return fleet;
}

async function rotate(scene: Scene, fleet: Fleet, traffic: Traffic): Promise<Summary> {
  const { api, io, rotation, say, session, signal, stack } = scene;
  say('a command runs on each of them every second');
  await pause(aroundMs, signal);
  const before = await api.getTrust();
  const stalled = stallOne({ fleet, name: fleet.names.at(-1) ?? '', say, now: () => io.now() });
  let watched: Watched;
  try {
    await startOrGoOn(scene);
    watched = await watchRotation({
      rotation: { ...rotation, close: async () => undefined },
      say,
      onLook: (run) => stalled.look(run),
      now: () => io.now(),
      signal,
    });
  } finally {
    stalled.end();
  }
  await pause(aroundMs, signal);
  await traffic.finish(signal);
  const rotationId = watched.run.result?.rotationId ?? '';
  const evidence = await checkEvidence({ stack, api, rotationId, minOverlapMs: rotationTimes(stack.facts.env).overlapMs });
  say(`the evidence holds: ${evidence.verdict.stages.length} signed documents in ${relative('.', evidence.file)}`);
  const description = await session.client.workflow.getHandle(watched.run.workflowId, watched.run.runId).describe();
  const summary = createSummary({
    nodes: fleet.names.length,
    before,
    after: await api.getTrust(),
    watched,
    traffic: traffic.count,
    evidence,
    historyEvents: description.historyLength,
  });
  tell(summary, say);
  return summary;
}

/** Starts a rotation, or says that one is under way and goes on with it. */
async function startOrGoOn({ rotation, say }: Scene): Promise<void> {
  try {
    await rotation.start({ actor: 'demonstration', reason: 'shown by npm start' });
    say('rotation of the command root started');
  } catch (error) {
    if (!isControlError(error) || !['INVALID_STATE', 'CONFLICT'].includes(error.code)) throw error;
    say('a rotation is under way already: going on with it');
  }
}

function tell({ roots, trustVersions, commands, historyEvents, seconds }: Summary, say: (line: string) => void): void {
  say(
    `root ${shortId(roots.before)} → ${shortId(roots.after)}, trust version ${trustVersions.before} → ${trustVersions.after}, ${seconds} s, ${historyEvents} events of history`,
  );
  say(`${commands.run} commands run, ${commands.rejected} rejected${commands.failed === 0 ? '' : `, ${commands.failed} failed`}`);
  if (commands.rejected + commands.failed > 0) {
    throw new ControlError(
      'INTERNAL',
      `the rotation disturbed commands: ${commands.rejected} rejected, ${commands.failed} failed (${commands.failures.join('; ')})`,
      {
        details: { reason: 'commands-disturbed' },
      },
    );
  }
}
