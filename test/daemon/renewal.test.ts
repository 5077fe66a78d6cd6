import assert from 'node:assert/strict';
import type { TLSSocket } from 'node:tls';
import { create, toBinary } from '@bufbuild/protobuf';
import { nextRenewalDelay, renewIdentity, renewsAt } from '../../daemon/agent/renewal.ts';
import type { StoredIdentity } from '../../daemon/state/identity.ts';
import { backoffLimits } from '../../daemon/transport/backoff.ts';
import { refusalOf } from '../../daemon/transport/grpc-status.ts';
import { createServerClock } from '../../daemon/trust/server-clock.ts';
import { ControlError, codeOf } from '../../domain/errors.ts';
import { day, hour, minute, second } from '../../domain/time.ts';
import { verifyRenewProof } from '../../pki/enroll/index.ts';
import { parseCertificate, parseCsr, spkiOf } from '../../pki/x509/index.ts';
import { decodeMessage, type RenewRequest, RenewRequestSchema, RenewResponseSchema } from '../../proto/index.ts';
import { type Member, startMember } from '../fakes/fleet.ts';
import { createDeployment, joinedNode, nodeChain, type TestDeployment } from '../harness/deployment.ts';
import { eventually } from '../harness/eventually.ts';
import { CallRefusal, startFakeGateway } from '../harness/fake-gateway.ts';

