/** However a run is cut, it ends in exactly one of done, failed and cancelled, with exactly one word for what is left of the machine. */
import assert from 'node:assert/strict';
import { fromBinary } from '@bufbuild/protobuf';
import { AnySchema } from '@bufbuild/protobuf/wkt';
import { WorkflowUpdateFailedError } from '@temporalio/client';
import { ApplicationFailure } from '@temporalio/common';
import fc from 'fast-check';
import { site } from '../../proto/index.ts';
import { cancel, giveUp, override } from '../../workflows/shared/machine-messages.ts';
import { sharedTemporal, type TestTemporal, useWorkflows } from '../harness/temporal.ts';
import { type RunHandle, runMetalWorkers, startRun, untilRun, words } from './metal-rig.ts';
import { MetalWorld } from './metal-world.ts';
import type { RunningWorkers } from './rotation-rig.ts';

const answerIn = (payload: Uint8Array): site.BootAnswer => fromBinary(site.BootCleanUpSchema, fromBinary(AnySchema, payload).value).answer;

const updates = { cancel, giveUp, override };

const heldAt = ['prepare-boot', 'set-boot', 'power', 'read-disks', 'wipe', 'deploy', 'clean-up'] as const;
type HeldAt = (typeof heldAt)[number];

describe('the end of a run on a machine', function () {
  this.timeout(120_000);
  const workflows = useWorkflows();
  let temporal: TestTemporal;
  let workers: RunningWorkers | undefined;
  const handles: RunHandle[] = [];
  let world: MetalWorld;
  let count = 0;

  before(async () => {
    temporal = await sharedTemporal();
  });
  beforeEach(async () => {
    world = new MetalWorld([]);
    workers = await runMetalWorkers(temporal, world, { activitiesOnly: true });
  });
  afterEach(async () => {
    for (const handle of handles.splice(0)) await handle.terminate('the test is over').catch(() => undefined);
    await workers?.stop();
    workers = undefined;
  });

  const begin = async (): Promise<{ run: RunHandle; machineId: string }> => {
    const machineId = `e${count}`;
    world.machines.set(machineId, { state: 'available', stateReason: '', power: 'off', role: 'node', generation: 1, connected: false });
    const run = await startRun(temporal.client, 'provision', { machineId });
    handles.push(run);
    count += 1;
    return { run, machineId };
  };
  /** A run whose command of one act stays without an end. */
  const heldRun = async (act: HeldAt): Promise<{ run: RunHandle; machineId: string }> => {
    const next = `e${count}`;
    world.reply.set(act, (_n, { id }) => (id.includes(`/${next}/`) ? 'hold' : {}));
    const { run, machineId } = await begin();
    await untilRun(
      run,
      () =>
        world.waits.size > 0 && [...world.waits.keys()].some((id) => id.includes(`/${machineId}/provision/`) && id.includes(`/${act}.`)),
    );
    return { run, machineId };
  };
  /** What stands open is not taken back in time: the machine has begun it. */
  const acked = (machineId: string): void => {
    for (const command of world.stored.values())
      if (command.id.includes(`/${machineId}/`) && command.state === 'open') command.state = 'acked';
  };
  const leftBy: Readonly<Record<HeldAt, readonly [begun: string, unbegun: string]>> = {
    'prepare-boot': ['untouched', 'untouched'],
    'set-boot': ['untouched', 'untouched'],
    power: ['untouched', 'untouched'],
    'read-disks': ['untouched', 'untouched'],
    wipe: ['dirty', 'untouched'],
    deploy: ['dirty', 'clean'],
    'clean-up': ['dirty', 'dirty'],
  };

  for (const act of heldAt)
    it(`M58 can be cancelled and given up while ${act} has no end; what is left is what the facts say`, async () => {
      for (const [how, isBegun] of [
        ['cancel', true],
        ['cancel', false],
        ['giveUp', true],
      ] as const) {
        const { run, machineId } = await heldRun(act);
        if (isBegun) acked(machineId);
        world.reply.delete(act);
        await run.executeUpdate(updates[how], { args: [words] });
        const result = await run.result();
        assert.deepEqual(
          [result.end, result.failure, result.remains],
          how === 'cancel' ? ['cancelled', '', leftBy[act][isBegun ? 0 : 1]] : ['failed', 'given-up', leftBy[act][0]],
          `${how} ${act}`,
        );
        const { state, power } = world.machine(machineId);
        assert.equal(state, result.remains === 'dirty' ? 'quarantined' : 'available');
        const wasRestarted = how === 'cancel' && heldAt.indexOf(act) >= (isBegun ? 2 : 3);
        assert.equal(
          [...world.stored.keys()].some((id) => id.includes(`/${machineId}/`) && id.includes('/power-off.')),
          wasRestarted,
        );
        if (wasRestarted) assert.equal(power, 'off');
        assert.deepEqual(
          world.messages.filter(({ runId }) => runId === result.runId).map(({ kind, actor, reason }) => [kind, actor, reason]),
          [[how === 'cancel' ? 'cancel' : 'give-up', 'ann', 'a test']],
        );
      }
    });

  it('M58 can be given up on its way back, which then ends where it stands', async () => {
    const { run, machineId } = await heldRun('read-disks');
    world.reply.set('power-off', () => 'hold');
    await run.executeUpdate(updates.cancel, { args: [words] });
    await untilRun(run, ({ phase, step }) => phase === 'going-back' && step === 'power-off');
    await assert.rejects(run.executeUpdate(updates.cancel, { args: [words] }), refusal('INVALID_STATE', /on its way back/));
    await run.executeUpdate(updates.giveUp, { args: [{ actor: 'bob', reason: 'the controller is dead' }] });
    const result = await run.result();
    assert.deepEqual([result.end, result.remains], ['cancelled', 'untouched']);
    assert.ok(world.steps.some(({ step, state, by }) => step === 'power-off' && state === 'skipped' && by === 'bob'));
    assert.equal(world.machine(machineId).state, 'available');
  });

  for (const [how, reply, told] of [
    ['is held', { state: 'done' }, 'done'],
    ['is said to be let go where the boot server cannot be told', { state: 'failed', error: 'the disk is full' }, 'failed'],
  ] as const)
    it(`M6 M58 a machine whose run is given up right behind its image ${how}, on its way back too`, async () => {
      for (const goesBack of [false, true]) {
        world.systemJoins = () => false;
        const { run, machineId } = await begin();
        await untilRun(run, ({ phase }) => phase === 'waiting-node');
        world.reply.set('clean-up', (_n, { payload }) => (answerIn(payload) === site.BootAnswer.HOLD ? reply : {}));
        world.reply.set('power-off', () => 'hold');
        if (goesBack) {
          await run.executeUpdate(updates.cancel, { args: [words] });
          await untilRun(run, ({ phase, step }) => phase === 'going-back' && step === 'power-off');
        }
        await run.executeUpdate(updates.giveUp, { args: [words] });
        const { remains } = await run.result();
        assert.equal(remains, 'dirty');
        assert.equal(world.machine(machineId).state, 'quarantined');
        const answers = [...world.stored.values()].filter(({ id }) => id.includes(`/${machineId}/`) && id.includes('/clean-up.'));
        assert.deepEqual(
          answers.map(({ payload }) => answerIn(payload)),
          [site.BootAnswer.LOCAL, site.BootAnswer.HOLD],
        );
        const held = world.steps.filter(({ step }) => step === 'hold-boot').map(({ state, detail }) => `${state} ${detail}`);
        assert.equal(
          held.at(-1),
          told === 'done' ? 'done ' : 'failed the boot server may still let it start its disk: clean-up: the disk is full',
        );
        world.steps.splice(0);
      }
    });

  it('refuses, without a trace, an override of another step, of a step that evidence decides, and words without a name', async () => {
    const { run } = await heldRun('wipe');
    for (const [args, code, text] of [
      [{ step: 'boot', ...words }, 'INVALID_STATE', /at wipe, not at boot/],
      [{ step: 'wipe', ...words }, 'INVALID_STATE', /decided by evidence and by nobody's word/],
      [{ step: 'wipe', actor: '', reason: 'x' }, 'INVALID_INPUT', /actor must be a text that is not empty/],
      [null, 'INVALID_INPUT', /expected an object with step, actor, reason/],
    ] as const)
      await assert.rejects(run.executeUpdate(updates.override, { args: [args as never] }), refusal(code, text));
    assert.deepEqual(world.messages, []);
  });

  it('goes on when a wait is lied to: a command completed by hand makes nothing done that was not seen', async () => {
    const { run, machineId } = await heldRun('wipe');
    const [commandId, wait] = [...world.waits].find(([id]) => id.includes(`/${machineId}/`) && id.includes('/wipe.')) ?? [];
    assert.ok(wait, String(commandId));
    await temporal.client.activity.complete({ workflowId: wait.workflowId, activityId: wait.activityId }, { state: 'done', error: '' });
    const result = await run.result();
    assert.deepEqual([result.end, result.failure, result.remains], ['failed', 'no-evidence', 'dirty']);
  });

  it('M8 ends in exactly one end and one remainder, whatever is killed, cancelled or given up in whatever order', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...heldAt),
        fc.array(fc.constantFrom('kill', 'cancel', 'giveUp', 'go', 'override'), { minLength: 1, maxLength: 4 }),
        async (act, words_) => {
          const { run, machineId } = await heldRun(act);
          for (const word of words_) {
            if (word === 'kill') {
              await Promise.all([workers?.stop(), workflows.stop()]);
              await workflows.start();
              workers = await runMetalWorkers(temporal, world, { activitiesOnly: true });
            } else if (word === 'go') {
              world.reply.delete(act);
            } else {
              const args = word === 'override' ? { step: act, ...words } : words;
              await run.executeUpdate(updates[word] as typeof updates.cancel, { args: [args] }).catch((error: unknown) => {
                assert.ok(error instanceof WorkflowUpdateFailedError || /completed|not found/i.test(String(error)), String(error));
              });
            }
          }
          world.reply.delete(act);
          await run.executeUpdate(updates.giveUp, { args: [words] }).catch(() => undefined);
          const result = await run.result();
          assert.equal(world.ended.filter(({ runId }) => runId === result.runId).length, 1);
          const { state } = world.machine(machineId);
          if (result.end === 'done') {
            // The last step had its end, or somebody's word for it, before the others came.
            assert.ok(words_.includes('go') || (act === 'clean-up' && words_.includes('override')), words_.join());
            assert.deepEqual([result.remains, state], [null, 'provisioned']);
            return;
          }
          assert.ok(['failed', 'cancelled'].includes(result.end), result.end);
          assert.ok(['untouched', 'clean', 'dirty'].includes(String(result.remains)));
          assert.equal(state, result.remains === 'dirty' ? 'quarantined' : 'available');
        },
      ),
      { numRuns: 8, examples: [['clean-up', ['override', 'override', 'kill']]] },
    );
  });
});

function refusal(code: string, text: RegExp): (error: unknown) => boolean {
  return (error) => {
    assert.ok(error instanceof WorkflowUpdateFailedError, String(error));
    const { cause } = error;
    assert.ok(cause instanceof ApplicationFailure, String(cause));
    assert.equal(cause.type, code);
    assert.match(cause.message, text);
    return true;
  };
}
