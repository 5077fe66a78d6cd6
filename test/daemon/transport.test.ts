import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { createServer, type Server } from 'node:net';
import type { AddressInfo } from 'node:net';
import fc from 'fast-check';
import { ControlError } from '../../domain/errors.ts';
import { day, hour, minute } from '../../domain/time.ts';
import { encodePem, issueLeaf, spkiOf, spkiPin } from '../../pki/x509/index.ts';
import { backoffLimits, freshBackoff, nextDial } from '../../daemon/transport/backoff.ts';
import { frameMessage, MessageCutter } from '../../daemon/transport/grpc-message.ts';
import { refusalFacts, refusalOf } from '../../daemon/transport/grpc-status.ts';
import { dialPinned, type GatewayAddress } from '../../daemon/transport/pinned-connection.ts';
import { sessionTiming } from '../../daemon/transport/session-stream.ts';
import { type Member, type MemberOptions, startMember } from '../fakes/fleet.ts';
import { commandOf, createDeployment, gatewayName, joinedNode, type TestDeployment } from '../harness/deployment.ts';
import { eventually } from '../harness/eventually.ts';
import { type FakeGateway, type FakeGatewayOptions, startFakeGateway } from '../harness/fake-gateway.ts';
import { startTcpProxy } from '../harness/tcp-proxy.ts';

