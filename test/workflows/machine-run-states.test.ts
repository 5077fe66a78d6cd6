/** A run in each of its states, cancelled and given up there: where it ends, what is left, and what the boot server is told meanwhile. */
import assert from 'node:assert/strict';
import { fromBinary } from '@bufbuild/protobuf';
import { AnySchema } from '@bufbuild/protobuf/wkt';
import { ControlError } from '../../domain/errors.ts';
import type { ActName } from '../../domain/metal/acts.ts';
import type { RunKind } from '../../domain/metal/run-ends.ts';
import { hour } from '../../domain/time.ts';
import { site } from '../../proto/index.ts';
import {
  cancel,
  cancelSignal,
  giveUp,
  giveUpSignal,
  type RunPhase,
  type RunResult,
  runPhases,
} from '../../workflows/shared/machine-messages.ts';
import { invokeStep } from '../domain/metal/profiles.ts';
import { sharedTemporal, type TestTemporal, useWorkflows } from '../harness/temporal.ts';
import { type RunHandle, runMetalWorkers, startRun, untilRun, words } from './metal-rig.ts';
import { testProfile } from './metal-rows.ts';
import { MetalWorld } from './metal-world.ts';
import type { RunningWorkers } from './rotation-rig.ts';

interface StateRow {
  readonly kind: RunKind;
  /** A command that gets no end, or one that is refused. */
  readonly holds?: ActName;
  readonly refuses?: ActName;
  /** Of a machine whose command was not begun, and of one whose command was. */
  readonly left: readonly [unbegun: string, begun?: string];
}

/** Every state that a person can meet. `planning`, `going-back` and `finishing` have tests of their own. */
const states = {
  'waiting-approvals': { kind: 'provision', left: ['untouched'] },
  'reading-bmc': { kind: 'inspect', holds: 'inventory', left: ['untouched'] },
  'changing-credentials': { kind: 'rotate-bmc', holds: 'rotate', left: ['untouched'] },
  revoking: { kind: 'retire', left: ['untouched'] },
  booting: { kind: 'provision', holds: 'set-boot', left: ['untouched', 'untouched'] },
  held: { kind: 'provision', refuses: 'set-boot', left: ['untouched'] },
  'waiting-ramdisk': { kind: 'retire', left: ['untouched'] },
  diagnosing: { kind: 'provision', holds: 'read-disks', left: ['untouched', 'untouched'] },
  wiping: { kind: 'retire', holds: 'wipe', left: ['untouched', 'dirty'] },
  deploying: { kind: 'provision', holds: 'deploy', left: ['clean', 'dirty'] },
  'starting-system': { kind: 'provision', holds: 'clean-up', left: ['dirty'] },
  'waiting-node': { kind: 'provision', left: ['dirty'] },
  'running-steps': { kind: 'provision', holds: 'invoke-ramdisk', left: ['untouched', 'dirty'] },
  'powering-off': { kind: 'retire', holds: 'power-off', left: ['clean'] },
} as const satisfies Partial<Record<RunPhase, StateRow>>;

type State = keyof typeof states;
const rowOf = (state: State): StateRow => states[state];
const names = Object.keys(states) as State[];
/** A machine is called `<state>.<how>`. */
const stateOf = (machineId: string): State => machineId.split('.')[0] as State;

const ways = ['cancel', 'cancel-begun', 'give-up', 'give-up-begun', 'server'] as const;
type Way = (typeof ways)[number];

