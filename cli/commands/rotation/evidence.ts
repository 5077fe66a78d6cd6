import { writeFileSync } from 'node:fs';
import { Argument, Command } from 'commander';
import { ControlError } from '../../../domain/errors.ts';
import { type EvidenceFile, encodeEvidenceFile } from '../../../pki/audit/evidence-file.ts';
import type { OperatorClient } from '../../api-client.ts';
import { type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';

export interface RotationEvidenceOptions extends CommonOptions {
  /** null: the newest rotation. */
  readonly rotationId: string | null;
  readonly out: string;
}

export function newRotationEvidence(run: (options: RotationEvidenceOptions) => Promise<void>): Command {
  const command = new Command('evidence')
    .description('Export the signed evidence of a rotation into a file that can be verified anywhere')
    .addArgument(new Argument('[rotation]', 'rotation id; the newest without'))
    .requiredOption('--out <file>', 'file to write; an existing one is never overwritten')
    .action((rotationId: string | undefined, flags: { out: string }) =>
      run({ ...commonOptions(command), rotationId: rotationId ?? null, out: flags.out }),
    );
  return withExamples(command, [
    'better-compute rotation evidence --out evidence.json',
    'better-compute rotation evidence 7c1d… --out 2030.json',
  ]);
}

export async function rotationEvidenceRun(options: RotationEvidenceOptions, ports: Ports): Promise<void> {
  const { rotationId, file } = await fetchEvidence(ports.api(), options.rotationId);
  writeNew(options.out, encodeEvidenceFile(file));
  if (options.json) return writeJson(ports.io, { rotationId, file: options.out, documents: file.documents.length });
  ports.io.out(`${file.documents.length} document(s) of rotation ${rotationId} in ${options.out}`);
  ports.io.err(`check them with: better-compute rotation verify ${options.out}`);
}

/** @throws NOT_FOUND when no rotation, or not this one, has left evidence */
export async function fetchEvidence(api: OperatorClient, wanted: string | null): Promise<{ rotationId: string; file: EvidenceFile }> {
  const rotationId = wanted ?? (await api.listRotations(1))[0]?.id;
  if (rotationId === undefined)
    throw new ControlError('NOT_FOUND', 'no rotation has left evidence yet', { details: { reason: 'no-rotation' } });
  const { auditKey, documents } = await api.getEvidence(rotationId);
  const bytes = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, 'base64'));
  return {
    rotationId,
    file: {
      auditKey: bytes(auditKey),
      documents: documents.map((item) => ({ document: bytes(item.document), signature: bytes(item.signature) })),
    },
  };
}

function writeNew(path: string, content: string): void {
  try {
    writeFileSync(path, content, { flag: 'wx' });
  } catch (cause) {
    const exists = (cause as NodeJS.ErrnoException).code === 'EEXIST';
    throw new ControlError(exists ? 'INVALID_STATE' : 'INVALID_INPUT', exists ? `${path} exists already` : `${path} cannot be written`, {
      details: { reason: exists ? 'file-exists' : 'file-unwritable', hint: 'choose another file' },
      cause,
    });
  }
}
