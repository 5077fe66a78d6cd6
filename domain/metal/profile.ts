/**
 * What is made of a machine, as data: how it is booted, diagnosed, wiped, written and started. A profile never holds a secret, only
 * references, and never a device name, which means another disk after the next boot (M46).
 *
 * The file's form is services/metal/profile-text.ts; here is what it means and what cannot be, whoever wrote it.
 */
import { type CommandKind, findCommandKind } from '../commands/kinds.ts';
import { minute } from '../time.ts';
import { type ProfileStep, problemsOfSteps } from './profile-steps.ts';

/** Which disks are meant: every field that is given must match. */
export interface DiskRule {
  readonly serial?: string | undefined;
  readonly wwn?: string | undefined;
  readonly model?: string | undefined;
  readonly transport?: string | undefined;
  readonly rotational?: boolean | undefined;
  readonly minBytes?: number | undefined;
  readonly maxBytes?: number | undefined;
}

/** How one is chosen of several that match: by what they are, never by the order of their names. */
export type DiskPick = 'only' | 'smallest' | 'lowest-serial';

export interface Artefact {
  /** In the boot server's folder; no path. */
  readonly name: string;
  /** Lower-case hex. */
  readonly sha256: string;
}

export interface Profile {
  readonly name: string;
  readonly description: string;
  readonly boot: {
    readonly kernel: Artefact;
    readonly initramfs: Artefact;
    readonly kernelArgs: string;
    /** The operating system is asked to shut down first (M32). */
    readonly graceful: boolean;
    /** Firmware that boots over HTTP reads this; absent: PXE. */
    readonly httpUrl?: string | undefined;
    /** From power-on to the ramdisk's join, at worst. */
    readonly bootTimeMs: number;
    /** Within which the ramdisk joins, with the one re-boot. */
    readonly discoveryWindowMs: number;
  };
  readonly diagnose: {
    readonly dcgm?: { readonly level: 1 | 2 | 3; readonly required: boolean } | undefined;
  };
  readonly wipe: {
    /** Left alone; the default is that nothing is (M53). */
    readonly keep: readonly DiskRule[];
    /** Best first; empty: the device's own ladder. */
    readonly methods: readonly string[];
    readonly samples: number;
  };
  readonly deploy: {
    readonly image: {
      readonly url: string;
      readonly sha256: string;
      /** 0: not known. */
      readonly bytes: number;
      readonly format: 'raw' | 'qcow2';
      readonly compression: 'none' | 'gzip' | 'zstd';
    };
    readonly disk: DiskRule;
    readonly pick: DiskPick;
    /** 0: none. */
    readonly growPartition: number;
    /** secret://, vault:// or env://; empty: none. */
    readonly userDataRef: string;
    readonly metaData: Readonly<Record<string, unknown>>;
    readonly networkConfig: string;
  };
  readonly start: {
    readonly by: 'kexec' | 'reboot';
    /** From the jump to the join of the new system; then the machine is started through its firmware, once. */
    readonly joinWithinMs: number;
    readonly kernelArgs: string;
  };
  readonly steps: readonly ProfileStep[];
}

/** What a step of the control plane is, as far as approvers are concerned. */
export interface StepDeclaration {
  readonly name: string;
  readonly sends?: readonly string[] | undefined;
}

/**
 * The kinds of every command that a run of this profile sends, each once, in the order of the steps (BAT-035): what each step has
 * declared (BAT-036). What a step sends without having declared it is in no scope that is made of this (BAT-037).
 *
 * @param profile null for a run that has none
 */
export function profileCommandKinds(profile: Profile | null, steps: readonly StepDeclaration[]): CommandKind[] {
  const declared = [...steps, ...(profile?.steps ?? [])].flatMap(({ sends = [] }) => sends);
  const wanted = profile?.diagnose.dcgm === undefined ? declared.filter((kind) => kind !== 'diag.dcgm') : declared;
  return [...new Set(wanted)].filter((kind): kind is CommandKind => findCommandKind(kind) !== undefined);
}

/** Boots into the ramdisk: the first one, and the one bounded re-boot. */
export const networkBoots = 2;

/** One boot at its worst: the setting, the power action and the machine's own time. */
export function worstBootCycleMs({ boot }: Pick<Profile, 'boot'>): number {
  const timeoutOf = (kind: string): number => findCommandKind(kind)?.timeoutMs ?? 0;
  return timeoutOf('bmc.boot') + timeoutOf('bmc.power') + boot.bootTimeMs;
}

export interface ProfileProblem {
  /** Names and places in lists: `boot.discoveryWindow`. */
  readonly path: readonly (string | number)[];
  readonly message: string;
}

/** What no reader of one field can see. Empty for a good profile. @param steps names of the run's own steps */
export function problemsOfProfile(profile: Profile, steps: readonly string[]): ProfileProblem[] {
  return [...problemsOfWindow(profile), ...problemsOfDisks(profile), ...problemsOfSteps(profile.steps, steps)];
}

const inMinutes = (ms: number): string => `${Math.ceil(ms / minute)} min`;

/** A window that ends before the last attempt could is a failure that nobody caused (M10). */
function problemsOfWindow(profile: Profile): ProfileProblem[] {
  const least = networkBoots * worstBootCycleMs(profile);
  if (profile.boot.discoveryWindowMs > least) return [];
  const { bootTimeMs, discoveryWindowMs } = profile.boot;
  return [
    {
      path: ['boot', 'discoveryWindow'],
      message: `${inMinutes(discoveryWindowMs)} are not more than ${inMinutes(least)}: ${networkBoots} boots of at worst ${inMinutes(worstBootCycleMs(profile))} each (boot.bootTime ${inMinutes(bootTimeMs)} and the controller's time)`,
    },
  ];
}

const isEmptyRule = (rule: DiskRule): boolean => Object.values(rule).every((value) => value === undefined);

function problemsOfDisks({ wipe, deploy }: Profile): ProfileProblem[] {
  const keeps = wipe.keep.flatMap((rule, index): ProfileProblem[] =>
    isEmptyRule(rule) ? [{ path: ['wipe', 'keep', index], message: 'a disk that is kept is named by at least one field' }] : [],
  );
  const { minBytes = 0, maxBytes = Infinity } = deploy.disk;
  return minBytes <= maxBytes
    ? keeps
    : [...keeps, { path: ['deploy', 'disk', 'minBytes'], message: `${minBytes} is more than maxBytes ${maxBytes}` }];
}
