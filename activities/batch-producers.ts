/**
 * How a workflow of ours puts destructive commands into a batch before it sends anything (BAT-030): one leaf a node, bound to the very
 * payload, shown to the approvers as it is. Repeated, it answers the same batch.
 */
import { createHash } from 'node:crypto';
import { fromBinary } from '@bufbuild/protobuf';
import { AnySchema } from '@bufbuild/protobuf/wkt';
import type { WavePlan } from '../domain/batch/waves.ts';
import { harmOf } from '../domain/commands/harm.ts';
import { type CommandKind, commandKinds } from '../domain/commands/kinds.ts';
import { ControlError } from '../domain/errors.ts';
import type { QuorumFields } from '../pki/trust/index.ts';
import { encodePayload } from './command-payload.ts';
import type { CommandSigningPorts } from './command-ports.ts';
import { translated } from './failures.ts';

export interface BatchCommandsInput {
  /** Names the run: the same one is the same batch. */
  readonly commandPrefix: string;
  readonly kind: CommandKind;
  readonly nodes: readonly string[] | 'all';
  readonly payload: Readonly<Record<string, unknown>>;
  readonly actor: string;
  /** For the people who approve. */
  readonly reason: string;
  /** null: the default of a batch. */
  readonly windowMs: number | null;
  readonly waves: WavePlan | null;
  /** Also where no approver is asked: for the record, and for the waves. */
  readonly always: boolean;
}

export interface NewBatchOfCommands {
  readonly tenantId: string;
  readonly leaves: readonly {
    readonly subject: string;
    readonly kind: string;
    readonly payload: { readonly typeUrl: string; readonly value: Uint8Array };
  }[];
  readonly reason: string;
  readonly createdBy: string;
  readonly idempotencyKey: string;
  readonly windowMs: number | null;
  readonly waves: WavePlan | null;
}

export interface BatchProducerPorts {
  readonly nodes: CommandSigningPorts['nodes'];
  readonly producers: {
    published(): Promise<QuorumFields>;
    /** Tenants of these nodes. @throws NOT_FOUND naming one that is unknown */
    tenantsOf(nodeIds: readonly string[]): Promise<readonly string[]>;
    create(batch: NewBatchOfCommands): Promise<{ readonly batchId: string; readonly held: boolean; readonly notAfter: number }>;
  };
}

export interface BatchedCommands {
  /** null: they need no batch. */
  readonly batch: { readonly batchId: string; readonly held: boolean; readonly notAfter: number } | null;
}

export interface BatchProducerActivities {
  batchCommands(input: BatchCommandsInput): Promise<BatchedCommands>;
  [name: string]: (...args: never[]) => Promise<unknown>;
}

const pageSize = 5_000;

export function createBatchProducerActivities(ports: BatchProducerPorts): BatchProducerActivities {
  return translated<BatchProducerActivities>({
    async batchCommands(input) {
      if (!input.always && !(await needsBatch(ports, input))) return { batch: null };
      const nodes = input.nodes === 'all' ? await everyNode(ports, input.kind) : input.nodes;
      const tenantId = await tenantOf(ports, nodes);
      const { typeUrl, value } = fromBinary(AnySchema, encodePayload(input.kind, input.payload));
      const batch = await ports.producers.create({
        tenantId,
        leaves: nodes.map((subject) => ({ subject, kind: input.kind, payload: { typeUrl, value } })),
        reason: input.reason,
        createdBy: input.actor,
        idempotencyKey: createHash('sha256').update(input.commandPrefix).digest('hex'),
        windowMs: input.windowMs,
        waves: input.waves,
      });
      return { batch };
    },
  });
}

/** As the queue would refuse it (BAT-021, BAT-025). */
async function needsBatch({ producers }: BatchProducerPorts, { kind, payload }: BatchCommandsInput): Promise<boolean> {
  if (harmOf(kind, payload) === 'none') return false;
  const { approverKeys, unbatchedDestructivePerHour } = await producers.published();
  return approverKeys.length > 0 && unbatchedDestructivePerHour === 0;
}

async function everyNode({ nodes }: BatchProducerPorts, kind: CommandKind): Promise<readonly string[]> {
  const all: string[] = [];
  for (;;) {
    const page = await nodes.page({ roles: commandKinds[kind].roles, after: all.at(-1) ?? '', limit: pageSize });
    all.push(...page);
    if (page.length < pageSize) return all;
  }
}

/** A batch belongs to one tenant, whose people approve it. */
async function tenantOf({ producers }: BatchProducerPorts, nodes: readonly string[]): Promise<string> {
  const tenants = [...new Set(await producers.tenantsOf(nodes))];
  const [tenant] = tenants;
  if (tenant !== undefined && tenants.length === 1) return tenant;
  if (tenant === undefined)
    throw new ControlError('INVALID_STATE', 'no active node takes this command', { details: { reason: 'no-nodes' } });
  throw new ControlError(
    'INVALID_INPUT',
    `the nodes belong to ${tenants.length} tenants (${tenants.slice(0, 5).join(', ')}): run it once for each`,
    {
      details: { reason: 'several-tenants', tenants },
    },
  );
}
