/** Daemons on a WebSocket with the gateway's own code, directly and through proxies that take TLS apart. */
import assert from 'node:assert/strict';
import { createPrivateKey } from 'node:crypto';
import { create, toBinary } from '@bufbuild/protobuf';
import { renewIdentity } from '../../daemon/agent/renewal.ts';
import type { ProxyEnvironment } from '../../daemon/transport/websocket/proxy.ts';
import { webSocketRoute } from '../../daemon/transport/websocket/route.ts';
import { hour, minute, second } from '../../domain/time.ts';
import { certificateRefOf } from '../../gateway/tls/peer.ts';
import { storedDesiredState } from '../../pki/envelope/index.ts';
import { readNodeProof, signGatewayProof } from '../../pki/handshake/index.ts';
import { parseCertificate, parseCsr, parsePemCertificates, signerFromPrivateKey, verifyChain } from '../../pki/x509/index.ts';
import { decodeMessage, encodeMessage, NodeSpecSchema, RenewRequestSchema, RenewResponseSchema } from '../../proto/index.ts';
import { enqueueSigned, publishTrust, startRealGateway } from '../daemon/real-gateway.ts';
import { setStage } from '../daemon/stage.ts';
import type { Member, MemberOptions } from '../fakes/fleet.ts';
import { MemoryStore } from '../gateway/memory-store.ts';
import { type NodeInit, nodeChain } from '../harness/deployment.ts';
import { eventually } from '../harness/eventually.ts';
import { startConnectProxy, startTlsProxy, type TlsProxy } from './proxy.ts';

