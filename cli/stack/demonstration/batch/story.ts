/**
 * What `npm run demo:batch` shows: real daemons, two of three approvers, a batch of reboots that waits for them, one approval through the
 * approver's own program and one through Temporal's, the waves, one operation that is played again and refused by the machine, and
 * evidence that anyone can check.
 */
import { join } from 'node:path';
import { ControlError } from '../../../../domain/errors.ts';
import { second } from '../../../../domain/time.ts';
import { encodeEvidenceFile } from '../../../../pki/audit/evidence-file.ts';
import { verifyQuorumEvidence } from '../../../../pki/audit/verify-quorum-evidence.ts';
import { replaceWhole } from '../../../../runtime/bundle-file-store.ts';
import { rotationTimes } from '../../../../runtime/config.ts';
import { taskQueues, workflowIds } from '../../../../temporal.config.ts';
import type { BatchResult, BatchStatus } from '../../../../workflows/approve-batch/messages.ts';
import type { RunCommandResult } from '../../../../workflows/run-command/messages.ts';
import { createOperatorClient, type OperatorClient } from '../../../api-client.ts';
import { readBundlePins } from '../../../bundle-pins.ts';
import { fetchEvidence } from '../../../commands/rotation/evidence.ts';
import type { CliIo } from '../../../io.ts';
import { createSettings } from '../../../settings.ts';
import { connectTemporal, type TemporalSession } from '../../../temporal.ts';
import type { Stack } from '../../stack.ts';
import { type Fleet, startFleet, untilConnected } from '../fleet.ts';
import { pause } from '../watch-rotation.ts';
import { type Approvers, introduceApprovers } from './approvers.ts';
import { runOurs, runTemporal } from './programs.ts';
import { holdReboots, kind, payloadOf, type Reboots } from './reboots.ts';

export interface BatchDemonstrationOptions {
  readonly stack: Stack;
  readonly io: CliIo;
  readonly nodes: number;
  /** Reboots of each machine. */
  readonly each: number;
  readonly signal: AbortSignal;
}

export interface BatchSummary {
  readonly batchId: string;
  readonly outcome: string;
  readonly nodes: number;
  readonly operations: number;
  readonly required: number;
  readonly approvedBy: readonly string[];
  readonly commands: Readonly<Record<string, number>>;
  readonly waves: number;
  readonly replayed: { readonly state: string; readonly error: string };
  readonly historyEvents: number;
  readonly seconds: number;
  readonly evidence: { readonly file: string; readonly valid: boolean; readonly approvers: number };
}

export interface BatchDemonstration {
  readonly summary: BatchSummary;
  stop(): Promise<void>;
}

interface Scene extends BatchDemonstrationOptions {
  readonly api: OperatorClient;
  readonly session: TemporalSession;
  readonly say: (line: string) => void;
}

