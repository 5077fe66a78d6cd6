import { Argument, Command } from 'commander';
import { actorOption, type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import { writeJson } from '../../io.ts';
import type { NewMachineBody } from '../../machines/client.ts';
import type { Ports } from '../../ports.ts';

export interface MachineAddOptions extends CommonOptions {
  readonly machine: NewMachineBody;
  readonly actor: string;
}

interface Flags {
  readonly site: string;
  readonly bmc: string;
  readonly rack?: string;
  readonly system?: string;
  readonly credential?: string;
  readonly pin?: string;
  readonly serial?: string;
  readonly uuid?: string;
  readonly mac: string[];
  readonly tenant?: string;
  readonly actor: string;
}

const also = (value: string, before: string[]): string[] => [...before, value];

export function newMachineAdd(ports: Ports, run: (options: MachineAddOptions) => Promise<void>): Command {
  const command = new Command('add')
    .description('Add a machine: where its controller answers, and how it will be known')
    .addArgument(new Argument('<machine>', 'its id, and that of its node: letters, digits, ".", "_", "-"'))
    .requiredOption('--site <site>', 'whose agent reaches its controller')
    .requiredOption('--bmc <address>', 'host, or host:port, of its controller, as the site agent reaches it')
    .option('--rack <rack>', 'where it stands; limits of a reimage count by it')
    .option('--system <id>', 'which system behind the controller; without, the one there is')
    .option('--credential <ref>', 'where the controller’s name and password are; without, secret://bmc/<machine>')
    .option('--pin <sha256>', 'SHA-256 of the controller’s key, hex; without, the key of the first contact is taken')
    .option('--serial <serial>', 'serial number of the machine')
    .option('--uuid <uuid>', 'its SMBIOS UUID')
    .option('--mac <address>', 'hardware address of a port that it boots from; several times for several', also, [])
    .option('--tenant <tenant>', 'whose it is; without, the default tenant')
    .addOption(actorOption(ports.io))
    .action((id: string, flags: Flags) => run({ ...commonOptions(command), actor: flags.actor, machine: bodyOf(id, flags) }));
  return withExamples(command, [
    'better-compute machine add gpu-0117 --site hel-1 --rack r7 --bmc 10.7.0.17 --mac 3c:ec:ef:00:01:17',
    'better-compute machine add gpu-0118 --site hel-1 --bmc 10.7.0.18:8443 --serial 8XK2P --json',
  ]);
}

function bodyOf(id: string, { site, bmc, mac, ...flags }: Flags): NewMachineBody {
  const given = {
    rack: flags.rack,
    bmcSystemId: flags.system,
    credentialRef: flags.credential,
    bmcPinSha256: flags.pin,
    serial: flags.serial,
    uuid: flags.uuid,
    tenantId: flags.tenant,
  };
  return {
    id,
    siteId: site,
    bmcAddress: bmc,
    ...Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)),
    ...(mac.length === 0 ? {} : { macAddresses: mac }),
  };
}

export async function machineAddRun({ machine, actor, json }: MachineAddOptions, { io, machines }: Ports): Promise<void> {
  const answer = await machines().add({ machine, actor });
  if (json) return writeJson(io, answer);
  io.out(`added ${machine.id}`);
  io.err(
    `store its controller's name and password as ${machine.credentialRef ?? `secret://bmc/${machine.id}`} (better-compute secrets set), then: better-compute machine inspect ${machine.id} --reason <why>`,
  );
}
