/** A profile's own steps in the activities: which one a command is for, and what its answer means. */
import { ControlError } from '../domain/errors.ts';
import type { ActName } from '../domain/metal/acts.ts';
import type { Profile } from '../domain/metal/profile.ts';
import { type OwnStep, ownStepsOf, type StepKind } from '../domain/metal/profile-steps.ts';
import type { RunKind } from '../domain/metal/run-ends.ts';
import { driver, ServiceRestartResultSchema, site } from '../proto/index.ts';
import type { CommandAnswer, PlannedOwnStep, RunFacts } from './metal-ports.ts';
import { decoded, failed, type Looking, reached, type Seen } from './metal-seen.ts';

const ownActs = Object.freeze(['ask-ramdisk', 'invoke-ramdisk', 'ask-node', 'invoke-node', 'request', 'restart', 'reboot'] as const);
export type OwnAct = (typeof ownActs)[number];
export const isOwnAct = (act: ActName): act is OwnAct => ownActs.some((own) => own === act);

/** What a run's plan says of them: where they stand and what they send, without what it is made of. */
export const plannedOwnSteps = (kind: RunKind, profile: Profile | null): PlannedOwnStep[] =>
  (kind === 'provision' ? ownStepsOf(profile) : []).map(({ ordinal, name, after, kind: sends, act, on, repeats }) => ({
    ordinal,
    name,
    after,
    kind: sends,
    act,
    on,
    repeats,
  }));

/** @throws INVALID_STATE (no-step) where the run's profile has no such step: somebody else made the call */
export function ownStepOf({ profile, run }: RunFacts, { act, ordinal }: { act: ActName; ordinal: number }): OwnStep {
  const step = findStep({ profile, run }, ordinal);
  if (step?.act === act) return step;
  throw new ControlError('INVALID_STATE', `step ${ordinal} of the profile of run ${run.id} sends no ${act}`, {
    details: { reason: 'no-step' },
  });
}

const findStep = ({ profile, run }: Pick<RunFacts, 'profile' | 'run'>, ordinal: number): OwnStep | undefined =>
  run.kind === 'provision' ? ownStepsOf(profile).find((one) => one.ordinal === ordinal) : undefined;

/** What the step's latest command brought, read from what was stored of it. */
export async function stepAnswered(_ports: unknown, { facts, answer, ordinal }: Looking): Promise<Seen> {
  const step = findStep(facts, ordinal);
  if (step === undefined) return failed('no-step', `the profile has no step ${ordinal}`);
  const found = await answer(step.act);
  if (found === undefined) return failed('no-answer', `nothing was sent for step ${step.name}`);
  if (found.state !== 'done') return failed(`${step.act}-${found.state}`, found.error === '' ? found.state : found.error);
  return meanings[step.kind](step, found);
}

const meanings: Readonly<Record<StepKind, (step: OwnStep, answer: CommandAnswer) => Seen>> = Object.freeze({
  'driver.invoke': ({ do: doing }, { result }) => {
    const { plugin, method } = doing['driver.invoke'] ?? {};
    const { output } = decoded(driver.DriverInvokeResultSchema, result ?? new Uint8Array());
    return reached(`${method} of plugin ${plugin} answered ${output.length} bytes`);
  },
  'site.httpProxy': ({ do: doing }, { result }) => {
    const { method = '', expect = [] } = doing['site.httpProxy'] ?? {};
    const { status } = decoded(site.SiteHttpProxyResultSchema, result ?? new Uint8Array());
    const isMeant = expect.length === 0 ? status >= 200 && status <= 299 : expect.includes(status);
    if (isMeant) return reached(`${method} answered ${status}`);
    return failed(
      'unexpected-status',
      `${method} answered ${status}, and ${expect.length === 0 ? '200 to 299' : expect.join(', ')} is meant`,
    );
  },
  'service.restart': ({ do: doing }, { result }) => {
    const { activeState } = decoded(ServiceRestartResultSchema, result ?? new Uint8Array());
    const said = `${doing['service.restart']?.unit} is ${activeState === '' ? 'in no state that it told' : activeState}`;
    return activeState === 'failed' || activeState === 'inactive' ? failed('unit-not-active', said) : reached(said);
  },
  'node.reboot': () => reached('the system is back in another boot'),
});
