import assert from 'node:assert/strict';
import { admitCommand } from '../../daemon/agent/admission.ts';
import { laneRoom } from '../../daemon/agent/lanes.ts';
import { type KindHandler, succeeded } from '../../daemon/kinds/handler.ts';
import { memoryQuorumStores, type QuorumStores } from '../../daemon/quorum/quorum-state.ts';
import { UsedLeaves } from '../../daemon/quorum/used-leaves.ts';
import type { JournalStorage } from '../../daemon/state/journal.ts';
import { hour, minute } from '../../domain/time.ts';
import { type Command, CommandOutcome, CommandRejectReason, NodeRebootResultSchema } from '../../proto/index.ts';
import { quorumOfApprovers } from '../harness/approvers.ts';
import { commandOf } from '../harness/deployment.ts';
import { eventually } from '../harness/eventually.ts';
import { type Cast, createCast } from './quorum-scenarios.ts';
import { setStage } from './stage.ts';

describe('the order in which an approval is used up', () => {
  const stage = setStage();
  let cast: Cast;
  before(() => {
    cast = createCast(stage.deployment);
  });

  it('DMN-021 DMN-039 verdict, then the journal, then the leaf, then the acknowledgement, then the effect; nothing of it for a forgery', async () => {
    const steps: string[] = [];
    const journalStorage: JournalStorage = {
      append: async (records) => void steps.push(...records.map(({ type }) => type)),
      replaceAll: async () => undefined,
      isLong: () => false,
      close: async () => undefined,
    };
    const leaves = new UsedLeaves({ entries: [], save: async ({ added }) => void steps.push(`leaves ${added.length}`) });
    const quorumStores: QuorumStores = {
      ...memoryQuorumStores(),
      leaves: Object.assign(leaves, {
        find: (leaf: string) => {
          steps.push('verdict');
          return UsedLeaves.prototype.find.call(leaves, leaf);
        },
      }),
    };
    const gateway = await stage.gatewayWith();
    const member = await stage.daemonAt(gateway.url, { node: { trust: cast.trust }, journalStorage, quorumStores });
    const session = await gateway.nextSession();
    const batch = await cast.batch();
    for (const command of [
      await cast.member(batch, { worker: stage.deployment.foreignWorker }),
      await cast.member(batch, { body: { nodeId: 'node-9' } }),
    ]) {
      session.send({ frame: { case: 'command', value: command } });
      await session.take('commandReject');
    }
    assert.deepEqual(steps, [], 'a forged and a misdirected delivery are not even looked up');
    session.send({ frame: { case: 'command', value: await cast.member(batch, { id: 'c-1' }) } });
    await session.take('commandAck');
    await session.take('commandResult');
    assert.deepEqual(steps.slice(0, 5), ['verdict', 'received', 'leaves 1', 'started', 'finished']);
    assert.equal(member.effects.get('c-1'), 1);
  });

  it('DMN-031 four commands on one leaf, sent at once: exactly one is admitted', async () => {
    const gateway = await stage.gatewayWith();
    const member = await stage.daemonAt(gateway.url, { node: { trust: cast.trust } });
    const session = await gateway.nextSession();
    const batch = await cast.batch();
    const commands = await Promise.all(['c-1', 'c-2', 'c-3', 'c-4'].map((id) => cast.member(batch, { id })));
    for (const value of commands) session.send({ frame: { case: 'command', value } });
    await eventually('all are answered', async () => session.all('commandAck').length + session.all('commandReject').length === 4);
    assert.equal(session.all('commandAck').length, 1);
    assert.deepEqual(
      session.all('commandReject').map(({ reason }) => CommandRejectReason[reason]),
      ['BATCH_UNAPPROVED', 'BATCH_UNAPPROVED', 'BATCH_UNAPPROVED'],
    );
    await session.take('commandResult');
    assert.deepEqual([...member.effects.values()], [1]);
  });

  it('DMN-031 DMN-030 what was judged before another took the leaf is refused at admission, and leaves nothing behind', async () => {
    const gateway = await stage.gatewayWith();
    const { agent } = await stage.daemonAt(gateway.url, { node: { trust: cast.trust } });
    await (await gateway.nextSession()).take('status');
    const batch = await cast.batch();
    const [first, second] = await Promise.all(['c-1', 'c-2'].map(async (id) => cast.member(batch, { id })));
    const judged = [first, second].map((command) =>
      admitCommand(agent.state.admission(false), command as Command, agent.state.clock.now()),
    );
    const verdicts: unknown[] = [];
    for (const one of judged) {
      assert.equal(one.kind, 'accept');
      if (one.kind === 'accept') verdicts.push((await agent.state.accept(one.command, () => undefined))?.detail ?? 'accepted');
    }
    assert.deepEqual(verdicts, ['accepted', 'leaf-used: another command took this operation of its batch first']);
    assert.deepEqual([agent.state.journal.find('c-1')?.id, agent.state.journal.find('c-2')], ['c-1', undefined]);
  });

  it('DMN-009 a command that waits in its lane when its approval ends is not started', async () => {
    const gateway = await stage.gatewayWith();
    let finish: () => void = () => undefined;
    const reboot: KindHandler = {
      run: () =>
        new Promise((resolve) => {
          finish = () => resolve(succeeded(NodeRebootResultSchema, { bootIdBefore: 'a', bootIdAfter: 'b' }));
        }),
    };
    const member = await stage.daemonAt(gateway.url, { node: { trust: cast.trust }, handlers: { 'node.reboot': reboot } });
    const session = await gateway.nextSession();
    const times = { expiresAtMs: Date.now() + 5 * hour };
    const first = await cast.batch({ batchId: 'first', notAfterMs: Date.now() + 4 * hour });
    const soon = await cast.batch({ batchId: 'soon', notAfterMs: Date.now() + 10 * minute });
    session.send({ frame: { case: 'command', value: await cast.member(first, { id: 'c-first', ...times }) } });
    session.send({ frame: { case: 'command', value: await cast.member(soon, { id: 'c-soon', ...times }) } });
    await eventually('both are accepted', () => session.all('commandAck').length === 2);
    session.send({ frame: { case: 'welcome', value: { protocolVersion: 1, epoch: 1n, serverTimeMs: BigInt(Date.now() + 20 * minute) } } });
    await eventually('the time has come', () => member.agent.state.clock.now() > Date.now() + 15 * minute);
    finish();
    const results = await eventually('both have ended', () => session.all('commandResult').length === 2 && session.all('commandResult'));
    assert.deepEqual(
      results.map(({ commandId, outcome, errorCode }) => [commandId, CommandOutcome[outcome], errorCode]),
      [
        ['c-first', 'SUCCEEDED', ''],
        ['c-soon', 'FAILED', 'EXPIRED'],
      ],
    );
    assert.match(results[1]?.errorMessage ?? '', /^not started: its approval ended at \d{4}-.* while it waited$/);
  });

  it('DMN-002 a simulated node that is given a set, and one whose bundle carries it, judge and report alike', async () => {
    const { quorum, ...bare } = cast.trust;
    const said: unknown[] = [];
    for (const over of [{ node: { trust: cast.trust } }, { node: { trust: bare }, ...(quorum === undefined ? {} : { quorum }) }]) {
      const gateway = await stage.gatewayWith();
      await stage.daemonAt(gateway.url, over);
      const session = await gateway.nextSession();
      session.send({ frame: { case: 'command', value: await commandOf(stage.deployment, { kind: 'node.reboot' }) } });
      const { reason, detail } = await session.take('commandReject');
      session.send({ frame: { case: 'command', value: await cast.member(await cast.batch(), { id: 'c-1' }) } });
      const { commandId } = await session.take('commandAck');
      said.push([session.hello?.approverSetEpoch, session.hello?.approverSetSha256, CommandRejectReason[reason], detail, commandId]);
    }
    assert.deepEqual(said[1], said[0]);
    assert.deepEqual((said[0] as unknown[]).slice(2, 3), ['UNBATCHED_LIMIT']);
  });

  it('DMN-033 a command that had to wait for room is judged again: past its approval it is refused', async () => {
    const { anna, ben, cleo, deployment } = cast;
    const quorum = quorumOfApprovers({ approvers: [anna, ben, cleo], unbatchedDestructivePerHour: 1000 });
    const gateway = await stage.gatewayWith();
    const gates: (() => void)[] = [];
    const reboot: KindHandler = {
      run: async () => {
        await new Promise<void>((resolve) => void gates.push(resolve));
        return succeeded(NodeRebootResultSchema, { bootIdBefore: 'a', bootIdAfter: 'b' });
      },
    };
    const member = await stage.daemonAt(gateway.url, { node: { trust: { ...cast.trust, quorum } }, handlers: { 'node.reboot': reboot } });
    const session = await gateway.nextSession();
    const times = { expiresAtMs: Date.now() + 5 * hour };
    const send = (value: Command): void => session.send({ frame: { case: 'command', value } });
    // One runs, as many as there is room for wait: the next is held back, without a word.
    for (let n = 0; n <= laneRoom; n += 1) send(await commandOf(deployment, { id: `u-${n}`, kind: 'node.reboot', ...times }));
    const soon = await cast.batch({ batchId: 'soon', notAfterMs: Date.now() + 10 * minute });
    const late = await cast.batch({ batchId: 'late', notAfterMs: Date.now() + 4 * hour });
    send(await cast.member(soon, { id: 'c-soon', ...times }));
    send(await cast.member(late, { id: 'c-late', ...times }));
    await eventually('the lane is full', async () => session.all('commandAck').length === laneRoom + 1 && gates.length === 1);
    session.send({ frame: { case: 'welcome', value: { protocolVersion: 1, epoch: 1n, serverTimeMs: BigInt(Date.now() + 20 * minute) } } });
    await eventually('the time has come', () => member.agent.state.clock.now() > Date.now() + 15 * minute);
    gates[0]?.();
    const reject = await session.take('commandReject');
    assert.deepEqual([reject.commandId, CommandRejectReason[reject.reason]], ['c-soon', 'BATCH_UNAPPROVED']);
    assert.match(reject.detail, /^approval-expired: /);
    await eventually('the lane moves on', async () => {
      for (const open of gates) open();
      return session.all('commandResult').some(({ commandId }) => commandId === 'c-late');
    });
    assert.equal(member.status().lastRefusal?.reason, 'command-batch-unapproved');
  });
});
