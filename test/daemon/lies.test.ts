import assert from 'node:assert/strict';
import { day, hour, minute } from '../../domain/time.ts';
import { CommandRejectReason } from '../../proto/index.ts';
import { commandOf } from '../harness/deployment.ts';
import { eventually } from '../harness/eventually.ts';

import { setStage } from './stage.ts';

describe('a gateway that lies to the daemon', () => {
  const stage = setStage();

  type Lie = [title: string, make: () => ReturnType<typeof commandOf>, reason: CommandRejectReason, detail: RegExp];
  const R = CommandRejectReason;
  const lies: Lie[] = [
    ['SIGN-011 unsigned', () => commandOf(stage.deployment, { worker: null }), R.UNSIGNED, /not signed/],
    [
      'SIGN-017 signed by a worker of a root that is not held',
      () => commandOf(stage.deployment, { worker: stage.deployment.foreignWorker }),
      R.UNKNOWN_ROOT,
      /none of the 1 held roots/,
    ],
    [
      'ROT-034 signed under the new root before its bundle came',
      () => commandOf(stage.deployment, { worker: stage.deployment.workerB }),
      R.UNKNOWN_ROOT,
      /none of the 1 held roots/,
    ],
    ['of another node', () => commandOf(stage.deployment, { nodeId: 'node-2' }), R.WRONG_NODE, /for node "node-2", this is node-1/],
    [
      'of another trust domain',
      () => commandOf(stage.deployment, { trustDomain: 'other.example' }),
      R.WRONG_TRUST_DOMAIN,
      /"other.example", this node is in test.example/,
    ],
    [
      'of another generation',
      () => commandOf(stage.deployment, { generation: 2n }),
      R.WRONG_GENERATION,
      /generation 2 of this node, which is at 1/,
    ],
    [
      'expired',
      () => commandOf(stage.deployment, { issuedAtMs: Date.now() - 2 * hour, expiresAtMs: Date.now() - hour }),
      R.EXPIRED,
      /expired at .*ago by server time/,
    ],
    ['of a kind that does not exist', () => commandOf(stage.deployment, { kind: 'disk.format' }), R.UNSUPPORTED, /no kind "disk.format"/],
    ['of a former session', () => commandOf(stage.deployment, { epoch: 0n }), R.STALE_EPOCH, /epoch 0, this daemon has seen 1/],
    [
      'with the payload of another kind',
      () => commandOf(stage.deployment, { body: { kind: 'node.reboot' } }),
      R.INVALID_PAYLOAD,
      /takes bettercompute.agent.v1.NodeReboot/,
    ],
  ];

  it('B52 H-04 every lie is refused with its reason, said to the gateway, and nothing runs', async () => {
    const gateway = await stage.gatewayWith();
    const member = await stage.daemonAt(gateway.url);
    const session = await gateway.nextSession();
    for (const [title, make, reason, detail] of lies) {
      session.send({ frame: { case: 'command', value: await make() } });
      const reject = await session.take('commandReject');
      assert.equal(CommandRejectReason[reject.reason], CommandRejectReason[reason], title);
      assert.match(reject.detail, detail, title);
      assert.match(member.status().lastRefusal?.detail ?? '', detail, title);
    }
    assert.equal(member.effects.size, 0);
    session.send({ frame: { case: 'command', value: await commandOf(stage.deployment, { id: 'honest' }) } });
    await session.take('commandResult');
    assert.equal(member.effects.get('honest'), 1, 'a forged delivery leaves the session and the honest command alone');
  });

  it('SIGN-015 a changed body is refused, and the same id with another body too', async () => {
    const gateway = await stage.gatewayWith();
    const member = await stage.daemonAt(gateway.url);
    const session = await gateway.nextSession();
    const good = await commandOf(stage.deployment, { id: 'c-9' });
    const changed = { ...good, body: Buffer.from(good.body) };
    changed.body.writeUInt8((changed.body.at(-1) ?? 0) ^ 1, changed.body.length - 1);
    session.send({ frame: { case: 'command', value: changed } });
    assert.equal((await session.take('commandReject')).reason, R.BAD_SIGNATURE);
    session.send({ frame: { case: 'command', value: good } });
    await session.take('commandResult');
    session.send({ frame: { case: 'command', value: await commandOf(stage.deployment, { id: 'c-9', payload: { sections: ['cpu'] } }) } });
    const reject = await session.take('commandReject');
    assert.equal(reject.reason, R.REPLAY_MISMATCH);
    assert.match(reject.detail, /c-9 was accepted before with another body/);
    assert.equal(member.effects.get('c-9'), 1);
  });

  it('SIGN-015 a body or an id that cannot be used is rejected by its log position, and the session goes on', async () => {
    const gateway = await stage.gatewayWith();
    await stage.daemonAt(gateway.url);
    const session = await gateway.nextSession();
    const unusable = await commandOf(stage.deployment, { id: 'x'.repeat(129), seq: 7n });
    const garbled = { ...(await commandOf(stage.deployment, { seq: 8n })), body: Buffer.from([0x0a, 0xff]) };
    for (const command of [unusable, garbled]) {
      session.send({ frame: { case: 'command', value: command } });
      const reject = await session.take('commandReject');
      assert.deepEqual([reject.commandId, reject.seq, reject.reason], ['', command.seq, R.MALFORMED]);
    }
    session.send({ frame: { case: 'command', value: await commandOf(stage.deployment, { id: 'honest' }) } });
    assert.equal((await session.take('commandResult')).commandId, 'honest');
  });

  it('a signer whose certificate ran out is refused by server time', async () => {
    const gateway = await stage.gatewayWith({ now: () => Date.now() + 25 * hour });
    await stage.daemonAt(gateway.url);
    const session = await gateway.nextSession();
    session.send({ frame: { case: 'command', value: await commandOf(stage.deployment, { expiresAtMs: Date.now() + 48 * hour }) } });
    const reject = await session.take('commandReject');
    assert.equal(reject.reason, R.SIGNER_EXPIRED);
    assert.match(reject.detail, /signer's certificate .* expired at/);
  });

  it('FRM-010 a time that is claimed once moves nothing for good: nothing is forgotten, and honest time is honest again', async () => {
    const source = { wallMs: Date.now, steadyMs: () => day + performance.now() };
    const gateway = await stage.gatewayWith();
    const member = await stage.daemonAt(gateway.url, { source });
    const session = await gateway.nextSession();
    const { clock, journal, marks } = member.agent.state;
    const kept = await commandOf(stage.deployment, { id: 'kept', expiresAtMs: Date.now() + 7 * day });
    session.send({ frame: { case: 'command', value: kept } });
    await session.take('commandResult');
    await eventually('the receipt came', () => journal.find('kept')?.state === 'receipted');
    clock.observe({ serverTimeMs: Date.now() + 8 * day, sentAtSteadyMs: null });
    await member.agent.state.housekeeping();
    const { timeFloorMs } = marks.current;
    assert.ok(timeFloorMs > 0 && timeFloorMs <= Date.now(), 'the floor is the signed issue time');
    assert.equal(journal.find('kept')?.state, 'receipted', 'it could be delivered again for seven days');
    clock.observe({ serverTimeMs: Date.now(), sentAtSteadyMs: clock.steadyMs() });
    assert.ok(Math.abs(clock.now() - Date.now()) < minute);
    session.send({ frame: { case: 'command', value: kept } });
    await session.take('commandResult');
    session.send({ frame: { case: 'command', value: await commandOf(stage.deployment, { id: 'honest-again' }) } });
    await session.take('commandResult');
    assert.deepEqual(
      [...member.effects],
      [
        ['kept', 1],
        ['honest-again', 1],
      ],
    );
  });

  const garbage: [string, Buffer, string][] = [
    ['a frame that does not decode', Buffer.from([0, 0, 0, 0, 2, 0x0a, 0xff]), 'undecodable-frame'],
    ['a compressed frame', Buffer.from([1, 0, 0, 0, 1, 0]), 'compressed'],
    ['a length above the bound', Buffer.from([0, 0xff, 0xff, 0xff, 0xff]), 'frame-too-large'],
  ];
  for (const [title, bytes, reason] of garbage) {
    it(`BND-002 TRN-019 ${title} ends the session, which is dialled anew`, async () => {
      const gateway = await stage.gatewayWith();
      const member = await stage.daemonAt(gateway.url);
      (await gateway.nextSession()).sendBytes(bytes);
      await gateway.nextSession();
      assert.equal(member.status().lastFailure?.reason, reason);
    });
  }

  it('FRM-002 another first frame than Welcome ends the session', async () => {
    const gateway = await stage.gatewayWith({ welcome: () => null });
    const member = await stage.daemonAt(gateway.url);
    (await gateway.nextSession()).send({ frame: { case: 'drain', value: {} } });
    await gateway.nextSession();
    assert.equal(member.status().lastFailure?.reason, 'first-frame-not-welcome');
  });

  it('SKEW-037 a frame of a newer protocol is passed over', async () => {
    const gateway = await stage.gatewayWith();
    await stage.daemonAt(gateway.url);
    const session = await gateway.nextSession();
    // Field 200, length-delimited, empty.
    session.sendBytes(Buffer.from([0, 0, 0, 0, 3, 0xc2, 0x0c, 0x00]));
    session.send({ frame: { case: 'command', value: await commandOf(stage.deployment) } });
    await session.take('commandResult');
  });
});
