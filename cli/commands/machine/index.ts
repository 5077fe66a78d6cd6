/** `better-compute machine …`: bare metal, from the address of a controller to a node that joined. */
import type { Command } from 'commander';
import { findGroup } from '../../command.ts';
import type { CliIo } from '../../io.ts';
import { createPorts, type Ports } from '../../ports.ts';
import { machineAddRun, newMachineAdd } from './add.ts';
import { machineEvidenceRun, newMachineEvidence } from './evidence.ts';
import { machineImportRun, newMachineImport } from './import.ts';
import { machineListRun, newMachineList } from './list.ts';
import { beginKinds, machineBeginRun, newMachineBegin } from './runs.ts';
import { machineShowRun, newMachineShow } from './show.ts';
import { machineSayRun, newMachineSay, saidWords } from './steer.ts';

export function register(program: Command, io: CliIo, ports: Ports = createPorts(io)): void {
  const group = findGroup(program, 'machine', 'Bare metal: add it, provision it, see what it waits for, take it back')
    .addCommand(newMachineAdd(ports, (options) => machineAddRun(options, ports)))
    .addCommand(newMachineImport(ports, (options) => machineImportRun(options, ports)))
    .addCommand(newMachineList((options) => machineListRun(options, ports)))
    .addCommand(newMachineShow((options) => machineShowRun(options, ports)));
  for (const kind of beginKinds) group.addCommand(newMachineBegin(kind, ports, (options) => machineBeginRun(kind, options, ports)));
  for (const what of saidWords) group.addCommand(newMachineSay(what, ports, (options) => machineSayRun(what, options, ports)));
  group.addCommand(newMachineEvidence((options) => machineEvidenceRun(options, ports)));
}
