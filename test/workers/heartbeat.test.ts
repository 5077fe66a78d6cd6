import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { hostname } from 'node:os';
import { minute } from '../../domain/time.ts';
import { databaseNow } from '../../drizzle/queries/clock.ts';
import { listProcesses, type ProcessHeartbeat, recordHeartbeat } from '../../services/processes.ts';
import { newProcessId, startHeartbeat } from '../../workers/heartbeat.ts';
import { eventually } from '../harness/eventually.ts';
import { useDatabase } from '../harness/postgres.ts';

const log = { debug: () => undefined, info: () => undefined, warn: () => undefined, error: () => undefined };
/** It has run and ended. */
const deadPid = spawnSync('true').pid;

describe('the heartbeat of a worker', () => {
  const used = useDatabase();

  it('H-02 takes away the row of one of its kind that died on this host, and nobody else’s', async () => {
    const base = {
      kind: 'worker-control',
      host: hostname(),
      pid: deadPid,
      version: '',
      bundleDigest: null,
      bundleGeneration: null,
    } as const;
    const rows: Record<string, Partial<ProcessHeartbeat>> = {
      died: {},
      lives: { pid: process.ppid },
      elsewhere: { host: `not-${hostname()}` },
      'another-kind': { kind: 'worker-signing' },
    };
    const before = (await databaseNow(used.db)) - minute;
    for (const [id, over] of Object.entries(rows)) await recordHeartbeat(used.db, { ...base, trustVersionSeen: null, id, ...over }, before);
    await recordHeartbeat(used.db, { ...base, trustVersionSeen: null, id: 'lately' });
    const processId = newProcessId('worker-control');
    const heartbeat = await startHeartbeat({ db: used.db, log, kind: 'worker-control', processId, bundle: () => null });
    const ids = async () => (await listProcesses(used.db)).map(({ id }) => id).sort();
    try {
      await eventually('the dead one to be taken away', async () => !(await ids()).includes('died'));
      assert.deepEqual(await ids(), ['another-kind', 'elsewhere', 'lately', 'lives', processId].sort());
    } finally {
      await heartbeat.stop();
    }
    assert.ok(!(await ids()).includes(processId), 'and its own when it stops in order');
  });
});
