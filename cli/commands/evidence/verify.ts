import { Argument, Command } from 'commander';
import { ControlError } from '../../../domain/errors.ts';
import { describePins, readPublicBundle } from '../../../pki/bundle/index.ts';
import type { VerifiedMetalEvidence } from '../../../pki/evidence/metal-evidence.ts';
import { parseMetalEvidenceFile } from '../../../pki/evidence/metal-evidence-file.ts';
import { judgeMetalEvidence, type MetalEvidencePin, type MetalEvidenceVerdict } from '../../../pki/evidence/metal-evidence-verdict.ts';
import type { Disk } from '../../../proto/index.ts';
import { type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import { instantText, plain } from '../../format.ts';
import { writeJson } from '../../io.ts';
import { readTextFile } from '../../machines/text-file.ts';
import type { Ports } from '../../ports.ts';
import { bytesText } from '../../progress.ts';
import { parsePin } from '../audit/pin.ts';
import { readShown } from '../pki/pins-view.ts';

export interface EvidenceVerifyOptions extends CommonOptions {
  readonly path: string;
  readonly pin: string | null;
  readonly pki: string | null;
}

export function newEvidenceVerify(run: (options: EvidenceVerifyOptions) => Promise<void>): Command {
  const command = new Command('verify')
    .description('Check evidence of erased and written disks, offline: who signed, for which machine and run, and whether all was done')
    .addArgument(new Argument('<file>', 'evidence file of a run (machine evidence)'))
    .option('--pin <pin>', 'pin of the deployment’s root or node authority, sha256/… (pki show: rootPin, nodeCaPin); else the key bundle')
    .option('--pki <file>', 'key bundle to read the pin from')
    .action((path: string, flags: { pin?: string; pki?: string }) =>
      run({ ...commonOptions(command), path, pin: flags.pin ?? null, pki: flags.pki ?? null }),
    );
  return withExamples(command, [
    'better-compute evidence verify gpu-0117.json --pki pki.json',
    'better-compute evidence verify gpu-0117.json --pin sha256/47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU= --json',
  ]);
}

export async function evidenceVerifyRun(options: EvidenceVerifyOptions, ports: Ports): Promise<void> {
  const file = parseMetalEvidenceFile(readTextFile(options.path));
  const verdict = judgeMetalEvidence(file, await pinOf(options, ports));
  if (options.json) writeJson(ports.io, toJson(options.path, verdict));
  else ports.io.out(describe(options.path, verdict).map(plain).join('\n'));
  assertProven(verdict);
}

async function pinOf({ pin, pki }: EvidenceVerifyOptions, ports: Ports): Promise<MetalEvidencePin> {
  if (pin !== null) return { pin: parsePin(pin), trustDomain: null };
  const { text, authenticated } = await readShown(pki, ports);
  const { rootPin, trustDomain } = describePins(readPublicBundle(text), authenticated);
  return { pin: rootPin, trustDomain };
}

const diskText = (disk: Disk | undefined): string =>
  disk === undefined
    ? 'a disk that is not named'
    : `${bytesText(Number(disk.sizeBytes))} ${disk.model === '' ? 'disk' : disk.model}, ${disk.serial === '' ? 'without serial number' : `serial ${disk.serial}`}${disk.wwn === '' ? '' : `, wwn ${disk.wwn}`}`;

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

function describeDocument(one: VerifiedMetalEvidence): string[] {
  const head = `  ${one.kind.padEnd(9)}${instantText(one.finishedAtMs)}  by the ramdisk with certificate ${one.signer.serial}`;
  if (one.kind === 'deploy') {
    const { imageUrl, imageSha256, writtenBytes, disk } = one.body;
    return [
      head,
      `    image  ${imageUrl}, sha256 ${imageSha256}`,
      `    disk   ${diskText(disk)}: ${bytesText(Number(writtenBytes))} written and read back`,
    ];
  }
  const { disks, kept } = one.body;
  return [
    head,
    ...disks.map(
      ({ disk, method, passes, samples, erased }) =>
        `    ${erased ? 'erased' : 'NOT   '} ${diskText(disk)}: ${method}${passes > 1 ? `, ${passes} passes` : ''}, ${samples.length} range(s) read back`,
    ),
    ...kept.map((disk) => `    kept   ${diskText(disk)}`),
  ];
}

const verdictText = ({ valid, shortcomings, problems }: MetalEvidenceVerdict): string => {
  if (!valid) return `NOT VALID, ${problems.length} problem(s)`;
  return shortcomings.length === 0 ? 'VALID, everything was done' : `VALID, and it says that ${shortcomings.length} thing(s) were not done`;
};

const describe = (path: string, verdict: MetalEvidenceVerdict): string[] => [
  `${path}: run ${verdict.runId} on ${verdict.machineId} of ${verdict.trustDomain}`,
  ...verdict.documents.flatMap(describeDocument),
  ...verdict.problems.map(
    ({ document, check, message }) => `  PROBLEM  ${check}: ${document === 0 ? '' : `document ${document} `}${message}`,
  ),
  ...verdict.shortcomings.map((text) => `  NOT DONE ${text}`),
  `verdict: ${verdictText(verdict)}`,
];

const toJson = (source: string, { documents, ...verdict }: MetalEvidenceVerdict): unknown => ({
  source,
  ...verdict,
  complete: verdict.valid && verdict.shortcomings.length === 0,
  documents: documents.map((one) => ({
    kind: one.kind,
    commandId: one.commandId,
    finishedAtMs: one.finishedAtMs,
    signerSerial: one.signer.serial,
    ...(one.kind === 'deploy'
      ? {
          imageUrl: one.body.imageUrl,
          imageSha256: one.body.imageSha256,
          writtenSha256: hex(one.body.writtenSha256),
          disk: diskJson(one.body.disk),
        }
      : {
          disks: one.body.disks.map(({ disk, method, erased, samples }) => ({
            ...diskJson(disk),
            method,
            erased,
            samples: samples.length,
          })),
        }),
  })),
});

const diskJson = (disk: Disk | undefined) => ({
  serial: disk?.serial ?? '',
  wwn: disk?.wwn ?? '',
  model: disk?.model ?? '',
  sizeBytes: Number(disk?.sizeBytes ?? 0n),
});

/** @throws AUDIT_TAMPERED for what is not to be believed; INVALID_STATE for what is, and says that it was not done */
function assertProven({ valid, problems, shortcomings, machineId }: MetalEvidenceVerdict): void {
  const [problem] = problems;
  if (!valid)
    throw new ControlError('AUDIT_TAMPERED', `the evidence does not hold: ${problem?.message ?? ''}`, {
      details: { reason: 'evidence-not-valid', problems },
    });
  if (shortcomings.length === 0) return;
  throw new ControlError('INVALID_STATE', `the evidence holds, and says of ${machineId}: ${shortcomings.join('; ')}`, {
    details: { reason: 'not-everything-done', shortcomings, hint: 'treat the disks as dirty: docs/runbooks/machine-dirty.md' },
  });
}
