/** What a run remembers of a step is that step's: nothing of it is found in the next one, whatever their order. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import type { PlannedRun } from '../../activities/metal-ports.ts';
import { MachineRun } from '../../workflows/machine-run/state.ts';
import type { StoryStep } from '../../workflows/machine-run/table.ts';
import { provision } from '../../workflows/provision-machine/steps.ts';

const words = { actor: 'ann', reason: 'looked' };
const steps = provision.steps;
const plan: PlannedRun = {
  runId: 'r1',
  machineId: 'm1',
  kind: 'provision',
  siteId: 's1',
  rack: '',
  bmc: '10.0.0.1',
  steps: steps.map(({ name }, at) => ({ name, deadlineMs: 1_000 * (at + 1) })),
  actions: [],
  startBy: 'kexec',
  diagnosesGpus: false,
  bootTimeMs: 1,
  joinWithinMs: 1,
};
const newRun = (): MachineRun => Object.assign(new MachineRun('provision', { machineId: 'm1', ...words }, 0), { plan });

/** What may be left in a step: each of these was once found in the step behind it, in some system. */
const traces: Readonly<Record<string, (run: MachineRun, step: StoryStep) => void>> = {
  attempt: ({ scope }) => void (scope.attempt += 3),
  answer: ({ scope }) => void (scope.last = { commandId: 'c', state: 'failed', message: 'no', at: 5 }),
  override: ({ scope }, { name }) => void (scope.overridden = { step: name, ...words }),
  hold: ({ scope }) => void (scope.held = { reason: 'refused', detail: 'no' }),
  deadline: ({ scope }) => void (scope.deadline = null),
  saying: ({ scope }) => void (scope.saying = 'an operator'),
  phase: (run) => run.enter('held', run.scope),
};

const stepState = (run: MachineRun): unknown => {
  const { step, attempt, deadline, waitsFor, last, next } = run.status();
  return { step, attempt, deadline, waitsFor, last, next, overridden: run.scope.overridden, held: run.scope.held, since: run.scope.since };
};

describe('the steps of a run', () => {
  it('M8 begin as if there had been none before, in whatever order they come and whatever was left in the one before', () => {
    fc.assert(
      fc.property(
        fc.array(fc.record({ step: fc.constantFrom(...steps), left: fc.subarray(Object.keys(traces)) }), { minLength: 2, maxLength: 12 }),
        (order) => {
          const run = newRun();
          for (const [at, { step, left }] of order.entries()) {
            const fresh = newRun();
            run.begin(step, 1_000 * at);
            fresh.begin(step, 1_000 * at);
            assert.deepEqual(stepState(run), stepState(fresh));
            for (const name of left) traces[name]?.(run, step);
          }
        },
      ),
    );
  });

  it('M8 M24 an override of the step before is refused by the next one, by name', () => {
    fc.assert(
      fc.property(fc.constantFrom(...steps), fc.constantFrom(...steps), (before, after) => {
        fc.pre(before.name !== after.name);
        const run = newRun();
        run.begin(before, 0);
        run.begin(after, 1);
        assert.throws(() => run.assertMayOverride({ step: before.name, ...words }), {
          code: 'INVALID_STATE',
          message: `the run is at ${after.name}, not at ${before.name}: override the step that waits`,
        });
      }),
    );
  });
});
