/** The story of each exchange on a real server, with its waits skipped. */
import assert from 'node:assert/strict';
import type { ExchangedKey } from '../../domain/rotation/key-exchanges.ts';
import { minute } from '../../domain/time.ts';
import { sharedTemporal, type TestTemporal, useWorkflows } from '../harness/temporal.ts';
import { runKeyWorkers, startExchange } from './key-rig.ts';
import { KeyWorld } from './key-world.ts';
import { countEvents, type RunningWorkers } from './rotation-rig.ts';

interface Story {
  readonly key: ExchangedKey;
  readonly title: string;
  readonly effects: readonly string[];
  readonly stages: readonly string[];
  readonly from: string;
}

const stories: readonly Story[] = [
  {
    key: 'ticket',
    title: 'R-04 rotateTicketKey adds, waits for every process, promotes, waits until the last ticket is over, retires',
    effects: ['add', 'promote', 'retire key-1'],
    stages: ['plan', 'add', 'processes', 'promote', 'retire', 'confirm'],
    from: 'key-1',
  },
  {
    key: 'workload',
    title: 'R-04 rotateWorkloadKey publishes, waits as long as a key set may be kept, promotes, waits for the last token, retires',
    effects: ['add', 'promote', 'retire key-1'],
    stages: ['plan', 'add', 'promote', 'retire', 'confirm'],
    from: 'key-1',
  },
  {
    key: 'ca',
    title: 'R-04 renewCa puts the new certificate beside the old one, waits for its last leaf, retires it',
    effects: ['add', 'retire key-1'],
    stages: ['plan', 'add', 'processes', 'retire', 'confirm'],
    from: 'key-1',
  },
  {
    key: 'gateway',
    title: 'R-04 rotateGatewayCertificate replaces it and waits until every gateway presents the new one',
    effects: ['add'],
    stages: ['plan', 'add', 'processes', 'confirm'],
    from: 'key-1',
  },
];

describe('the exchange of a key: the story', function () {
  this.timeout(60_000);
  useWorkflows();
  let temporal: TestTemporal;
  let workers: RunningWorkers | undefined;

  before(async () => {
    temporal = await sharedTemporal();
  });
  afterEach(async () => {
    await workers?.stop();
    workers = undefined;
  });

  for (const { key, title, effects, stages, from } of stories) {
    it(title, async () => {
      const world = new KeyWorld(key);
      const begun = Date.now();
      workers = await runKeyWorkers(temporal, world, { activitiesOnly: true });
      const handle = await startExchange(temporal.skipping, world);
      const result = await handle.result();
      assert.deepEqual(result, {
        rotationId: result.rotationId,
        key,
        subject: key === 'ca' ? 'node' : '',
        outcome: 'exchanged',
        from,
        to: 'key-2',
        overrides: 0,
      });
      assert.deepEqual(world.effects, effects);
      assert.deepEqual(world.keys, [{ id: 'key-2', state: 'signing', opensAt: null }]);
      assert.deepEqual(world.stagesOf(result.rotationId), stages);
      assert.deepEqual(world.verdictOf(result.rotationId), { problems: [], outcome: 'completed' });
      assert.ok(world.now() - begun >= world.times.promoteMs + world.times.retireMs, 'its waits were waited');
      assert.ok(Date.now() - begun < minute, 'and skipped');
      const events = await countEvents(handle as never);
      assert.ok(events.total <= 120, `${events.total} events`);
    });
  }
});
