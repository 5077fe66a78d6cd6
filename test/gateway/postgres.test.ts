/** The gateway over a real PostgreSQL, with the services that write what it delivers. */
import assert from 'node:assert/strict';
import { hour } from '../../domain/time.ts';
import { fleetFacts } from '../../drizzle/queries/sessions.ts';
import { createGateway, type Gateway } from '../../gateway/gateway.ts';
import { createPostgresStore } from '../../gateway/session/store-postgres.ts';
import { verifyIntent } from '../../pki/envelope/index.ts';
import { encodePem, issueLeaf, kidOf, spkiOf } from '../../pki/x509/index.ts';
import { type Command, CommandBodySchema, CommandOutcome, decodeMessage } from '../../proto/index.ts';
import { readNodeSets } from '../../services/approver-lag.ts';
import { cancelCommand, enqueueCommands, findCommand } from '../../services/command-queue.ts';
import { createPoker, type Poker } from '../../services/poke.ts';
import { revokeNode } from '../../services/revocation.ts';
import { settleAndPublish } from '../../services/trust-publication.ts';
import type { WorkerKeyProvider } from '../../services/worker-keys.ts';
import { openAgent, TestAgent, type TestLeaf } from '../harness/agent.ts';
import { eventually } from '../harness/eventually.ts';
import { useDatabase } from '../harness/postgres.ts';
import {
  addNode,
  certify,
  command,
  type EnrolledNode,
  keyring,
  newKey,
  recordingLog,
  sha256,
  testBundle,
  trustDomain,
} from '../services/support.ts';
import { noServices } from './start-gateway.ts';

