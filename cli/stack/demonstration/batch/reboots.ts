/** The batch itself: so many reboots of each machine, each an operation of its own, asked for through the api and held. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { create } from '@bufbuild/protobuf';
import { type CommandKind, commandKinds } from '../../../../domain/commands/kinds.ts';
import { ControlError } from '../../../../domain/errors.ts';
import { encodeMessage, NodeRebootSchema } from '../../../../proto/index.ts';
import type { OperatorClient } from '../../../api-client.ts';
import type { Stack } from '../../stack.ts';
import { pause } from '../watch-rotation.ts';
import { runOurs } from './programs.ts';

export const kind: CommandKind = 'node.reboot';

export interface Reboots {
  readonly batchId: string;
  readonly root: string;
  readonly required: number;
  readonly size: number;
  /** Workflows that wait for the ends of their reboots. */
  readonly runs: readonly string[];
}

export interface RebootsOptions {
  readonly stack: Stack;
  readonly api: OperatorClient;
  readonly nodes: readonly string[];
  /** Reboots of each machine. */
  readonly each: number;
  readonly folder: string;
  readonly signal: AbortSignal;
}

/** Distinct for each round: an approval is for one operation, and used once. */
export const payloadOf = (round: number, each: number): { readonly reason: string } => ({
  reason: `demonstration: reboot ${round} of ${each}`,
});

export async function holdReboots(options: RebootsOptions): Promise<Reboots> {
  const { stack, nodes, each, folder } = options;
  const rounds = Array.from({ length: each }, (_, index) => index + 1);
  const scope = rounds.flatMap((round) => nodes.map((subject) => ({ subject, kind, payload: leafPayload(payloadOf(round, each)) })));
  const file = join(folder, 'scope.json');
  writeFileSync(file, JSON.stringify(scope), { mode: 0o600 });
  const waves = JSON.stringify({ size: nodes.length, maxFailures: 0, pauseMs: 0, healthGate: true });
  const reason = `${scope.length} reboots on ${nodes.length} machines, to show how a batch is approved`;
  const asked = ['batch', 'create', '--scope', file, '--waves', waves, '--for', '2h', '--reason', reason, '--json'];
  const { batchId, root, required, size } = JSON.parse(await runOurs(stack, asked)) as Omit<Reboots, 'runs'>;
  const runs: string[] = [];
  for (const round of rounds) runs.push(await enqueue(options, { batchId, round }));
  return { batchId, root, required, size, runs };
}

function leafPayload(json: { readonly reason: string }): { readonly typeUrl: string; readonly value: string } {
  const value = encodeMessage(NodeRebootSchema, create(NodeRebootSchema, json), 'leafPayload');
  return { typeUrl: `type.googleapis.com/${commandKinds[kind].payload}`, value: Buffer.from(value).toString('base64') };
}

/** One round after the other: a wave is a round, so that no machine is asked twice in one. */
async function enqueue(
  { api, nodes, each, signal }: RebootsOptions,
  { batchId, round }: { batchId: string; round: number },
): Promise<string> {
  const { workflowId } = await api.runCommands({
    nodes: [...nodes],
    kind,
    payload: payloadOf(round, each),
    actor: 'demonstration',
    batchId,
  });
  for (let left = 300; left > 0; left -= 1) {
    signal.throwIfAborted();
    const found = await api.getCommands(workflowId).catch(() => []);
    if (found.length === nodes.length) return workflowId;
    await pause(200, signal);
  }
  throw new ControlError('UNAVAILABLE', `the reboots of round ${round} were not put into the batch within a minute`, {
    details: { reason: 'not-enqueued', workflowId },
  });
}
