/** diag.disks: what the machine says of itself and of its disks; nothing is run, nothing is written. */
import { DiagDisksReportSchema } from '../../proto/index.ts';
import { type KindHandler, succeeded } from '../kinds/handler.ts';
import { diskMessage } from './disks/disk-message.ts';
import type { RamdiskPorts } from './ports.ts';

export function diagDisksHandler({ disks, machine }: RamdiskPorts): KindHandler {
  return {
    async run() {
      const { systemUuid, systemSerial, macAddresses, memoryBytes, cpus } = await machine();
      return succeeded(DiagDisksReportSchema, {
        disks: (await disks.list()).map(diskMessage),
        systemUuid,
        systemSerial,
        macAddresses: [...macAddresses],
        memoryBytes: BigInt(memoryBytes),
        cpus,
      });
    },
  };
}
