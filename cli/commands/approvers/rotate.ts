import { readFileSync } from 'node:fs';
import { Command, Option } from 'commander';
import { z } from 'zod';
import { ControlError } from '../../../domain/errors.ts';
import { actorOption, type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';

export interface ApproversRotateOptions extends CommonOptions {
  readonly files: readonly string[];
  readonly actor: string;
  readonly reason: string;
}

export function newApproversRotate(ports: Ports, run: (options: ApproversRotateOptions) => Promise<void>): Command {
  const command = new Command('rotate')
    .description('Change who approves: the signatures of the current threshold and of the new one, as batch sign-approvers wrote them')
    .requiredOption('--file <files>', 'files of batch sign-approvers, comma-separated; all for one set and one epoch')
    .addOption(actorOption(ports.io))
    .addOption(new Option('--reason <text>', 'why, for the audit trail').default(''))
    .action(({ file, actor, reason }: { file: string; actor: string; reason: string }) =>
      run({ ...commonOptions(command), files: file.split(',').map((path) => path.trim()), actor, reason }),
    );
  return withExamples(command, [
    'better-compute approvers rotate --file alice-2.json,bob-2.json,dave-2.json --reason "dave follows carol"',
  ]);
}

const signed = z.object({
  epoch: z.int().min(1),
  kid: z.string().regex(/^[0-9a-f]{64}$/),
  sig: z.string().length(86),
  quorum: z.object({
    approvers: z.array(z.object({ kid: z.string(), spki: z.string().min(1).max(256) })).max(64),
    threshold: z.int().min(0),
    tiers: z.array(z.object({ maxScopeSize: z.int(), threshold: z.int() })).max(64),
    unbatchedDestructivePerHour: z.int().min(0),
  }),
});
type Signed = z.output<typeof signed>;

const bad = (path: string, what: string, cause?: unknown): ControlError =>
  new ControlError('INVALID_INPUT', `${path} ${what}`, { details: { reason: 'bad-approver-file', file: path }, cause });

function readSigned(path: string): Signed {
  try {
    return signed.parse(JSON.parse(readFileSync(path, 'utf8')));
  } catch (cause) {
    throw bad(path, 'is not what better-compute batch sign-approvers writes', cause);
  }
}

interface Change {
  readonly epoch: number;
  readonly approvers: readonly string[];
  readonly threshold: number;
  readonly tiers: Signed['quorum']['tiers'];
  readonly unbatchedPerHour: number;
  readonly signatures: readonly { readonly kid: string; readonly sig: string }[];
}

/** APPR-030: one set and one epoch, or the signatures do not belong together. @throws INVALID_INPUT naming the file that differs */
export function readChangeFiles(paths: readonly string[]): Change {
  const files = paths.map((path) => ({ path, ...readSigned(path) }));
  const [first] = files;
  if (first === undefined) throw bad('--file', 'names no file');
  for (const { path, epoch, quorum } of files) {
    if (epoch !== first.epoch) throw bad(path, `signs epoch ${epoch}, ${first.path} signs epoch ${first.epoch}`);
    if (JSON.stringify(quorum) !== JSON.stringify(first.quorum)) throw bad(path, `signs another set than ${first.path}`);
  }
  const { approvers, threshold, tiers, unbatchedDestructivePerHour } = first.quorum;
  return {
    epoch: first.epoch,
    approvers: approvers.map(({ spki }) => spki),
    threshold,
    tiers,
    unbatchedPerHour: unbatchedDestructivePerHour,
    signatures: files.map(({ kid, sig }) => ({ kid, sig })),
  };
}

export async function approversRotateRun({ files, actor, reason, json }: ApproversRotateOptions, { io, settings }: Ports): Promise<void> {
  const change = readChangeFiles(files);
  const { startApproverSet } = await import('../../temporal-rotation.ts');
  const started = await startApproverSet(settings.temporalEnv(), { actor, ...(reason === '' ? {} : { reason }), change });
  if (json) return writeJson(io, started);
  io.out(`change of the approvers started: workflow ${started.workflowId}, run ${started.runId}`);
  io.err('follow it with: better-compute rotation watch --key approvers');
}
