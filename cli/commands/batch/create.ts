import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { type DescMessage, fromJson, type JsonValue } from '@bufbuild/protobuf';
import { Command, InvalidArgumentError, Option } from 'commander';
import { batchWindow, judgeReason, maxLeaves } from '../../../domain/batch/limits.ts';
import { findCommandKind } from '../../../domain/commands/kinds.ts';
import { ControlError } from '../../../domain/errors.ts';
import { encodeMessage, protocolRegistry } from '../../../proto/index.ts';
import { parseCreated } from '../../batch/document.ts';
import { readExpectation } from '../../batch/expectation.ts';
import { writeSafeJson } from '../../batch/files.ts';
import { type CommonOptions, commonOptions, duration, reasonOption, withExamples } from '../../command.ts';
import type { Ports } from '../../ports.ts';

export interface BatchCreateOptions extends CommonOptions {
  readonly scope: string | null;
  readonly kind: string | null;
  readonly subjects: string | null;
  readonly payload: string | null;
  readonly reason: string;
  readonly forMs: number;
  readonly tenant: string;
  readonly idempotencyKey: string | null;
  readonly waves: unknown;
}

interface Flags {
  readonly scope?: string;
  readonly kind?: string;
  readonly subjects?: string;
  readonly payload?: string;
  readonly reason: string;
  readonly for: number;
  readonly tenant: string;
  readonly idempotencyKey?: string;
  readonly waves?: unknown;
}

export function newBatchCreate(run: (options: BatchCreateOptions) => Promise<void>): Command {
  const command = new Command('create')
    .description('Ask for a batch: what may be done, to which machines, and why')
    .option('--scope <file>', 'JSON array of leaves {"subject", "kind", "payloadSha256"?, "payload"?: {"typeUrl", "value"}}')
    .option('--kind <kind>', 'instead of --scope: one kind of command')
    .option('--subjects <file>', 'with --kind: its subjects, one a line or a JSON array')
    .option('--payload <json>', 'with --kind: the fields of its payload; without, any payload is admitted')
    .addOption(reasonOption())
    .addOption(new Option('--for <time>', 'how long it may be approved and run').default(batchWindow.defaultMs, '24h').argParser(duration))
    .option('--tenant <id>', 'whose machines', 'default')
    .option('--idempotency-key <key>', 'asked again with the same key, the same batch answers (default: a new one)')
    .addOption(
      new Option(
        '--waves <json>',
        'how it is let go: {"size" or "percent", "maxFailures", "pauseMs", "healthGate", "maxPerLabel"?}',
      ).argParser(parseJson),
    )
    .action((flags: Flags) =>
      run({
        ...commonOptions(command),
        scope: flags.scope ?? null,
        kind: flags.kind ?? null,
        subjects: flags.subjects ?? null,
        payload: flags.payload ?? null,
        reason: flags.reason,
        forMs: flags.for,
        tenant: flags.tenant,
        idempotencyKey: flags.idempotencyKey ?? null,
        waves: flags.waves ?? null,
      }),
    );
  return withExamples(command, [
    'better-compute batch create --kind node.reboot --subjects rack-7.txt --payload \'{"reason":"kernel"}\' --reason "kernel update, change 4711"',
    'better-compute batch create --scope scope.json --reason "decommission rack 7" --for 2h --idempotency-key change-4711',
  ]);
}

function parseJson(value: string): unknown {
  try {
    return JSON.parse(value);
  } catch {
    throw new InvalidArgumentError('It is not JSON.');
  }
}

const refuse = (message: string, hint: string, cause?: unknown): ControlError =>
  new ControlError('INVALID_INPUT', message, { details: { reason: 'flags', hint }, cause });

/** BAT-040. The same faults are found here and there; here they cost nothing. */
export async function batchCreateRun(options: BatchCreateOptions, ports: Ports): Promise<void> {
  const fault = judgeReason(options.reason);
  if (fault !== null) throw new ControlError('INVALID_INPUT', fault.message, { details: { reason: fault.reason } });
  const notAfterSeconds = Math.floor(options.forMs / 1_000);
  const answer = await ports.batches().create({
    tenantId: options.tenant,
    reason: options.reason,
    scope: leavesOf(options),
    notAfterSeconds,
    idempotencyKey: options.idempotencyKey ?? randomUUID(),
    ...(options.waves === null ? {} : { waves: options.waves }),
  });
  const { batchId, held, required, size, root } = parseCreated(answer);
  if (options.json) return writeSafeJson(ports.io, { batchId, held, required, size, root });
  ports.io.out(batchId);
  ports.io.err(
    held ? `held until ${required} approver(s) have signed: better-compute batch approve ${batchId} --key KEY` : 'no approval is needed',
  );
}

function leavesOf({ scope, kind, subjects, payload }: BatchCreateOptions): readonly unknown[] {
  if ((scope === null) === (kind === null))
    throw refuse('a batch comes from --scope or from --kind with --subjects', 'give one of the two');
  if (kind === null) return readScope(scope ?? '');
  if (subjects === null) throw refuse('--kind needs --subjects', 'name a file of subjects');
  const bytes = payload === null ? null : encodePayload(kind, payload);
  return readExpectation(subjects).map(({ subject }) => ({ subject, kind, ...(bytes === null ? {} : { payload: bytes }) }));
}

function readScope(path: string): readonly unknown[] {
  let value: unknown;
  try {
    value = JSON.parse(readFileSync(path, 'utf8'));
  } catch (cause) {
    throw refuse(`${path} is no JSON that can be read`, 'it holds an array of leaves', cause);
  }
  if (!Array.isArray(value) || value.length === 0 || value.length > maxLeaves)
    throw refuse(`${path} is no array of 1 to ${maxLeaves} leaves`, 'split a larger batch');
  return value;
}

function encodePayload(kind: string, json: string): { readonly typeUrl: string; readonly value: string } {
  const spec = findCommandKind(kind);
  const schema: DescMessage | undefined = spec === undefined ? undefined : protocolRegistry.getMessage(spec.payload);
  if (schema === undefined) throw refuse(`there is no command kind ${JSON.stringify(kind.slice(0, 64))}`, 'docs/protocol.md lists them');
  try {
    const message = fromJson(schema, JSON.parse(json) as JsonValue, { registry: protocolRegistry });
    return {
      typeUrl: `type.googleapis.com/${schema.typeName}`,
      value: Buffer.from(encodeMessage(schema, message, 'leafPayload')).toString('base64'),
    };
  } catch (cause) {
    throw refuse(`--payload is no ${schema.typeName}: ${(cause as Error).message}`, 'docs/protocol.md lists its fields', cause);
  }
}
