import assert from 'node:assert/strict';
import { databaseLimits } from '../../gateway/session/database-watch.ts';
import { encodeMessage, RenewRequestSchema } from '../../proto/index.ts';
import { dial, nodeLeaf, openAgent, servicePath, TestAgent, TestCall } from '../harness/agent.ts';
import { eventually } from '../harness/eventually.ts';
import { ManualScheduler, turns } from './manual-scheduler.ts';
import { trustOf } from './memory-store.ts';
import { startGateway } from './start-gateway.ts';

describe('leaving', () => {
  it('B33, B37, B38 tells every daemon its own slot before anything else, and gives none a new command', async () => {
    const scheduler = new ManualScheduler();
    const { gateway, port, authorities, store } = await startGateway({ scheduler });
    const opened = await Promise.all(
      Array.from({ length: 20 }, async (_, at) => openAgent({ port, leaf: await nodeLeaf(authorities, `node-${at}`) })),
    );
    const draining = gateway.drain({ windowMs: 10_000, endAfterMs: 12_000 });
    const slots = await Promise.all(opened.map(async ({ agent }) => agent.expect('drain')));
    assert.deepEqual(
      slots.map(({ afterMs }) => afterMs).sort((a, b) => a - b),
      Array.from({ length: 20 }, (_, at) => at * 500),
    );
    assert.ok(
      slots.every(({ windowMs }) => windowMs === 500),
      'no tenth of the window gets more than its share',
    );
    store.enqueue('node-3', { id: 'late' });
    gateway.sessions.poke('sweep');
    await turns();
    assert.equal(gateway.notReady(), 'the listener is closed');
    // Those that leave end well; one that stays is ended with a wait.
    for (const { agent } of opened.slice(1)) agent.call.halfClose();
    for (const { agent } of opened.slice(1)) assert.equal((await agent.ended).status, 0);
    for (let second = 0; second < 12; second += 1) {
      scheduler.advance(1_000);
      await turns(3);
    }
    const [stayed] = opened;
    const end = await (stayed as (typeof opened)[number]).agent.ended;
    assert.deepEqual([end.status, end.reason], [14, 'draining']);
    assert.ok(end.pushbackMs !== null && end.pushbackMs >= 500);
    await draining;
    assert.equal(store.stateOf('late'), 0);
    assert.equal(store.sessions.filter(({ endedAs }) => endedAs === null).length, 0);
    for (const { agent } of opened) agent.close();
  });

  it('B04 closes in time with many sessions, and every client saw GOAWAY', async () => {
    const { gateway, port, authorities } = await startGateway();
    const opened = await Promise.all(
      Array.from({ length: 100 }, async (_, at) => openAgent({ port, leaf: await nodeLeaf(authorities, `node-${at}`) })),
    );
    let goaways = 0;
    for (const { agent } of opened) agent.session.once('goaway', () => void (goaways += 1));
    await gateway.close();
    await eventually('all clients are told', () => goaways === 100);
    for (const { agent } of opened) assert.equal((await agent.ended).status, 14);
    await gateway.close();
  }).timeout(60_000);

  it('B51 the newer session wins, whatever gateway it is on, and the older hears ABORTED', async () => {
    const first = await startGateway();
    const second = await startGateway({ store: first.store, authorities: first.authorities, gatewayId: 'gw-2' });
    const leaf = await nodeLeaf(first.authorities, 'node-1');
    const { agent: older } = await openAgent({ port: first.port, leaf });
    const { agent: newer, welcome } = await openAgent({ port: second.port, leaf });
    assert.equal(welcome.epoch, 2n);
    first.store.enqueue('node-1', { id: 'a' });
    first.gateway.sessions.poke('sweep');
    second.gateway.sessions.poke('sweep');
    const end = await older.ended;
    assert.deepEqual([end.status, end.reason], [10, 'superseded']);
    assert.equal((await newer.expect('command')).epoch, 2n);
    assert.deepEqual(older.call.messages, []);
    for (const agent of [older, newer]) agent.close();
    await Promise.all([first.gateway.close(), second.gateway.close()]);
  });

  it('B40 keeps sessions while the database is away, refuses new ones after a while, releases the old ones much later, spread', async () => {
    const scheduler = new ManualScheduler();
    const { gateway, port, authorities, store } = await startGateway({ scheduler });
    const leaf = await nodeLeaf(authorities, 'node-1');
    const { agent } = await openAgent({ port, leaf });
    store.takeAway();
    const beat = async (): Promise<void> => {
      scheduler.advance(1_000);
      agent.send({ frame: { case: 'heartbeat', value: { sequence: 1n } } });
      await turns(4);
    };
    for (let second = 0; second < 13; second += 1) await beat();
    assert.match(String(gateway.notReady()), /^the database is away for \d+ s$/);
    const refused = new TestAgent({ port, leaf: await nodeLeaf(authorities, 'node-2') });
    assert.equal((await refused.ended).reason, 'database-unavailable');
    refused.close();
    for (let second = 0; second < databaseLimits.releaseAfterMs / 1_000; second += 1) await beat();
    assert.equal((await agent.until('drain')).reason, 'database-unavailable');
    store.bringBack();
    for (let second = 0; second < 6; second += 1) await beat();
    assert.equal(gateway.notReady(), null);
    (await openAgent({ port, leaf })).agent.close();
    agent.close();
    await gateway.close();
  }).timeout(60_000);

  it('REV-012, REV-013, B56 a revoked node is told, ended, and refused at its next dial', async () => {
    const scheduler = new ManualScheduler();
    const { gateway, port, authorities, store } = await startGateway({ scheduler });
    const leaf = await nodeLeaf(authorities, 'node-1');
    const { agent } = await openAgent({ port, leaf });
    store.revoke(leaf.issuer, leaf.serial);
    scheduler.advance(1_000);
    assert.equal((await agent.expect('revocation')).serial, leaf.serial);
    const end = await agent.ended;
    assert.deepEqual([end.status, end.reason], [7, 'revoked']);
    // The same connection, another stream: judged anew.
    const again = new TestCall(agent.session, `${servicePath}/Session`);
    assert.equal((await again.ended).reason, 'revoked');
    const renew = new TestCall(dial({ port, leaf }), `${servicePath}/Renew`);
    renew.send(encodeMessage(RenewRequestSchema, { chain: [...leaf.chain] }, 'renewRequest'));
    renew.halfClose();
    assert.equal((await renew.ended).reason, 'revoked', 'B57: every way in is judged');
    renew.stream.session?.destroy();
    agent.close();
    await gateway.close();
  });

  it('H-11 C53 a certificate that expires on an open connection opens no further stream, and its session is sent to dial again', async () => {
    const scheduler = new ManualScheduler();
    const { gateway, port, authorities } = await startGateway({ scheduler });
    const leaf = await nodeLeaf(authorities, 'node-1', { lifetimeMs: 60_000 });
    const { agent } = await openAgent({ port, leaf });
    for (let second = 0; second < 55; second += 5) {
      scheduler.advance(5_000);
      agent.send({ frame: { case: 'heartbeat', value: { sequence: 1n } } });
      await agent.expect('heartbeatAck');
    }
    scheduler.advance(8_000);
    assert.equal((await agent.ended).reason, 'draining');
    const again = new TestCall(agent.session, `${servicePath}/Session`);
    assert.equal((await again.ended).reason, 'client-certificate-expired');
    agent.close();
    await gateway.close();
  });

  it('ROT-016 tells every open session of a new bundle within a poll, and of one published while it was being welcomed', async () => {
    const scheduler = new ManualScheduler();
    const { gateway, port, authorities, store } = await startGateway({ scheduler });
    const { agent } = await openAgent({ port, leaf: await nodeLeaf(authorities, 'node-1') });
    store.trust = trustOf(2);
    scheduler.advance(1_000);
    assert.equal(new TextDecoder().decode((await agent.expect('welcome')).trust?.body), 'trust-2');
    agent.send({ frame: { case: 'status', value: { trustVersion: 2n } } });
    await eventually('the report is written soon', () => {
      scheduler.advance(100);
      return store.openOf('node-1')?.reportedTrust === 2;
    });
    agent.send({ frame: { case: 'status', value: { trustVersion: 1n } } });
    agent.send({ frame: { case: 'heartbeat', value: { sequence: 1n } } });
    await agent.expect('heartbeatAck');
    scheduler.advance(20_000);
    await turns();
    assert.equal(store.openOf('node-1')?.reportedTrust, 2, 'ROT-019');
    agent.close();
    await gateway.close();
  });
});