export async function runBatchDemonstration(options: BatchDemonstrationOptions): Promise<BatchDemonstration> {
  const { io, stack } = options;
  const settings = createSettings(stack.facts.env);
  const session = await connectTemporal(settings.temporalEnv());
  const begun = io.now();
  const say = (line: string): void => io.err(`${((io.now() - begun) / second).toFixed(1).padStart(6)} s  ${line}`);
  const scene: Scene = { ...options, api: createOperatorClient(settings), session, say };
  const closing: (() => Promise<void> | void)[] = [() => session.close()];
  const stop = async (): Promise<void> => {
    for (const close of closing.splice(0).toReversed()) await close();
  };
  try {
    const fleet = await gather(scene, (started) => closing.push(() => started.stop()));
    const approvers = await introduceApprovers(scene);
    return { summary: await show(scene, fleet, approvers), stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function gather({ stack, api, nodes, say, signal }: Scene, keep: (fleet: Fleet) => void): Promise<Fleet> {
  const rootOverlapMs = rotationTimes(stack.facts.env).overlapMs;
  const fleet = await startFleet({ stack, api, count: nodes, rootOverlapMs, say });
  keep(fleet);
  await untilConnected({ api, names: fleet.names, signal });
  say(`${fleet.names.length} daemons are connected`);
  return fleet;
}

async function show(scene: Scene, fleet: Fleet, approvers: Approvers): Promise<BatchSummary> {
  const { stack, api, each, say, signal, io } = scene;
  const begun = io.now();
  const reboots = await holdReboots({ stack, api, nodes: fleet.names, each, folder: approvers.folder, signal });
  const { batchId, size, required } = reboots;
  say(`batch ${batchId}: ${size} reboots are held; ${required} approvers must sign`);
  await approve(scene, reboots, approvers);
  const { result, waves } = await watch(scene, batchId);
  const evidence = await checkEvidence(scene, batchId);
  say(`the evidence holds: ${evidence.approvers} approvers counted again from ${evidence.file}`);
  const replayed = await playAgain(scene, { batchId, node: String(fleet.names[0]) });
  const description = await scene.session.client.workflow.getHandle(workflowIds.approveBatch(batchId), result.runId).describe();
  const summary: BatchSummary = {
    batchId,
    outcome: result.outcome,
    nodes: fleet.names.length,
    operations: size,
    required,
    approvedBy: result.approvedBy,
    commands: result.states,
    waves,
    replayed,
    historyEvents: description.historyLength,
    seconds: Math.round((io.now() - begun) / 100) / 10,
    evidence,
  };
  assertShown(summary);
  return summary;
}

/** One by the approver's own program, one by Temporal's: the same bytes, judged by the same rules. */
async function approve({ stack, say }: Scene, { batchId, root }: Reboots, { keys, folder }: Approvers): Promise<void> {
  const [alice, bob] = keys;
  await runOurs(stack, ['batch', 'approve', batchId, '--key', String(alice), '--root', root, '--yes']);
  say('alice approved: better-compute batch approve');
  const file = join(folder, `${batchId}-bob.json`);
  await runOurs(stack, ['batch', 'sign', batchId, '--key', String(bob), '--root', root, '--yes', '--out', file]);
  const update = ['workflow', 'update', 'execute', '--workflow-id', workflowIds.approveBatch(batchId), '--name', 'approve'];
  await runTemporal(stack, [...update, '--input-file', file]);
  say('bob approved: temporal workflow update execute --name approve');
}

async function watch(
  { session, say, signal }: Scene,
  batchId: string,
): Promise<{ result: BatchResult & { runId: string }; waves: number }> {
  const handle = session.client.workflow.getHandle<() => Promise<BatchResult>>(workflowIds.approveBatch(batchId));
  const { runId } = await handle.describe();
  let [released, waves] = [0, 0];
  for (;;) {
    signal.throwIfAborted();
    const status = await handle.query<BatchStatus>('status').catch(() => null);
    if (status !== null && status.released !== released) {
      waves += 1;
      released = status.released;
      say(`wave ${waves}: ${released} of ${status.size} released, ${status.finished} ended`);
    }
    const described = await handle.describe();
    if (described.status.name !== 'RUNNING') break;
    await pause(250, signal);
  }
  const result = await handle.result();
  say(
    `batch ended: ${result.outcome}, ${Object.entries(result.states)
      .map(([state, count]) => `${count} ${state}`)
      .join(', ')}`,
  );
  return { result: { ...result, runId }, waves };
}

async function checkEvidence({ stack, api }: Scene, batchId: string): Promise<BatchSummary['evidence']> {
  const rotationId = workflowIds.approveBatch(batchId);
  const { file } = await fetchEvidence(api, rotationId);
  const path = join(stack.home.root, 'evidence', `${rotationId.replaceAll('/', '-')}.json`);
  await replaceWhole(path, encodeEvidenceFile(file));
  const pin = readBundlePins(stack.home.bundle, stack.facts.secret).audit;
  const { valid, approvedBy, problems } = verifyQuorumEvidence(file.documents, { auditKey: file.auditKey, pin });
  const [problem] = problems;
  if (problem !== undefined)
    throw new ControlError('AUDIT_TAMPERED', `the evidence does not hold: ${problem.message}`, {
      details: { reason: 'evidence-not-valid', file: path },
    });
  return { file: path, valid, approvers: approvedBy.length };
}

/** What a thief of the control plane could try: the same operation once more. The control plane signs and sends it; the machine refuses. */
async function playAgain(
  { api, session, each, say }: Scene,
  { batchId, node }: { batchId: string; node: string },
): Promise<BatchSummary['replayed']> {
  const { workflowId } = await api.runCommands({ nodes: [node], kind, payload: payloadOf(1, each), actor: 'demonstration', batchId });
  const run = session.client.workflow.getHandle<() => Promise<RunCommandResult>>(workflowId);
  while ((await api.getCommands(workflowId).catch(() => [])).length === 0) await new Promise((resolve) => setTimeout(resolve, 200));
  await session.client.workflow.start('approveBatch', {
    workflowId: workflowIds.approveBatch(batchId),
    taskQueue: taskQueues.control,
    args: [{ batchId }],
    workflowIdConflictPolicy: 'USE_EXISTING',
  });
  const { failures } = await run.result();
  const [failure] = failures;
  say(
    `played again on ${node}: ${failure?.state ?? 'done'}${refusedAsUnapproved(failure?.error) ? ' as BATCH_UNAPPROVED' : ''} (${failure?.error ?? 'it ran'})`,
  );
  return { state: failure?.state ?? 'done', error: failure?.error ?? '' };
}

/** The machine's word for REJECT_REASON_BATCH_UNAPPROVED. */
const refusedAsUnapproved = (error = ''): boolean => error.startsWith('batch-unapproved');

function assertShown({ outcome, operations, commands, replayed, approvedBy, required }: BatchSummary): void {
  const told = [
    [outcome === 'finished', `the batch ended as ${outcome}`],
    [commands['done'] === operations, `${commands['done'] ?? 0} of ${operations} reboots are done`],
    [approvedBy.length === required, `${approvedBy.length} of ${required} approvers are known`],
    [
      replayed.state === 'rejected' && refusedAsUnapproved(replayed.error),
      `the repeated operation ended as ${replayed.state} ${replayed.error}`,
    ],
  ] as const;
  const wrong = told.find(([holds]) => !holds);
  if (wrong !== undefined) throw new ControlError('INTERNAL', wrong[1], { details: { reason: 'not-as-shown' } });
}
