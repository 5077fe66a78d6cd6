/**
 * The disks of a machine, as a port: a real one (real.ts: /sys/block and the drives' own tools) and a folder of files that behave
 * like disks (folder.ts: tests, demonstrations).
 *
 * A disk is named by what it says of itself, never by the kernel's name for it: that is another after the next boot (M46).
 */
import type { SeenDisk } from '../../../domain/metal/disks.ts';
import type { EraseCapabilities } from '../../../domain/metal/erase.ts';
import type { ProgramEnd } from '../../kinds/program.ts';

/** Of this boot: serial, WWN and model trimmed, the WWN in lower case; empty where the disk says none. */
export interface DiskFacts extends SeenDisk {
  readonly logicalBlockBytes: number;
}

/** An open disk. Offsets and lengths are bytes. */
export interface DiskHandle {
  /** @throws when fewer bytes than asked for can be read */
  read(offset: number, length: number): Promise<Buffer>;
  /** Writes all of it. */
  write(offset: number, bytes: Uint8Array): Promise<void>;
  /** Resolves when what was written survives a power cut, and is read from the disk from here on. */
  sync(): Promise<void>;
  close(): Promise<void>;
}

export interface DiskHost {
  /** Every disk that could hold data; no partitions, no RAM disks. */
  list(): Promise<readonly DiskFacts[]>;
  /** For writing the disk is opened exclusively: one that is mounted is refused. */
  open(disk: DiskFacts, mode: 'read' | 'write'): Promise<DiskHandle>;
  capabilities(disk: DiskFacts, signal: AbortSignal): Promise<EraseCapabilities>;
  /** Runs a drive's tool (nvme, hdparm, blkdiscard); its exit status is for the caller to judge. */
  tool(name: string, args: readonly string[], signal: AbortSignal): Promise<ProgramEnd>;
  /** What tools name the disk, such as /dev/nvme0n1. */
  path(disk: DiskFacts): string;
  /** Has the kernel read the partition table again; nothing where there is no kernel. */
  partitionsChanged(disk: DiskFacts): Promise<void>;
}

/** What the firmware says of the machine. */
export interface MachineFacts {
  /** Lower case; empty when it says none. */
  readonly systemUuid: string;
  readonly systemSerial: string;
  /** Lower case, with colons. */
  readonly macAddresses: readonly string[];
  readonly memoryBytes: number;
  readonly cpus: number;
}
