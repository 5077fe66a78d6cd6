import assert from 'node:assert/strict';
import { examineApprovers } from '../../cli/doctor/examine-approvers.ts';
import { type ApproverFacts, judgeApprovers } from '../../cli/doctor/judge-approvers.ts';
import { openSession } from '../../drizzle/queries/sessions.ts';
import { approverSetDigest, noQuorum, type QuorumFields } from '../../pki/trust/index.ts';
import { lagOf, type NodeSet, readNodeSets } from '../../services/approver-lag.ts';
import { createApprover, quorumOfApprovers, signedSet } from '../harness/approvers.ts';
import { useDatabase } from '../harness/postgres.ts';
import { enrol, sessionOf } from '../services/support.ts';

const trustDomain = 'compute.example.com';
const [anna, ben, cleo] = [createApprover(), createApprover(), createApprover()];
const current = quorumOfApprovers({ approvers: [anna, ben], approverSetEpoch: 4 });
const next = (over: Partial<QuorumFields> = {}): QuorumFields => ({
  ...quorumOfApprovers({ approvers: [anna, cleo], approverSetEpoch: 5 }),
  ...over,
});

describe('doctor, the approvers', () => {
  const judge = (over: Partial<ApproverFacts>) =>
    judgeApprovers({ configured: null, published: current, introduced: current, trustDomain, lag: null, ...over });
  const only = (over: Partial<ApproverFacts>) => {
    const findings = judge(over);
    assert.equal(findings.length, 1, JSON.stringify(findings));
    return findings[0] as (typeof findings)[number];
  };

  it('says nothing where the configured set is the current one, or none is configured', () => {
    assert.deepEqual([judge({}), judge({ configured: current })], [[], []]);
    assert.deepEqual(judge({ configured: quorumOfApprovers({ approvers: [anna, ben] }) }), [], 'an older epoch of the same set');
  });

  it('APPR-026 DOC-009 DOC-010 DOC-011 pki.quorum-unsigned names the epoch that the approvers must sign', async () => {
    const finding = only({ configured: next() });
    assert.deepEqual([finding.id, finding.severity], ['pki.quorum-unsigned', 'warning']);
    assert.match(
      finding.message,
      /not signed for a higher epoch: 0 of 2 approvers of the current set signed it; machines that hold approvers keep theirs$/,
    );
    assert.match(finding.fix, /batch sign-approvers --epoch 5, and set pki\.approvers\.epoch to 5 and setSignatures/);
    assert.match(only({ configured: next({ approverSetEpoch: 1 }) }).message, /its epoch 1 is not above epoch 4 of the current set/);
    const unsignedPublished = { configured: next(), published: next() };
    assert.equal(only(unsignedPublished).id, 'pki.quorum-unsigned', 'A-PKI-15 also once it is published');
    assert.match(only(unsignedPublished).fix, /--epoch 6/);
  });

  it('APPR-027 APPR-028 signatures count as a machine counts them: of the current approvers, for this epoch and trust domain', async () => {
    const signed = (set: QuorumFields, domain = trustDomain) => signedSet(set, [anna, ben, cleo], domain);
    const wrong: [QuorumFields, RegExp][] = [
      [await signed(next(), 'staging.example.com'), /0 of 2 approvers of the current set signed it/],
      [{ ...(await signed(next({ approverSetEpoch: 9 }))), approverSetEpoch: 5 }, /0 of 2 approvers of the current set/],
      [await signedSet(next(), [anna, cleo], trustDomain), /1 of 2 approvers of the current set signed it/],
      [await signedSet(next(), [anna, ben], trustDomain), /1 of 2 approvers of the new set itself signed it/],
    ];
    for (const [configured, reason] of wrong) {
      const finding = only({ configured });
      assert.equal(finding.id, 'pki.quorum-unsigned');
      assert.match(finding.message, reason);
    }
    assert.deepEqual([only({ configured: await signed(next()) }).id], ['pki.quorum-change']);
  });

  it('DOC-012 pki.quorum-change for a signed change and for the first set', async () => {
    const change = only({ configured: await signedSet(next(), [anna, ben, cleo], trustDomain) });
    assert.deepEqual(
      [change.severity, change.message],
      ['info', 'the configured approver set is signed for epoch 5; epoch 4 is published'],
    );
    const first = only({ configured: current, published: noQuorum, introduced: null });
    assert.deepEqual([first.id, first.severity], ['pki.quorum-change', 'info']);
    assert.ok(first.message.includes(approverSetDigest(current)), 'what to pin');
    const signed = await signedSet(next(), [anna, ben, cleo], trustDomain);
    assert.deepEqual(judge({ configured: signed, published: signed }), [], 'published already');
  });

  it('names what is wrong with the settings themselves', () => {
    const finding = only({ configured: new Error('BETTER_COMPUTE_APPROVER_KEYS: anna.pub cannot be read') });
    assert.deepEqual(
      [finding.id, finding.severity, finding.message],
      ['pki.approvers', 'error', 'BETTER_COMPUTE_APPROVER_KEYS: anna.pub cannot be read'],
    );
  });

  const nodes = (count: number, over: Partial<NodeSet> = {}): NodeSet[] =>
    Array.from({ length: count }, (_, n) => ({ nodeId: `n${n + 1}`, epoch: 3, sha256: 'ab', ...over }));

  it('LAG-012 LAG-013 LAG-016 DOC-013 pki.quorum-lag counts, names five with the epoch each holds, and says what to do', () => {
    const good: NodeSet = { nodeId: 'good', epoch: 4, sha256: approverSetDigest(current) };
    const keyless: NodeSet = { nodeId: 'a-keyless', epoch: null, sha256: null };
    const finding = only({ lag: lagOf([keyless, ...nodes(6), good], current) });
    assert.deepEqual([finding.id, finding.severity], ['pki.quorum-lag', 'warning']);
    assert.equal(
      finding.message,
      '7 of 8 connected node(s) enforce another approver set than the published one (epoch 4): a-keyless (epoch 0), n1 (epoch 3), n2 (epoch 3), n3 (epoch 3), n4 (epoch 3)',
    );
    assert.match(finding.fix, /check the set's signatures \(pki\.quorum-unsigned\), or re-pin nodes that missed several changes/);
    assert.deepEqual(judge({ lag: lagOf([good], current) }), []);
  });

  it('LAG-011 is silent where no set is published', () => {
    const lag = lagOf(nodes(2), noQuorum);
    assert.equal(lag.behind, 2);
    assert.deepEqual(judge({ published: noQuorum, introduced: null, lag }), []);
  });
});

describe('doctor, the approvers, on a real database', () => {
  const used = useDatabase();

  it('LAG-006 LAG-015 reads connected nodes only, and leaves the check out before core/0026', async () => {
    const digest = new Uint8Array(32).fill(5);
    const connect = async (id: string, now: number | null) =>
      openSession(used.db, sessionOf(await enrol(used.db, id), { now, trustVersion: 1, approverSetEpoch: 2, approverSetSha256: digest }));
    await connect('here', null);
    await connect('gone', Date.now() - 3 * 60_000);
    await connect('ended', null);
    await used.db.query({ text: "update node_sessions set ended_at = now() where node_id = 'ended'" });
    const expected = [{ nodeId: 'here', epoch: 2, sha256: Buffer.from(digest).toString('hex') }];
    assert.deepEqual(await readNodeSets(used.db), expected);
    await used.db.query({ text: 'alter table node_sessions rename column approver_set_sha256 to later' });
    assert.equal(await readNodeSets(used.db), null);
    assert.deepEqual(await examineApprovers(used.db, { env: {}, trustDomain }), []);
  });
});
