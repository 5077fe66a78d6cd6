/** The relay: completes by id and run, drops what nobody waits for, keeps what did not arrive. */
import assert from 'node:assert/strict';
import { ActivityCancelledError, ActivityNotFoundError, WorkflowNotFoundError } from '@temporalio/client';
import { createLocalEnds } from '../../workers/local-ends.ts';
import { createRelay, type RelayCount, type RelayOptions } from '../../workers/relay.ts';
import { recordingLog } from '../services/support.ts';
import { CommandWorld } from '../workflows/command-world.ts';

type Completions = RelayOptions['completions'];

interface Rig {
  readonly world: CommandWorld;
  readonly calls: { what: string; ids: unknown; value?: unknown }[];
  readonly counts: Map<RelayCount, number>;
  readonly backedOff: string[];
  readonly relay: ReturnType<typeof createRelay>;
  readonly log: ReturnType<typeof recordingLog>;
}

/** Speaks as Temporal's client does: `answer` throws its errors. */
async function rig(answer: (what: string) => void = () => {}, wake?: RelayOptions['wake']): Promise<Rig> {
  const world = new CommandWorld(2);
  const calls: Rig['calls'] = [];
  const counts = new Map<RelayCount, number>();
  const backedOff: string[] = [];
  const log = recordingLog();
  const call =
    (what: string) =>
    async (ids: unknown, value?: unknown): Promise<void> => {
      calls.push({ what, ids, value });
      answer(what);
    };
  const completions = {
    complete: call('complete'),
    heartbeat: call('heartbeat'),
    reportCancellation: call('reportCancellation'),
  } as unknown as Completions;
  world.before = (name) => void (name.startsWith('backOff') && backedOff.push(name.slice(8)));
  const relay = createRelay({
    outbox: world.outbox,
    completions,
    log,
    onCount: (what, by) => void counts.set(what, (counts.get(what) ?? 0) + by),
    ...(wake === undefined ? {} : { wake }),
  });
  await world.queue.enqueue([
    { id: 'w/node-00001', nodeId: 'node-00001', kind: 'inventory.refresh', payload: new Uint8Array(0), deadline: 0, requestedBy: '' },
  ]);
  await world.commands.registerWait({ commandId: 'w/node-00001', workflowId: 'w', runId: 'r', activityId: 'w/node-00001' });
  return { world, calls, counts, backedOff, relay, log };
}

const ids = { workflowId: 'w', runId: 'r', activityId: 'w/node-00001' };
const notFound = (): never => {
  throw new ActivityNotFoundError('no such activity');
};

describe('the relay', () => {
  it('completes with the run id, what the table says, once', async () => {
    const { world, calls, relay, counts } = await rig();
    world.end('w/node-00001', 'rejected', 'bad-signature');
    assert.equal(await relay.deliver(), 1);
    assert.equal(await relay.deliver(), 0);
    assert.deepEqual(calls, [{ what: 'complete', ids, value: { state: 'rejected', error: 'bad-signature' } }]);
    assert.equal(counts.get('completed'), 1);
  });

  for (const [name, error] of [
    ['no such activity', new ActivityNotFoundError('gone')],
    ['no such workflow', new WorkflowNotFoundError('gone', 'w', 'r')],
  ] as const) {
    it(`drops a completion when there is ${name}`, async () => {
      const { world, relay, counts, backedOff } = await rig(() => {
        throw error;
      });
      world.end('w/node-00001', 'done');
      await relay.deliver();
      assert.equal(world.due.size, 0);
      assert.equal(counts.get('nobody-waits'), 1);
      assert.deepEqual(backedOff, []);
    });
  }

  it('keeps what did not arrive and tries later', async () => {
    const { world, relay, counts, backedOff, log } = await rig(() => {
      throw new Error('connection refused');
    });
    world.end('w/node-00001', 'done');
    await relay.deliver();
    assert.equal(world.due.size, 1);
    assert.deepEqual(backedOff, ['w/node-00001']);
    assert.equal(counts.get('failed'), 1);
    assert.match(String(log.lines[0]?.message), /^a completion did not reach Temporal; trying again$/);
  });

  it('lets an attempt of its own process answer itself', async () => {
    const ends = createLocalEnds();
    const { world, relay, calls, counts } = await rig(notFound, ends.wake);
    const answered = ends.nextEnd('w/node-00001', 60_000);
    world.end('w/node-00001', 'done');
    await relay.deliver();
    await answered;
    assert.deepEqual(calls, []);
    assert.equal(counts.get('answered-here'), 1);
    assert.equal(ends.wake('w/node-00001'), false);
  });

  it('heartbeats open waits of connected nodes, and confirms a cancel', async () => {
    const { relay, calls } = await rig((what) => {
      if (what === 'heartbeat') throw new ActivityCancelledError('cancelled');
    });
    await relay.heartbeat();
    assert.deepEqual(
      calls.map((call) => call.what),
      ['heartbeat', 'reportCancellation'],
    );
  });

  it('a wait between two attempts has nothing to heartbeat', async () => {
    const { relay, calls, log } = await rig(notFound);
    await relay.heartbeat();
    assert.deepEqual(
      calls.map((call) => call.what),
      ['heartbeat'],
    );
    assert.deepEqual(log.lines, []);
  });

  it('runs by the clock until it is stopped', async () => {
    const { world, relay, counts } = await rig();
    const started = relay.start();
    world.end('w/node-00001', 'done');
    while ((counts.get('completed') ?? 0) === 0) await new Promise((resolve) => setTimeout(resolve, 10));
    await started.stop();
    assert.equal(world.due.size, 0);
  });
});
