/** What the database says of runs while it stores something else. */
import assert from 'node:assert/strict';
import pg from 'pg';
import { runChannel } from '../../../drizzle/queries/channels.ts';
import { cancelCommand } from '../../../services/command-queue.ts';
import { finishRun, planRun } from '../../../services/metal/index.ts';
import { eventually } from '../../harness/eventually.ts';
import { useDatabase } from '../../harness/postgres.ts';
import { publishQuorum } from '../batch-support.ts';
import { certify, connect, type EnrolledNode, enrol, newKey } from '../support.ts';
import { addSite, availableMachine, bootRamdisk, now, runOf, sendCall } from './support.ts';

describe('words about runs', () => {
  const used = useDatabase();
  const heard: (string | undefined)[] = [];
  let listener: pg.Client;

  before(async () => {
    await publishQuorum(used.db, null);
    await addSite(used.db);
  });
  beforeEach(async () => {
    listener = new pg.Client({ connectionString: used.url });
    await listener.connect();
    listener.on('notification', ({ payload }) => void heard.push(payload));
    await listener.query(`listen ${runChannel}`);
  });
  afterEach(() => listener.end());

  /** What was said until now, told apart by a word of our own behind it. */
  async function said(): Promise<(string | undefined)[]> {
    await used.db.query({ text: 'select pg_notify($1, $2)' }, [runChannel, 'behind']);
    await eventually('the last word', () => heard.includes('behind'));
    return heard.splice(0).slice(0, -1);
  }

  it('a session of a machine is said with its open run, and of no other node', async () => {
    await availableMachine(used.db, 'spoken-of');
    const plan = await planRun(used.db, runOf('spoken-of', 'provision'));
    const { key, certificate } = await bootRamdisk(used.db, plan);
    const { issuer } = await enrol(used.db, 'another');
    const ramdisk: EnrolledNode = { id: 'spoken-of', key, certificate, issuer };
    await said();
    await connect(used.db, ramdisk, { role: 'ramdisk', now: null });
    assert.deepEqual(await said(), [plan.runId]);
    await connect(used.db, await enrol(used.db, 'a-third'));
    assert.deepEqual(await said(), []);
    await finishRun(used.db, { runId: plan.runId, end: 'cancelled', reason: 'a test', actor: 'olga', now });
    const next = newKey();
    await connect(
      used.db,
      { ...ramdisk, key: next, certificate: await certify(used.db, { id: 'spoken-of', key: next, now }) },
      { now: null },
    );
    assert.deepEqual(await said(), [], 'the run has ended');
  });

  it('a command of its own machine that ends otherwise than done is said', async () => {
    await availableMachine(used.db, 'failing');
    const plan = await planRun(used.db, runOf('failing', 'provision'));
    await bootRamdisk(used.db, plan);
    const id = await sendCall(used.db, plan, 'ask-ramdisk.1');
    await said();
    await cancelCommand(used.db, { id, reason: 'a test', now });
    assert.deepEqual(await said(), [plan.runId]);
  });
});
