/** A worker is killed behind every step of a change of who approves, before anybody is told that the step is done: each has one effect. */
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createDatabase, type Database } from '../../drizzle/client.ts';
import { touchSessions } from '../../drizzle/queries/session-touch.ts';
import { publishedTrust } from '../../drizzle/queries/trust.ts';
import { approverSetDigest, type QuorumFields } from '../../pki/trust/index.ts';
import { publishApproverSet } from '../../services/approver-sets.ts';
import { quorumOfBytes } from '../../services/published-quorum.ts';
import { taskQueues, workflowIds } from '../../temporal.config.ts';
import type { ApproverSetResult } from '../../workflows/rotate-approver-set/messages.ts';
import { useDatabase } from '../harness/postgres.ts';
import { sharedTemporal, type TestTemporal } from '../harness/temporal.ts';
import { approveSet, createApprover, setOf, type TestApprover, trustDomain } from '../workflows/approvers.ts';
import { addNode, keepStarted, killedAt, type RowNode, startStack, type TestStack } from './stack.ts';

const times = { overlapMs: 3_000, dropMarginMs: 500, workerLifetimeMs: 4_000 };
const steps = ['planApproverSet', 'storeApproverSet', 'awaitApproverPublication', 'awaitApproverFleet', 'recordApproverSet'] as const;
/** A lost attempt costs the 20 s after which the server gives it to the next worker: by night, in front of each step as well. */
const sides = process.env['BC_TEST_NIGHTLY'] === '1' ? ['before', 'after'] : ['after'];
const points = steps.flatMap((step) => sides.map((side) => `${step}.${side}`));

describe('rotateApproverSet: workers that are killed between its steps', function () {
  this.timeout(600_000);
  let temporal: TestTemporal;
  let stack: TestStack;
  let own: Database;
  let folder: string;
  const life = { over: false };
  const running: Promise<unknown>[] = [];
  before(() => {
    folder = mkdtempSync(join(tmpdir(), 'bc-kills-'));
  });
  after(async () => {
    life.over = true;
    await stack?.stop();
    await Promise.all(running);
    await own?.close();
    rmSync(folder, { recursive: true, force: true });
  });
  const used = useDatabase();

  const keep = (name: 'control' | 'signing'): Promise<void> =>
    keepStarted(stack, name, { life, env: { BETTER_COMPUTE_TRUST_DOMAIN: trustDomain, ...killedAt(points, folder) } });

  /** What gateways write of machines that take what is published. */
  async function enforce(nodes: readonly RowNode[]): Promise<void> {
    while (!life.over) {
      const published = await publishedTrust(own);
      if (published !== null) {
        const quorum = quorumOfBytes(published.body);
        const set = {
          epoch: Number(quorum.approverSetEpoch),
          sha256: Buffer.from(approverSetDigest(quorum), 'hex'),
          version: published.version,
        };
        await touchSessions(
          own,
          nodes.map((node) => ({ ...node, lastSeenAt: Date.now(), trustVersion: published.version, approverSet: set })),
        );
      }
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  }

  const signedSet = async (quorum: QuorumFields, by: readonly TestApprover[], epoch: number): Promise<QuorumFields> => ({
    ...quorum,
    approverSetSignatures: (await Promise.all(by.map((one) => approveSet(one, quorum, { epoch })))).map(({ kid, sig }) => ({
      kid,
      sig: new Uint8Array(Buffer.from(sig, 'base64url')),
    })),
  });

  const countOf = async (text: string): Promise<number> => (await used.db.query<{ count: number }>({ text }))[0]?.count ?? 0;

  it('H-10 resumes behind every step, stores and publishes the set once, and records it once', async () => {
    temporal = await sharedTemporal();
    own = createDatabase(used.url, { applicationName: 'test fleet' });
    const [ann, ben, cem] = [createApprover(), createApprover(), createApprover()];
    const first = setOf([ann, ben], 2);
    await publishApproverSet(used.db, { quorum: await signedSet(first, [ann, ben], 1), actor: 'ann' }, { now: Date.now(), trustDomain });
    const nodes = [await addNode(used.db, 'node-1'), await addNode(used.db, 'node-2')];
    stack = await startStack({ db: own, url: used.url, temporalAddress: temporal.address, times });
    const before = (await publishedTrust(used.db))?.version ?? 0;
    running.push(enforce(nodes), keep('control'), keep('signing'));
    const next = setOf([ann, cem], 2, 2);
    const handle = await stack.client.workflow.start('rotateApproverSet', {
      workflowId: workflowIds.rotateApproverSet,
      taskQueue: taskQueues.control,
      args: [
        {
          actor: 'ann',
          reason: 'ben left',
          change: {
            epoch: 2,
            approvers: next.approverKeys.map(({ spki }) => Buffer.from(spki).toString('base64')),
            threshold: 2,
            tiers: [],
            unbatchedPerHour: 0,
            signatures: await Promise.all([ann, ben, cem].map((by) => approveSet(by, next, { epoch: 2 }))),
          },
        },
      ],
    });
    const result = (await handle.result()) as ApproverSetResult;
    const missed = points.filter((point) => !existsSync(join(folder, point)));
    assert.deepEqual(missed, [], 'a worker was killed at each');
    assert.deepEqual([result.outcome, result.epoch, result.trustVersion, result.overrides], ['changed', 2, before + 1, 0]);
    const published = await publishedTrust(used.db);
    assert.ok(published);
    assert.equal(published.version, before + 1, 'one version more');
    assert.equal(approverSetDigest(quorumOfBytes(published.body)), approverSetDigest(next));
    assert.deepEqual(
      [
        await countOf('select count(*)::int as count from approver_set_changes where epoch = 2'),
        await countOf(`select count(*)::int as count from audit_events where action = 'approver-set.change' and subject = 'epoch 2'`),
        await countOf(`select count(*)::int as count from rotation_evidence where rotation_id = '${result.rotationId}'`),
      ],
      [1, 1, 1],
      'stored, audited and recorded once each',
    );
    const scheduled = (await handle.fetchHistory()).events?.filter((event) => event.activityTaskScheduledEventAttributes) ?? [];
    const names = scheduled.map((event) => event.activityTaskScheduledEventAttributes?.activityType?.name ?? '');
    assert.deepEqual([...new Set(names)], steps, 'in their order');
  });
});
