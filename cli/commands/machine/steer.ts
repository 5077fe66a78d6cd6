/** What an operator says to a machine and its run: one row each. All of it stands in the trail, with a name and a reason. */
import { Argument, Command } from 'commander';
import { actorOption, assertConfirmed, commonOptions, reasonOption, type SignedOptions, withExamples, yesOption } from '../../command.ts';
import { writeJson } from '../../io.ts';
import type { MachineClient, Steered } from '../../machines/client.ts';
import { remainsText } from '../../machines/view.ts';
import type { Ports } from '../../ports.ts';

export interface SayOptions extends SignedOptions {
  readonly machine: string;
  readonly yes: boolean;
  /** Of an override: the step that was checked; without, the quarantine of the machine. */
  readonly step?: string;
}

interface SayRow {
  readonly description: string;
  question(options: SayOptions): string;
  readonly examples: readonly string[];
  /** @returns what to write: data, and a line for people */
  say(client: MachineClient, options: SayOptions): Promise<{ readonly answer: unknown; readonly line: string }>;
}

const steer =
  (what: 'cancel' | 'give-up' | 'override', did: string): SayRow['say'] =>
  async (client, { machine, actor, reason, step }) => {
    const answer = await client.steer(machine, what, { actor, reason, ...(step === undefined ? {} : { step }) });
    return { answer, line: steeredText(`${did} ${machine}`, answer) };
  };

const change =
  (what: 'release' | 'forget' | 'readmit'): SayRow['say'] =>
  async (client, { machine, actor, reason }) => {
    const answer = await client.change(machine, what, { actor, reason });
    return {
      answer,
      line: `${machine} is ${answer.state}${answer.tombstone ? '; its hardware is kept out until: better-compute machine readmit' : ''}`,
    };
  };

const rows = Object.freeze({
  cancel: {
    description: 'Cancel the run of a machine: it ends untouched, clean, or dirty and in quarantine, and says which',
    question: ({ machine }) => `Cancel the run of ${machine}?`,
    examples: ['better-compute machine cancel gpu-0117 --reason "wrong profile" --yes'],
    say: steer('cancel', 'cancelled the run of'),
  },
  override: {
    description:
      'Say “I have checked”: of the step that a run waits in, or without --step of a machine in quarantine, which is available again',
    question: ({ machine, step }) =>
      step === undefined
        ? `Let ${machine} out of quarantine? Whoever gets it next may read what is left on its disks.`
        : `Have you checked that step ${step} of ${machine} is done?`,
    examples: [
      'better-compute machine override gpu-0117 --step boot --reason "console shows the ramdisk" --yes',
      'better-compute machine override gpu-0117 --reason "disks shredded, certificate 88" --yes',
    ],
    say: (client, options) => (options.step === undefined ? change('release') : steer('override', 'overrode a step of'))(client, options),
  },
  'give-up': {
    description: 'Give up the run of a machine where it stands, in any state, also when its workflow is gone',
    question: ({ machine }) => `Give up the run of ${machine} where it stands? What cannot be proven clean is in quarantine.`,
    examples: ['better-compute machine give-up gpu-0117 --reason "controller broken, sent for repair" --yes'],
    say: steer('give-up', 'gave up the run of'),
  },
  forget: {
    description: 'Delete a machine; one whose disks may hold data leaves a tombstone that keeps its hardware out',
    question: ({ machine }) => `Forget ${machine}? Its id never comes back.`,
    examples: ['better-compute machine forget gpu-0117 --reason "returned to the maker" --yes'],
    say: change('forget'),
  },
  readmit: {
    description: 'Lift the tombstone of a forgotten machine: its disks are gone or clean, and its hardware may come back under another id',
    question: ({ machine }) => `Let the hardware of ${machine} come back? Whoever gets it next may read what is left on its disks.`,
    examples: ['better-compute machine readmit gpu-0117 --reason "disks replaced, certificate 91" --yes'],
    say: change('readmit'),
  },
} satisfies Readonly<Record<string, SayRow>>);

export type Said = keyof typeof rows;
export const saidWords = Object.keys(rows) as Said[];

const toldText: Readonly<Record<Steered['told'], string>> = Object.freeze({
  answered: '',
  waits: '; no worker answers: it counts as soon as one does',
  ended: '; nothing ran any more: the run has been ended here',
});

function steeredText(did: string, { told, step, waitsFor, end, remains }: Steered): string {
  const left = remains === null || !Object.hasOwn(remainsText, remains) ? '' : `: ${remainsText[remains as keyof typeof remainsText]}`;
  if (end !== null) return `${did}${toldText[told]}; it has ended as ${end}${left}`;
  return `${did}${toldText[told]}${step === '' ? '' : `; it is at ${step}${waitsFor === '' ? '' : ` and waits for ${waitsFor}`}`}`;
}

export function newMachineSay(what: Said, ports: Ports, run: (options: SayOptions) => Promise<void>): Command {
  const { description, examples }: SayRow = rows[what];
  const command = new Command(what).description(description).addArgument(new Argument('<machine>', 'machine id'));
  if (what === 'override') command.option('--step <step>', 'the step that was checked: the one that waits');
  command
    .addOption(actorOption(ports.io))
    .addOption(reasonOption())
    .addOption(yesOption())
    .action((machine: string, flags: Omit<SayOptions, 'json' | 'machine'>) => run({ ...commonOptions(command), ...flags, machine }));
  return withExamples(command, examples);
}

export async function machineSayRun(what: Said, options: SayOptions, { io, machines }: Ports): Promise<void> {
  const row: SayRow = rows[what];
  await assertConfirmed(io, options.yes, row.question(options));
  const { answer, line } = await row.say(machines(), options);
  if (options.json) return writeJson(io, answer);
  io.out(line);
  io.err(`see it with: better-compute machine show ${options.machine}`);
}
