/** A worker is killed in every phase of a rotation, in turn; a second one goes on, and nothing happens twice. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { createDatabase, type Database } from '../../drizzle/client.ts';
import { verifyRotationEvidence } from '../../pki/audit/verify-evidence.ts';
import { readAuditEvents } from '../../services/audit.ts';
import { readEvidence } from '../../services/rotations.ts';
import { taskQueues, workflowIds } from '../../temporal.config.ts';
import type { RotationResult } from '../../workflows/rotate-command-root/messages.ts';
import { useDatabase } from '../harness/postgres.ts';
import { sharedTemporal, type TestTemporal } from '../harness/temporal.ts';
import { addNode, keepTurning, startStack, type TestStack, type WorkerChild } from './stack.ts';

const times = { overlapMs: 3_000, dropMarginMs: 500, workerLifetimeMs: 4_000 };
/** As the attributes show them; a phase that is over before it is seen was survived by the kill before it. */
const phases = ['waiting-processes', 'waiting-fleet', 'waiting-signers', 'waiting-drop', 'confirming'];

const kinds = ['control', 'signing'] as const;
type Kind = (typeof kinds)[number];

describe('workers that are killed', function () {
  this.timeout(240_000);
  let temporal: TestTemporal;
  let stack: TestStack;
  /** Busy all the time: apart from the one whose connections are counted. */
  let own: Database;
  let fleet: ReturnType<typeof keepTurning> | undefined;
  after(async () => {
    await fleet?.stop();
    await stack.stop();
    await own.close();
  });
  const used = useDatabase();

  it('the rotation ends, with one effect a step and whole evidence', async () => {
    temporal = await sharedTemporal();
    own = createDatabase(used.url, { applicationName: 'test fleet' });
    const nodes = [await addNode(used.db, 'node-1'), await addNode(used.db, 'node-2')];
    stack = await startStack({ db: own, url: used.url, temporalAddress: temporal.address, times });
    fleet = keepTurning(own, nodes);
    const workers: Record<Kind, WorkerChild> = { control: await stack.startWorker('control'), signing: await stack.startWorker('signing') };
    const handle = await stack.client.workflow.start('rotateCommandRoot', {
      workflowId: workflowIds.rotateCommandRoot,
      taskQueue: taskQueues.control,
      args: [],
    });
    let kills = 0;
    let last = -1;
    for (;;) {
      const { status, searchAttributes } = await handle.describe();
      if (status.name !== 'RUNNING') break;
      const phase = phases.indexOf(String(searchAttributes['BcPhase']?.[0]));
      if (phase > last) {
        last = phase;
        kills += 1;
        const victim = kinds[kills % 2] as Kind;
        await workers[victim].kill('SIGKILL');
        workers[victim] = await stack.startWorker(victim);
      }
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    const result = (await handle.result()) as RotationResult;
    assert.equal(result.outcome, 'dropped');
    assert.ok(kills >= 3, `${kills} kills`);
    const stages = (await readAuditEvents(used.db, { afterSeq: 0, limit: 100 })).map((event) => event.action);
    assert.deepEqual(
      stages,
      ['plan', 'add', 'processes', 'fleet', 'switch', 'resign', 'drop', 'confirm'].map((stage) => `rotation.stage.${stage}`),
    );
    const auditKey = stack.auditKey();
    const pin = `sha256/${createHash('sha256').update(auditKey).digest('base64')}`;
    const verdict = verifyRotationEvidence(await readEvidence(used.db, result.rotationId), {
      auditKey,
      pin,
      minOverlapMs: times.overlapMs,
    });
    assert.deepEqual(verdict.problems, []);
    const generations = verdict.stages.map((stage) => stage.bundle.generation);
    assert.equal((generations.at(-1) ?? 0) - (generations[0] ?? 0), 3, 'add, switch and drop each wrote the bundle once');
  });
});
