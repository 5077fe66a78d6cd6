/**
 * What a machine's ramdisk does: look at the hardware, erase disks, write an operating system, start it. One handler for each kind of
 * role ramdisk, each for commands of this boot alone (this-boot.ts).
 *
 * Threat model: the commands are signed and, where a quorum is set, approved; what is trusted beside them is the kernel's command line
 * (whoever controls the site's network boot) and the drives' firmware. docs/threat-model.md says what a hostile one could do.
 */
import type { KindOfRole } from '../../domain/commands/kinds.ts';
import { driverInvokeHandler } from '../kinds/driver-invoke.ts';
import type { KindHandler } from '../kinds/handler.ts';
import { bootKexecHandler } from './boot-kexec.ts';
import { deployImageHandler } from './deploy/deploy-image.ts';
import { diagDcgmHandler } from './diag-dcgm.ts';
import { diagDisksHandler } from './diag-disks.ts';
import type { RamdiskPorts } from './ports.ts';
import { onlyThisBoot, onlyThisRun } from './this-boot.ts';
import { diskWipeHandler } from './wipe/disk-wipe.ts';

export type { RamdiskPorts } from './ports.ts';

export function createRamdiskHandlers(ports: RamdiskPorts): Readonly<Record<KindOfRole<'ramdisk'>, KindHandler>> {
  const handlers: Record<Exclude<KindOfRole<'ramdisk'>, 'driver.invoke'>, KindHandler> = {
    'diag.disks': diagDisksHandler(ports),
    'diag.dcgm': diagDcgmHandler(ports),
    'disk.wipe': diskWipeHandler(ports),
    'deploy.image': deployImageHandler(ports),
    'boot.kexec': bootKexecHandler(ports),
  };
  for (const kind of Object.keys(handlers) as (keyof typeof handlers)[]) handlers[kind] = onlyThisBoot(ports.boot, handlers[kind]);
  // Its bytes are in a leaf that was signed before there was a boot.
  return Object.freeze({ ...handlers, 'driver.invoke': onlyThisRun(ports.boot, driverInvokeHandler(ports.plugins)) });
}
