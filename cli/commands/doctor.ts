/** `better-compute doctor`: everything that is wrong, with what to do; it runs when everything else is down. */
import { Command } from 'commander';
import { type CommonOptions, commonOptions, withExamples } from '../command.ts';
import type { Finding, Severity } from '../doctor/finding.ts';
import { QuietExit } from '../exit.ts';
import { type CliIo, writeJson } from '../io.ts';
import { createPorts, type Ports } from '../ports.ts';

export interface DoctorOptions extends CommonOptions {
  readonly pki: string | null;
}

export function newDoctor(run: (options: DoctorOptions) => Promise<void>): Command {
  const command = new Command('doctor')
    .description('Look for what is wrong or about to be: engines, processes, keys, clocks; exit 1 when there is an error')
    .option('--pki <file>', 'look at this key bundle')
    .action((flags: { pki?: string }) => run({ ...commonOptions(command), pki: flags.pki ?? null }));
  return withExamples(command, [
    'better-compute doctor',
    'better-compute doctor --json',
    'better-compute doctor --pki /media/backup/pki.json',
  ]);
}

const order: readonly Severity[] = ['error', 'warning', 'info', 'ok'];

export async function doctorRun({ pki, json }: DoctorOptions, { io, examine }: Ports): Promise<void> {
  const findings = [...(await examine(pki))].sort((a, b) => order.indexOf(a.severity) - order.indexOf(b.severity));
  const errors = findings.filter(({ severity }) => severity === 'error').length;
  if (json) writeJson(io, { healthy: errors === 0, findings });
  else io.out(findings.map(describe).join('\n'));
  if (errors > 0) throw new QuietExit(1);
}

const describe = ({ id, severity, message, fix }: Finding): string =>
  `${severity.padEnd(7)}  ${id}: ${message}${fix === '' ? '' : `\n${' '.repeat(9)}fix: ${fix}`}`;

export function register(program: Command, io: CliIo, ports: Ports = createPorts(io)): void {
  program.addCommand(newDoctor((options) => doctorRun(options, ports)));
}
