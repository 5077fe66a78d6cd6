/** `better-compute doctor`: everything that is wrong, with what to do; it runs when everything else is down. */
import { resolve } from 'node:path';
import { Command } from 'commander';
import { createWhole } from '../../runtime/bundle-file-store.ts';
import { type CommonOptions, commonOptions, withExamples } from '../command.ts';
import type { Finding, Severity } from '../doctor/finding.ts';
import { QuietExit } from '../exit.ts';
import { type CliIo, writeJson } from '../io.ts';
import { createPorts, type Ports } from '../ports.ts';

export interface DoctorOptions extends CommonOptions {
  readonly pki: string | null;
  /** File for the support bundle; null: none is made. */
  readonly supportBundle: string | null;
}

export function newDoctor(run: (options: DoctorOptions) => Promise<void>): Command {
  const command = new Command('doctor')
    .description('Look for what is wrong or about to be: engines, processes, keys, clocks; exit 1 when there is an error')
    .option('--pki <file>', 'look at this key bundle')
    .option('--support-bundle <file>', 'also write what a helper needs into this new file; no secret is in it')
    .action((flags: { pki?: string; supportBundle?: string }) =>
      run({ ...commonOptions(command), pki: flags.pki ?? null, supportBundle: flags.supportBundle ?? null }),
    );
  return withExamples(command, [
    'better-compute doctor',
    'better-compute doctor --json',
    'better-compute doctor --pki /media/backup/pki.json',
    'better-compute doctor --support-bundle support.json',
  ]);
}

const order: readonly Severity[] = ['error', 'warning', 'info', 'ok'];

export async function doctorRun({ pki, json, supportBundle }: DoctorOptions, ports: Ports): Promise<void> {
  const { io } = ports;
  const findings = [...(await ports.examine(pki))].sort((a, b) => order.indexOf(a.severity) - order.indexOf(b.severity));
  const errors = findings.filter(({ severity }) => severity === 'error').length;
  if (json) writeJson(io, { healthy: errors === 0, findings });
  else io.out(findings.map(describe).join('\n'));
  if (supportBundle !== null) await writeSupportBundle(supportBundle, { ports, pki, findings });
  if (errors > 0) throw new QuietExit(1);
}

async function writeSupportBundle(
  flag: string,
  { ports, pki, findings }: { ports: Ports; pki: string | null; findings: readonly Finding[] },
): Promise<void> {
  const path = resolve(flag);
  await createWhole(path, await ports.supportBundle({ pki, findings }));
  ports.io.err(`wrote ${path}: findings, settings, pins, counts and the ends of the logs; read it before you send it`);
}

const describe = ({ id, severity, message, fix }: Finding): string =>
  `${severity.padEnd(7)}  ${id}: ${message}${fix === '' ? '' : `\n${' '.repeat(9)}fix: ${fix}`}`;

export function register(program: Command, io: CliIo, ports: Ports = createPorts(io)): void {
  program.addCommand(newDoctor((options) => doctorRun(options, ports)));
}
