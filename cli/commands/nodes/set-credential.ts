import { Argument, Command, Option } from 'commander';
import { type SpecCredentialName, specCredentialNames, specCredentials } from '../../../domain/secrets/spec-credentials.ts';
import { actorOption, commonOptions, reasonOption, type SignedOptions, withExamples } from '../../command.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';

export interface SetCredentialOptions extends SignedOptions {
  readonly node: string;
  readonly name: SpecCredentialName;
  /** null: take it away. */
  readonly ref: string | null;
}

type Flags = Omit<SetCredentialOptions, 'json' | 'node' | 'name' | 'ref'> & { readonly ref?: string; readonly none?: true };

const names = specCredentialNames.map((name) => `${name}: ${specCredentials[name].what}`).join('; ');

export function newSetCredential(ports: Ports, run: (options: SetCredentialOptions) => Promise<void>): Command {
  const command = new Command('set-credential')
    .description('Say which secret a unit of a node gets as a file; the machine asks for it by reference')
    .addArgument(new Argument('<node>', 'node id'))
    .addArgument(new Argument('<name>', names).choices(specCredentialNames))
    .addOption(new Option('--ref <reference>', 'secret://<path>, vault://<mount>/<path>#<field> or env://<NAME>').conflicts('none'))
    .addOption(new Option('--none', 'take it away: the file is deleted'))
    .addOption(actorOption(ports.io))
    .addOption(reasonOption())
    .action((node: string, name: SpecCredentialName, { ref, none, ...flags }: Flags) => {
      if (ref === undefined && none === undefined)
        command.error("error: either '--ref <reference>' or '--none' is needed", { exitCode: 2 });
      return run({ ...commonOptions(command), ...flags, node, name, ref: ref ?? null });
    });
  return withExamples(command, [
    'better-compute nodes set-credential node-17 k8s-join --ref secret://k8s/eu-1/token --reason "joins eu-1"',
    'better-compute nodes set-credential node-17 telemetry --none --reason "collector is gone"',
  ]);
}

export async function setCredentialRun({ node, name, ref, actor, reason, json }: SetCredentialOptions, { io, api }: Ports): Promise<void> {
  const started = await api().setNodeCredential(node, { name, ref, actor, reason });
  if (json) return writeJson(io, started);
  io.out(`${ref === null ? `taking ${name} away from ${node}` : `${name} of ${node} from ${ref}`}: workflow ${started.workflowId}`);
  io.err('the machine writes the file when its config.json names a credentialsFolder; its log says what became of it');
}