describe('the way to the gateway', () => {
  let deployment: TestDeployment;
  const running: { stop(): Promise<void> }[] = [];

  before(async () => {
    deployment = await createDeployment();
  });
  afterEach(async () => {
    for (const one of running.splice(0).reverse()) await one.stop();
  });

  const gatewayWith = async (options: Partial<FakeGatewayOptions> = {}): Promise<FakeGateway> => {
    const gateway = await startFakeGateway({ deployment, ...options });
    running.push({ stop: () => gateway.close() });
    return gateway;
  };

  const quick = { ...backoffLimits, baseMs: 5, capMs: 20, heldMs: 0 };

  const daemonAt = async (gatewayUrl: string, options: Partial<MemberOptions> = {}): Promise<Member> => {
    const member = startMember({ identity: await joinedNode(deployment, { gatewayUrl }), limits: quick, ...options });
    running.push(member);
    return member;
  };

  describe('the pinned connection', () => {
    const addressOf = (gateway: { url: string }, over: Partial<GatewayAddress> = {}): GatewayAddress => ({
      gatewayUrl: gateway.url,
      gatewayServerName: gatewayName,
      servingCaPin: spkiPin(deployment.bundle.servingCa.spki),
      ...over,
    });
    const dial = (gateway: GatewayAddress, now = Date.now()) => dialPinned({ gateway, client: null, now, timeoutMs: 5_000 });
    const refusedWith = (code: string, reason: string, message: RegExp) => (error: unknown): boolean => {
      assert.ok(error instanceof ControlError, String(error));
      assert.deepEqual([error.code, error.details['reason']], [code, reason]);
      assert.match(error.message, message);
      return true;
    };

    it('TRN-011 TRN-026 believes the pinned serving CA alone', async () => {
      const gateway = await gatewayWith();
      (await dial(addressOf(gateway))).destroy();
      const other = await createDeployment();
      const wrongPin = addressOf(gateway, { servingCaPin: spkiPin(other.bundle.servingCa.spki) });
      await assert.rejects(dial(wrongPin), refusedWith('PERMISSION_DENIED', 'wrong-pin', /does not come from the pinned serving CA sha256\//));
      const impostor = await gatewayWith({ serving: other.serving });
      await assert.rejects(dial(addressOf(impostor)), refusedWith('PERMISSION_DENIED', 'wrong-pin', /does not come from the pinned serving CA/));
    });

    it('TRN-011 the pinned CA beside a chain that it did not sign proves nothing', async () => {
      const other = await createDeployment();
      const [leaf = ''] = other.serving.cert.split(/(?<=-----END CERTIFICATE-----\n)/);
      const mixed = leaf + encodePem('CERTIFICATE', deployment.bundle.servingCa.certificate.der);
      const gateway = await gatewayWith({ serving: { key: other.serving.key, cert: mixed } });
      // OpenSSL offers the pinned CA only where it fits the leaf by name; either way the gateway is refused.
      await assert.rejects(dial(addressOf(gateway)), (error: ControlError) => error.code === 'BAD_SIGNATURE' || error.code === 'PERMISSION_DENIED');
    });

    it('TRN-029 the certificate must name the server, whatever address was dialled', async () => {
      const gateway = await gatewayWith();
      (await dial(addressOf(gateway, { gatewayServerName: null }))).destroy();
      await assert.rejects(dial(addressOf(gateway, { gatewayServerName: 'gw.other' })), refusedWith('PERMISSION_DENIED', 'server-name', /is not for "gw\.other"/));
    });

    it('TRN-025 speaks TLS 1.3 only', async () => {
      const gateway = await gatewayWith({ minVersion: 'TLSv1.2', maxVersion: 'TLSv1.2' });
      await assert.rejects(dial(addressOf(gateway)), refusedWith('UNAVAILABLE', 'dial-failed', /no connection to 127\.0\.0\.1:\d+: .*/));
    });

    it('a client leaf, a leaf of another CA and an expired leaf are no gateway', async () => {
      const { servingCa, nodeCa } = deployment.bundle;
      const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
      const ca = { certificate: servingCa.certificate.der, signer: servingCa.signer() };
      const key = String(privateKey.export({ type: 'pkcs8', format: 'pem' }));
      const leaf = await issueLeaf({ ca, profile: 'gateway', spki: spkiOf(publicKey), sans: { dns: [gatewayName] }, now: Date.now(), lifetimeMs: hour });
      const cert = encodePem('CERTIFICATE', leaf.der) + encodePem('CERTIFICATE', servingCa.certificate.der);
      const gateway = await gatewayWith({ serving: { key, cert } });
      await assert.rejects(dial(addressOf(gateway), Date.now() + 2 * hour), refusedWith('CERTIFICATE_EXPIRED', 'expired', /expired at/));
      const node = await joinedNode(deployment, { gatewayUrl: gateway.url });
      const asServer = await gatewayWith({ serving: { key: String(node.key.export({ type: 'pkcs8', format: 'pem' })), cert: node.identity.chain.map((der) => encodePem('CERTIFICATE', der)).join('') } });
      await assert.rejects(dial(addressOf(asServer, { servingCaPin: spkiPin(nodeCa.spki) })), refusedWith('PERMISSION_DENIED', 'extended-key-usage', /is not for/));
    });

    for (const offMs of [-2 * hour, -90_000, 90_000, 2 * hour]) {
      it(`a machine whose clock is ${offMs / 1000} s off reaches a gateway whose certificate was made just now`, async () => {
        const gateway = await gatewayWith();
        (await dial(addressOf(gateway), Date.now() + offMs)).destroy();
      });
    }

    it('nobody there, silence and plain text are one clear refusal each', async () => {
      const closed = createServer();
      await new Promise<void>((resolve) => closed.listen(0, '127.0.0.1', resolve));
      const { port } = closed.address() as AddressInfo;
      await new Promise((resolve) => closed.close(resolve));
      await assert.rejects(dial(addressOf({ url: `https://127.0.0.1:${port}` })), refusedWith('UNAVAILABLE', 'dial-failed', /ECONNREFUSED/));
      const talkers: [(server: Server) => void, RegExp][] = [
        [(server) => server.on('connection', (socket) => socket.on('error', () => undefined)), /no answer within 0\.2 s/],
        [(server) => server.on('connection', (socket) => socket.on('error', () => undefined).end('SSH-2.0-x\r\n')), /no connection to/],
      ];
      for (const [talk, message] of talkers) {
        const server = createServer();
        const sockets = new Set<{ destroy(): void }>();
        server.on('connection', (socket) => void sockets.add(socket));
        talk(server);
        await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
        const url = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
        await assert.rejects(dialPinned({ gateway: addressOf({ url }), client: null, now: Date.now(), timeoutMs: 200 }), refusedWith('UNAVAILABLE', 'dial-failed', message));
        for (const socket of sockets) socket.destroy();
        await new Promise((resolve) => server.close(resolve));
      }
    });
  });

  describe('noticing that nobody is there', () => {
    it('B26 TRN-028 a path that swallows everything: two PINGs without an answer, and it dials anew', async () => {
      const gateway = await gatewayWith();
      const proxy = await startTcpProxy(gateway.port);
      running.push({ stop: () => proxy.close() });
      const member = await daemonAt(`https://127.0.0.1:${proxy.port}`, { timing: { ...sessionTiming, pingEveryMs: 20 } });
      await gateway.nextSession();
      await eventually('connected', () => member.agent.link.current !== undefined);
      proxy.swallow();
      await eventually('given up', () => member.agent.link.current === undefined);
      assert.equal(member.status().lastFailure?.reason, 'ping-lost');
      proxy.pass();
      await gateway.nextSession();
    });

    it('B46 a gateway that answers PING while its stream is dead: two heartbeats without an answer', async () => {
      const gateway = await gatewayWith({ answersHeartbeats: false, welcome: () => ({ heartbeatIntervalMs: 10 }) });
      const member = await daemonAt(gateway.url, { timing: { ...sessionTiming, leastHeartbeatMs: 10 } });
      await gateway.nextSession();
      await gateway.nextSession();
      assert.equal(member.status().lastFailure?.reason, 'heartbeat-lost');
    });

    it('a gateway that answers heartbeats is kept', async () => {
      const gateway = await gatewayWith({ welcome: () => ({ heartbeatIntervalMs: 5 }) });
      await daemonAt(gateway.url, { timing: { ...sessionTiming, leastHeartbeatMs: 5 } });
      const session = await gateway.nextSession();
      for (let n = 1n; n <= 20n; n++) assert.equal((await session.take('heartbeat')).sequence, n);
      assert.equal(gateway.attempts, 1);
    });

    it('B48 a gateway that says nothing at all', async () => {
      const gateway = await gatewayWith({ welcome: () => null });
      const member = await daemonAt(gateway.url, { timing: { ...sessionTiming, firstFrameWithinMs: 30 } });
      await gateway.nextSession();
      await gateway.nextSession();
      assert.equal(member.status().lastFailure?.reason, 'no-welcome');
    });
  });

  describe('dialling again', () => {
    it('B28 a call that ends without a status is worth a retry, never a hang', async () => {
      const gateway = await gatewayWith();
      const member = await daemonAt(gateway.url);
      const first = await gateway.nextSession();
      await first.take('status');
      first.end({ 'x-other': '1' });
      const second = await gateway.nextSession();
      assert.equal(member.status().lastFailure?.reason, 'no-status');
      await second.take('status');
      second.stream.close(0);
      await gateway.nextSession();
      assert.match(member.status().lastFailure?.reason ?? '', /^(?:no-status|connection-lost)$/);
    });

    it('TRN-018 TRN-043 a refusal in trailers only is read with its reason and its words', async () => {
      const gateway = await gatewayWith({
        refuseSession: (attempt) => (attempt === 1 ? { 'grpc-status': '14', 'grpc-message': 'der Dienst ist %C3%BCberlastet', 'x-bc-reason': 'overloaded' } : null),
      });
      const member = await daemonAt(gateway.url);
      await gateway.nextSession();
      assert.deepEqual([member.status().lastFailure?.reason, member.status().lastFailure?.detail], ['overloaded', 'der Dienst ist überlastet']);
    });

    it('B51 being superseded is never fatal', async () => {
      const gateway = await gatewayWith({ refuseSession: (attempt) => (attempt <= 3 ? { 'grpc-status': '10', 'x-bc-reason': 'superseded' } : null) });
      const member = await daemonAt(gateway.url);
      await gateway.nextSession();
      assert.equal(member.status().lastFailure?.reason, 'superseded');
    });

    it('B23 GOAWAY: the next session is opened at once, while the old stream drains, and then the old one is closed', async () => {
      const gateway = await gatewayWith();
      const patient = { ...backoffLimits, baseMs: 3_600_000, capMs: 3_600_000 };
      await daemonAt(gateway.url, { limits: patient });
      const first = await gateway.nextSession();
      await first.take('status');
      first.goaway();
      const second = await gateway.nextSession();
      await second.take('status');
      await first.closed;
      assert.equal(second.isClosed, false);
    });

    it('Drain: dials again in its slot, and a command sent meanwhile still runs', async () => {
      const gateway = await gatewayWith();
      const member = await daemonAt(gateway.url, { limits: { ...backoffLimits, baseMs: 3_600_000, capMs: 3_600_000 } });
      const first = await gateway.nextSession();
      await first.take('status');
      first.send({ frame: { case: 'drain', value: { afterMs: 150, windowMs: 50, reason: 'deploy' } } });
      first.send({ frame: { case: 'command', value: await commandOf(deployment, { id: 'late' }) } });
      assert.equal((await first.take('commandResult')).commandId, 'late');
      await gateway.nextSession();
      await first.closed;
      assert.equal(member.effects.get('late'), 1);
    });

    it('Drain, then the end: the slot still counts, not the schedule for losses', async () => {
      const gateway = await gatewayWith();
      await daemonAt(gateway.url, { limits: { ...backoffLimits, baseMs: 3_600_000, capMs: 3_600_000 } });
      const first = await gateway.nextSession();
      await first.take('status');
      first.send({ frame: { case: 'drain', value: { afterMs: 50, windowMs: 1 } } });
      first.end({ 'grpc-status': '14', 'x-bc-reason': 'draining' });
      await gateway.nextSession();
    });

    it('a gateway that is not there is dialled until it is', async () => {
      const probe = createServer();
      await new Promise<void>((resolve) => probe.listen(0, '127.0.0.1', resolve));
      const { port } = probe.address() as AddressInfo;
      await new Promise((resolve) => probe.close(resolve));
      const member = await daemonAt(`https://127.0.0.1:${port}`);
      await eventually('a failure is told', () => member.status().lastFailure?.reason === 'dial-failed');
      assert.match(member.status().stateDetail ?? '', /no connection to 127\.0\.0\.1|dialling/);
    });
  });

  describe('the schedule of dials', () => {
    const ended = { heldMs: 0, pushbackMs: null, reconnectWindowMs: 0 };

    it('B33 grows to its cap and is spread over the whole of it', () => {
      let state = freshBackoff;
      for (let n = 0; n < 20; n++) {
        const most = nextDial(state, ended, () => 0.999_999);
        assert.equal(nextDial(state, ended, () => 0).delayMs, 0);
        assert.ok(most.delayMs <= Math.min(backoffLimits.capMs, 1_000 * 2 ** n));
        state = most.state;
      }
      assert.equal(nextDial(state, ended, () => 0.999_999).delayMs, backoffLimits.capMs);
    });

    it('B35 TRN-045 a wish of the gateway is honoured once, capped, with jitter on top', () => {
      const wished = nextDial(freshBackoff, { ...ended, pushbackMs: 5_000 }, () => 0);
      assert.equal(wished.delayMs, 5_000);
      assert.ok(nextDial(freshBackoff, { ...ended, pushbackMs: 5_000 }, () => 0.5).delayMs > 5_000);
      assert.equal(nextDial(wished.state, ended, () => 0).delayMs, 0, 'not a second time');
      assert.equal(nextDial(freshBackoff, { ...ended, pushbackMs: 10 * day }, () => 0).delayMs, backoffLimits.pushbackCapMs);
    });

    it('a session that held resets it and spreads over the window of its Welcome; one that ended at once does not', () => {
      const tired = { failures: 9 };
      const held = nextDial(tired, { ...ended, heldMs: minute, reconnectWindowMs: 20_000 }, () => 0.5);
      assert.deepEqual([held.delayMs, held.state.failures], [10_000, 1]);
      assert.equal(nextDial(tired, { ...ended, heldMs: 5, reconnectWindowMs: 20_000 }, () => 0.5).state.failures, 10);
    });

    it('500 daemons that lost their gateway in one instant come back spread out', () => {
      const delays = Array.from({ length: 500 }, () => nextDial(freshBackoff, { ...ended, heldMs: hour, reconnectWindowMs: 10_000 }, Math.random).delayMs);
      const buckets = new Map<number, number>();
      for (const delay of delays) buckets.set(Math.floor(delay / 1_000), (buckets.get(Math.floor(delay / 1_000)) ?? 0) + 1);
      assert.equal(buckets.size, 10);
      assert.ok(Math.max(...buckets.values()) <= 2 * 50);
    });
  });

  describe('gRPC messages', () => {
    it('TRN-017 any cutting of the bytes gives the same messages', () => {
      const messages = fc.array(fc.uint8Array({ maxLength: 60 }), { maxLength: 8 });
      fc.assert(
        fc.property(messages, fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1 }), (sent, sizes) => {
          const bytes = Buffer.concat(sent.map(frameMessage));
          const cutter = new MessageCutter(60);
          const got: Buffer[] = [];
          for (let at = 0, n = 0; at < bytes.length; n++) {
            const size = sizes[n % sizes.length] ?? 1;
            got.push(...cutter.push(bytes.subarray(at, at + size)).map((message) => Buffer.from(message)));
            at += size;
          }
          assert.deepEqual(got.map((one) => one.toString('hex')), sent.map((one) => Buffer.from(one).toString('hex')));
          assert.equal(cutter.isInMessage, false);
        }),
      );
    });

    it('BND-002 a length above the bound is refused from its prefix alone', () => {
      const prefix = Buffer.from([0, 0, 0, 0, 61]);
      assert.throws(() => new MessageCutter(60).push(prefix), (error: ControlError) => error.code === 'FRAME_TOO_LARGE' && /61 bytes, more than 60/.test(error.message));
    });
  });

  it('the end of a call: status, reason, wish and time are read from whatever came', () => {
    const cases: [Parameters<typeof refusalOf>[0], string, Partial<ReturnType<typeof refusalFacts>>][] = [
      [undefined, 'UNAVAILABLE', { reason: 'no-status', grpc: 14 }],
      [{}, 'UNAVAILABLE', { reason: 'no-status' }],
      [{ ':status': '503' } as never, 'UNAVAILABLE', { grpc: 14 }],
      [{ ':status': '401' } as never, 'UNAUTHENTICATED', { grpc: 16 }],
      [{ 'grpc-status': '7', 'x-bc-reason': 'revoked' }, 'REVOKED', { reason: 'revoked', grpc: 7 }],
      [{ 'grpc-status': '16', 'x-bc-reason': 'clock-skew', 'x-bc-server-time-ms': '1700000000123' }, 'CLOCK_SKEW', { serverTimeMs: 1_700_000_000_123 }],
      [{ 'grpc-status': '16', 'x-bc-reason': 'clock-skew', date: 'Tue, 14 Nov 2023 22:13:20 GMT' }, 'CLOCK_SKEW', { serverTimeMs: 1_700_000_000_000 }],
      [{ 'grpc-status': '8', 'grpc-retry-pushback-ms': '1500' }, 'RATE_LIMITED', { pushbackMs: 1_500 }],
      [{ 'grpc-status': '8', 'retry-after': '2' }, 'RATE_LIMITED', { pushbackMs: 2_000 }],
      [{ 'grpc-status': '99', 'x-bc-reason': 'Not A Reason' }, 'UNAVAILABLE', { reason: '', grpc: 99 }],
    ];
    for (const [headers, code, facts] of cases) {
      const error = refusalOf(headers);
      assert.equal(error?.code, code, JSON.stringify(headers));
      for (const [name, value] of Object.entries(facts)) assert.equal(refusalFacts(error)[name as keyof ReturnType<typeof refusalFacts>], value, `${JSON.stringify(headers)} ${name}`);
    }
    assert.equal(refusalOf({ 'grpc-status': '0' }), null);
  });
});
