import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { QuorumClaim } from '../../daemon/quorum/claims.ts';
import { type JudgedCommand, judgeQuorum, type QuorumVerdict, type QuorumView } from '../../daemon/quorum/judge.ts';
import { leavesPath, openLeavesFile } from '../../daemon/quorum/leaves-file.ts';
import { memoryQuorumStores, type QuorumStores, restoreClaims, takeClaim } from '../../daemon/quorum/quorum-state.ts';
import { openUnbatchedFile, unbatchedPath } from '../../daemon/quorum/unbatched-file.ts';
import { UsedLeaves } from '../../daemon/quorum/used-leaves.ts';
import { neverCrash } from '../../daemon/state/crash-points.ts';
import { harmOf } from '../../domain/commands/harm.ts';
import { commandKinds } from '../../domain/commands/kinds.ts';
import { hour, minute } from '../../domain/time.ts';
import { CommandRejectReason } from '../../proto/index.ts';
import { type Approver, type BatchInit, batchOf, createApprover, quorumOfApprovers, reboot, type TestBatch } from '../harness/approvers.ts';
import { createDeployment, sha256, type TestDeployment } from '../harness/deployment.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';

const now = Date.UTC(2026, 0, 2);
const payloadSha256 = sha256(Buffer.from('payload'));

