/** Enrolment over SSH as a workflow (XC-033 to XC-048): its order, its way out of every step, and workers that die in the middle of one. */
import assert from 'node:assert/strict';
import { WorkflowFailedError } from '@temporalio/client';
import { ActivityFailure, CancelledFailure } from '@temporalio/common';
import { ControlError } from '../../domain/errors.ts';
import { workflowIds } from '../../temporal.config.ts';
import { sharedTemporal, type TestTemporal, useWorkflows } from '../harness/temporal.ts';
import {
  type EnrolmentHandle,
  EnrolmentWorld,
  enrolmentId,
  type HostStep,
  runEnrolmentWorkers,
  startEnrolment,
  unfit,
  untilEnrolment,
} from './enrolment-world.ts';
import { startWorkflowWorker } from './metal-rig.ts';
import type { RunningWorkers } from './rotation-rig.ts';

const way = ['reach', 'install', 'prepare', 'mint', 'minted', 'start', 'completed'];
const steps = ['reach', 'install', 'prepare', 'mint', 'start'] as const satisfies readonly HostStep[];

describe('enrolment over SSH, as a workflow', function () {
  this.timeout(120_000);
  const workflows = useWorkflows();
  let temporal: TestTemporal;
  let workers: RunningWorkers | undefined;
  const handles: EnrolmentHandle[] = [];

  before(async () => {
    temporal = await sharedTemporal();
  });
  afterEach(async () => {
    for (const handle of handles.splice(0)) await handle.terminate('the test is over').catch(() => undefined);
    await workers?.stop();
    workers = undefined;
  });

  const play = async (world: EnrolmentWorld, client = temporal.client): Promise<EnrolmentHandle> => {
    workers = await runEnrolmentWorkers(temporal, world, { activitiesOnly: true });
    const handle = await startEnrolment(client, world.order.kind);
    handles.push(handle);
    return handle;
  };
  const failureOf = async (handle: EnrolmentHandle): Promise<Error> => {
    try {
      assert.fail(`it did not fail: ${JSON.stringify(await handle.result())}`);
    } catch (error) {
      assert.ok(error instanceof WorkflowFailedError, String(error));
      const { cause } = error;
      return cause instanceof ActivityFailure && cause.cause instanceof Error ? cause.cause : (cause ?? error);
    }
  };

  for (const [kind, generation] of [
    ['enrol', 1],
    ['reenrol', 4],
  ] as const)
    it(`XC-038 XC-039 XC-044 ${kind} goes its way in this order, and ends with generation ${generation}`, async () => {
      const world = new EnrolmentWorld(kind);
      const handle = await play(world);
      assert.deepEqual(await handle.result(), { nodeId: 'web-7', enrolmentId, generation, connected: true });
      assert.deepEqual(world.told, way);
      const { searchAttributes } = await handle.describe();
      assert.deepEqual([searchAttributes['BcPhase'], searchAttributes['BcWaitingOn']], [['done'], undefined]);
    });

  for (const failing of steps)
    it(`XC-036 a refusal at ${failing} leaves the generation before as it was, and nothing on the machine`, async () => {
      const world = new EnrolmentWorld('reenrol');
      world.before = (step) => {
        if (step === failing) throw unfit();
      };
      const error = await failureOf(await play(world));
      assert.match(error.message, /it has no node/);
      assert.deepEqual([world.generation, world.order.state, world.prepared, world.armed], [3, 'failed', false, false]);
      const done = steps.slice(0, steps.indexOf(failing)).flatMap((step) => (step === 'mint' ? ['mint', 'minted'] : [step]));
      assert.deepEqual(world.told, [...done, 'failed', 'tidy']);
    });

  for (const lost of steps)
    it(`XC-044 an answer of ${lost} that is lost is asked for again, and ends the same`, async () => {
      const world = new EnrolmentWorld('reenrol');
      world.after = (step, n) => {
        if (step === lost && n === 1) throw new ControlError('UNAVAILABLE', 'the connection was lost');
      };
      const { generation } = await (await play(world)).result();
      assert.equal(generation, 4);
      assert.deepEqual(
        world.told.filter((step, at) => step !== world.told[at - 1] && !(step === 'mint' && world.told[at - 1] === 'minted')),
        way,
      );
      assert.equal(world.told.filter((step) => step === lost).length, 2);
    });

  it('XC-034 a machine that shows another host key is not asked a second time', async () => {
    const world = new EnrolmentWorld('enrol');
    world.before = (step) => {
      if (step !== 'end')
        throw new ControlError('PERMISSION_DENIED', 'it shows another key', { details: { reason: 'ssh-hostkey-mismatch' } });
    };
    assert.match((await failureOf(await play(world))).message, /shows another key/);
    assert.deepEqual(world.told, ['failed']);
    assert.equal(world.generation, null);
  });

  it('what a machine says of its failure is text to whoever reads the story', async () => {
    const world = new EnrolmentWorld('enrol');
    world.before = (step) => {
      if (step === 'install')
        throw new ControlError('INVALID_STATE', 'the upload of bcd failed: [repair](https://evil.example) `now`', {
          details: { reason: 'host-step' },
        });
    };
    const handle = await play(world);
    await failureOf(handle);
    const { currentDetails } = await handle.query<{ currentDetails: string }>('__temporal_workflow_metadata');
    assert.match(
      currentDetails,
      /^\*\*done\*\* node web-7: failed: the upload of bcd failed:  repair \(https:\/\/evil\.example\)  now ; what was prepared/,
    );
  });

  it('XC-036 a machine that never comes with its new key is given up after its time, and serves on', async () => {
    const world = new EnrolmentWorld('reenrol');
    world.completes = false;
    const start = Date.now();
    let asked = 0;
    world.now = () => start + (asked++ > 1 ? 31 * 60_000 : 0);
    assert.match((await failureOf(await play(world))).message, /did not come with its new key in time; what it was before, it is still/);
    assert.deepEqual([world.generation, world.order.state, world.armed], [3, 'failed', false]);
  });

  it('one that comes in the moment it is given up has its identity, and the workflow says so', async () => {
    const world = new EnrolmentWorld('reenrol');
    world.completes = false;
    const start = Date.now();
    let asked = 0;
    world.now = () => start + (asked++ > 1 ? 31 * 60_000 : 0);
    world.before = (step) => {
      // Between the look that found it late and the end of the order.
      if (step !== 'end') return;
      world.completes = true;
      world.now = Date.now;
      void world.enrolments.progress('');
    };
    const { generation } = await (await play(world)).result();
    assert.equal(generation, 4);
    assert.equal(world.told.includes('tidy'), false, 'nothing is taken away from it');
  });

  it('XC-036 a cancelled one tidies up, wherever it is', async () => {
    const world = new EnrolmentWorld('reenrol');
    world.completes = false;
    const handle = await play(world);
    await untilEnrolment(handle, ({ phase }) => phase === 'completing');
    await handle.cancel();
    assert.ok((await failureOf(handle)) instanceof CancelledFailure);
    assert.deepEqual([world.generation, world.order.state, world.armed, world.prepared], [3, 'cancelled', false, false]);
    const { phase, detail } = await handle.query<{ phase: string; detail: string }>('status');
    assert.deepEqual([phase, detail], ['done', 'cancelled: cancelled; what was prepared on the machine is removed']);
  });

  it('an order that was ended at the api ends the workflow', async () => {
    const world = new EnrolmentWorld('reenrol');
    world.completes = false;
    const handle = await play(world);
    await untilEnrolment(handle, ({ phase }) => phase === 'completing');
    await world.enrolments.end({ id: enrolmentId, as: 'cancel', reason: 'the wrong machine' });
    assert.match((await failureOf(handle)).message, /was ended by somebody else: cancelled/);
    assert.equal(world.armed, false);
  });

  it('a node that is not seen connected has its identity all the same', async () => {
    const world = new EnrolmentWorld('enrol');
    world.connects = false;
    const result = await (await play(world, temporal.skipping)).result();
    assert.deepEqual([result.generation, result.connected], [1, false]);
  });

  it('XC-044 the workflow’s worker is killed behind the mint; the next goes on where it was, and no step is made twice', async () => {
    const world = new EnrolmentWorld('reenrol');
    let reached: () => void = () => undefined;
    const there = new Promise<void>((resolve) => {
      reached = resolve;
    });
    let held = true;
    world.before = (step) => {
      if (step !== 'start' || !held) return;
      reached();
      throw new ControlError('UNAVAILABLE', 'until its worker was killed');
    };
    await workflows.stop();
    const first = await startWorkflowWorker(temporal);
    workers = await runEnrolmentWorkers(temporal, world, { activitiesOnly: true });
    const handle = await startEnrolment(temporal.client, 'reenrol');
    handles.push(handle);
    await there;
    await first.end('SIGKILL');
    held = false;
    await workflows.start();
    assert.equal((await handle.result()).generation, 4);
    assert.deepEqual(world.told, way);
  });

  it('words that are no order are refused with what helps, and end nothing', async () => {
    const world = new EnrolmentWorld('enrol');
    workers = await runEnrolmentWorkers(temporal, world, { activitiesOnly: true });
    for (const [input, message] of [
      [null, /expected an object with nodeId, enrolmentId, got null/],
      [{ nodeId: 'web-7', enrolmentId: 'mine' }, /enrolmentId must be the id of an order: better-compute nodes enrol makes one/],
      [{ nodeId: 'web-8', enrolmentId }, /is enrolled under the workflow id node\/web-8\/identity, not node\/web-7\/identity/],
      [{ nodeId: 'web-7', enrolmentId, address: '10.6.6.6' }, /address is not a known field/],
    ] as const) {
      const handle = await startEnrolment(temporal.client, 'enrol', input);
      assert.match((await failureOf(handle)).message, message);
    }
    world.order = { ...world.order, nodeId: 'db-1' };
    const handle = await startEnrolment(temporal.client, 'enrol');
    assert.match((await failureOf(handle)).message, /is to enrol node db-1/);
    assert.deepEqual(world.told, [], 'an order of another node is not this workflow’s to end');
    assert.equal(handle.workflowId, workflowIds.enrolment('web-7'));
  });
});
