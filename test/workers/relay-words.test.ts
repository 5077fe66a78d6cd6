/** When the relay looks at its outbox: on the database's word, and by the clock where no word arrives. */
import assert from 'node:assert/strict';
import type { AsyncCompletionClient } from '@temporalio/client';
import pg from 'pg';
import { hour } from '../../domain/time.ts';
import { DatabaseListener, listenTiming } from '../../drizzle/listener.ts';
import { completionChannel } from '../../drizzle/queries/channels.ts';
import { cancelCommand, enqueueCommands } from '../../services/command-queue.ts';
import { registerWait } from '../../services/outbox.ts';
import { createOutbox } from '../../workers/outbox.ts';
import { createRelay, type RelayOptions, type RelayPauses, type RunningRelay } from '../../workers/relay.ts';
import { ManualScheduler } from '../gateway/manual-scheduler.ts';
import { eventually } from '../harness/eventually.ts';
import { useDatabase } from '../harness/postgres.ts';
import { addNode, command, keyring, recordingLog, t0, trustDomain } from '../services/support.ts';

/** By the clock nothing would come in the time of a test. */
const never: RelayPauses = Object.freeze({ unheardMs: hour, heardMs: hour });

describe('the words to a relay', function () {
  this.timeout(60_000);
  const used = useDatabase({ max: 20 });
  const running: { relay: RunningRelay; listener: DatabaseListener }[] = [];
  before(() => addNode(used.db, 'said'));
  afterEach(async () => {
    for (const { relay, listener } of running.splice(0)) {
      await listener.close();
      await relay.stop();
    }
  });

  interface Started {
    readonly completed: string[];
    readonly lost: string[];
    readonly listener: DatabaseListener;
    readonly relay: RunningRelay;
    looks(): number;
  }

  const connect = async (): Promise<pg.Client> => {
    const client = new pg.Client({ connectionString: used.url, application_name: 'relay-under-test' });
    await client.connect();
    return client;
  };

  /** As workers/control.ts puts it together. */
  function start(changes: { pauses?: RelayPauses; connect?: () => Promise<pg.Client>; after?: ManualScheduler['after'] } = {}): Started {
    const [completed, lost]: [string[], string[]] = [[], []];
    let looks = 0;
    const outbox = createOutbox({ db: used.db, now: Date.now });
    const completions = {
      complete: async ({ activityId }: { activityId: string }) => void completed.push(activityId),
      heartbeat: async () => undefined,
      reportCancellation: async () => undefined,
    } as unknown as AsyncCompletionClient;
    const { pauses } = changes;
    const options: RelayOptions = {
      outbox: { ...outbox, take: (limit) => ((looks += 1), outbox.take(limit)) },
      completions,
      log: recordingLog(),
      isHeard: () => listener.isHeard,
      ...(pauses === undefined ? {} : { pauses }),
    };
    const listener = new DatabaseListener({
      name: 'relay-under-test',
      channels: [completionChannel],
      ...(changes.after === undefined ? {} : { after: changes.after }),
      connect: changes.connect ?? connect,
      onNotification: () => relay.look(),
      onListening: () => relay.look(),
      onLost: (error) => {
        lost.push((error as Error).message);
        relay.look();
      },
    });
    const relay = createRelay(options).start();
    listener.start();
    running.push({ relay, listener });
    return { completed, lost, listener, relay, looks: () => looks };
  }

  async function waiting(count: number): Promise<string[]> {
    const commands = Array.from({ length: count }, () => command('said'));
    await enqueueCommands({ db: used.db, worker: await keyring(used.db), trustDomain, now: t0, commands });
    for (const { id } of commands) await registerWait(used.db, { commandId: id, workflowId: 'w', runId: 'r', activityId: id, now: t0 });
    return commands.map(({ id }) => id);
  }
  const end = (id: string): Promise<unknown> => cancelCommand(used.db, { id, reason: 'test', now: t0 });
  /** Its first rounds are over, and nothing but a word wakes it. */
  const settled = async ({ listener, looks }: Started): Promise<void> => {
    await eventually('it is heard', () => listener.isHeard);
    for (let seen = -1; seen !== looks(); ) {
      seen = looks();
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  };

  it('delivers on the word of the commit that ended the command, and not before it', async () => {
    const relay = start({ pauses: never });
    await settled(relay);
    const [id] = (await waiting(1)) as [string];
    assert.deepEqual(relay.completed, []);
    await end(id);
    await eventually('it is delivered', () => relay.completed.length > 0);
    assert.deepEqual(relay.completed, [id]);
  });

  it('says nothing where nobody waits', async () => {
    const relay = start({ pauses: never });
    await settled(relay);
    const before = relay.looks();
    const ended = command('said');
    await enqueueCommands({ db: used.db, worker: await keyring(used.db), trustDomain, now: t0, commands: [ended] });
    await end(ended.id);
    // What comes behind it on the same channel has come.
    const [id] = (await waiting(1)) as [string];
    await end(id);
    await eventually('the later one is delivered', () => relay.completed.length > 0);
    assert.equal(relay.looks(), before + 1);
  });

  it('takes many words at once for one', async () => {
    const relay = start({ pauses: never });
    await settled(relay);
    const before = relay.looks();
    for (let said = 0; said < 500; said += 1) relay.relay.look();
    await settled(relay);
    assert.equal(relay.looks(), before + 1);
  });

  it('listens again when its connection was lost, and then delivers what was said meanwhile', async () => {
    const clock = new ManualScheduler();
    const relay = start({ pauses: never, after: clock.after });
    await settled(relay);
    const before = relay.looks();
    await used.db.query({ text: `select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'relay-under-test'` });
    await eventually('the loss is noticed', () => relay.lost.length > 0);
    await eventually('it looked once more', () => relay.looks() > before);
    const [id] = (await waiting(1)) as [string];
    await end(id);
    clock.advance(listenTiming.retryMaxMs);
    await eventually('it is delivered', () => relay.completed.includes(id));
    await eventually('it is heard again', () => relay.listener.isHeard);
  });

  it('is carried by the clock where a LISTEN succeeds and nothing ever arrives, and begins anew from time to time', async () => {
    const clock = new ManualScheduler();
    let connections = 0;
    const relay = start({
      after: clock.after,
      connect: async () => {
        connections += 1;
        const client = await connect();
        const query = client.query.bind(client) as (...input: unknown[]) => unknown;
        // As a pool of transactions does: the LISTEN ends with the transaction, in a connection that is given to others.
        const pooled = (...input: unknown[]): unknown => (String(input[0]).startsWith('listen ') ? query('select 1') : query(...input));
        return Object.assign(client, { query: pooled });
      },
    });
    await eventually('it listens, as it believes', () => relay.listener.isListening);
    const ids = await waiting(2);
    await end(ids[0] as string);
    await eventually('the first is delivered', () => relay.completed.length === 1);
    assert.equal(relay.listener.isHeard, false);
    clock.advance(listenTiming.answerWithinMs);
    assert.deepEqual(relay.lost, ['the canary did not come back']);
    clock.advance(listenTiming.retryMaxMs);
    await eventually('it tries again', () => connections === 2);
    await end(ids[1] as string);
    await eventually('the second is delivered', () => relay.completed.length === 2);
  });

  it('delivers each end once, however many relays hear of it', async () => {
    const relays = [start({ pauses: never }), start({ pauses: never }), start({ pauses: never })];
    for (const relay of relays) await settled(relay);
    const ids = await waiting(40);
    await Promise.all(ids.map(end));
    const completed = (): string[] => relays.flatMap((relay) => relay.completed);
    await eventually('all are delivered', () => completed().length >= ids.length);
    for (const relay of relays) await settled(relay);
    assert.deepEqual(completed().sort(), ids.sort());
  });
});
