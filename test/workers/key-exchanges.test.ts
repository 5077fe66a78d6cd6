/** Every exchange of a key over a real database, a real bundle file and a real folder of TLS files, with its waits skipped. */
import assert from 'node:assert/strict';
import { createPublicKey } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { activityInfo } from '@temporalio/activity';
import type { Client } from '@temporalio/client';
import { createAccess } from '../../activities/adapters/access.ts';
import { createKeyRotationPorts } from '../../activities/adapters/key-rotation.ts';
import { createOverrideWriter, createPublishedQuorum } from '../../activities/adapters/rotation.ts';
import { createKeyRotationControlActivities } from '../../activities/key-rotation-control.ts';
import { createKeyRotationSigningActivities } from '../../activities/key-rotation-signing.ts';
import { productionTimes } from '../../domain/rotation/gates.ts';
import type { ExchangedKey } from '../../domain/rotation/key-exchanges.ts';
import { day, minute } from '../../domain/time.ts';
import { databaseNow } from '../../drizzle/queries/clock.ts';
import { findStoredSpec } from '../../drizzle/queries/nodes.ts';
import { verifyKeyEvidence } from '../../pki/audit/verify-key-evidence.ts';
import { createAuthorities } from '../../pki/authority/index.ts';
import { bundleDigest, createBundle, encodeBundle, newSigningKey } from '../../pki/bundle/index.ts';
import { jwkThumbprint, parsePublicJwk } from '../../pki/jose/index.ts';
import { openWorkloadKeys, sealWorkloadKeys } from '../../pki/workload/index.ts';
import { encodePem, parseCertificate, parsePemCertificates, spkiOf, spkiPin } from '../../pki/x509/index.ts';
import { createBundleFileStore } from '../../runtime/bundle-file-store.ts';
import { createLogger } from '../../runtime/log.ts';
import { openExternalSigners } from '../../runtime/signers/external-signers.ts';
import { verifyAuditChain } from '../../services/audit.ts';
import { recordHeartbeat } from '../../services/processes.ts';
import { readEvidence } from '../../services/rotations.ts';
import { createWorkerKeyring } from '../../services/worker-keys.ts';
import { ensureWorkloadKeys, listWorkloadKeys, type WorkloadSettings } from '../../services/workload-keys.ts';
import { taskQueues } from '../../temporal.config.ts';
import { type BundleHolder, holdBundle } from '../../workers/bundle-holder.ts';
import { createTlsFolder } from '../../workers/tls-folder.ts';
import { type KeyRotationResult, keyWorkflowId, keyWorkflows } from '../../workflows/rotate-key/messages.ts';
import { useDatabase } from '../harness/postgres.ts';
import { sharedTemporal, type TestTemporal } from '../harness/temporal.ts';
import { addNode } from '../services/support.ts';
import { type KeyHandle, untilKeyStatus } from '../workflows/key-rig.ts';
import { type RunningWorkers, running } from '../workflows/rotation-rig.ts';

const secret = 'a secret of at least thirty-two characters';
const workload: WorkloadSettings = { issuer: 'https://id.example.com', defaultAudience: 'a', audiences: [], secret };
const log = createLogger({ process: 'test', level: 'fatal' });