describe('renewal of the certificate', () => {
  let deployment: TestDeployment;
  let stored: StoredIdentity;
  const now = Date.now();
  const running: { stop(): Promise<void> }[] = [];

  before(async () => {
    deployment = await createDeployment({ now: now - minute });
    stored = await joinedNode(deployment, { gatewayUrl: 'https://gw.test', now: now - minute });
  });
  afterEach(async () => {
    for (const one of running.splice(0).toReversed()) await one.stop();
  });

  /** Nothing is stated about this node's key. */
  const attest = async (): Promise<Uint8Array> => new Uint8Array();
  const clockAt = (wallMs: number) => createServerClock({ wallMs: () => wallMs, steadyMs: () => 1_000 });
  const leafOf = ({ identity }: StoredIdentity) => parseCertificate(identity.chain[0] as Uint8Array);
  const read = (bytes: Uint8Array): RenewRequest => decodeMessage(RenewRequestSchema, bytes, 'renewRequest');
  const answer = (chain: Uint8Array[]): Uint8Array =>
    toBinary(RenewResponseSchema, create(RenewResponseSchema, { chain, serverTimeMs: BigInt(now) }));
  const honest = async (bytes: Uint8Array): Promise<Uint8Array> =>
    answer(await nodeChain(deployment, { nodeId: 'node-1', spki: parseCsr(read(bytes).csr).spki, now }));

  it('H-14 RENEW-001 C46 is due at 50 to 70 % of the life, spread over nodes, the same each time for one node', () => {
    const leaf = { notBefore: 0, notAfter: day };
    const moments = Array.from({ length: 1_000 }, (_, n) => renewsAt(leaf, `node-${n}`));
    for (const at of moments) assert.ok(at >= 0.5 * day && at <= 0.7 * day);
    assert.deepEqual(
      moments,
      Array.from({ length: 1_000 }, (_, n) => renewsAt(leaf, `node-${n}`)),
    );
    const perBucket = new Map<number, number>();
    for (const at of moments) perBucket.set(Math.floor((at / day) * 50), (perBucket.get(Math.floor((at / day) * 50)) ?? 0) + 1);
    assert.equal(perBucket.size, 10);
    assert.ok(Math.max(...perBucket.values()) <= 2 * 100);
  });

  it('RENEW-002 proves with the current key over the new CSR, the node and the time; the new certificate is for a new key', async () => {
    let seen: RenewRequest | undefined;
    const renewed = await renewIdentity(stored, { attest, clock: clockAt(now), call: (bytes) => ((seen = read(bytes)), honest(bytes)) });
    assert.ok(seen);
    verifyRenewProof(seen.proof, { csr: seen.csr, nodeId: 'node-1', timeMs: seen.timeMs }, spkiOf(stored.key));
    assert.throws(() =>
      verifyRenewProof(
        seen?.proof,
        { csr: seen?.csr ?? new Uint8Array(), nodeId: 'node-2', timeMs: seen?.timeMs ?? 0n },
        spkiOf(stored.key),
      ),
    );
    assert.equal(Number(seen.timeMs), now);
    assert.deepEqual(
      seen.chain.map((der) => Buffer.from(der)),
      stored.identity.chain.map((der) => Buffer.from(der)),
    );
    assert.equal(renewed.key.equals(stored.key), false);
    assert.ok(leafOf(renewed).notAfter > leafOf(stored).notAfter);
  });

  const lies: [string, (bytes: Uint8Array) => Promise<Uint8Array>, RegExp][] = [
    [
      'for another key',
      async () => answer(await nodeChain(deployment, { nodeId: 'node-1', spki: spkiOf(stored.key), now })),
      /for another key/,
    ],
    [
      'for another node',
      async (bytes) => answer(await nodeChain(deployment, { nodeId: 'node-2', spki: parseCsr(read(bytes).csr).spki, now })),
      /for node spiffe:\/\/.*node-2/,
    ],
    [
      'of another authority',
      async (bytes) =>
        answer(
          await nodeChain(await createDeployment({ now: now - minute }), { nodeId: 'node-1', spki: parseCsr(read(bytes).csr).spki, now }),
        ),
      /not signed by the issuer|does not lead to a trust anchor/,
    ],
    [
      'that lives no longer',
      async (bytes) =>
        answer(await nodeChain(deployment, { nodeId: 'node-1', spki: parseCsr(read(bytes).csr).spki, now, lifetimeMs: hour })),
      /does not live longer/,
    ],
    ['without a certificate', async () => answer([]), /has 0 certificates/],
    ['that does not decode', async () => Buffer.from([0xff]), /does not decode/],
  ];
  for (const [title, call, message] of lies) {
    it(`an answer ${title} changes nothing`, async () => {
      await assert.rejects(
        renewIdentity(stored, { attest, clock: clockAt(now), call }),
        (error: Error) => error instanceof ControlError && message.test(error.message),
      );
    });
  }

  for (const offMs of [61 * second, -61 * second, 10 * hour]) {
    it(`C45 H-14 a clock ${offMs / 1000} s off: the refusal carries the server's time, and the second try is right`, async () => {
      const times: number[] = [];
      const call = async (bytes: Uint8Array): Promise<Uint8Array> => {
        times.push(Number(read(bytes).timeMs));
        if (Math.abs((times.at(-1) ?? 0) - now) <= minute) return honest(bytes);
        throw refusalOf({ 'grpc-status': '16', 'x-bc-reason': 'clock-skew', 'x-bc-server-time-ms': String(now) }) as ControlError;
      };
      await renewIdentity(stored, { attest, clock: clockAt(now + offMs), call });
      assert.deepEqual(times, [now + offMs, now]);
    });
  }

  it('C45 a second refusal for the clock is an error, not a loop', async () => {
    let calls = 0;
    const call = async (): Promise<never> => {
      calls += 1;
      throw refusalOf({ 'grpc-status': '16', 'x-bc-reason': 'clock-skew', 'x-bc-server-time-ms': String(now + hour) }) as ControlError;
    };
    await assert.rejects(renewIdentity(stored, { attest, clock: clockAt(now), call }), (error: unknown) => codeOf(error) === 'CLOCK_SKEW');
    assert.equal(calls, 2);
  });

  it('C42 refusals are spaced out, and a wish is honoured: eight thousand tries in five minutes cannot happen', () => {
    let total = 0;
    for (let failures = 0; failures < 8; failures++) total += nextRenewalDelay(failures, null, () => 0);
    assert.ok(total >= 30 * minute);
    assert.equal(
      nextRenewalDelay(0, 20 * minute, () => 0),
      20 * minute,
    );
    assert.ok(nextRenewalDelay(50, null, () => 1) <= 15 * minute);
  });

  describe('in a running daemon', () => {
    const memberAt = (url: string, identity: StoredIdentity): Member => {
      const { identity: facts, key } = identity;
      const member = startMember({
        identity: { key, identity: { ...facts, gatewayUrl: url } },
        limits: { ...backoffLimits, baseMs: 5, capMs: 20, heldMs: 0 },
        renewal: { lookEveryMs: 10 },
      });
      running.push(member);
      return member;
    };

    it('RENEW-011 renews when it is due, over mutual TLS, and changes over to a session with the new certificate', async () => {
      const peers: string[] = [];
      const gateway = await startFakeGateway({
        deployment,
        onRenew: async (bytes, peer: TLSSocket) => {
          peers.push(parseCertificate(peer.getPeerX509Certificate()?.raw ?? new Uint8Array()).serial);
          return honest(bytes);
        },
      });
      running.push({ stop: () => gateway.close() });
      const old = await joinedNode(deployment, { gatewayUrl: gateway.url, now: now - minute, lifetimeMs: 90 * second });
      const member = memberAt(gateway.url, old);
      const first = await gateway.nextSession();
      await first.take('status');
      const next = await gateway.nextSession();
      await first.closed;
      assert.deepEqual(peers, [leafOf(old).serial]);
      const renewed = leafOf(member.identity());
      assert.notEqual(renewed.serial, leafOf(old).serial);
      assert.equal(Number((await next.take('status')).certificateNotAfterMs), renewed.notAfter);
      const socket = next.stream.session?.socket as TLSSocket | undefined;
      assert.equal(parseCertificate(socket?.getPeerX509Certificate()?.raw ?? new Uint8Array()).serial, renewed.serial);
    });

    it('C42 a refused renewal is told, and the session goes on with what is held', async () => {
      const gateway = await startFakeGateway({
        deployment,
        onRenew: async () =>
          Promise.reject(
            new CallRefusal({ 'grpc-status': '14', 'x-bc-reason': 'ca-expired', 'grpc-message': 'the node CA has 5 min left' }),
          ),
      });
      running.push({ stop: () => gateway.close() });
      const old = await joinedNode(deployment, { gatewayUrl: gateway.url, now: now - minute, lifetimeMs: 90 * second });
      const member = memberAt(gateway.url, old);
      const session = await gateway.nextSession();
      await eventually('the refusal is told', () => member.status().lastFailure?.reason === 'renew-ca-expired');
      assert.match(member.status().lastFailure?.detail ?? '', /5 min left/);
      assert.deepEqual([session.isClosed, gateway.renewals.length], [false, 1]);
    });

    it('a daemon that is stopped does not wait for a renewal that nobody answers', async () => {
      let asked = false;
      const gateway = await startFakeGateway({ deployment, onRenew: () => ((asked = true), new Promise(() => undefined)) });
      running.push({ stop: () => gateway.close() });
      const old = await joinedNode(deployment, { gatewayUrl: gateway.url, now: now - minute, lifetimeMs: 90 * second });
      const member = memberAt(gateway.url, old);
      await eventually('the renewal is asked for', () => asked);
      // The call itself is given 30 s, as long as this test has.
      await member.stop();
      assert.equal(leafOf(member.identity()).serial, leafOf(old).serial);
      assert.equal(member.status().lastFailure?.reason.startsWith('renew-') ?? false, false);
    });
  });
});
