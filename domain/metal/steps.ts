/**
 * The steps of a run, for each kind: what each of them sends (BAT-036) and how long it may take. Workflows have a story for every name in
 * here; a batch is made of what stands here and nowhere else.
 */
import type { CommandKind } from '../commands/kinds.ts';
import { findCommandKind } from '../commands/kinds.ts';
import { hour, minute } from '../time.ts';
import { type Profile, type StepDeclaration, worstBootCycleMs } from './profile.ts';
import { type OwnStep, ownStepsOf } from './profile-steps.ts';
import type { RunKind } from './run-ends.ts';

export interface RunStep extends StepDeclaration {
  readonly name: string;
  readonly sends: readonly CommandKind[];
  readonly deadlineMs: (profile: Profile | null) => number;
  /** It writes to the machine's disks. */
  readonly destroys?: true;
}

const timeoutOf = (...kinds: readonly CommandKind[]): number =>
  kinds.reduce((sum, kind) => sum + (findCommandKind(kind)?.timeoutMs ?? 0), 0);

/** Beyond what the command may take itself: an agent that is away, a worker that is replaced. */
const slack = 15 * minute;
const within =
  (...kinds: readonly CommandKind[]) =>
  (): number =>
    timeoutOf(...kinds) + slack;

/** A weekend, and little enough that the whole of a run which is short itself is signed under the approvers' default of 72 h (BATCLI-031). */
const approve: RunStep = { name: 'approve', sends: [], deadlineMs: () => 70 * hour };
const prepareBoot: RunStep = { name: 'prepare-boot', sends: ['boot.prepareRamdisk'], deadlineMs: within('boot.prepareRamdisk') };
const boot: RunStep = { name: 'boot', sends: ['bmc.boot', 'bmc.power'], deadlineMs: within('bmc.boot', 'bmc.power', 'bmc.power') };
/** Sends again what `boot` sent, once. */
const ramdiskJoin: RunStep = {
  name: 'ramdisk-join',
  sends: ['bmc.boot', 'bmc.power'],
  deadlineMs: (profile) =>
    profile?.boot.discoveryWindowMs ?? 2 * worstBootCycleMs({ boot: { bootTimeMs: 20 * minute } as Profile['boot'] }) + slack,
};
const diagnose: RunStep = { name: 'diagnose', sends: ['diag.disks', 'diag.dcgm'], deadlineMs: within('diag.disks', 'diag.dcgm') };
const wipe: RunStep = { name: 'wipe', sends: ['disk.wipe'], deadlineMs: within('disk.wipe'), destroys: true };
const deploy: RunStep = { name: 'deploy', sends: ['deploy.image'], deadlineMs: within('deploy.image'), destroys: true };
/** The jump; where nobody joins behind it, the disk is booted through the firmware. */
const start: RunStep = { name: 'start', sends: ['boot.kexec'], deadlineMs: within('boot.kexec'), destroys: true };
const provisionedJoin: RunStep = {
  name: 'provisioned-join',
  sends: ['bmc.boot', 'bmc.power'],
  deadlineMs: (profile) => 2 * (profile?.start.joinWithinMs ?? hour) + timeoutOf('bmc.boot', 'bmc.power') + slack,
};
const powerOff: RunStep = { name: 'power-off', sends: ['bmc.power'], deadlineMs: within('bmc.power') };
const cleanUp: RunStep = { name: 'clean-up', sends: ['boot.cleanUp'], deadlineMs: within('boot.cleanUp') };

export const stepsOf: Readonly<Record<RunKind, readonly RunStep[]>> = Object.freeze({
  provision: [approve, prepareBoot, boot, ramdiskJoin, diagnose, wipe, deploy, start, provisionedJoin, cleanUp],
  // The identity ends before anything else: a machine that boots its old disk once more speaks for nobody (M28).
  retire: [
    approve,
    { name: 'end-identity', sends: [], deadlineMs: () => 10 * minute },
    prepareBoot,
    boot,
    ramdiskJoin,
    diagnose,
    wipe,
    powerOff,
    cleanUp,
  ],
  inspect: [{ name: 'inventory', sends: ['bmc.inventory'], deadlineMs: within('bmc.inventory') }],
  'rotate-bmc': [
    approve,
    { name: 'store-next', sends: [], deadlineMs: () => 10 * minute },
    { name: 'rotate', sends: ['bmc.rotate'], deadlineMs: within('bmc.rotate') },
    { name: 'adopt', sends: [], deadlineMs: () => 10 * minute },
  ],
});

/**
 * Every step of a run: those of its kind, and behind them where they say, the profile's own, which only a provision run has. In the order in
 * which the plan names them.
 */
export function runSteps(kind: RunKind, profile: Profile | null): RunStep[] {
  const own = kind === 'provision' ? ownStepsOf(profile) : [];
  return stepsOf[kind].flatMap((step) => [step, ...own.filter(({ after }) => after === step.name).map(runStepOf)]);
}

const runStepOf = ({ name, kind, declared, deadlineMs, harmless, on }: OwnStep): RunStep => ({
  name,
  sends: declared ? [kind] : [],
  deadlineMs: () => deadlineMs,
  ...(on === 'ramdisk' && !harmless ? { destroys: true } : {}),
});

/** Names of the steps of a provision run: what a profile's own steps stand behind. */
export const provisionStepNames: readonly string[] = Object.freeze(stepsOf.provision.map(({ name }) => name));
