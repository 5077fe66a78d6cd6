/**
 * A deployment without approvers is upgraded and publishes its first set, as seen by its machines and by what it has placed on them: real
 * PostgreSQL, the gateway's own code over TLS, daemons on data folders of their own (PIN-013).
 */
import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { join } from 'node:path';
import { create, toBinary } from '@bufbuild/protobuf';
import { AnySchema, anyPack } from '@bufbuild/protobuf/wkt';
import { createGatewayServices, pkiJoinCrypto } from '../../config/index.ts';
import { joinNode } from '../../daemon/join.ts';
import { type RunningDaemon, startDaemon } from '../../daemon/run.ts';
import { simulatedBootId } from '../../daemon/state/boot-id.ts';
import { productionTimes } from '../../domain/rotation/gates.ts';
import { day, hour } from '../../domain/time.ts';
import { createGateway, type Gateway } from '../../gateway/gateway.ts';
import { createPostgresStore } from '../../gateway/session/store-postgres.ts';
import { createAuthorities } from '../../pki/authority/index.ts';
import { createBundle, type PkiBundle } from '../../pki/bundle/index.ts';
import { approverSetDigest, type QuorumFields } from '../../pki/trust/index.ts';
import { encodePem, spkiOf, spkiPin } from '../../pki/x509/index.ts';
import { NodeRebootSchema } from '../../proto/index.ts';
import { quorumOfOptions } from '../../services/approvers.ts';
import { activateReservation, createReservation } from '../../services/capacity/reservations.ts';
import { enqueueCommands, findCommand } from '../../services/command-queue.ts';
import { createJoinToken } from '../../services/tokens.ts';
import { settleAndPublish } from '../../services/trust-publication.ts';
import { createWorkerKeyring } from '../../services/worker-keys.ts';
import { eventually } from '../harness/eventually.ts';
import { useDatabase } from '../harness/postgres.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { newKey, recordingLog, trustDomain } from '../services/support.ts';

const machines = ['node-1', 'node-2', 'node-3'] as const;
/** Off while the first set is published. */
const away = 'node-3';

