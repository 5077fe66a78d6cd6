import { Argument, Command } from 'commander';
import { ControlError } from '../../../domain/errors.ts';
import { encodeMetalEvidenceFile } from '../../../pki/evidence/metal-evidence-file.ts';
import { writeNew } from '../../batch/files.ts';
import { type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import { writeJson } from '../../io.ts';
import type { MachineClient, RunEvidenceAnswer } from '../../machines/client.ts';
import type { Ports } from '../../ports.ts';

export interface MachineEvidenceOptions extends CommonOptions {
  readonly machine: string;
  /** null: the newest that has left evidence. */
  readonly run: string | null;
  readonly out: string;
}

export function newMachineEvidence(run: (options: MachineEvidenceOptions) => Promise<void>): Command {
  const command = new Command('evidence')
    .description('Export what the ramdisk signed about the disks that it erased and wrote, into a file that can be verified anywhere')
    .addArgument(new Argument('<machine>', 'machine id'))
    .option('--run <run>', 'of this run; without, of the newest that has left evidence')
    .requiredOption('--out <file>', 'file to write; an existing one is never overwritten')
    .action((machine: string, flags: { run?: string; out: string }) =>
      run({ ...commonOptions(command), machine, run: flags.run ?? null, out: flags.out }),
    );
  return withExamples(command, [
    'better-compute machine evidence gpu-0117 --out gpu-0117.json',
    'better-compute machine evidence gpu-0117 --run 0c4f5a6b7d8e --out wipe.json',
  ]);
}

export async function machineEvidenceRun(options: MachineEvidenceOptions, { io, machines }: Ports): Promise<void> {
  const client = machines();
  const found = await evidenceOf(options, client);
  const bytes = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, 'base64'));
  const documents = found.documents.map(({ document, signature, ...one }) => ({
    ...one,
    body: bytes(document),
    signature: bytes(signature),
  }));
  writeNew(options.out, encodeMetalEvidenceFile({ ...found, anchors: found.anchors.map(bytes), documents }));
  if (options.json) return writeJson(io, { machine: found.machineId, run: found.runId, file: options.out, documents: documents.length });
  io.out(`${documents.length} document(s) of run ${found.runId} on ${found.machineId} in ${options.out}`);
  io.err(`check them with: better-compute evidence verify ${options.out}`);
}

/** @throws NOT_FOUND */
async function evidenceOf({ machine, run }: MachineEvidenceOptions, client: MachineClient): Promise<RunEvidenceAnswer> {
  const { runs } = await client.get(machine);
  if (run !== null && !runs.some(({ id }) => id === run)) {
    const found = await client.run(run);
    if (found.machineId !== machine) throw nothing(`run ${run} is none of ${machine}`);
  }
  for (const id of run === null ? runs.map((one) => one.id) : [run]) {
    const evidence = await client.evidence(id);
    if (evidence.documents.length > 0) return evidence;
  }
  throw nothing(run === null ? `no run on ${machine} has left evidence` : `run ${run} has left no evidence`);
}

const nothing = (message: string): ControlError => new ControlError('NOT_FOUND', message, { details: { reason: 'no-evidence' } });
