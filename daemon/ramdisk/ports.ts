/** What the ramdisk's handlers need of the machine and of the daemon around them. */
import type { Signed } from '../../proto/index.ts';
import type { PluginPorts } from '../kinds/driver-invoke.ts';
import type { SecretPort } from '../secrets/port.ts';
import type { SourceTiming } from './deploy/image-source.ts';
import type { DiskHost, MachineFacts } from './disks/disk-host.ts';

/** Which run this boot belongs to; from the kernel's command line. */
export interface BootOfRun {
  readonly nodeId: string;
  readonly runId: string;
  readonly bootNonce: Uint8Array;
}

/** Signs evidence with this ramdisk's own key, certificate chain included. */
export interface EvidenceSigner {
  readonly trustDomain: string;
  readonly nodeId: string;
  sign(purpose: 'erase-evidence' | 'deploy-evidence', body: Uint8Array): Promise<Signed>;
}

/** Leaves this boot, after the answer was confirmed. */
export interface Jump {
  readonly readBootId: () => Promise<string>;
  /** Loads what is to be started; has no effect that lasts. @returns what is loaded, for people; empty for a restart */
  load(wanted: JumpTarget, signal: AbortSignal): Promise<string>;
  /** The answer of this command is to be confirmed first; then the jump. */
  afterReceipt(commandId: string, wanted: JumpTarget): Promise<void>;
}

export interface JumpTarget {
  /** As tools name it. */
  readonly diskPath: string;
  /** 0: the first one that holds a kernel. */
  readonly partition: number;
  readonly kernelArgs: string;
  /** Through the firmware instead. */
  readonly reboot: boolean;
}

export interface RamdiskPorts {
  readonly boot: BootOfRun;
  readonly disks: DiskHost;
  readonly machine: () => Promise<MachineFacts>;
  readonly signer: () => EvidenceSigner;
  readonly secrets: SecretPort;
  readonly jump: Jump;
  /** Those that the ramdisk was built with; null: none. */
  readonly plugins: PluginPorts | null;
  /** A private folder in memory. */
  readonly scratch: string;
  readonly random: (length: number) => Uint8Array;
  readonly sleep: (ms: number, signal: AbortSignal) => Promise<void>;
  /** Patience with an image server; the default of deploy/image-source.ts without. */
  readonly sourceTiming?: SourceTiming;
}
