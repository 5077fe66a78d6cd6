/** The workers as processes over real engines: what the composition roots put together works together. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { createDatabase, type Database } from '../../drizzle/client.ts';
import { verifyRotationEvidence } from '../../pki/audit/verify-evidence.ts';
import { verifyAuditChain } from '../../services/audit.ts';
import { listProcesses } from '../../services/processes.ts';
import { readEvidence } from '../../services/rotations.ts';
import { taskQueues, workflowIds } from '../../temporal.config.ts';
import type { RotationResult } from '../../workflows/rotate-command-root/messages.ts';
import type { RunCommandResult } from '../../workflows/run-command/messages.ts';
import { useDatabase } from '../harness/postgres.ts';
import { sharedTemporal, type TestTemporal } from '../harness/temporal.ts';
import { addNode, keepTurning, type RowNode, startStack, type TestStack, type WorkerChild } from './stack.ts';

const times = { overlapMs: 2_000, dropMarginMs: 500, workerLifetimeMs: 4_000 };

describe('the worker processes', function () {
  this.timeout(120_000);
  let temporal: TestTemporal;
  let stack: TestStack;
  /** Busy all the time: apart from the one whose connections are counted. */
  let own: Database;
  let nodes: RowNode[];
  let control: WorkerChild;
  let fleet: ReturnType<typeof keepTurning>;
  // Before useDatabase: its own hook drops the database, and the workers hold connections.
  after(async () => {
    await fleet.stop();
    await stack.stop();
    await own.close();
  });
  const used = useDatabase();

  before(async () => {
    temporal = await sharedTemporal();
    own = createDatabase(used.url, { applicationName: 'test fleet' });
    nodes = [];
    for (let i = 1; i <= 30; i += 1) nodes.push(await addNode(used.db, `node-${String(i).padStart(2, '0')}`));
    stack = await startStack({ db: own, url: used.url, temporalAddress: temporal.address, times });
    fleet = keepTurning(own, nodes);
    [control] = await Promise.all([stack.startWorker('control'), stack.startWorker('signing')]);
  });
  it('H-02 each says which bundle it runs; the control worker holds none', async () => {
    const processes = await listProcesses(used.db);
    const byKind = new Map(processes.map((process) => [process.kind, process]));
    assert.equal(byKind.get('worker-signing')?.bundleDigest, byKind.get('api')?.bundleDigest);
    assert.match(String(byKind.get('worker-signing')?.bundleDigest), /^[0-9a-f]{64}$/);
    assert.equal(byKind.get('worker-control')?.bundleDigest, null);
    assert.equal(byKind.get('worker-control')?.publishedVersionSeen, 1);
  });

  it('runCommand on a few nodes: an activity each, completed by the relay', async () => {
    const result = (await stack.client.workflow.execute('runCommand', {
      workflowId: 'command/few',
      taskQueue: taskQueues.control,
      args: [{ kind: 'inventory.refresh', nodes: ['node-02', 'node-01'], payload: { sections: ['cpu'] }, actor: 'ann' }],
    })) as RunCommandResult;
    assert.deepEqual(
      { total: result.total, states: result.states, failures: result.failures },
      { total: 2, states: { done: 2 }, failures: [] },
    );
  });

  it('runCommand on every node: one wait for all', async () => {
    const handle = await stack.client.workflow.start('runCommand', {
      workflowId: 'command/all',
      taskQueue: taskQueues.control,
      args: [{ kind: 'inventory.refresh', nodes: 'all', actor: 'ann' }],
    });
    const result = (await handle.result()) as RunCommandResult;
    assert.deepEqual(result.states, { done: 30 });
    const { events } = await handle.fetchHistory();
    assert.ok((events?.length ?? 0) <= 30, `${events?.length} events`);
  });

  it('ROT-001 a rotation from no input to signed evidence', async () => {
    const handle = await stack.client.workflow.start('rotateCommandRoot', {
      workflowId: workflowIds.rotateCommandRoot,
      taskQueue: taskQueues.control,
      args: [],
    });
    const result = (await handle.result()) as RotationResult;
    assert.equal(result.outcome, 'dropped');
    assert.equal(result.trustVersion, 3);
    const auditKey = stack.auditKey();
    const verdict = verifyRotationEvidence(await readEvidence(used.db, result.rotationId), {
      auditKey,
      pin: `sha256/${createHash('sha256').update(auditKey).digest('base64')}`,
      minOverlapMs: times.overlapMs,
    });
    assert.deepEqual(verdict.problems, []);
    assert.equal(verdict.outcome, 'completed');
    assert.ok((await verifyAuditChain(used.db)).events >= 8);
    const { events } = await handle.fetchHistory();
    assert.ok((events?.length ?? 0) <= 120, `${events?.length} events`);
  });

  it('payloads are encrypted on the server', async () => {
    const { events } = await stack.client.workflow.getHandle('command/few').fetchHistory();
    const input = events?.[0]?.workflowExecutionStartedEventAttributes?.input?.payloads?.[0];
    assert.equal(Buffer.from(input?.metadata?.['encoding'] ?? []).toString(), 'binary/encrypted');
    assert.equal(JSON.stringify(events).includes('inventory.refresh'), false);
  });

  it('revokeIdentity waits until the session is gone', async () => {
    const node = nodes[29] as RowNode;
    const handle = await stack.client.workflow.start('revokeIdentity', {
      workflowId: workflowIds.revokeIdentity(node.nodeId),
      taskQueue: taskQueues.control,
      args: [{ nodeId: node.nodeId, actor: 'ann', reason: 'stolen' }],
    });
    const waiting = async (): Promise<string> => (await handle.query<{ phase: string }>('status')).phase;
    for (let phase = ''; phase !== 'waiting-sessions'; ) phase = await waiting().catch(() => '');
    await used.db.query({ text: 'update node_sessions set ended_at = now() where node_id = $1' }, [node.nodeId]);
    assert.deepEqual(await handle.result(), { nodeId: node.nodeId, certificates: 1 });
  });

  it('shows the SDK beside its own metrics', async () => {
    const text = await (await fetch(`http://${control.addresses['metrics']}/metrics`)).text();
    assert.match(text, /bc_relay_total/);
    assert.match(text, /temporal_worker_task_slots_available/);
    assert.equal((await fetch(`http://${control.addresses['metrics']}/readyz`)).status, 200);
  });
});
