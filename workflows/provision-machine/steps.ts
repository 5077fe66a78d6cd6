/** Provisioning, step by step: each row as the runbook tells it (workflows/machine-run/table.ts says what its fields mean). */
import { cleanUps } from '../../domain/metal/boot-answers.ts';
import { minute } from '../../domain/time.ts';
import type { MachineRun } from '../machine-run/state.ts';
import { actionsOf, once, type Story, type StoryStep } from '../machine-run/table.ts';

const siteOf = ({ plan }: MachineRun): readonly string[] => [`site ${plan?.siteId ?? ''}`];
const controllerOf = ({ plan }: MachineRun): readonly string[] => [`bmc ${plan?.bmc ?? ''}`, `site ${plan?.siteId ?? ''}`];
const machineOf = ({ input }: MachineRun): readonly string[] => [input.machineId];

/** The first boot, and the one bounded re-boot. */
const letBoot = (attempt: number) => [{ act: 'prepare-boot' as const, ordinal: attempt }];

/** Shared by every run that boots the ramdisk. */
export const ramdiskSteps: readonly StoryStep[] = [
  {
    name: 'prepare-boot',
    phase: 'booting',
    saying: 'the boot server to take the entry of the machine',
    waitsFor: siteOf,
    acts: () => letBoot(1),
    onFailure: 'hold',
    onOverride: 'assume',
  },
  {
    name: 'boot',
    phase: 'booting',
    saying: 'the management controller to boot the machine from the network',
    waitsFor: controllerOf,
    acts: (run) => actionsOf(run, 'network-boot'),
    onFailure: 'hold',
    onOverride: 'assume',
  },
  {
    name: 'ramdisk-join',
    phase: 'waiting-ramdisk',
    saying: 'the ramdisk to join',
    waitsFor: machineOf,
    observe: 'ramdisk-joined',
    patienceMs: ({ plan }) => plan?.bootTimeMs ?? 20 * minute,
    secondChance: {
      explain: { acts: once('clean-up'), observe: 'boot-seen' },
      acts: (run) => [...letBoot(2), ...actionsOf(run, 'network-boot-again')],
      saying: 'the ramdisk to join, after the one further boot',
    },
    lateReason: 'no-netboot',
    onFailure: 'fail',
    onOverride: 'wait-again',
  },
  {
    name: 'diagnose',
    phase: 'diagnosing',
    saying: 'the ramdisk to tell what the machine is',
    waitsFor: machineOf,
    acts: ({ plan }) => once('read-disks', ...(plan?.diagnosesGpus === true ? (['diagnose-gpus'] as const) : [])),
    observe: 'diagnosed',
    onFailure: 'fail',
    onOverride: 'refuse',
  },
  {
    name: 'wipe',
    phase: 'wiping',
    saying: 'the disks to be erased, and the evidence of it',
    waitsFor: machineOf,
    acts: () => once('wipe'),
    observe: 'wiped',
    onFailure: 'fail',
    onOverride: 'refuse',
  },
];

/** The way on of a machine that is let go: its own disk again (activities/metal-payloads.ts asks the facts). */
export const letGo: StoryStep = {
  name: 'clean-up',
  phase: 'starting-system',
  saying: 'the boot server to take the entry of the run away',
  waitsFor: siteOf,
  acts: () => [{ act: 'clean-up', ordinal: cleanUps.letsGo }],
  onFailure: 'hold',
  onOverride: 'assume',
};

export const provision: Story = {
  kind: 'provision',
  steps: [
    ...ramdiskSteps,
    {
      name: 'deploy',
      phase: 'deploying',
      saying: 'the image to be written and read back, and the evidence of it',
      waitsFor: machineOf,
      acts: () => once('deploy'),
      observe: 'deployed',
      onFailure: 'fail',
      onOverride: 'refuse',
    },
    // Before the start: firmware that asks the boot server once more has to be sent to the disk.
    letGo,
    {
      name: 'start',
      phase: 'starting-system',
      saying: 'the ramdisk to take the order to start the system',
      waitsFor: machineOf,
      acts: () => once('start'),
      onFailure: 'hold',
      onOverride: 'assume',
    },
    {
      name: 'provisioned-join',
      phase: 'waiting-node',
      saying: 'the system to join as the machine',
      waitsFor: machineOf,
      observe: 'system-joined',
      patienceMs: ({ plan }) => plan?.joinWithinMs ?? 20 * minute,
      secondChance: { acts: (run) => actionsOf(run, 'disk-boot'), saying: 'the system to join, after a boot from the disk' },
      lateReason: 'no-provisioned-join',
      onFailure: 'fail',
      onOverride: 'wait-again',
    },
  ],
};
