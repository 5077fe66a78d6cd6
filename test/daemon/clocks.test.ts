/** A gateway whose clock is wrong, with everything else honest: what still works, and what says why it does not. */
import assert from 'node:assert/strict';
import type { StoredIdentity } from '../../daemon/state/identity.ts';
import { hour, minute, second } from '../../domain/time.ts';
import { type Member, startMember } from '../fakes/fleet.ts';
import { MemoryStore } from '../gateway/memory-store.ts';
import { type CommandInit, createDeployment, joinedNode, type NodeInit, type TestDeployment, workerUnder } from '../harness/deployment.ts';
import { eventually } from '../harness/eventually.ts';
import { clockOffBy, enqueueSigned, publishTrust, startRealGateway } from './real-gateway.ts';
import { quickBackoff, setStage } from './stage.ts';

describe('a gateway whose clock is wrong', () => {
  const stage = setStage();
  const inHours = (hours: number): number => Date.now() + hours * hour;

  async function scene(offMs: number, node: Partial<NodeInit> = {}, deployment: TestDeployment = stage.deployment) {
    const store = new MemoryStore();
    await publishTrust(deployment, store, { version: 1, roots: [deployment.rootA] });
    const clock = clockOffBy(offMs);
    const gateway = await startRealGateway(deployment, { store, scheduler: clock });
    stage.running.push(gateway);
    const identity: StoredIdentity = await joinedNode(deployment, { gatewayUrl: gateway.url, ...node });
    const member: Member = startMember({ identity, limits: { ...quickBackoff, pushbackCapMs: 20 } });
    stage.running.push(member);
    const enqueue = async (id: string, init: CommandInit): Promise<void> => {
      await enqueueSigned(deployment, store, { ...init, id, nodeId: 'node-1' });
      gateway.gateway.sessions.poke(['node-1']);
    };
    const connected = (): Promise<unknown> => eventually('connected', () => member.agent.link.current !== undefined);
    return { store, clock, gateway, member, enqueue, connected };
  }

  for (const aheadMs of [90 * second, 2 * hour]) {
    it(`FRM-010 ${aheadMs / 1000} s ahead: what lives longer than that runs; what the gateway holds for too old is kept for another`, async () => {
      const { store, member, enqueue, connected } = await scene(aheadMs);
      await connected();
      await enqueue('short', { expiresAtMs: Date.now() + minute });
      await enqueue('long', { expiresAtMs: inHours(4) });
      await eventually('it ran', () => store.results.has('long'));
      assert.deepEqual([...member.effects], [['long', 1]]);
      assert.equal(store.stateOf('short'), 0, 'neither sent nor rejected');
      assert.ok(Math.abs(member.agent.state.clock.now() - (Date.now() + aheadMs)) < 10 * second, 'the daemon follows its gateway');
    });
  }

  for (const behindMs of [90 * second, 2 * hour]) {
    it(`TRN-044 ${behindMs / 1000} s behind: a certificate made just now is refused as one of the future, and taken when the clock is right`, async () => {
      const { store, clock, gateway, member, enqueue, connected } = await scene(-behindMs);
      await eventually('it is told', () => member.status().lastFailure?.reason === 'client-certificate-not-yet-valid');
      assert.match(
        member.status().lastFailure?.detail ?? '',
        /^the client certificate begins to be valid later than now, which is \d{4}-.* by this gateway's clock$/,
      );
      assert.notEqual(member.status().state, 'parked', 'no person has to join it again');
      assert.equal(gateway.gateway.sessions.size, 0);
      clock.set(0);
      await connected();
      await enqueue('after', { expiresAtMs: inHours(1) });
      await eventually('it ran', () => store.results.has('after'));
    });
  }

  it('FRM-010 90 s behind: a node that is a little older, and a signer of this moment, work as ever', async () => {
    const there = await createDeployment({ now: Date.now() - 3 * hour });
    const { store, enqueue, connected } = await scene(-90 * second, { now: Date.now() - hour }, there);
    await connected();
    await enqueue('live', { worker: await workerUnder(there.rootA, Date.now()), expiresAtMs: inHours(1) });
    await eventually('it ran', () => store.results.has('live'));
  });

  it('SIGN-015 2 h behind: a signer made since is refused, and the refusal says from when it is valid', async () => {
    const there = await createDeployment({ now: Date.now() - 3 * hour });
    const { store, member, enqueue, connected } = await scene(-2 * hour, { now: Date.now() - 3 * hour }, there);
    await connected();
    await enqueue('early', { worker: await workerUnder(there.rootA, Date.now()), expiresAtMs: inHours(1) });
    await eventually('it was judged', () => store.stateOf('early') === 6);
    assert.match(member.status().lastRefusal?.detail ?? '', /^the signer's certificate [0-9a-f]+ is valid from \d{4}-/);
    assert.equal(member.effects.size, 0);
  });
});