describe('the quorum is turned on', function () {
  this.timeout(120_000);
  const running = new Map<string, RunningDaemon>();
  let gateway: Gateway;
  // Before useDatabase, whose own hook drops the database that the gateway listens on.
  after(async () => {
    for (const daemon of running.values()) await daemon.stop();
    await gateway.close();
    removeScratchFolders();
  });
  const used = useDatabase({ max: 20 });
  let bundle: PkiBundle;
  let url: string;
  let set: QuorumFields;
  let folder: string;
  const dataDirOf = (nodeId: string): string => join(folder, nodeId);

  before(async () => {
    folder = scratchFolder();
    bundle = await createBundle({ trustDomain, now: Date.now() });
    await publish(null);
    ({ gateway, url } = await startGateway());
    for (const nodeId of machines) {
      await joined(nodeId);
      await start(nodeId);
    }
    const approver = () => spkiOf(newKey().publicKey);
    set = quorumOfOptions({ keys: [approver(), approver(), approver()], threshold: 2 });
  });

  const publish = (approvers: QuorumFields | null): Promise<unknown> =>
    settleAndPublish({
      db: used.db,
      bundle,
      floorOption: 0,
      overlapMs: day,
      approvers,
      processId: 'api',
      now: Date.now(),
      log: recordingLog(),
    });

  async function startGateway(): Promise<{ gateway: Gateway; url: string }> {
    const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const issued = await createAuthorities(bundle).issueGateway({ spki: spkiOf(publicKey), now: Date.now(), dns: ['localhost'] });
    const crypto = pkiJoinCrypto({
      trustDomain,
      nodeCa: bundle.nodeCa,
      signingKey: bundle.joinSigning,
      encryptionKey: bundle.joinEncryption.privateKey,
    });
    const made = createGateway({
      tls: {
        key: String(privateKey.export({ type: 'pkcs8', format: 'pem' })),
        cert: issued.chain.map((der) => encodePem('CERTIFICATE', der)).join(''),
        ca: crypto.anchors.map((der) => encodePem('CERTIFICATE', der)).join(''),
      },
      trustDomain,
      gatewayId: 'gw-1',
      store: createPostgresStore(used.db, Date.now),
      connectListener: () => used.db.connect(),
      services: createGatewayServices({ db: used.db, crypto: () => crypto, log: recordingLog(), now: Date.now }),
    });
    const { port } = await made.listen({ host: '127.0.0.1', port: 0 });
    return { gateway: made, url: `https://localhost:${port}` };
  }

  async function joined(nodeId: string): Promise<void> {
    const { token } = await createJoinToken({
      db: used.db,
      trustDomain,
      joinEncryption: bundle.joinEncryption.spki,
      siteId: 'fra1',
      role: 'node',
      nodeId,
      lifetimeMs: hour,
      actor: 'ann',
      now: Date.now(),
    });
    await joinNode({
      dataDir: dataDirOf(nodeId),
      bundle: { gateway: url, servingCaPin: spkiPin(bundle.servingCa.spki), joinKey: bundle.joinSigning.spki, trustDomain, token },
      role: 'node',
      attestor: 'join-token',
      evidence: null,
      replace: false,
      patienceMs: 0,
      host: { root: '/', readBootId: async () => 'boot-1' },
      random: () => 0,
      now: Date.now,
      say: () => undefined,
      sleep: async () => undefined,
    });
  }

  async function start(nodeId: string): Promise<void> {
    const daemon = await startDaemon({
      dataDir: dataDirOf(nodeId),
      config: { restartableUnits: [], logFiles: {} },
      simulateReboot: true,
      minOverlapMs: day,
      log: recordingLog() as never,
      crash: () => undefined,
      onFailed: (error) => assert.fail(String(error)),
    });
    running.set(nodeId, daemon);
    await eventually(`${nodeId} has a session`, () => daemon.isConnected());
  }

  /** Signed and queued without a batch, as before the upgrade; past it, the queue itself refuses that. */
  async function queueReboot(nodeId: string): Promise<string> {
    const id = `old/${nodeId}`;
    const worker = createWorkerKeyring({
      db: used.db,
      processId: 'w',
      bundle: () => bundle,
      times: productionTimes,
      now: Date.now,
      catchUpMs: 0,
    });
    const payload = toBinary(AnySchema, anyPack(NodeRebootSchema, create(NodeRebootSchema, { reason: 'kernel' })));
    const command = { id, nodeId, kind: 'node.reboot', payload, deadlineMs: Date.now() + hour, requestedBy: 'ann' };
    await enqueueCommands({ db: used.db, worker, trustDomain, now: Date.now(), commands: [command] });
    return id;
  }

  const boots = async (): Promise<string[]> => Promise.all(machines.map((nodeId) => simulatedBootId(dataDirOf(nodeId)).read()));
  const reservations = (): Promise<unknown[]> => used.db.query({ text: 'select * from reservations order by id' }, []);
  const placements = (): Promise<unknown[]> => used.db.query({ text: 'select * from workload_instances order by id' }, []);
  const commandIds = async (): Promise<string[]> =>
    (await used.db.query<{ id: string }>({ text: 'select id from node_commands order by id' }, [])).map(({ id }) => id);

  /** The digest that each machine says it enforces, in its open session. */
  async function enforced(): Promise<Record<string, string | null>> {
    const rows = await used.db.query<{ nodeId: string; digest: string | null }>(
      {
        text: `select node_id as "nodeId", encode(approver_set_sha256, 'hex') as digest from node_sessions where ended_at is null order by node_id`,
      },
      [],
    );
    return Object.fromEntries(rows.map(({ nodeId, digest }) => [nodeId, digest]));
  }

  it('PIN-010 PIN-011 PIN-012 PIN-013 PIN-014 nothing moves, nothing reboots, what was placed stays; who was away takes the set when it dials, and refuses what was queued for it without a batch', async () => {
    for (const [n, nodeId] of machines.entries()) {
      const reservation = { id: `r-${n}`, tenantId: 'default', nodeId, allocationId: `i-${n}`, actor: 'ann' };
      await createReservation(used.db, reservation, Date.now());
      await activateReservation(used.db, { reservationId: `r-${n}`, allocationId: `i-${n}`, nodeId, evidence: null }, Date.now());
    }
    await running.get(away)?.stop();
    const queued = await queueReboot(away);
    const before = {
      boots: await boots(),
      reservations: await reservations(),
      placements: await placements(),
      commands: await commandIds(),
    };
    assert.equal(before.reservations.length, 3);

    await publish(set);
    const digest = approverSetDigest(set);
    await eventually('whoever is connected enforces the set', async () => {
      const now = await enforced();
      return now['node-1'] === digest && now['node-2'] === digest;
    });
    await start(away);
    await eventually('so does who was away, from its Welcome on', async () => (await enforced())[away] === digest);
    await eventually('what was queued for it was judged', async () => (await findCommand(used.db, queued))?.state === 'rejected');
    assert.match((await findCommand(used.db, queued))?.reason ?? '', /unbatched-limit/);

    assert.deepEqual(
      { boots: await boots(), reservations: await reservations(), placements: await placements(), commands: await commandIds() },
      before,
    );
    await assert.rejects(queueReboot('node-1'), (error: { details?: { reason?: string } }) => error.details?.reason === 'batch-required');
  });
});
