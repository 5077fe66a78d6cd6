/** Who may call what, and who the gateway then takes the caller for. */
import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { encodePem, issueCa, issueLeaf, signerFromPrivateKey, spkiOf, tpmAkUri } from '../../pki/x509/index.ts';
import { AgentFrameSchema, encodeMessage, RenewRequestSchema } from '../../proto/index.ts';
import {
  type CallEnd,
  createAuthorities,
  dial,
  helloFrame,
  nodeLeaf,
  openAgent,
  servicePath,
  TestAgent,
  type TestAuthorities,
  TestCall,
  type TestLeaf,
  trustDomain,
} from '../harness/agent.ts';
import { projectRoot, sourcesOf } from '../harness/imports.ts';
import { startTcpProxy } from '../harness/tcp-proxy.ts';
import { type RunningGateway, startGateway } from './start-gateway.ts';

describe('calls to the gateway', () => {
  let running: RunningGateway;
  let authorities: TestAuthorities;
  let leaf: TestLeaf;
  before(async () => {
    running = await startGateway();
    authorities = running.authorities;
    leaf = await nodeLeaf(authorities, 'node-1');
  });
  after(() => running.gateway.close());

  const requests: Readonly<Record<string, () => Uint8Array>> = {
    Join: () => Buffer.from('anything'),
    Renew: () => encodeMessage(RenewRequestSchema, { chain: [...leaf.chain] }, 'renewRequest'),
    Session: () => encodeMessage(AgentFrameSchema, helloFrame(), 'agentFrame'),
  };

  async function end(path: string, client: TestLeaf | null): Promise<CallEnd> {
    const session = dial({ port: running.port, leaf: client });
    const call = new TestCall(session, `${servicePath}/${path}`);
    call.send(requests[path]?.() ?? new Uint8Array());
    if (path === 'Session' && client !== null) await call.next();
    call.halfClose();
    const ended = await call.ended;
    session.destroy();
    return ended;
  }

  it('TRN-014 Join needs no certificate; Renew and Session do', async () => {
    const ends: Record<string, [without: number | null, with_: number | null]> = {};
    for (const path of Object.keys(requests)) ends[path] = [(await end(path, null)).status, (await end(path, leaf)).status];
    assert.deepEqual(ends, { Join: [0, 0], Renew: [16, 0], Session: [16, 0] });
    assert.equal((await end('Session', null)).reason, 'no-client-certificate');
  });

  it('TRN-012 takes certificates of its own node CA alone, whatever the root above another one is', async () => {
    const key = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
    const { der } = await issueCa({ profile: 'nodeCa', trustDomain, spki: spkiOf(key), issuer: authorities.root, now: authorities.now });
    const otherRegion = { certificate: der, signer: signerFromPrivateKey(key) };
    const stranger = await nodeLeaf(authorities, 'node-1', { ca: otherRegion });
    const withRoot = { ...stranger, chainPem: stranger.chainPem + encodePem('CERTIFICATE', authorities.root.certificate) };
    for (const client of [stranger, withRoot]) {
      const { status, reason } = await end('Session', client);
      assert.deepEqual([status, reason], [16, 'client-certificate-invalid']);
    }
  });

  it('TRN-001 speaks the one protocol with every role of an agent', async () => {
    for (const profile of ['node', 'site', 'ramdisk'] as const) {
      const { agent, welcome } = await openAgent({ port: running.port, leaf: await nodeLeaf(authorities, `role-${profile}`, { profile }) });
      assert.equal(welcome.protocolVersion, 1);
      assert.equal(running.store.openOf(`role-${profile}`)?.role, profile);
      agent.close();
    }
  });

  it('TRN-042 ID-005 takes node and role from the certificate, past its statements, and never from a frame', async () => {
    const key = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
    const { der } = await issueLeaf({
      ca: authorities.nodeCa,
      profile: 'node',
      spki: spkiOf(key),
      identity: { trustDomain, siteId: 'site-1', nodeId: 'stated' },
      sans: { uris: [tpmAkUri(Buffer.concat([Buffer.from([0x00, 0x0b]), Buffer.alloc(32, 7)]))] },
      lifetimeMs: 3_600_000,
      now: authorities.now,
    });
    const chainPem = [der, authorities.nodeCa.certificate].map((one) => encodePem('CERTIFICATE', one)).join('');
    const stated = { ...leaf, chainPem, keyPem: String(key.export({ type: 'pkcs8', format: 'pem' })) };
    const { agent } = await openAgent(
      { port: running.port, leaf: stated },
      { role: 'site', daemonVersion: 'spiffe://x/site/s/node/other' },
    );
    assert.equal(running.store.openOf('stated')?.role, 'node');
    agent.close();
  });

  it('TRN-007 sees the client’s certificate through a TCP load balancer: TLS ends here', async () => {
    const proxy = await startTcpProxy(running.port);
    const { agent } = await openAgent({ port: proxy.port, leaf });
    assert.equal(running.store.openOf('node-1')?.certSerial, leaf.serial);
    assert.equal(proxy.accepted, 1);
    agent.close();
    await proxy.close();
  });

  it('FRM-003 both ends send when they have something to say, in no turn', async () => {
    const node = await nodeLeaf(authorities, 'talker');
    const { agent } = await openAgent({ port: running.port, leaf: node });
    // All at once, before an answer to any of it was read.
    for (let n = 1; n <= 3; n += 1) running.store.enqueue('talker', { id: `talk-${n}` });
    agent.send({ frame: { case: 'heartbeat', value: { sequence: 1n } } });
    agent.send({ frame: { case: 'status', value: { trustVersion: 1n } } });
    running.gateway.sessions.poke(['talker']);
    agent.send({ frame: { case: 'heartbeat', value: { sequence: 2n } } });
    const seen: string[] = [];
    while (seen.length < 5) {
      const frame = (await agent.next())?.frame;
      assert.ok(frame?.case === 'heartbeatAck' || frame?.case === 'command', frame?.case);
      seen.push(frame.case === 'command' ? `command ${frame.value.seq}` : `ack ${frame.value.sequence}`);
    }
    assert.deepEqual(
      seen.filter((one) => one.startsWith('command')),
      ['command 1', 'command 2', 'command 3'],
    );
    assert.deepEqual(
      seen.filter((one) => one.startsWith('ack')),
      ['ack 1', 'ack 2'],
    );
    agent.close();
  });

  it('TRN-015 is gRPC on node:http2 alone: no framework is a dependency, and no source of ours imports one', () => {
    const { dependencies } = JSON.parse(readFileSync(join(projectRoot, 'package.json'), 'utf8')) as {
      dependencies: Record<string, string>;
    };
    const framework = /^(@grpc\/|@connectrpc\/|nice-grpc|grpc)/;
    assert.deepEqual(
      Object.keys(dependencies).filter((name) => framework.test(name)),
      [],
    );
    for (const file of [...sourcesOf('gateway'), ...sourcesOf('daemon')])
      assert.doesNotMatch(readFileSync(join(projectRoot, file), 'utf8'), /from '(@grpc\/|@connectrpc\/|nice-grpc|grpc)/, file);
  });
});

describe('a gateway with a range of protocol versions', () => {
  const gateways: RunningGateway[] = [];
  afterEach(async () => {
    for (const { gateway } of gateways.splice(0)) await gateway.close();
  });
  const start = async (over: Parameters<typeof startGateway>[0] = {}): Promise<RunningGateway> => {
    const running = await startGateway(over);
    gateways.push(running);
    return running;
  };

  it('SKEW-003 SKEW-018 SKEW-022 speaks version 1 unless it is told a range, and says version and capabilities in Welcome', async () => {
    const authorities = await createAuthorities();
    const leaf = await nodeLeaf(authorities, 'node-1');
    const versions: unknown[] = [];
    for (const over of [{}, { protocol: { min: 1, max: 3 } }, { protocol: { min: 2, max: 3 } }]) {
      const { port } = await start({ authorities, ...over });
      for (const protoMax of [1, 2]) {
        const { agent, welcome } = await openAgent({ port, leaf }, { protoMin: 1, protoMax });
        versions.push([welcome.protocolVersion, welcome.upgradeRequired]);
        assert.deepEqual(welcome.capabilities, ['delivery.cursor', 'trust.midsession', 'drain.slots']);
        agent.close();
      }
    }
    assert.deepEqual(versions, [
      [1, false],
      [1, false],
      [1, false],
      [2, false],
      [2, true],
      [2, false],
    ]);
  });

  it('SKEW-014 SKEW-027 SKEW-039 sends a daemon below the range its upgrade; everything else stays in the log', async () => {
    const { port, store, authorities, gateway } = await start({ protocol: { min: 2, max: 3 } });
    store.desired.set('node-1', { generation: 1, body: new Uint8Array([1]), signature: store.trust?.signature ?? new Uint8Array() });
    store.enqueue('node-1', { id: 'ordinary' });
    store.enqueue('node-1', { id: 'upgrade', kind: 'daemon.upgrade' });
    const agent = new TestAgent({ port, leaf: await nodeLeaf(authorities, 'node-1') });
    agent.hello({ daemonVersion: '0.0.1' });
    assert.equal((await agent.expect('welcome')).upgradeRequired, true);
    assert.equal((await agent.expect('command')).seq, 2n);
    gateway.sessions.poke(['node-1']);
    agent.send({ frame: { case: 'heartbeat', value: { sequence: 1n } } });
    await agent.expect('heartbeatAck');
    assert.equal(store.stateOf('ordinary'), 0);
    agent.close();
  });
});