describe('the verdict on a destructive command', () => {
  let deployment: TestDeployment;
  let anna: Approver;
  let view: QuorumView;
  let stores: QuorumStores;
  before(async () => {
    deployment = await createDeployment({ now });
    anna = createApprover();
  });
  beforeEach(() => {
    stores = memoryQuorumStores();
    view = viewOf({});
  });
  after(removeScratchFolders);

  const viewOf = (over: Partial<QuorumView>, quorum: Parameters<typeof quorumOfApprovers>[0] = { approvers: [anna] }): QuorumView => ({
    held: { kind: 'held', fields: quorumOfApprovers({ approverThreshold: 1, ...quorum }), epoch: 1 },
    pin: null,
    ...stores,
    trustDomain: deployment.trustDomain,
    wallMs: now,
    now,
    ...over,
  });
  const batch = (init: Partial<BatchInit> = {}) => batchOf(deployment, { by: [anna], notAfterMs: now + hour, ...init });
  const asked = (over: Partial<JudgedCommand> = {}, of?: TestBatch): JudgedCommand => ({
    commandId: 'c-1',
    digest: 'd'.repeat(64),
    kind: 'node.reboot',
    harm: 'destructive',
    subject: 'node-1',
    payloadSha256,
    batchId: of?.batchId ?? '',
    approval: of?.approval,
    proof: of?.proofAt(0),
    ...over,
  });
  const short = (verdict: QuorumVerdict): string =>
    verdict.kind === 'refuse' ? `${CommandRejectReason[verdict.reject]} ${verdict.detail}` : verdict.kind;
  const judged = (over: Partial<JudgedCommand>, of?: TestBatch): string => short(judgeQuorum(view, asked(over, of)));

  it('DMN-003 DMN-038 its own table says what destroys work, and agrees with the kinds that exist', () => {
    for (const [kind, spec] of Object.entries(commandKinds)) assert.equal(harmOf(kind, {}) !== 'none', spec.destructive, kind);
    for (const kind of ['node.reboot', 'bmc.power', 'bmc.boot', 'bmc.rotate', 'disk.wipe', 'deploy.image', 'boot.kexec'])
      assert.equal(harmOf(kind, {}), 'destructive', kind);
    for (const harmless of [false, undefined, 'true', 1])
      assert.equal(harmOf('driver.invoke', { harmless }), 'bound-only', String(harmless));
    assert.equal(harmOf('driver.invoke', { harmless: true }), 'none');
    for (const kind of ['inventory.refresh', 'bmc.inventory', 'toString', '']) assert.equal(harmOf(kind, {}), 'none', kind);
    assert.equal(judged({ harm: 'none' }), 'free');
  });

  describe('a call through a site agent’s proxy', () => {
    const proxied = { kind: 'site.httpProxy', subject: 'node:node-9' } as const;
    const leaf = (digest: Uint8Array) => [{ ...proxied, payloadSha256: digest }];

    it('DMN-037 that only reads is free; DMN-035 every other is a write', () => {
      assert.equal(harmOf('site.httpProxy', { method: 'GET' }), 'none');
      for (const method of ['POST', 'PUT', 'DELETE', 'PATCH', 'HEAD', 'get', '', undefined])
        assert.equal(harmOf('site.httpProxy', { method }), 'bound-only', String(method));
    });

    it('DMN-035 that writes runs under a leaf of its exact payload, never an unbound one', async () => {
      const write = { ...proxied, harm: 'bound-only' } as const;
      const unbound = await batch({ leaves: leaf(new Uint8Array()) });
      assert.match(judged(write, unbound), /^BATCH_UNAPPROVED unbound-write: .* needs a leaf that is bound to its payload/);
      assert.equal(judged(write, await batch({ leaves: leaf(payloadSha256) })), 'claim');
      assert.equal(judged({ ...proxied, harm: 'destructive' }, unbound), 'claim', 'what is no write may be unbound');
    });

    it('DMN-036 that writes never runs outside of a batch, whatever the allowance', () => {
      view = viewOf({}, { approvers: [anna], unbatchedDestructivePerHour: 10 });
      assert.match(judged({ ...proxied, harm: 'bound-only' }), /^BATCH_UNAPPROVED unbound-write: site\.httpProxy runs in a batch only/);
      assert.equal(judged({}), 'claim', 'another kind does');
    });
  });

  it('QUO-029 QUO-030 a leaf for one BMC admits no other, behind the same agent or at another site', async () => {
    const power = { kind: 'bmc.power', subject: 'bmc:site-a/10.0.0.7' } as const;
    const of = await batch({ leaves: [{ ...power, payloadSha256: new Uint8Array() }] });
    assert.equal(judged(power, of), 'claim');
    for (const subject of ['bmc:site-a/10.0.0.8', 'bmc:site-b/10.0.0.7', 'site-a'])
      assert.match(judged({ ...power, subject }, of), /^BATCH_UNAPPROVED not-in-scope/, subject);
  });

  it('DMN-034 a set that cannot be read refuses what destroys work and nothing else', () => {
    view = viewOf({ held: { kind: 'unreadable', why: 'identity.json is damaged' } });
    assert.equal(judged({}), 'BATCH_UNAPPROVED no-bundle: identity.json is damaged; join again with bcd join --replace');
    assert.equal(judged({ harm: 'none' }), 'free');
  });

  it('PIN-008 a pin is about the first set: after a removal that its own approvers signed, nothing is asked', () => {
    const none = quorumOfApprovers({ approvers: [] });
    view = viewOf({ pin: 'a'.repeat(64), held: { kind: 'held', fields: none, epoch: 0 } });
    assert.match(judged({}), /^BATCH_UNAPPROVED awaiting-pinned-set: this machine takes the approver set aaaaaaaaaaaa… only/);
    view = viewOf({ pin: 'a'.repeat(64), held: { kind: 'held', fields: none, epoch: 3 } });
    assert.equal(judged({}), 'free');
  });

  describe('DMN-031 what was free when it was judged', () => {
    const claimOf = (verdict: QuorumVerdict): QuorumClaim => (verdict.kind === 'claim' ? verdict.claim : assert.fail(short(verdict)));
    const take = (claim: QuorumClaim, commandId: string): string | undefined =>
      takeClaim(stores, { claim, holder: { commandId, digest: 'd'.repeat(64) }, held: view.held })?.detail;

    it('is taken by one of two that were judged together: a leaf', async () => {
      const claim = claimOf(judgeQuorum(view, asked({}, await batch())));
      assert.equal(take(claim, 'c-1'), undefined);
      assert.equal(take(claim, 'c-2'), 'leaf-used: another command took this operation of its batch first');
      assert.equal(take(claim, 'c-1'), undefined, 'DMN-015 the same command keeps it');
    });

    it('is taken by one of two that were judged together: the last slot of the hour', () => {
      view = viewOf({}, { approvers: [anna], unbatchedDestructivePerHour: 1 });
      const claim = claimOf(judgeQuorum(view, asked()));
      assert.equal(take(claim, 'c-1'), undefined);
      assert.equal(take(claim, 'c-2'), 'unbatched-limit: other commands took the last of this hour first');
      assert.equal(take(claim, 'c-1'), undefined, 'DMN-019');
    });
  });

  it('DMN-012 the same id with another body is another command: a control plane that forgot cannot issue it anew', async () => {
    const of = await batch();
    stores.leaves.take({ leaf: of.scope.leaves[0]?.hash.toString('hex') ?? '', commandId: 'c-1', digest: 'e'.repeat(64), notAfterMs: now });
    assert.equal(judged({}, of), 'BATCH_UNAPPROVED leaf-used: an earlier body of this command used this operation of batch batch-1');
    assert.equal(judged({ digest: 'e'.repeat(64) }, of), 'claim');
  });

  describe('outside of batches', () => {
    const used = (atMs: number, commandId = `u-${atMs}`) => stores.slots.put({ commandId, digest: 'd'.repeat(64), atMs });
    const at = (wallMs: number): string => {
      view = viewOf({ wallMs }, { approvers: [anna], unbatchedDestructivePerHour: 2 });
      return judged({}).split(':')[0] ?? '';
    };

    it('DMN-017 two in an hour, a third refused, and again after the hour', () => {
      used(now);
      used(now + 10 * minute);
      assert.equal(at(now + 20 * minute), 'UNBATCHED_LIMIT unbatched-limit');
      assert.equal(at(now + hour - 1), 'UNBATCHED_LIMIT unbatched-limit');
      assert.equal(at(now + hour), 'claim');
    });

    it('A-PKI-37 DMN-028 a clock that is set back frees nothing, and server time has no part in it', () => {
      used(now);
      used(now + minute);
      assert.equal(at(now - 5 * hour), 'UNBATCHED_LIMIT unbatched-limit');
      view = viewOf({ wallMs: now + minute, now: now + 2 * hour }, { approvers: [anna], unbatchedDestructivePerHour: 2 });
      assert.match(judged({}), /^UNBATCHED_LIMIT/);
      view = viewOf({ wallMs: now - 5 * hour }, { approvers: [anna], unbatchedDestructivePerHour: 3 });
      assert.deepEqual(
        judgeQuorum(view, asked()),
        { kind: 'claim', claim: { kind: 'slot', atMs: now + minute } },
        'at the newest instant seen',
      );
    });
  });

  describe('what was used, in files', () => {
    const open = async (folder: string): Promise<QuorumStores> => ({
      leaves: await openLeavesFile(folder, { crash: neverCrash }),
      slots: await openUnbatchedFile(folder, { crash: neverCrash }),
    });
    const entry = (n: number, notAfterMs = now) => ({
      leaf: n.toString(16).padStart(64, '0'),
      commandId: `c-${n}`,
      digest: 'd'.repeat(64),
      notAfterMs,
    });

    it('DMN-016 DMN-020 reads back what was used, in files of this user alone', async () => {
      const folder = scratchFolder();
      const { leaves, slots } = await open(folder);
      for (const n of [1, 2]) leaves.take(entry(n));
      await leaves.save();
      slots.take({ commandId: 'u-1', digest: 'd'.repeat(64), atMs: now }, 1);
      await slots.save();
      const again = await open(folder);
      assert.deepEqual([again.leaves.find(entry(2).leaf), again.leaves.size], [entry(2), 2]);
      assert.deepEqual(again.slots.within(now), [{ commandId: 'u-1', digest: 'd'.repeat(64), atMs: now }]);
      assert.equal((await readFile(leavesPath(folder), 'utf8')).split('\n').length, 4, 'one line a leaf');
    });

    it('DMN-016 forgets a leaf once it is proven that its approval has ended, and not a moment before', async () => {
      const folder = scratchFolder();
      const { leaves } = await open(folder);
      leaves.take(entry(1, now));
      leaves.take(entry(2, now + hour));
      await leaves.prune(now);
      assert.equal(leaves.size, 2);
      await leaves.prune(now + 1);
      assert.deepEqual([leaves.find(entry(1).leaf), (await open(folder)).leaves.size], [undefined, 1]);
    });

    it('a damaged file refuses what it would have had to say, names itself, and is left as it is', async () => {
      const folder = scratchFolder();
      const damaged = '{"format":"better-compute/batch-leaves/1","leaves":[{"leaf":"';
      await writeFile(leavesPath(folder), damaged);
      await writeFile(unbatchedPath(folder), '{}');
      stores = await open(folder);
      view = viewOf({}, { approvers: [anna], unbatchedDestructivePerHour: 5 });
      const of = await batch();
      assert.match(
        judged({}, of),
        /^BATCH_UNAPPROVED leaves-unreadable: .*batch-leaves\.json is damaged: it is not JSON; it was left as it is/,
      );
      assert.match(judged({}), /^UNBATCHED_LIMIT slots-unreadable: .*unbatched-destructive\.json is damaged/);
      const accepted = [
        { commandId: 'c-1', digest: 'd'.repeat(64), claim: { kind: 'leaf', leaf: 'a'.repeat(64), notAfterMs: now } as const },
      ];
      await restoreClaims(stores, { accepted, floorMs: 0 });
      await stores.leaves.prune(now + hour);
      await stores.leaves.save();
      await stores.slots.save();
      assert.equal(await readFile(join(folder, 'batch-leaves.json'), 'utf8'), damaged);
      assert.equal(await readFile(unbatchedPath(folder), 'utf8'), '{}');
    });

    it('has a bound, beyond which a batch is refused and nothing is forgotten', async () => {
      const leaves = new UsedLeaves({ entries: [entry(1)], save: async () => undefined, maxEntries: 1 });
      stores = { ...stores, leaves };
      view = viewOf({});
      assert.match(judged({}, await batch()), /^BATCH_UNAPPROVED leaves-full: this machine remembers as many/);
      assert.equal(leaves.take(entry(2)), false);
      assert.equal(leaves.take(entry(1)), true);
    });

    it('puts back what a crash kept out of the files, once, and nothing whose approval has ended', async () => {
      const holder = { commandId: 'c-1', digest: 'd'.repeat(64) };
      const leaf = (n: number, notAfterMs: number) => ({ ...holder, claim: { kind: 'leaf', leaf: entry(n).leaf, notAfterMs } as const });
      const accepted = [leaf(1, now), leaf(2, now - 1), { ...holder, claim: { kind: 'slot', atMs: now } as const }];
      assert.equal(await restoreClaims(stores, { accepted, floorMs: now }), 2);
      assert.equal(await restoreClaims(stores, { accepted, floorMs: now }), 0);
      assert.deepEqual([stores.leaves.size, stores.slots.within(now).length], [1, 1]);
    });
  });

  it('DMN-001 QUO-028 the scope of a batch is of subjects as this machine computes them', async () => {
    const of = await batch({ leaves: [reboot('node-1')] });
    assert.equal(judged({ subject: 'node-1' }, of), 'claim');
    assert.match(judged({ subject: 'node-2' }, of), /not-in-scope: node\.reboot on node-2 is not the operation/);
  });
});
