import assert from 'node:assert/strict';
import { hour, minute, second } from '../../domain/time.ts';
import { commandOf, createDeployment, signedTrust } from '../harness/deployment.ts';

import { setStage } from './stage.ts';

describe('trust in Welcome', () => {
  const stage = setStage();

  const welcomeWith = (trust: Awaited<ReturnType<typeof signedTrust>>) => () => ({ trust });

  it('ROT-016 ROT-026 ROT-031 SIGN-008 takes a newer bundle before any command, and says so on the same session', async () => {
    const trust = await signedTrust(stage.deployment, { version: 2, roots: [stage.deployment.rootA, stage.deployment.rootB] });
    const gateway = await stage.gatewayWith({ welcome: welcomeWith(trust) });
    const member = await stage.daemonAt(gateway.url);
    const session = await gateway.nextSession();
    assert.equal((await session.take('status')).trustVersion, 2n);
    session.send({ frame: { case: 'command', value: await commandOf(stage.deployment, { worker: stage.deployment.workerB }) } });
    await session.take('commandResult');
    assert.equal(member.identity().identity.trust.version, 2n, 'durable in the identity');
  });

  it('C36 takes one in mid-session, without a reconnect', async () => {
    const gateway = await stage.gatewayWith();
    await stage.daemonAt(gateway.url);
    const session = await gateway.nextSession();
    assert.equal((await session.take('status')).trustVersion, 1n);
    const trust = await signedTrust(stage.deployment, { version: 2, roots: [stage.deployment.rootA, stage.deployment.rootB] });
    session.send({ frame: { case: 'welcome', value: { protocolVersion: 1, epoch: 1n, serverTimeMs: BigInt(Date.now()), trust } } });
    assert.equal((await session.take('status')).trustVersion, 2n);
    assert.equal(gateway.attempts, 1);
  });

  type Offer = [title: string, make: () => ReturnType<typeof signedTrust>, reason: string];
  const offers: Offer[] = [
    ['TRUST-002 an older bundle', () => signedTrust(stage.deployment, { version: 3, roots: [stage.deployment.rootA] }), 'older-version'],
    [
      'TRUST-002 the same version with other content',
      () => signedTrust(stage.deployment, { version: 5, roots: [stage.deployment.rootB] }),
      'same-version',
    ],
    ['H-06 C30 a bundle without roots', () => signedTrust(stage.deployment, { version: 6, roots: [] }), 'no-roots'],
    [
      'C31 a bundle that drops a root and does not say why',
      () => signedTrust(stage.deployment, { version: 6, roots: [stage.deployment.rootB] }),
      'root-removed-unexplained',
    ],
    [
      'ROT-008 a bundle that drops a root an hour after its last use',
      () =>
        signedTrust(stage.deployment, {
          version: 6,
          roots: [stage.deployment.rootB],
          removed: [{ id: stage.deployment.rootA.id, switchedAt: Date.now() - hour, removedAt: Date.now(), forcedReason: '' }],
        }),
      'root-removed-too-early',
    ],
    [
      'SIGN-009 a bundle that was changed on the way',
      async () => {
        const signed = await signedTrust(stage.deployment, { version: 6, roots: [stage.deployment.rootA, stage.deployment.rootB] });
        const body = Buffer.from(signed.body);
        body.writeUInt8((body.at(-3) ?? 0) ^ 1, body.length - 3);
        return { ...signed, body };
      },
      'bad-signature',
    ],
    [
      'TRUST-020 a bundle that another key signed',
      async () => signedTrust(await createDeployment(), { version: 6, roots: [stage.deployment.rootA] }),
      'other-key',
    ],
  ];

  for (const [title, make, reason] of offers) {
    it(`${title} is refused, by name, and what is held stays`, async () => {
      const trust = await make();
      const gateway = await stage.gatewayWith({ welcome: welcomeWith(trust) });
      const member = await stage.daemonAt(gateway.url, { node: { trust: { version: 5, roots: [stage.deployment.rootA] } } });
      const session = await gateway.nextSession();
      const refused = await session.take('trustRefused');
      assert.equal(refused.reason, reason);
      assert.equal(refused.heldVersion, 5n);
      assert.notEqual(refused.detail, '');
      assert.equal(member.status().lastRefusal?.reason, `trust-${reason}`);
      session.send({ frame: { case: 'command', value: await commandOf(stage.deployment) } });
      await session.take('commandResult');
      assert.equal(member.agent.state.held().version, 5);
    });
  }

  it('a demonstration shortens the overlap by its flag only; a reason given by an operator always does', async () => {
    const removed = (forcedReason: string) => [
      { id: stage.deployment.rootA.id, switchedAt: Date.now() - minute, removedAt: Date.now(), forcedReason },
    ];
    const soon = await signedTrust(stage.deployment, { version: 2, roots: [stage.deployment.rootB], removed: removed('') });
    const forced = await signedTrust(stage.deployment, { version: 2, roots: [stage.deployment.rootB], removed: removed('key leaked') });
    const cases = [
      { trust: soon, minOverlapMs: 30 * second, version: 2n },
      { trust: forced, minOverlapMs: 24 * hour, version: 2n },
    ];
    for (const { trust, minOverlapMs, version } of cases) {
      const gateway = await stage.gatewayWith({ welcome: welcomeWith(trust) });
      await stage.daemonAt(gateway.url, { minOverlapMs });
      assert.equal((await (await gateway.nextSession()).take('status')).trustVersion, version);
    }
  });
});