describe('a session over a WebSocket', function () {
  this.timeout(30_000);
  const stage = setStage();

  async function gatewayWith(store = new MemoryStore()) {
    await publishTrust(stage.deployment, store, { version: 1, roots: [stage.deployment.rootA] });
    const services = { join: async (request: Uint8Array) => request, renew };
    const running = await startRealGateway(stage.deployment, { store, services });
    stage.running.push(running);
    const { port } = await running.gateway.listenWebSocket({ host: '127.0.0.1', port: 0 });
    return { ...running, store, wsPort: port };
  }

  async function renew(bytes: Uint8Array, peer: { chain: readonly Uint8Array[] }): Promise<Uint8Array> {
    const { csr, chain } = decodeMessage(RenewRequestSchema, bytes, 'renewRequest');
    assert.deepEqual(peer.chain, chain);
    const renewed = await nodeChain(stage.deployment, { nodeId: 'node-1', spki: parseCsr(csr).spki, now: Date.now() + 2 * second });
    return encodeMessage(RenewResponseSchema, { chain: renewed, serverTimeMs: BigInt(Date.now()) }, 'renewResponse');
  }

  interface At extends Partial<MemberOptions> {
    readonly port: number;
    readonly proxyCa?: string;
    readonly env?: ProxyEnvironment;
    readonly node?: Partial<NodeInit>;
  }
  const routeTo = (port: number, { proxyCa, env = {} }: Pick<At, 'proxyCa' | 'env'> = {}) =>
    webSocketRoute({ url: `wss://127.0.0.1:${port}`, proxyCa: proxyCa ?? null, env });
  const daemonAt = ({ port, proxyCa, env = {}, ...options }: At): Promise<Member> =>
    stage.daemonAt('https://127.0.0.1:1', { route: routeTo(port, { env, ...(proxyCa === undefined ? {} : { proxyCa }) }), ...options });

  const connected = (member: Member): Promise<void> =>
    eventually('it is connected', () => member.agent.link.current !== undefined).then(() => undefined);

  it('WS-001 WS-007 WS-033 carries Hello, Welcome, the bundle, a signed command, its result and the desired state, with no client certificate in TLS', async () => {
    const { store, wsPort } = await gatewayWith();
    const { workerA, trustDomain } = stage.deployment;
    const spec = toBinary(NodeSpecSchema, create(NodeSpecSchema, {}));
    store.desired.set('node-1', {
      generation: 1,
      ...(await storedDesiredState(workerA, { nodeId: 'node-1', generation: 1, trustDomain, spec })),
    });
    const member = await daemonAt({ port: wsPort });
    await connected(member);
    await eventually('it has its desired state', () => member.agent.state.spec.current?.generation === 1n);
    const id = await enqueueSigned(stage.deployment, store, { nodeId: 'node-1', id: 'ws/1', expiresAtMs: Date.now() + hour });
    await eventually('the result is stored', () => store.results.has(id));
    assert.equal(member.effects.get(id), 1);
    await publishTrust(stage.deployment, store, { version: 2, roots: [stage.deployment.rootA, stage.deployment.rootB] });
    await eventually('the bundle comes in mid-session', () => member.agent.state.held().version === 2);
    assert.equal(store.sessions.length, 1);
  });

  it('WS-003 WS-004 WS-006 sends no command without a signature, on this or any session: it is settled as malformed, and what is signed runs', async () => {
    const { store, wsPort, gateway } = await gatewayWith();
    const unsigned = store.enqueue('node-1', { id: 'ws/unsigned' });
    Object.assign(unsigned, { signature: null });
    const member = await daemonAt({ port: wsPort });
    await connected(member);
    const id = await enqueueSigned(stage.deployment, store, { nodeId: 'node-1', id: 'ws/signed' });
    gateway.sessions.poke(['node-1']);
    await eventually('the signed one ran', () => member.effects.get(id) === 1);
    assert.equal(member.effects.has('ws/unsigned'), false);
    assert.equal(store.log.get('node-1')?.find(({ command }) => command.id === 'ws/unsigned')?.rejectReason, 'malformed');
  });

  it('WS-005 WS-018 WS-022 WS-023 WS-030 goes through a proxy that takes TLS apart: by its authority for the transport, by the proofs for who speaks', async () => {
    const { store, wsPort } = await gatewayWith();
    const proxy = await startTlsProxy({ to: wsPort });
    stage.running.push(proxy);
    const without = await daemonAt({ port: proxy.port, node: { nodeId: 'node-2' } });
    await eventually('without its authority nothing is said to it', () => without.status().lastFailure?.reason === 'wrong-pin');
    assert.equal(proxy.seen.length, 0);
    const member = await daemonAt({ port: proxy.port, proxyCa: proxy.ca });
    await connected(member);
    const id = await enqueueSigned(stage.deployment, store, { nodeId: 'node-1', id: 'ws/proxied' });
    await eventually('the result is stored', () => store.results.has(id));
    assert.ok(Buffer.concat(proxy.seen).includes('GET /v1/session HTTP/1.1'), 'the proxy read everything');
  });

  it('WS-005 a proxy that alters a command is found out by its signature, and one that answers for the gateway by its proof', async () => {
    const { store, wsPort } = await gatewayWith();
    let isAltering = false;
    const proxy = await startTlsProxy({
      to: wsPort,
      change(chunk) {
        const at = isAltering ? chunk.indexOf('ws/alter') : -1;
        if (at < 0) return chunk;
        const changed = Buffer.from(chunk);
        changed.write('ws/elter', at);
        return changed;
      },
    });
    stage.running.push(proxy);
    const member = await daemonAt({ port: proxy.port, proxyCa: proxy.ca });
    await connected(member);
    isAltering = true;
    await enqueueSigned(stage.deployment, store, { nodeId: 'node-1', id: 'ws/alter' });
    await eventually('it is refused', () => store.log.get('node-1')?.[0]?.rejectReason === 'bad-signature');
    assert.equal(member.effects.size, 0);

    const gullible = await startTlsProxy({
      to: wsPort,
      change: (chunk) => Buffer.from(chunk.toString('latin1').replace(/x-bc-gateway-proof: .*\r\n/, ''), 'latin1'),
    });
    stage.running.push(gullible);
    const other = await daemonAt({ port: gullible.port, proxyCa: gullible.ca, node: { nodeId: 'node-2' } });
    await eventually('nothing was proven', () => other.status().lastFailure?.reason === 'gateway-unproven');
    assert.equal(
      store.sessions.some(({ nodeId, endedAs }) => nodeId === 'node-2' && endedAs === null),
      false,
    );
  });

  /** A proxy that puts its own header in the place of the gateway's proof. */
  async function proxyThatProves(to: number, prove: (nodeProof: string, proxy: TlsProxy) => string | Promise<string>): Promise<TlsProxy> {
    const made: TlsProxy = await startTlsProxy({
      to,
      async change(chunk, asked) {
        const text = chunk.toString('latin1');
        const nodeProof = /x-bc-node-proof: (\S+)/.exec(asked.toString('latin1'))?.[1] ?? '';
        if (!text.startsWith('HTTP/1.1 101')) return chunk;
        return Buffer.from(text.replace(/(x-bc-gateway-proof: )\S+/, `$1${await prove(nodeProof, made)}`), 'latin1');
      },
    });
    stage.running.push(made);
    return made;
  }

  it('WS-023 a proof by a chain of another authority is not the gateway, whatever it signs', async () => {
    const { wsPort } = await gatewayWith();
    const proxy = await proxyThatProves(wsPort, (nodeProof, { chain, privateKey }) => {
      const { nonce } = readNodeProof(nodeProof);
      const statement = { trustDomain: stage.deployment.trustDomain, nodeId: 'node-1', nonce, timeMs: BigInt(Date.now()) };
      return signGatewayProof({ signer: signerFromPrivateKey(privateKey), chain }, statement);
    });
    const member = await daemonAt({ port: proxy.port, proxyCa: proxy.ca });
    await eventually('it is not believed', () => member.status().lastFailure?.reason === 'wrong-pin');
    assert.equal(member.agent.link.current, undefined);
  });

  const wrong: readonly (readonly [string, { nonce?: Uint8Array; nodeId?: string; timeMs?: number }, string])[] = [
    ['WS-024 another nonce', { nonce: new Uint8Array(32) }, 'bad-signature'],
    ['WS-024 another node', { nodeId: 'node-2' }, 'bad-signature'],
    ['WS-025 a time of 61 s ago', { timeMs: -61 * second }, 'clock-skew'],
    ['WS-025 a time in 61 s', { timeMs: 62 * second }, 'clock-skew'],
  ];
  for (const [what, { timeMs = 0, ...change }, reason] of wrong)
    it(`${what}: the gateway's own key proves nothing by it`, async () => {
      const { wsPort } = await gatewayWith();
      const { key, cert } = stage.deployment.serving;
      const serving = { signer: signerFromPrivateKey(createPrivateKey(key)), chain: parsePemCertificates(cert) };
      const proxy = await proxyThatProves(wsPort, (nodeProof) => {
        const { nonce } = readNodeProof(nodeProof);
        const { trustDomain } = stage.deployment;
        return signGatewayProof(serving, { trustDomain, nodeId: 'node-1', nonce, timeMs: BigInt(Date.now() + timeMs), ...change });
      });
      const member = await daemonAt({ port: proxy.port, proxyCa: proxy.ca });
      await eventually('it is not believed', () => member.status().lastFailure?.reason === reason);
      assert.equal(member.agent.link.current, undefined);
    });

  for (const offMs of [-2 * hour, -90 * second, 90 * second, 2 * hour])
    it(`a machine whose clock is ${offMs / second} s off is told the time, says it back and learns it`, async () => {
      const { wsPort } = await gatewayWith();
      const source = { wallMs: () => Date.now() + offMs, steadyMs: () => performance.now() };
      const member = await daemonAt({ port: wsPort, source });
      await connected(member);
      assert.ok(Math.abs(member.agent.state.clock.now() - Date.now()) < minute / 2);
    });

  it('WS-019 dials through the CONNECT proxy of the environment, and past it where NO_PROXY says so', async () => {
    const { wsPort } = await gatewayWith();
    const proxy = await startConnectProxy({ login: 'bcd:secret' });
    stage.running.push(proxy);
    await connected(await daemonAt({ port: wsPort, env: { HTTPS_PROXY: proxy.url } }));
    assert.deepEqual(proxy.asked, [`127.0.0.1:${wsPort}`]);
    await connected(await daemonAt({ port: wsPort, env: { HTTPS_PROXY: proxy.url, NO_PROXY: '127.0.0.1' }, node: { nodeId: 'node-2' } }));
    assert.equal(proxy.asked.length, 1);
    const closed = await startConnectProxy({ status: 403 });
    stage.running.push(closed);
    const refused = await daemonAt({ port: wsPort, env: { HTTPS_PROXY: closed.url }, node: { nodeId: 'node-3' } });
    await eventually('it says what the proxy answered', () =>
      /through the proxy .* it answered 403/.test(refused.status().lastFailure?.detail ?? ''),
    );
  });

  it('WS-010 WS-012 WS-026 WS-027 renews over POST /v1/renew, and dials again with the new certificate', async () => {
    const { store, wsPort } = await gatewayWith();
    const member = await daemonAt({ port: wsPort });
    await connected(member);
    const before = parseCertificate(member.identity().identity.chain[0] as Uint8Array).serial;
    await member.agent.renewal.renewNow();
    const after = parseCertificate(member.identity().identity.chain[0] as Uint8Array).serial;
    assert.notEqual(after, before);
    await eventually('the next session is under the new one', () => store.sessions.at(-1)?.certSerial === after);
  });

  it('WS-029 does not dial without a command root, and says so', async () => {
    const { store, wsPort } = await gatewayWith();
    const member = await daemonAt({ port: wsPort, node: { trust: { version: 1, roots: [] } } });
    await eventually('it says why', () => /no command-signing root/.test(member.status().lastFailure?.detail ?? ''));
    assert.equal(store.sessions.length, 0);
  });

  it('B56 B57 REV-013 a revoked node is told in its session, and refused by its reason at the next dial and at POST /v1/renew', async () => {
    const { store, wsPort, gateway } = await gatewayWith();
    const member = await daemonAt({ port: wsPort });
    await connected(member);
    const { chain } = member.identity().identity;
    const verified = verifyChain(chain, { anchors: [stage.deployment.bundle.nodeCa.certificate.der], purpose: 'client', now: Date.now() });
    const { issuer, serial } = certificateRefOf(verified);
    store.revocations.push({
      seq: 1,
      nodeId: 'node-1',
      issuer,
      serial,
      reason: 'lost',
      revokedAt: Date.now(),
      notAfter: Date.now() + hour,
    });
    await gateway.revocations.poll();
    await eventually('it was told', () => member.status().lastFailure?.reason === 'revoked');
    const end = await member.agent.ended;
    assert.equal(end.kind, 'parked');
    const { identity, key } = member.identity();
    const context = { identity, client: { chain, key }, now: Date.now(), timeoutMs: 5 * second, signal: new AbortController().signal };
    const renewal = renewIdentity(member.identity(), {
      clock: member.agent.state.clock,
      attest: async () => new Uint8Array(),
      call: (request) => routeTo(wsPort).renew(request, context),
    });
    await assert.rejects(renewal, { code: 'REVOKED' });
  });

  it('B37 B38 leaves on Drain and finds the next gateway; tunnels are refused where there is no HTTP/2 (WS-028)', async () => {
    const { store, wsPort, gateway } = await gatewayWith();
    const member = await daemonAt({ port: wsPort });
    await connected(member);
    assert.equal(gateway.sessions.find('node-1')?.stream.session, undefined);
    await gateway.drain({ windowMs: 50, endAfterMs: 200 });
    await eventually('the session ended in order', () => store.sessions[0]?.endedAs !== null);
    assert.equal(gateway.sessions.size, 0);
  });
});
