/**
 * The id of this boot, by which a reboot is proven: the kernel's, or, for a daemon told to simulate reboots, one kept in the
 * data folder that the simulated reboot replaces.
 */
import { randomUUID } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { readIfPresent, writeDurably } from './files.ts';

export interface BootIdSource {
  read(): Promise<string>;
}

export const kernelBootId: BootIdSource = {
  read: async () => (await readFile('/proc/sys/kernel/random/boot_id', 'utf8')).trim(),
};

export interface SimulatedBoot extends BootIdSource {
  /** The simulated reboot: from here on, the machine has booted anew. */
  replace(): Promise<void>;
}

export function simulatedBootId(folder: string): SimulatedBoot {
  const path = join(folder, 'simulated-boot-id');
  const replace = (): Promise<void> => writeDurably(path, `${randomUUID()}\n`);
  return {
    replace,
    async read() {
      const found = (await readIfPresent(path, 256))?.toString('utf8').trim();
      if (found !== undefined && found !== '') return found;
      await replace();
      return (await readFile(path, 'utf8')).trim();
    },
  };
}