describe('exchanges of keys over real stores', function () {
  this.timeout(60_000);
  const home = mkdtempSync(join(tmpdir(), 'bc-keys-'));
  let bundle: BundleHolder;
  let workers: RunningWorkers;
  let beating: NodeJS.Timeout;
  // Before useDatabase: its own hook drops the database, and the workers hold connections.
  after(async () => {
    clearInterval(beating);
    await workers.stop();
    bundle.close();
    rmSync(home, { recursive: true, force: true });
  });
  const used = useDatabase();
  const tls = (name: string): string => readFileSync(join(home, name), 'utf8');
  let temporal: TestTemporal;

  /** Desired state cannot be written. */
  let specsAreStuck = false;
  /** The api runs an earlier bundle than there is. */
  let lags = false;
  /** The server's clock where it skips, never before the database's. */
  const clock = async (): Promise<number> => Math.max(await databaseNow(used.db), attemptTime());

  before(async () => {
    temporal = await sharedTemporal();
    const store = createBundleFileStore(join(home, 'pki.json'));
    const now = Date.now() - 30 * day;
    await store.create(encodeBundle(await createBundle({ trustDomain: 'fleet.example', now }), { secret }));
    bundle = await holdBundle({ store, secret, signers: openExternalSigners({ BETTER_COMPUTE_SIGNER_TIMEOUT_MS: 10_000 }, {}), log });
    const folder = createTlsFolder(home);
    const { publicKey, privateKey } = newGatewayKey();
    const first = await createAuthorities(bundle.current()).issueGateway({ spki: publicKey, now: Date.now(), dns: ['gw.example.com'] });
    await folder.replace({ key: privateKey, chain: first.chain.map((der) => encodePem('CERTIFICATE', der)).join(''), nodeCa: '' });
    await ensureWorkloadKeys(used.db, workload);
    const worker = createWorkerKeyring({
      db: used.db,
      processId: 'worker-signing@test:1',
      bundle: bundle.current,
      times: productionTimes,
      now: Date.now,
      catchUpMs: 0,
    });
    const { specs } = createAccess({ ticketIssuer: null, db: used.db, worker, bundle: bundle.current });
    const ports = createKeyRotationPorts({
      db: used.db,
      now: Date.now,
      running: bundle,
      clock,
      times: productionTimes,
      workload,
      folder,
      specs: () => (specsAreStuck ? Promise.resolve(3) : specs()),
    });
    const overrides = createOverrideWriter({ db: used.db, now: Date.now });
    workers = running([
      await temporal.createWorker({
        taskQueue: taskQueues.control,
        activities: createKeyRotationControlActivities({
          overrides,
          quorum: createPublishedQuorum({ db: used.db, trustDomain: undefined }),
        }),
      }),
      await temporal.createWorker({
        taskQueue: taskQueues.signing,
        activities: createKeyRotationSigningActivities(ports),
        workflowBundle: undefined as never,
      }),
    ]);
    await beat();
    beating = setInterval(() => void beat().catch(() => undefined), 100);
  });
  /** An api that runs the bundle, a gateway that presents what lies in the folder, time that passes for the workload keys. */
  async function beat(): Promise<void> {
    const row = { host: 'test', pid: 1, version: '', bundleDigest: null, bundleGeneration: null, trustVersionSeen: null };
    const current = bundle.current();
    await recordHeartbeat(used.db, {
      ...row,
      id: 'api@test:1',
      kind: 'api',
      bundleDigest: lags ? 'f'.repeat(64) : bundleDigest(current),
      bundleGeneration: 1,
    });
    await recordHeartbeat(used.db, { ...row, id: 'gateway/gw', kind: 'gateway', servingSerial: leafOf(tls('gateway.crt')).serial });
    await ageWorkloadKeys();
  }

  /** The times of these keys are the database's: they are moved back, as if it had been started so much earlier. */
  async function ageWorkloadKeys(): Promise<void> {
    await used.db.transaction(async (tx) => {
      const [row] = await tx.query<{ revision: number; sealed: Uint8Array }>({
        text: 'select revision, sealed_keys as sealed from workload_issuers for update',
      });
      if (row === undefined) return;
      const at = { secret, issuer: workload.issuer, revision: row.revision };
      const older = openWorkloadKeys(row.sealed, at).map(({ stoppedAt, ...key }) => ({
        ...key,
        addedAt: key.addedAt - 20 * minute,
        ...(stoppedAt === undefined ? {} : { stoppedAt: stoppedAt - 20 * minute }),
      }));
      await tx.query({ text: 'update workload_issuers set sealed_keys = $1' }, [sealWorkloadKeys(older, at)]);
    });
  }

  const exchange = async (key: ExchangedKey, subject: 'serving' | '' = ''): Promise<KeyRotationResult> =>
    (await temporal.skipping.workflow.execute(keyWorkflows[key].type, {
      workflowId: keyWorkflowId(key, subject),
      taskQueue: taskQueues.control,
      args: [],
    })) as KeyRotationResult;
  /** Of evidence that holds against the bundle's own audit key. */
  const stagesOf = async ({ rotationId }: KeyRotationResult): Promise<string[]> => {
    const auditKey = bundle.current().auditSigning?.spki ?? new Uint8Array();
    const verdict = verifyKeyEvidence(await readEvidence(used.db, rotationId), { auditKey, pin: spkiPin(auditKey) });
    assert.deepEqual(verdict.problems, []);
    return verdict.stages.map(({ stage }) => stage);
  };

  it('R-04 the ticket key: the bundle has one key at the end, another one, and forgets the first', async () => {
    const before = bundle.current();
    const result = await exchange('ticket');
    const { execTicketKey, execTicketKeyNext, execTicketKeyFormer, generation } = await bundle.refresh();
    assert.equal(result.from, jwkThumbprint(before.execTicketKey?.spki ?? new Uint8Array()));
    assert.equal(result.to, jwkThumbprint(execTicketKey?.spki ?? new Uint8Array()));
    assert.notEqual(result.from, result.to);
    assert.deepEqual([execTicketKeyNext, execTicketKeyFormer], [undefined, undefined]);
    assert.equal(generation - before.generation, 3, 'add, promote and retire each wrote the bundle once');
    assert.deepEqual(await stagesOf(result), ['plan', 'add', 'processes', 'promote', 'retire', 'confirm']);
  });

  it('EXEC-006 the next ticket key signs when the desired state of every node names it, and not before', async () => {
    await addNode(used.db, 'node-1');
    const jwks = async (): Promise<string[]> => {
      const spec = (await findStoredSpec(used.db, 'node-1'))?.spec as { access?: { jwks?: string[] } };
      return (spec.access?.jwks ?? []).map((jwk) => jwkThumbprint(parsePublicJwk(JSON.parse(jwk), 'sig').spki));
    };
    const before = jwkThumbprint(bundle.current().execTicketKey?.spki ?? new Uint8Array());
    specsAreStuck = true;
    const handle = await temporal.client.workflow.start<() => Promise<KeyRotationResult>>('rotateTicketKey', {
      workflowId: keyWorkflowId('ticket', ''),
      taskQueue: taskQueues.control,
      args: [],
    });
    const { behind, phase, to } = await untilKeyStatus(handle, (status) => status.behind !== null);
    assert.equal(phase, 'waiting-processes');
    assert.equal(behind?.message, 'the desired state of 3 node(s) does not name the ticket keys of this bundle yet');
    assert.equal(jwkThumbprint(bundle.current().execTicketKey?.spki ?? new Uint8Array()), before, 'the former key signs');
    specsAreStuck = false;
    await untilKeyStatus(handle, ({ phase: at }) => at === 'waiting-retire');
    assert.deepEqual(new Set(await jwks()), new Set([before, to]));
    await handle.terminate('its wait is not skipped here');
    const result = await exchange('ticket');
    assert.deepEqual(await jwks(), [result.to]);
  });

  it('R-04 a CA: a new certificate of the same key, and the earlier one leaves when its last leaf is over', async () => {
    const before = bundle.current().servingCa;
    const result = await exchange('ca', 'serving');
    const { servingCa } = await bundle.refresh();
    assert.deepEqual([result.from, result.to], [before.certificate.serial, servingCa.certificate.serial]);
    assert.deepEqual(servingCa.spki, before.spki);
    assert.ok(servingCa.certificate.notAfter > before.certificate.notAfter);
    assert.deepEqual(
      servingCa.certificates.map(({ serial }) => serial),
      [result.to],
    );
    assert.deepEqual(await stagesOf(result), ['plan', 'add', 'processes', 'retire', 'confirm']);
  });

  it('R-06 a renewal whose workflow was terminated is taken up, by what the database knows of it', async () => {
    const workflowId = keyWorkflowId('ca', 'internal');
    const start = (client: Client): Promise<KeyHandle> =>
      client.workflow.start<() => Promise<KeyRotationResult>>('renewCa', { workflowId, taskQueue: taskQueues.control, args: [] });
    const anchors = (): string[] => parsePemCertificates(tls('internal-ca.pem')).map((der) => parseCertificate(der).serial);
    const [present] = bundle.current().internalCa.certificates;
    writeFileSync(join(home, 'internal-ca.pem'), encodePem('CERTIFICATE', present?.der ?? new Uint8Array()));
    const first = await start(temporal.client);
    const { rotationId, to } = await untilKeyStatus(first, ({ phase }) => phase === 'waiting-retire');
    assert.deepEqual(anchors(), [to, present?.serial], 'whoever reads the folder takes both');
    await first.terminate('by mistake');
    const result = await (await start(temporal.skipping)).result();
    assert.deepEqual([result.rotationId, result.to], [rotationId, to]);
    assert.deepEqual(
      bundle.current().internalCa.certificates.map(({ serial }) => serial),
      [to],
    );
    assert.deepEqual(anchors(), [to]);
    assert.deepEqual(await stagesOf(result), ['plan', 'add', 'processes', 'retire', 'confirm']);
  });

  it('R-05 H-02 an api that does not take the next ticket key is named; an abort takes that key out again', async () => {
    const before = bundle.current();
    lags = true;
    const handle = await temporal.client.workflow.start<() => Promise<KeyRotationResult>>('rotateTicketKey', {
      workflowId: keyWorkflowId('ticket', ''),
      taskQueue: taskQueues.control,
      args: [],
    });
    const { behind } = await untilKeyStatus(handle, (status) => status.behind !== null);
    assert.equal(behind?.message, '1 of 1 process(es) do not run this bundle yet (api api@test:1)');
    assert.notEqual(bundle.current().execTicketKeyNext, undefined);
    lags = false;
    await handle.executeUpdate('abort', { args: [{ actor: 'ann', reason: 'wrong week' }] });
    const result = await handle.result();
    assert.equal(result.outcome, 'aborted');
    const { execTicketKey, execTicketKeyNext } = await bundle.refresh();
    assert.deepEqual([execTicketKey?.spki, execTicketKeyNext], [before.execTicketKey?.spki, undefined]);
    const stages = await stagesOf(result);
    assert.deepEqual([stages[0], stages.at(-2), stages.at(-1)], ['plan', 'abort', 'confirm']);
  });

  it('R-04 the gateway certificate: another key for the same names, and no private key leaves the folder', async () => {
    const before = tls('gateway.crt');
    const result = await exchange('gateway');
    const leaf = leafOf(tls('gateway.crt'));
    assert.deepEqual([result.from, result.to], [leafOf(before).serial, leaf.serial]);
    assert.deepEqual(leaf.dnsSans, ['gw.example.com']);
    assert.deepEqual(Buffer.from(leaf.spki), Buffer.from(spkiOf(createPublicKey(tls('gateway.key')))));
    assert.equal(leafOf(tls('node-ca.pem')).serial, bundle.current().nodeCa.certificate.serial);
    const history = JSON.stringify(await temporal.client.workflow.getHandle(keyWorkflowId('gateway', '')).fetchHistory());
    const documents = (await readEvidence(used.db, result.rotationId)).map(({ document }) => Buffer.from(document).toString());
    const body = tls('gateway.key').split('\n')[1] ?? '';
    for (const text of [history, ...documents]) assert.ok(!text.includes(body) && !text.includes('PRIVATE'));
  });

  it('R-04 the workload key: published, promoted, retired, each in the audit trail', async () => {
    const [before] = await listWorkloadKeys(used.db, workload);
    const result = await exchange('workload');
    const keys = await listWorkloadKeys(used.db, workload);
    assert.deepEqual([result.from, result.to], [before?.kid, keys[0]?.kid]);
    assert.deepEqual(
      keys.map(({ state }) => state),
      ['signing'],
    );
    const rows = await used.db.query<{ action: string }>({
      text: "select action from audit_events where action like 'workload-key.%' order by seq",
    });
    assert.deepEqual(
      rows.map(({ action }) => action),
      ['create', 'add', 'promote', 'retire'].map((step) => `workload-key.${step}`),
    );
    assert.ok((await verifyAuditChain(used.db)).events > 20);
  });
});

const leafOf = (pem: string) => parseCertificate(parsePemCertificates(pem)[0] ?? new Uint8Array());

function newGatewayKey(): { publicKey: Uint8Array; privateKey: string } {
  const { spki, privateKey } = newSigningKey('gateway');
  return { publicKey: spki, privateKey: encodePem('PRIVATE KEY', privateKey.export({ type: 'pkcs8', format: 'der' })) };
}

function attemptTime(): number {
  try {
    return activityInfo().currentAttemptScheduledTimestampMs;
  } catch {
    return 0;
  }
}
