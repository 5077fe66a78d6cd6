/** PostgreSQL and Temporal are gone for 20 s each (BC_TEST_NIGHTLY=1: PostgreSQL in two ways), in the middle of a rotation and under work: everything goes on, nothing is lost. */
import assert from 'node:assert/strict';
import { createServer, type Server } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { eventually } from '../harness/eventually.ts';
import { familyOf, type LiveStack, startLiveStack } from '../harness/live-stack.ts';
import { removeScratchFolders } from '../harness/scratch.ts';
import { failuresOf, type SteadyWork, startSteadyWork, tally } from '../harness/steady-work.ts';

// A worker key has two fifths of its life left at its last use: longer than an outage, so that what was signed before is good after it.
const times = { overlapMs: 10_000, marginMs: 1_000, workerLifetimeMs: 75_000 };
const nightly = process.env['BC_TEST_NIGHTLY'] === '1';
const outageMs = 20_000;
/** For a hang, on a machine that does much else. */
const patienceMs = 120_000;
const nodes = ['node-1', 'node-2'];

interface Session {
  readonly id: string;
  readonly nodeId: string;
  readonly epoch: number;
  readonly endedAt: Date | null;
}

describe('engines that are gone for 20 s', function () {
  this.timeout(420_000);
  let stack: LiveStack;
  let work: SteadyWork;

  before(async function () {
    if (process.platform !== 'linux') this.skip();
    stack = await startLiveStack(times);
    for (const name of nodes) await stack.daemon(name).start();
    work = startSteadyWork(stack.client, { nodes });
    await workGoesOn();
    await stack.rotation.start({ actor: 'test', reason: 'under outages' });
    await eventually('the wait for the drop', async () => (await look())?.status?.phase === 'waiting-drop', patienceMs);
  });
  after(async () => {
    await work?.stop();
    await stack?.stop();
    removeScratchFolders();
  });

  const look = () => stack.rotation.find().catch(() => null);
  const workGoesOn = async (): Promise<void> => {
    const before = work.done().length;
    await eventually('work that goes on', () => work.done().length > before + 1, patienceMs);
  };
  const sessions = (): Promise<Session[]> =>
    stack.db.query<Session>({
      text: `select id::text, node_id as "nodeId", epoch, ended_at as "endedAt" from node_sessions order by started_at, node_id`,
    });

  it('TRN-045 PostgreSQL answers nothing for 20 s: sessions survive, commands wait, work goes on', async () => {
    const before = await sessions();
    assert.deepEqual(
      before.map(({ nodeId, endedAt }) => [nodeId, endedAt]),
      nodes.map((name) => [name, null]),
    );
    const family = familyOf(stack.pidOf('postgres'));
    assert.ok(family.length > 5, String(family.length));
    for (const pid of family) process.kill(pid, 'SIGSTOP');
    try {
      await sleep(outageMs);
    } finally {
      for (const pid of family) process.kill(pid, 'SIGCONT');
    }
    await workGoesOn();
    assert.deepEqual(await sessions(), before);
  });

  // Like the one before for whoever waits, so the short run leaves it out.
  it('TRN-045 PostgreSQL dies and its port refuses for 20 s: sessions survive, commands wait, work goes on (nightly only: it takes minutes)', async function () {
    if (!nightly) this.skip();
    const before = await sessions();
    await refuseFor(stack.address('database').replace(/^.*:(\d+)\/.*$/, '$1'), () => process.kill(stack.pidOf('postgres'), 'SIGKILL'));
    await stack.program().untilSaid(/^PostgreSQL is back/);
    await workGoesOn();
    assert.deepEqual(await sessions(), before);
  });

  it('Temporal dies and its port refuses for 20 s: workflows go on where they were', async () => {
    const before = await sessions();
    await refuseFor(stack.address('temporal').replace(/^.*:/, ''), () => process.kill(stack.pidOf('temporal'), 'SIGKILL'));
    await stack.program().untilSaid(/^Temporal is back/);
    await workGoesOn();
    assert.deepEqual(await sessions(), before);
  });

  it('ROT-001 the rotation ends, and nothing was rejected, failed or done twice', async () => {
    const end = await eventually(
      'the end of the rotation',
      async () => {
        const run = await look();
        return run !== null && run.state !== 'running' && run;
      },
      patienceMs,
    );
    assert.equal(end.state, 'completed', end.failure ?? '');
    assert.equal(end.result?.outcome, 'dropped');
    const done = await work.finish();
    assert.deepEqual(tally(done), { done: done.length * nodes.length }, failuresOf(done).join('\n'));
    for (const name of nodes) {
      const effects = stack.daemon(name).effects();
      assert.deepEqual([...effects].sort(), done.map(({ unit }) => unit).sort(), name);
    }
  });

  /** Takes the port of an engine in the moment of its death, so that the stack cannot start it anew; gives it back after the outage. */
  async function refuseFor(port: string, die: () => void): Promise<void> {
    die();
    const server = await eventually('the port of the dead engine', () => listen(Number(port)));
    await sleep(outageMs);
    await new Promise((resolve) => server.close(resolve));
  }
});

/** Connections are reset at once. undefined when the port is still taken. */
function listen(port: number): Promise<Server | undefined> {
  const server = createServer((socket) => socket.resetAndDestroy());
  return new Promise((resolve) => {
    server.once('error', () => resolve(undefined));
    server.listen(port, '127.0.0.1', () => resolve(server));
  });
}
