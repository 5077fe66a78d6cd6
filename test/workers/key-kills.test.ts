/** The workers as processes: killed in the middle of an exchange, they go on; the trail is sealed by its schedule. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { hour } from '../../domain/time.ts';
import { createDatabase, type Database } from '../../drizzle/client.ts';
import { parseKeyEvidence } from '../../pki/audit/key-evidence.ts';
import { createAuthorities } from '../../pki/authority/index.ts';
import { newSigningKey, openBundle } from '../../pki/bundle/index.ts';
import { encodePem, parseCertificate, parsePemCertificates } from '../../pki/x509/index.ts';
import { recordHeartbeat } from '../../services/processes.ts';
import { readEvidence } from '../../services/rotations.ts';
import { scheduleIds, taskQueues, workflowIds } from '../../temporal.config.ts';
import { createTlsFolder } from '../../workers/tls-folder.ts';
import type { KeyRotationResult, KeyRotationStatus } from '../../workflows/rotate-key/messages.ts';
import { eventually } from '../harness/eventually.ts';
import { useDatabase } from '../harness/postgres.ts';
import { sharedTemporal, type TestTemporal } from '../harness/temporal.ts';
import { startStack, type TestStack, type WorkerChild } from './stack.ts';

const times = { overlapMs: 3_000, dropMarginMs: 500, workerLifetimeMs: 4_000 };
const kinds = ['control', 'signing'] as const;
type Kind = (typeof kinds)[number];

describe('workers that are killed while a key is exchanged', function () {
  this.timeout(120_000);
  const folder = mkdtempSync(join(tmpdir(), 'bc-tls-'));
  let temporal: TestTemporal;
  let stack: TestStack;
  let own: Database;
  let workers: Record<Kind, WorkerChild>;
  after(async () => {
    await stack.stop();
    await own.close();
    rmSync(folder, { recursive: true, force: true });
  });
  const used = useDatabase();

  before(async () => {
    temporal = await sharedTemporal();
    own = createDatabase(used.url, { applicationName: 'test fleet' });
    stack = await startStack({ db: own, url: used.url, temporalAddress: temporal.address, times });
    const bundle = openBundle(readFileSync(stack.bundlePath, 'utf8'), { secret: 'a secret of at least thirty-two characters' });
    const { spki, privateKey } = newSigningKey('gateway');
    const { chain } = await createAuthorities(bundle).issueGateway({ spki, now: Date.now(), dns: ['gw.example.com'] });
    await createTlsFolder(folder).replace({
      key: encodePem('PRIVATE KEY', privateKey.export({ type: 'pkcs8', format: 'der' })),
      chain: chain.map((der) => encodePem('CERTIFICATE', der)).join(''),
      nodeCa: '',
    });
    workers = { control: await stack.startWorker('control'), signing: await start('signing') };
  });

  const start = (kind: Kind): Promise<WorkerChild> => stack.startWorker(kind, kind === 'signing' ? { BETTER_COMPUTE_TLS: folder } : {});
  const killBoth = async (): Promise<void> => {
    for (const kind of kinds) {
      await workers[kind].kill('SIGKILL');
      workers[kind] = await start(kind);
    }
  };
  const present = (servingSerial: string): Promise<void> =>
    recordHeartbeat(used.db, {
      id: 'gateway/gw',
      kind: 'gateway',
      host: 'test',
      pid: 1,
      version: '',
      bundleDigest: null,
      bundleGeneration: null,
      trustVersionSeen: 1,
      servingSerial,
    });
  const serial = (): string =>
    parseCertificate(parsePemCertificates(readFileSync(join(folder, 'gateway.crt'), 'utf8'))[0] ?? new Uint8Array()).serial;

  it('R-04 the gateway certificate is made once, and its gateway is waited for by name through both kills', async () => {
    const first = serial();
    await present(first);
    const handle = await stack.client.workflow.start('rotateGatewayCertificate', {
      workflowId: workflowIds.rotateGatewayCertificate,
      taskQueue: taskQueues.control,
      args: [],
    });
    const waits = (): Promise<boolean> =>
      handle
        .query<KeyRotationStatus>('status')
        .then(({ behind }) => behind?.message === '1 of 1 gateway(s) do not present it yet (gateway/gw)')
        .catch(() => false);
    await eventually('the gateway is named', async () => {
      await present(first);
      return waits();
    });
    const second = serial();
    assert.notEqual(second, first);
    await killBoth();
    await present(first);
    await eventually('the gateway is named again', waits);
    await present(second);
    const result = (await handle.result()) as KeyRotationResult;
    assert.deepEqual([result.from, result.to, result.outcome], [first, second, 'exchanged']);
    assert.equal(serial(), second, 'it was not made again');
    const stages = (await readEvidence(used.db, result.rotationId)).map(({ document }) => parseKeyEvidence(document).stage);
    assert.deepEqual(stages, ['plan', 'add', 'processes', 'confirm']);
  });

  it('AUD-003 the trail is sealed by a schedule that stands once, however often a worker starts', async () => {
    const listed: string[] = [];
    for await (const { scheduleId } of stack.client.schedule.list()) listed.push(scheduleId);
    assert.equal(listed.filter((id) => id === scheduleIds.checkpointAudit).length, 1);
    const schedule = stack.client.schedule.getHandle(scheduleIds.checkpointAudit);
    assert.deepEqual(
      (await schedule.describe()).spec.intervals?.map(({ every }) => every),
      [hour],
    );
    await schedule.trigger();
    const sealed = { text: 'select tenant_id as tenant, number from audit_checkpoints' };
    const rows = await eventually('a checkpoint', async () => {
      const found = await used.db.query<{ tenant: string; number: number }>(sealed);
      return found.length > 0 && found;
    });
    assert.deepEqual(rows, [{ tenant: 'deployment', number: 1 }]);
  });
});