describe('a run in each of its states', function () {
  this.timeout(180_000);
  useWorkflows();
  let temporal: TestTemporal;
  let workers: RunningWorkers | undefined;
  const handles: RunHandle[] = [];
  let world: MetalWorld;

  before(async () => {
    temporal = await sharedTemporal();
  });
  beforeEach(() => {
    world = new MetalWorld([]);
    for (const state of names) {
      const { holds } = rowOf(state);
      // One function of an act for all the machines that are held at it.
      if (holds !== undefined)
        world.reply.set(holds, (_n, { id }) =>
          holdsOf(id.split('/')[1] ?? '') === holds && !released.has(id.split('/')[1] ?? '') ? 'hold' : {},
        );
    }
    world.approvalOf = (machineId) => ({ held: stateOf(machineId) === 'waiting-approvals', state: 'pending' });
    world.netboots = (_boot, machineId) => stateOf(machineId) !== 'waiting-ramdisk';
    world.systemJoins = (_by, machineId) => stateOf(machineId) !== 'waiting-node';
    world.before = (call, machineId) => {
      const state = stateOf(machineId);
      if (state === 'revoking' && call === 'end-identity') throw new Error('the database is away');
      if (call === `send ${rowOf(state)?.refuses}`) throw new ControlError('INVALID_STATE', 'not now', { details: { reason: 'no-pin' } });
    };
  });
  afterEach(async () => {
    released.clear();
    for (const handle of handles.splice(0)) await handle.terminate('the test is over').catch(() => undefined);
    await workers?.stop();
    workers = undefined;
  });

  const released = new Set<string>();
  const holdsOf = (machineId: string): ActName | undefined => rowOf(stateOf(machineId))?.holds;
  const addMachine = (machineId: string, kind: RunKind): void =>
    void world.machines.set(machineId, {
      state: kind === 'retire' ? 'provisioned' : 'available',
      stateReason: '',
      power: 'off',
      role: 'node',
      generation: 1,
      connected: false,
    });
  /** Waits that last until somebody ends them. */
  const patient = testProfile({ boot: { ...testProfile().boot, bootTimeMs: hour }, start: { ...testProfile().start, joinWithinMs: hour } });

  const begin = async (machineId: string, kind: RunKind): Promise<RunHandle> => {
    addMachine(machineId, kind);
    const steps = stateOf(machineId) === 'running-steps' ? [invokeStep()] : [];
    const over = kind === 'provision' || kind === 'retire' ? { profile: { ...patient, steps } } : {};
    const run = await startRun(temporal.client, kind, { machineId, over });
    handles.push(run);
    return run;
  };
  const commandsOf = (machineId: string) => [...world.stored.values()].filter(({ id }) => id.startsWith(`machine/${machineId}/`));
  const answersOf = (machineId: string): site.BootAnswer[] =>
    commandsOf(machineId)
      .filter(({ kind }) => kind === 'boot.cleanUp')
      .map(({ payload }) => fromBinary(site.BootCleanUpSchema, fromBinary(AnySchema, payload).value).answer);

  async function endIn(state: State, way: Way): Promise<{ machineId: string; result: RunResult | null }> {
    const { kind, holds } = rowOf(state);
    const machineId = `${state}.${way}`;
    const run = await begin(machineId, kind);
    await untilRun(run, ({ phase }) => phase === state);
    if (holds !== undefined)
      while (!commandsOf(machineId).some(({ id }) => id.includes(`/${holds}.`))) await new Promise((resolve) => setTimeout(resolve, 50));
    if (way.endsWith('-begun')) for (const command of commandsOf(machineId)) if (command.state === 'open') command.state = 'acked';
    released.add(machineId);
    if (way === 'server') {
      await run.cancel();
      await assert.rejects(run.result(), /cancelled/);
      return { machineId, result: null };
    }
    await run.executeUpdate(way.startsWith('cancel') ? cancel : giveUp, { args: [words] });
    return { machineId, result: await run.result() };
  }

  it('covers every phase that a person can meet', () => {
    assert.deepEqual(
      runPhases.filter((phase) => !(phase in states)),
      ['planning', 'going-back', 'finishing', 'done'],
    );
  });

  for (const way of ways)
    it(`M58 M6 (${way}) ends there, with what the facts say is left; its disk is booted only where nothing was touched`, async () => {
      workers = await runMetalWorkers(temporal, world, { activitiesOnly: true });
      const begun = way.endsWith('-begun');
      const chosen = names.filter((state) => !begun || rowOf(state).left.length === 2);
      const ends = await Promise.all(chosen.map((state) => endIn(state, way)));
      for (const [at, { machineId, result }] of ends.entries()) {
        const state = chosen[at] as State;
        const { kind, left } = rowOf(state);
        const remains = left[begun ? 1 : 0];
        const finished = world.ended.filter(({ runId }) => world.runsById.get(runId)?.plan.machineId === machineId);
        const end = way.startsWith('give-up') ? 'failed' : 'cancelled';
        assert.deepEqual(
          finished.map((one) => one.end),
          [end],
          `${machineId} has one end`,
        );
        const run = world.runsById.get(finished[0]?.runId ?? '');
        assert.equal(run?.remains, remains, machineId);
        if (result !== null) assert.deepEqual([result.end, result.remains], [end, remains], machineId);
        const rest = { untouched: kind === 'retire' ? 'provisioned' : 'available', clean: 'available', dirty: 'quarantined' }[
          String(remains)
        ];
        assert.equal(world.machine(machineId).state, rest, machineId);
        // M6: its own disk only where it is whole; everywhere else it is held, also behind the end of the run.
        const answers = answersOf(machineId);
        const mayBoot = kind === 'provision' && (remains === 'untouched' || run?.deployed === true);
        assert.ok(mayBoot || !answers.includes(site.BootAnswer.LOCAL), `${machineId}: ${answers.join()}`);
        const prepared = commandsOf(machineId).some(({ kind: sent }) => sent === 'boot.prepareRamdisk');
        if (prepared && end === 'cancelled' && way !== 'server')
          assert.equal(
            answers.at(-1),
            kind === 'provision' && remains === 'untouched' ? site.BootAnswer.LOCAL : site.BootAnswer.HOLD,
            machineId,
          );
        // Also where a word ended the run behind its image: what it may boot is not what it was told before.
        if (remains === 'dirty') assert.notEqual(answers.at(-1), site.BootAnswer.LOCAL, machineId);
      }
    });

  it('M58 a word that comes while the plan is made counts once there is one; one at the very end is refused', async () => {
    let planned = false;
    let mayFinish = false;
    world.before = (call) => {
      if ((call === 'plan' && !planned) || (call === 'finish' && !mayFinish)) throw new Error('the database is away');
    };
    workers = await runMetalWorkers(temporal, world, { activitiesOnly: true });
    const runs = [];
    const sayTo = {
      p1: (run: RunHandle) => run.signal(cancelSignal, words),
      p2: (run: RunHandle) => run.signal(giveUpSignal, words),
      p3: (run: RunHandle) => run.cancel(),
    };
    for (const [machineId, say] of Object.entries(sayTo)) {
      const run = await begin(machineId, 'inspect');
      await untilRun(run, ({ phase }) => phase === 'planning');
      await say(run);
      runs.push(run);
    }
    planned = true;
    for (const run of runs) {
      await untilRun(run, ({ phase }) => phase === 'finishing');
      for (const word of [cancel, giveUp])
        await assert.rejects(run.executeUpdate(word, { args: [words] }), (error: Error) => /at its end/.test(String(error.cause)));
    }
    mayFinish = true;
    const results = await Promise.allSettled(runs.map((run) => run.result()));
    assert.deepEqual(
      results.map(({ status }) => status),
      ['fulfilled', 'fulfilled', 'rejected'],
    );
    const ends = [...world.runsById.values()].map(({ plan, end, remains }) => [plan.machineId, end, remains] as const);
    assert.deepEqual(
      ends.toSorted(([one], [other]) => one.localeCompare(other)),
      [
        ['p1', 'cancelled', 'untouched'],
        ['p2', 'failed', 'untouched'],
        ['p3', 'cancelled', 'untouched'],
      ],
    );
    for (const { state } of world.machines.values()) assert.equal(state, 'available', 'it is let go again');
    assert.deepEqual(world.sent, [], 'nothing was sent');
  });
});
