/** The gateway over a real PostgreSQL, with the services that write what it delivers. */
import assert from 'node:assert/strict';
import { connect as tcpConnect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import pg from 'pg';
import { hour } from '../../domain/time.ts';
import { fleetFacts } from '../../drizzle/queries/sessions.ts';
import { createGateway, type Gateway } from '../../gateway/gateway.ts';
import { listenTiming, Notifications } from '../../gateway/session/notifications.ts';
import { createPostgresStore } from '../../gateway/session/store-postgres.ts';
import { verifyIntent } from '../../pki/envelope/index.ts';
import { encodePem, issueLeaf, kidOf, spkiOf } from '../../pki/x509/index.ts';
import { type Command, CommandBodySchema, decodeMessage } from '../../proto/index.ts';
import { cancelCommand, enqueueCommands, findCommand } from '../../services/command-queue.ts';
import { createPoker, type Poker } from '../../services/poke.ts';
import { revokeNode } from '../../services/revocation.ts';
import { settleAndPublish } from '../../services/trust-publication.ts';
import type { WorkerKeyProvider } from '../../services/worker-keys.ts';
import { openAgent, TestAgent, type TestLeaf } from '../harness/agent.ts';
import { eventually } from '../harness/eventually.ts';
import { useDatabase } from '../harness/postgres.ts';
import { addNode, certify, command, type EnrolledNode, keyring, newKey, recordingLog, sha256, testBundle, trustDomain } from '../services/support.ts';
import { ManualScheduler, turns } from './manual-scheduler.ts';
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
    const options = { db: used.db, bundle: keys, floorOption, overlapMs: 24 * hour, processId: 'test', now: Date.now(), log: recordingLog() };
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
    enqueueCommands({ db: used.db, worker, trustDomain, now: Date.now(), poke: poker.poke, commands: [command(nodeId, { id, deadlineMs: Date.now() + hour })] });

  const resultOf = (id: string, { seq, body }: Command) =>
    ({ frame: { case: 'commandResult', value: { commandId: id, seq, outcome: 1, bodySha256: sha256(body), startedAtMs: 1n, finishedAtMs: 2n } } }) as const;

  it('carries a signed command to the node by a poke, and its ack and result back in one piece', async () => {
    const { port } = await start('gw-1');
    const leaf = await enrolled('story');
    const { agent, welcome } = await openAgent({ port, leaf }, { capabilities: ['instance.snapshot'] });
    assert.equal(welcome.epoch, 1n);
    await enqueue('story', 'story/1');
    const received = await agent.expect('command');
    const root = (await testBundle()).commandSigning;
    assert.ok(root !== undefined && received.signature !== undefined);
    const signer = verifyIntent({ purpose: 'command', body: received.body, signature: received.signature, roots: [root.certificate.der], now: Date.now(), required: true });
    assert.notEqual(signer, null);
    assert.equal(decodeMessage(CommandBodySchema, received.body, 'commandBody').commandId, 'story/1');
    agent.send({ frame: { case: 'commandAck', value: { commandId: 'story/1', seq: received.seq } } });
    await eventually('the ack is stored', async () => (await findCommand(used.db, 'story/1'))?.state === 'acked');
    agent.send(resultOf('story/1', received));
    assert.equal((await agent.expect('resultReceipt')).commandId, 'story/1');
    assert.equal((await findCommand(used.db, 'story/1'))?.state, 'done');
    const [node] = await used.db.query<{ labels: Record<string, string> }>({ text: `select labels from nodes where id = 'story'` });
    assert.deepEqual(node?.labels, { 'bc.dev/cap.instance.snapshot': '1' }, 'SKEW-005');
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
    assert.deepEqual(seqs, [[2n, 2n], [3n, 2n]]);
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

  it('ends in the database what it left open when it died', async () => {
    const { gateway, port } = await start('gw-1');
    const leaf = await enrolled('left');
    const { agent } = await openAgent({ port, leaf });
    // As after a kill: the row stays.
    gateway.sessions.destroyAll();
    agent.close();
    await used.db.query({ text: `update node_sessions set ended_at = null where node_id = 'left'` });
    await start('gw-1');
    const rows = await used.db.query<{ reason: string }>({ text: `select end_reason as reason from node_sessions where node_id = 'left' and ended_at is null` });
    assert.deepEqual(rows, []);
  });
});

describe('the listening connection', function () {
  this.timeout(60_000);
  const used = useDatabase();
  let proxy: Server;
  const sockets = new Set<Socket>();
  let isBlackHole = false;
  let proxied: string;
  before(async () => {
    const target = new URL(used.url);
    const host = target.searchParams.get('host') ?? target.hostname;
    const path = host.startsWith('/') ? `${host}/.s.PGSQL.${target.port || 5432}` : null;
    proxy = createServer((client) => {
      const server = path === null ? tcpConnect(Number(target.port || 5432), host) : tcpConnect(path);
      for (const [from, to] of [[client, server], [server, client]] as const) {
        sockets.add(from);
        from.on('data', (chunk: Buffer) => void (isBlackHole || to.write(chunk)));
        from.on('error', () => undefined);
        from.on('close', () => {
          sockets.delete(from);
          to.destroy();
        });
      }
    });
    await new Promise<void>((resolve) => void proxy.listen(0, '127.0.0.1', resolve));
    const url = new URL(used.url);
    url.searchParams.delete('host');
    url.hostname = '127.0.0.1';
    url.port = String((proxy.address() as AddressInfo).port);
    proxied = url.href;
  });
  after(() => {
    for (const socket of sockets) socket.destroy();
    proxy.close();
  });

  it('B65, B67, B68 hears pokes, is never in a transaction, notices a cut and a silent death, listens again and sweeps', async () => {
    const scheduler = new ManualScheduler();
    const heard: unknown[] = [];
    const lost: string[] = [];
    const connect = async (): Promise<pg.Client> => {
      const client = new pg.Client({ connectionString: proxied, application_name: 'listener-under-test' });
      await client.connect();
      return client;
    };
    const notifications = new Notifications({
      gatewayId: 'gw-1',
      scheduler,
      connect,
      onPoke: (nodeIds) => void heard.push(nodeIds),
      onTrust: () => void heard.push('trust'),
      onRevocation: () => void heard.push('revocation'),
      onLost: (error) => void lost.push((error as Error).message),
    });
    const notify = (channel: string, payload: string): Promise<unknown> => used.db.query({ text: 'select pg_notify($1, $2)' }, [channel, payload]);
    const hears = async (what: unknown): Promise<void> => {
      await eventually(`hears ${JSON.stringify(what)}`, () => heard.some((one) => JSON.stringify(one) === JSON.stringify(what)));
      heard.length = 0;
    };
    notifications.start();
    await hears('sweep');
    await notify('bc_gateway', '["a","b"]');
    await hears(['a', 'b']);
    await notify('bc_trust', '');
    await hears('trust');
    await notify('bc_revocation', '');
    await hears('revocation');
    const [state] = await used.db.query<{ open: boolean }>({ text: `select xact_start is not null as open from pg_stat_activity where application_name = 'listener-under-test'` });
    assert.equal(state?.open, false);
    // The canary comes back: nothing happens.
    scheduler.advance(listenTiming.canaryMs);
    await eventually('the canary is back', () => scheduler.pending === 1 && notifications.isListening);
    await turns(50);
    assert.deepEqual(lost, []);
    // Cut by the server.
    await used.db.query({ text: `select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'listener-under-test'` });
    await eventually('the cut is noticed', () => lost.length > 0);
    scheduler.advance(listenTiming.retryMaxMs);
    await hears('sweep');
    // Kept open to nowhere: only the canary tells.
    lost.length = 0;
    await eventually('it listens again', () => notifications.isListening);
    isBlackHole = true;
    scheduler.advance(listenTiming.canaryMs);
    await turns(20);
    scheduler.advance(listenTiming.answerWithinMs);
    assert.deepEqual(lost, ['the canary did not come back']);
    isBlackHole = false;
    scheduler.advance(listenTiming.retryMaxMs);
    await hears('sweep');
    await eventually('it listens again', () => notifications.isListening);
    await notifications.close();
  });
});
