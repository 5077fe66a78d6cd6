import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { hour, minute, second } from '../../domain/time.ts';
import { CommandOutcome, CommandRejectReason, type Hello } from '../../proto/index.ts';
import { backoffLimits } from '../../daemon/transport/backoff.ts';
import { sessionTiming } from '../../daemon/transport/session-stream.ts';
import { type Member, type MemberOptions, startMember } from '../fakes/fleet.ts';
import { commandOf, createDeployment, joinedNode, type NodeInit, signedTrust, type TestDeployment } from '../harness/deployment.ts';
import { type FakeGateway, type FakeGatewayOptions, startFakeGateway } from '../harness/fake-gateway.ts';
import { eventually } from '../harness/eventually.ts';

describe('a session of the daemon', () => {
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

  const daemonAt = async (gateway: FakeGateway, { node, ...options }: Partial<MemberOptions> & { node?: Partial<NodeInit> } = {}): Promise<Member> => {
    const identity = await joinedNode(deployment, { gatewayUrl: gateway.url, ...node });
    const member = startMember({ identity, limits: quick, ...options });
    running.push(member);
    return member;
  };

  it('ROT-015 SKEW-001 FRM-001 FRM-008 says first what it is, what it speaks and which trust version it holds', async () => {
    const gateway = await gatewayWith();
    await daemonAt(gateway, { node: { trust: { version: 7, roots: [deployment.rootA] } } });
    const { hello, headers, frames } = await gateway.nextSession();
    assert.equal(frames[0]?.frame.case, 'hello');
    assert.equal(hello?.trustVersion, 7n);
    assert.deepEqual([hello?.protoMin, hello?.protoMax], [1, 1]);
    assert.equal(hello?.role, 'node');
    assert.match(hello?.daemonVersion ?? '', /^\d+\.\d+\.\d+/);
    assert.ok(hello?.capabilities.includes('inventory.refresh'));
    assert.equal(headers['te'], 'trailers', 'B28: without it proxies drop the status');
    assert.equal(headers['content-type'], 'application/grpc+proto');
  });

  it('delivery rules 4 and 5: acknowledges, runs, answers; a redelivery runs nothing again and gets the same answer', async () => {
    const gateway = await gatewayWith({ confirmsResults: false });
    const member = await daemonAt(gateway);
    const session = await gateway.nextSession();
    const command = await commandOf(deployment, { id: 'c-1', seq: 9n });
    session.send({ frame: { case: 'command', value: command } });
    const ack = await session.take('commandAck');
    assert.deepEqual([ack.commandId, ack.seq], ['c-1', 9n]);
    const result = await session.take('commandResult');
    assert.equal(result.outcome, CommandOutcome.SUCCEEDED);
    assert.equal(result.payload?.typeUrl, 'type.googleapis.com/bettercompute.agent.v1.InventoryReport');

    session.send({ frame: { case: 'command', value: command } });
    assert.equal((await session.take('commandAck')).commandId, 'c-1');
    assert.deepEqual(await session.take('commandResult'), result);

    session.send({ frame: { case: 'resultReceipt', value: { commandId: 'c-1' } } });
    session.send({ frame: { case: 'command', value: command } });
    const after = await session.take('commandResult');
    assert.equal(after.outcome, CommandOutcome.SUCCEEDED);
    assert.equal(after.payload, undefined, 'a confirmed payload is not kept');
    assert.equal(member.effects.get('c-1'), 1);
  });

  it('sends a result again in the next session until its receipt comes', async () => {
    const gateway = await gatewayWith({ confirmsResults: false });
    await daemonAt(gateway);
    const first = await gateway.nextSession();
    first.send({ frame: { case: 'command', value: await commandOf(deployment, { id: 'c-2' }) } });
    await first.take('commandResult');
    gateway.cut();
    const second = await gateway.nextSession();
    assert.equal((await second.take('commandResult')).commandId, 'c-2');
    second.send({ frame: { case: 'resultReceipt', value: { commandId: 'c-2' } } });
    second.send({ frame: { case: 'command', value: await commandOf(deployment, { id: 'c-3', epoch: 2n }) } });
    assert.equal((await second.take('commandResult')).commandId, 'c-3');
    gateway.cut();
    const third = await gateway.nextSession();
    assert.equal((await third.take('commandResult')).commandId, 'c-3', 'c-2 was confirmed and does not come again');
  });

  describe('a gateway that lies', () => {
    type Lie = [title: string, make: () => ReturnType<typeof commandOf>, reason: CommandRejectReason, detail: RegExp];
    const R = CommandRejectReason;
    const lies: Lie[] = [
      ['SIGN-011 unsigned', () => commandOf(deployment, { worker: null }), R.UNSIGNED, /not signed/],
      ['SIGN-017 signed by a worker of a root that is not held', () => commandOf(deployment, { worker: deployment.foreignWorker }), R.UNKNOWN_ROOT, /none of the 1 held roots/],
      ['ROT-034 signed under the new root before its bundle came', () => commandOf(deployment, { worker: deployment.workerB }), R.UNKNOWN_ROOT, /none of the 1 held roots/],
      ['of another node', () => commandOf(deployment, { nodeId: 'node-2' }), R.WRONG_NODE, /for node "node-2", this is node-1/],
      ['of another trust domain', () => commandOf(deployment, { trustDomain: 'other.example' }), R.WRONG_TRUST_DOMAIN, /"other.example", this node is in test.example/],
      ['of another generation', () => commandOf(deployment, { generation: 2n }), R.WRONG_GENERATION, /generation 2 of this node, which is at 1/],
      ['expired', () => commandOf(deployment, { issuedAtMs: Date.now() - 2 * hour, expiresAtMs: Date.now() - hour }), R.EXPIRED, /expired at .*ago by server time/],
      ['of a kind that does not exist', () => commandOf(deployment, { kind: 'disk.format' }), R.UNSUPPORTED, /no kind "disk.format"/],
      ['of a former session', () => commandOf(deployment, { epoch: 0n }), R.STALE_EPOCH, /epoch 0, this daemon has seen 1/],
      ['with the payload of another kind', () => commandOf(deployment, { body: { kind: 'node.reboot' } }), R.INVALID_PAYLOAD, /takes bettercompute.agent.v1.NodeReboot/],
    ];

    it('B52 H-04 every lie is refused with its reason, said to the gateway, and nothing runs', async () => {
      const gateway = await gatewayWith();
      const member = await daemonAt(gateway);
      const session = await gateway.nextSession();
      for (const [title, make, reason, detail] of lies) {
        session.send({ frame: { case: 'command', value: await make() } });
        const reject = await session.take('commandReject');
        assert.equal(CommandRejectReason[reject.reason], CommandRejectReason[reason], title);
        assert.match(reject.detail, detail, title);
        assert.match(member.status().lastRefusal?.detail ?? '', detail, title);
      }
      assert.equal(member.effects.size, 0);
      session.send({ frame: { case: 'command', value: await commandOf(deployment, { id: 'honest' }) } });
      await session.take('commandResult');
      assert.equal(member.effects.get('honest'), 1, 'a forged delivery leaves the session and the honest command alone');
    });

    it('SIGN-015 a changed body is refused, and the same id with another body too', async () => {
      const gateway = await gatewayWith();
      const member = await daemonAt(gateway);
      const session = await gateway.nextSession();
      const good = await commandOf(deployment, { id: 'c-9' });
      const changed = { ...good, body: Buffer.from(good.body) };
      changed.body.writeUInt8((changed.body.at(-1) ?? 0) ^ 1, changed.body.length - 1);
      session.send({ frame: { case: 'command', value: changed } });
      assert.equal((await session.take('commandReject')).reason, R.BAD_SIGNATURE);
      session.send({ frame: { case: 'command', value: good } });
      await session.take('commandResult');
      session.send({ frame: { case: 'command', value: await commandOf(deployment, { id: 'c-9', payload: { sections: ['cpu'] } }) } });
      const reject = await session.take('commandReject');
      assert.equal(reject.reason, R.REPLAY_MISMATCH);
      assert.match(reject.detail, /c-9 was accepted before with another body/);
      assert.equal(member.effects.get('c-9'), 1);
    });

    it('a signer whose certificate ran out is refused by server time', async () => {
      const gateway = await gatewayWith({ now: () => Date.now() + 25 * hour });
      await daemonAt(gateway);
      const session = await gateway.nextSession();
      session.send({ frame: { case: 'command', value: await commandOf(deployment, { expiresAtMs: Date.now() + 48 * hour }) } });
      const reject = await session.take('commandReject');
      assert.equal(reject.reason, R.SIGNER_EXPIRED);
      assert.match(reject.detail, /signer's certificate .* expired at/);
    });

    const garbage: [string, Buffer, string][] = [
      ['a frame that does not decode', Buffer.from([0, 0, 0, 0, 2, 0x0a, 0xff]), 'undecodable-frame'],
      ['a compressed frame', Buffer.from([1, 0, 0, 0, 1, 0]), 'compressed'],
      ['a length above the bound', Buffer.from([0, 0xff, 0xff, 0xff, 0xff]), 'frame-too-large'],
    ];
    for (const [title, bytes, reason] of garbage) {
      it(`BND-002 TRN-019 ${title} ends the session, which is dialled anew`, async () => {
        const gateway = await gatewayWith();
        const member = await daemonAt(gateway);
        (await gateway.nextSession()).sendBytes(bytes);
        await gateway.nextSession();
        assert.equal(member.status().lastFailure?.reason, reason);
      });
    }

    it('FRM-002 another first frame than Welcome ends the session', async () => {
      const gateway = await gatewayWith({ welcome: () => null });
      const member = await daemonAt(gateway);
      (await gateway.nextSession()).send({ frame: { case: 'drain', value: {} } });
      await gateway.nextSession();
      assert.equal(member.status().lastFailure?.reason, 'first-frame-not-welcome');
    });

    it('FRM-005 a frame of a newer protocol is passed over', async () => {
      const gateway = await gatewayWith();
      await daemonAt(gateway);
      const session = await gateway.nextSession();
      // Field 200, length-delimited, empty.
      session.sendBytes(Buffer.from([0, 0, 0, 0, 3, 0xc2, 0x0c, 0x00]));
      session.send({ frame: { case: 'command', value: await commandOf(deployment) } });
      await session.take('commandResult');
    });
  });

  describe('trust in Welcome', () => {
    const welcomeWith = (trust: Awaited<ReturnType<typeof signedTrust>>) => () => ({ trust });

    it('ROT-016 ROT-026 SIGN-008 takes a newer bundle before any command, and says so on the same session', async () => {
      const trust = await signedTrust(deployment, { version: 2, roots: [deployment.rootA, deployment.rootB] });
      const gateway = await gatewayWith({ welcome: welcomeWith(trust) });
      const member = await daemonAt(gateway);
      const session = await gateway.nextSession();
      assert.equal((await session.take('status')).trustVersion, 2n);
      session.send({ frame: { case: 'command', value: await commandOf(deployment, { worker: deployment.workerB }) } });
      await session.take('commandResult');
      assert.equal(member.identity().identity.trust.version, 2n, 'durable in the identity');
    });

    it('C36 takes one in mid-session, without a reconnect', async () => {
      const gateway = await gatewayWith();
      await daemonAt(gateway);
      const session = await gateway.nextSession();
      assert.equal((await session.take('status')).trustVersion, 1n);
      const trust = await signedTrust(deployment, { version: 2, roots: [deployment.rootA, deployment.rootB] });
      session.send({ frame: { case: 'welcome', value: { protocolVersion: 1, epoch: 1n, serverTimeMs: BigInt(Date.now()), trust } } });
      assert.equal((await session.take('status')).trustVersion, 2n);
      assert.equal(gateway.attempts, 1);
    });

    type Offer = [title: string, make: () => ReturnType<typeof signedTrust>, reason: string];
    const offers: Offer[] = [
      ['TRUST-002 an older bundle', () => signedTrust(deployment, { version: 3, roots: [deployment.rootA] }), 'older-version'],
      ['TRUST-002 the same version with other content', () => signedTrust(deployment, { version: 5, roots: [deployment.rootB] }), 'same-version'],
      ['H-06 C30 a bundle without roots', () => signedTrust(deployment, { version: 6, roots: [] }), 'no-roots'],
      ['C31 a bundle that drops a root and does not say why', () => signedTrust(deployment, { version: 6, roots: [deployment.rootB] }), 'root-removed-unexplained'],
      [
        'ROT-008 a bundle that drops a root an hour after its last use',
        () => signedTrust(deployment, { version: 6, roots: [deployment.rootB], removed: [{ id: deployment.rootA.id, switchedAt: Date.now() - hour, removedAt: Date.now(), forcedReason: '' }] }),
        'root-removed-too-early',
      ],
      [
        'SIGN-009 a bundle that was changed on the way',
        async () => {
          const signed = await signedTrust(deployment, { version: 6, roots: [deployment.rootA, deployment.rootB] });
          const body = Buffer.from(signed.body);
          body.writeUInt8((body.at(-3) ?? 0) ^ 1, body.length - 3);
          return { ...signed, body };
        },
        'bad-signature',
      ],
      [
        'TRUST-020 a bundle that another key signed',
        async () => signedTrust(await createDeployment(), { version: 6, roots: [deployment.rootA] }),
        'other-key',
      ],
    ];

    for (const [title, make, reason] of offers) {
      it(`${title} is refused, by name, and what is held stays`, async () => {
        const trust = await make();
        const gateway = await gatewayWith({ welcome: welcomeWith(trust) });
        const member = await daemonAt(gateway, { node: { trust: { version: 5, roots: [deployment.rootA] } } });
        const session = await gateway.nextSession();
        const refused = await session.take('trustRefused');
        assert.equal(refused.reason, reason);
        assert.equal(refused.heldVersion, 5n);
        assert.notEqual(refused.detail, '');
        assert.equal(member.status().lastRefusal?.reason, `trust-${reason}`);
        session.send({ frame: { case: 'command', value: await commandOf(deployment) } });
        await session.take('commandResult');
        assert.equal(member.agent.state.held().version, 5);
      });
    }

    it('a demonstration shortens the overlap by its flag only; a reason given by an operator always does', async () => {
      const removed = (forcedReason: string) => [{ id: deployment.rootA.id, switchedAt: Date.now() - minute, removedAt: Date.now(), forcedReason }];
      const soon = await signedTrust(deployment, { version: 2, roots: [deployment.rootB], removed: removed('') });
      const forced = await signedTrust(deployment, { version: 2, roots: [deployment.rootB], removed: removed('key leaked') });
      const cases = [
        { trust: soon, minOverlapMs: 30 * second, version: 2n },
        { trust: forced, minOverlapMs: 24 * hour, version: 2n },
      ];
      for (const { trust, minOverlapMs, version } of cases) {
        const gateway = await gatewayWith({ welcome: welcomeWith(trust) });
        await daemonAt(gateway, { minOverlapMs });
        assert.equal((await (await gateway.nextSession()).take('status')).trustVersion, version);
      }
    });
  });

  describe('SKEW', () => {
    it('SKEW-015 welcomed below the minimum, it rejects everything but daemon.upgrade', async () => {
      const gateway = await gatewayWith({ welcome: () => ({ protocolVersion: 2, upgradeRequired: true }) });
      await daemonAt(gateway);
      const session = await gateway.nextSession();
      session.send({ frame: { case: 'command', value: await commandOf(deployment) } });
      const reject = await session.take('commandReject');
      assert.equal(reject.reason, CommandRejectReason.UNSUPPORTED);
      assert.match(reject.detail, /only daemon\.upgrade runs/);
    });

    it('a version nobody asked for ends the session', async () => {
      const gateway = await gatewayWith({ welcome: () => ({ protocolVersion: 3 }) });
      const member = await daemonAt(gateway);
      await gateway.nextSession();
      await gateway.nextSession();
      assert.equal(member.status().lastFailure?.reason, 'protocol-version');
    });
  });

  describe('lanes', () => {
    it('KIND-015 one lane runs one after another, lanes run side by side, and a cancel ends what waits and what runs', async () => {
      const order: string[] = [];
      const open: (() => void)[] = [];
      const blocked = {
        run: async (_payload: unknown, { commandId, signal }: { commandId: string; signal: AbortSignal }) => {
          order.push(`start ${commandId}`);
          await new Promise<void>((resolve, reject) => {
            open.push(resolve);
            signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true });
          });
          order.push(`end ${commandId}`);
          throw new Error('no result is needed');
        },
      };
      const gateway = await gatewayWith();
      await daemonAt(gateway, { handlers: { 'inventory.refresh': blocked, 'logs.collect': blocked } });
      const session = await gateway.nextSession();
      const sendAll = async (...all: [string, string][]): Promise<void> => {
        for (const [id, kind] of all) session.send({ frame: { case: 'command', value: await commandOf(deployment, { id, kind }) } });
      };
      await sendAll(['a', 'inventory.refresh'], ['b', 'inventory.refresh'], ['c', 'logs.collect']);
      await session.take('commandAck');
      await session.take('commandAck');
      await session.take('commandAck');
      await eventually('two lanes at work', () => order.length === 2);
      assert.deepEqual(order, ['start a', 'start c']);
      session.send({ frame: { case: 'cancelCommand', value: { commandId: 'b', reason: 'not needed' } } });
      const cancelled = await session.take('commandResult');
      assert.deepEqual([cancelled.commandId, cancelled.outcome, cancelled.errorCode], ['b', CommandOutcome.CANCELLED, 'CANCELLED']);
      assert.match(cancelled.errorMessage, /cancelled: not needed/);
      session.send({ frame: { case: 'cancelCommand', value: { commandId: 'c', reason: '' } } });
      assert.deepEqual((await session.take('commandResult')).outcome, CommandOutcome.CANCELLED);
      open[0]?.();
      const failed = await session.take('commandResult');
      assert.deepEqual([failed.commandId, failed.outcome, failed.errorMessage], ['a', CommandOutcome.FAILED, 'no result is needed']);
      assert.deepEqual(order, ['start a', 'start c', 'end a'], 'b never started');
    });

    it('a full lane leaves commands with the gateway, unacknowledged, and takes them as it empties', async () => {
      const open: (() => void)[] = [];
      const gateway = await gatewayWith();
      const member = await daemonAt(gateway, {
        handlers: { 'node.reboot': { run: () => new Promise((resolve) => open.push(() => resolve({ kind: 'failed', code: 'INTERNAL', message: 'done' }))) } },
      });
      const session = await gateway.nextSession();
      const total = 67;
      for (let n = 0; n < total; n++) session.send({ frame: { case: 'command', value: await commandOf(deployment, { id: `r-${n}`, kind: 'node.reboot', seq: BigInt(n) }) } });
      // One runs, 64 wait, two are held back.
      for (let n = 0; n < total - 2; n++) await session.take('commandAck');
      assert.equal(member.agent.state.journal.size, total - 2);
      for (let n = 0; n < total; n++) {
        await eventually('the next one runs', () => open.length > n);
        open[n]?.();
      }
      const last = await eventually('all results', () => session.all('commandResult').length === total && session.all('commandResult'));
      assert.equal(new Set(last.map((one) => one.commandId)).size, total);
    });
  });

  it('an unknown command id in a receipt or a cancel harms nothing', async () => {
    const gateway = await gatewayWith();
    await daemonAt(gateway);
    const session = await gateway.nextSession();
    session.send({ frame: { case: 'resultReceipt', value: { commandId: randomUUID() } } });
    session.send({ frame: { case: 'cancelCommand', value: { commandId: randomUUID() } } });
    session.send({ frame: { case: 'command', value: await commandOf(deployment) } });
    await session.take('commandResult');
  });

  it('B52 an epoch lower than one seen is refused although its session is live', async () => {
    const epochs = [5n, 4n];
    const gateway = await gatewayWith({ welcome: (_hello: Hello) => ({ epoch: epochs.shift() ?? 9n }) });
    const member = await daemonAt(gateway);
    await gateway.nextSession();
    await eventually('connected', () => member.agent.link.current !== undefined);
    gateway.cut();
    const stale = await gateway.nextSession();
    assert.equal(stale.hello?.epochSeen, 5n);
    stale.send({ frame: { case: 'command', value: await commandOf(deployment, { epoch: 4n }) } });
    assert.equal((await stale.take('commandReject')).reason, CommandRejectReason.STALE_EPOCH);
    assert.equal(sessionTiming.pingEveryMs, 20 * second);
  });
});