describe('the gateway over PostgreSQL', function () {
  this.timeout(60_000);
  const used = useDatabase({ max: 20 });
  const gateways: Gateway[] = [];
  let worker: WorkerKeyProvider;
  let poker: Poker;
  let tls: { key: string; cert: string; ca: string };

  before(async () => {
    worker = await keyring(used.db, { now: Date.now });
    poker = createPoker({ db: used.db, log: recordingLog() });
    const keys = await testBundle();
    const key = newKey();
    const { der } = await issueLeaf({
      ca: { certificate: keys.servingCa.certificate.der, signer: keys.servingCa.signer() },
      profile: 'gateway',
      spki: spkiOf(key.publicKey),
      sans: { dns: ['gw.test'] },
      now: Date.now(),
    });
    tls = {
      key: String(key.privateKey.export({ type: 'pkcs8', format: 'pem' })),
      cert: encodePem('CERTIFICATE', der) + encodePem('CERTIFICATE', keys.servingCa.certificate.der),
      ca: encodePem('CERTIFICATE', keys.nodeCa.certificate.der),
    };
    await publish(0);
  });
  afterEach(async () => {
    await Promise.all(gateways.splice(0).map((gateway) => gateway.close()));
  });
  after(() => poker.close());

  async function publish(floorOption: number): Promise<number> {
    const keys = await testBundle();
    const options = {
      db: used.db,
      bundle: keys,
      floorOption,
      overlapMs: 24 * hour,
      processId: 'test',
      now: Date.now(),
      log: recordingLog(),
    };
    return (await settleAndPublish(options)).version;
  }

  async function start(gatewayId: string): Promise<{ gateway: Gateway; port: number }> {
    const gateway = createGateway({
      tls,
      trustDomain,
      gatewayId,
      store: createPostgresStore(used.db, Date.now),
      connectListener: () => used.db.connect(),
      services: noServices,
    });
    gateways.push(gateway);
    return { gateway, port: (await gateway.listen({ host: '127.0.0.1', port: 0 })).port };
  }

  async function enrolled(id: string): Promise<TestLeaf> {
    const keys = await testBundle();
    const key = newKey();
    await addNode(used.db, id);
    const certificate = await certify(used.db, { id, key, now: Date.now() });
    const chain = [certificate.der, keys.nodeCa.certificate.der];
    const node: EnrolledNode = { id, key, certificate, issuer: kidOf(keys.nodeCa.spki) };
    return {
      key: node.key.privateKey,
      keyPem: String(key.privateKey.export({ type: 'pkcs8', format: 'pem' })),
      chainPem: chain.map((der) => encodePem('CERTIFICATE', der)).join(''),
      chain,
      serial: certificate.serial,
      issuer: node.issuer,
      notAfter: certificate.notAfter,
    };
  }

  const enqueue = (nodeId: string, id: string): Promise<unknown> =>
    enqueueCommands({
      db: used.db,
      worker,
      trustDomain,
      now: Date.now(),
      poke: poker.poke,
      commands: [command(nodeId, { id, deadlineMs: Date.now() + hour })],
    });

  const resultOf = (id: string, { seq, body }: Command) =>
    ({
      frame: {
        case: 'commandResult',
        value: { commandId: id, seq, outcome: CommandOutcome.SUCCEEDED, bodySha256: sha256(body), startedAtMs: 1n, finishedAtMs: 2n },
      },
    }) as const;

  it('carries a signed command to the node by a poke, and its ack and result back in one piece', async () => {
    const { port } = await start('gw-1');
    const leaf = await enrolled('story');
    const { agent, welcome } = await openAgent({ port, leaf });
    assert.equal(welcome.epoch, 1n);
    await enqueue('story', 'story/1');
    const received = await agent.expect('command');
    const root = (await testBundle()).commandSigning;
    assert.ok(root !== undefined && received.signature !== undefined);
    const signer = verifyIntent({
      purpose: 'command',
      body: received.body,
      signature: received.signature,
      roots: [root.certificate.der],
      now: Date.now(),
      required: true,
    });
    assert.notEqual(signer, null);
    assert.equal(decodeMessage(CommandBodySchema, received.body, 'commandBody').commandId, 'story/1');
    agent.send({ frame: { case: 'commandAck', value: { commandId: 'story/1', seq: received.seq } } });
    await eventually('the ack is stored', async () => (await findCommand(used.db, 'story/1'))?.state === 'acked');
    agent.send(resultOf('story/1', received));
    assert.equal((await agent.expect('resultReceipt')).commandId, 'story/1');
    assert.equal((await findCommand(used.db, 'story/1'))?.state, 'done');
    agent.close();
  });

  it('SKEW-004 SKEW-005 SKEW-029 records version, highest protocol and capabilities as Hello says them, and labels the node', async () => {
    const { port } = await start('gw-1');
    const hello = { daemonVersion: '0.7.3', protoMin: 1, protoMax: 5, capabilities: ['instance.snapshot', 'devices.limits'] };
    const { agent, welcome } = await openAgent({ port, leaf: await enrolled('newer') }, hello);
    assert.equal(welcome.protocolVersion, 1, 'SKEW-002 the highest that both speak');
    const rows = await used.db.query({
      text: `select s.daemon_version, s.proto_max, s.capabilities, n.labels from node_sessions s join nodes n on n.id = s.node_id
             where s.node_id = 'newer'`,
    });
    assert.deepEqual(rows, [
      {
        daemon_version: '0.7.3',
        proto_max: 5,
        capabilities: ['instance.snapshot', 'devices.limits'],
        labels: { 'bc.dev/cap.instance.snapshot': '1', 'bc.dev/cap.devices.limits': '1' },
      },
    ]);
    agent.close();
  });

  it('sends what is unfinished again in the next session, in order, and a late duplicate result changes nothing', async () => {
    const { port } = await start('gw-1');
    const leaf = await enrolled('again');
    for (const id of ['again/1', 'again/2', 'again/3']) await enqueue('again', id);
    const first = await openAgent({ port, leaf });
    const one = await first.agent.expect('command');
    first.agent.send({ frame: { case: 'commandAck', value: { commandId: 'again/1', seq: one.seq } } });
    first.agent.send(resultOf('again/1', one));
    await first.agent.until('resultReceipt');
    first.agent.close();
    const { agent, welcome } = await openAgent({ port, leaf });
    assert.equal(welcome.epoch, 2n);
    const seqs = [await agent.expect('command'), await agent.expect('command')].map(({ seq, epoch }) => [seq, epoch]);
    assert.deepEqual(seqs, [
      [2n, 2n],
      [3n, 2n],
    ]);
    agent.send(resultOf('again/1', one));
    assert.equal((await agent.expect('resultReceipt')).commandId, 'again/1');
    agent.close();
  });

  it('tells the node of a cancelled command', async () => {
    const { gateway, port } = await start('gw-1');
    const { agent } = await openAgent({ port, leaf: await enrolled('cancelled') });
    await enqueue('cancelled', 'cancelled/1');
    await agent.expect('command');
    await cancelCommand(used.db, { id: 'cancelled/1', reason: 'not needed', now: Date.now() });
    gateway.sessions.poke(['cancelled']);
    assert.equal((await agent.expect('cancelCommand')).commandId, 'cancelled/1');
    agent.close();
  });

  it('B51, B52 a session that was taken over on another gateway can neither write nor go on', async () => {
    const [one, two] = [await start('gw-1'), await start('gw-2')];
    const leaf = await enrolled('moved');
    const { agent: older } = await openAgent({ port: one.port, leaf });
    await enqueue('moved', 'moved/1');
    const received = await older.expect('command');
    const { agent: newer } = await openAgent({ port: two.port, leaf });
    older.send(resultOf('moved/1', received));
    const end = await older.ended;
    assert.deepEqual([end.status, end.reason], [10, 'superseded']);
    assert.equal((await findCommand(used.db, 'moved/1'))?.state, 'open', 'the fenced result is not stored');
    assert.equal((await newer.expect('command')).epoch, 2n);
    for (const agent of [older, newer]) agent.close();
  });

  it('REV-014 disconnects a revoked node within 5 s and refuses it from then on', async () => {
    const { port } = await start('gw-1');
    const leaf = await enrolled('revoked');
    const { agent } = await openAgent({ port, leaf });
    const revokedAt = Date.now();
    await revokeNode({ db: used.db, nodeId: 'revoked', actor: 'olga', reason: 'lost', now: revokedAt });
    assert.equal((await agent.expect('revocation')).serial, leaf.serial);
    assert.equal((await agent.ended).reason, 'revoked');
    const again = new TestAgent({ port, leaf });
    again.hello();
    assert.equal((await again.ended).reason, 'revoked');
    again.close();
    agent.close();
    // A gateway that starts later knows it from the start (REV-007).
    const later = await start('gw-3');
    const third = new TestAgent({ port: later.port, leaf });
    assert.equal((await third.ended).reason, 'revoked');
    third.close();
  });

  it('ROT-015, ROT-018, ROT-019, ROT-026 hands out what is published and records what is held', async () => {
    const { gateway, port } = await start('gw-1');
    const held = await publish(0);
    const { agent, welcome } = await openAgent({ port, leaf: await enrolled('trusting') }, { trustVersion: BigInt(held) });
    assert.equal(welcome.trust, undefined);
    const facts = async (version: number): Promise<number> => (await fleetFacts(used.db, { version, now: Date.now() })).behind;
    assert.equal(await facts(held), 0);
    const next = await publish(held + 5);
    assert.equal(next, held + 5);
    const told = await agent.expect('welcome');
    assert.notEqual(told.trust, undefined);
    assert.equal(await facts(next), 1);
    agent.send({ frame: { case: 'status', value: { trustVersion: BigInt(next) } } });
    await eventually('the gate sees it without a reconnect', async () => (await facts(next)) === 0);
    assert.equal(gateway.sessions.publishedVersion, next);
    agent.close();
  });

  it('LAG-001 LAG-002 LAG-003 records the approver set that a daemon says it holds, from Hello and from a report of a newer bundle', async () => {
    const { port } = await start('gw-1');
    const held = await publish(0);
    const set = (epoch: bigint, n: number) => ({ approverSetEpoch: epoch, approverSetSha256: new Uint8Array(32).fill(n) });
    const recorded = async () => (await readNodeSets(used.db))?.find(({ nodeId }) => nodeId === 'approving');
    const { agent } = await openAgent({ port, leaf: await enrolled('approving') }, { trustVersion: BigInt(held), ...set(3n, 3) });
    await eventually('Hello is recorded', async () => (await recorded())?.epoch === 3);
    agent.send({ frame: { case: 'status', value: { trustVersion: BigInt(held + 1), ...set(4n, 4) } } });
    agent.send({ frame: { case: 'status', value: { trustVersion: BigInt(held), ...set(2n, 2) } } });
    await eventually('the newer report is recorded', async () => (await recorded())?.epoch === 4);
    assert.equal((await recorded())?.sha256, '04'.repeat(32));
    agent.close();
  });

  it('ends in the database what it left open when it died', async () => {
    const { gateway, port } = await start('gw-1');
    const leaf = await enrolled('left');
    const { agent } = await openAgent({ port, leaf });
    // As after a kill: the row stays.
    gateway.sessions.destroyAll();
    agent.close();
    await used.db.query({ text: `update node_sessions set ended_at = null where node_id = 'left'` });
    await start('gw-1');
    const rows = await used.db.query<{ reason: string }>({
      text: `select end_reason as reason from node_sessions where node_id = 'left' and ended_at is null`,
    });
    assert.deepEqual(rows, []);
  });
});
