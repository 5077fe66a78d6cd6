import assert from 'node:assert/strict';
import { createPublicKey, generateKeyPairSync } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { readApiConfig } from '../../api/config.ts';
import { defineConfig, initialise } from '../../config/index.ts';
import { hour } from '../../domain/time.ts';
import { publishedTrust } from '../../drizzle/queries/trust.ts';
import { decideApproverSet, signApproverSet } from '../../pki/quorum/index.ts';
import { approverSetDigest, noQuorum, type QuorumFields } from '../../pki/trust/index.ts';
import { decodeMessage, type TrustBundle, TrustBundleSchema } from '../../proto/index.ts';
import { chooseApproverSet, publishApproverSet, readSetChanges } from '../../services/approver-sets.ts';
import { type ApproversOptions, quorumOfFiles, quorumOfOptions } from '../../services/approvers.ts';
import { settleAndPublish } from '../../services/trust-publication.ts';
import { signedSet } from '../harness/approvers.ts';
import { useDatabase } from '../harness/postgres.ts';
import { type Approver, createApprover, quorumOfApprovers } from './batch-support.ts';
import { recordingLog, refused, t0, testBundle, trustDomain } from './support.ts';

const [ann, ben, cem, dora] = [createApprover(), createApprover(), createApprover(), createApprover()] as [
  Approver,
  Approver,
  Approver,
  Approver,
];
const first = quorumOfApprovers({ approvers: [ann, ben] });
const second = quorumOfApprovers({ approvers: [ann, cem], approverSetEpoch: 2 });
const spki = ({ signer }: Approver): Uint8Array => signer.spki;

describe('approvers as a deployment names them', () => {
  const optionsOf = (over: Partial<ApproversOptions> = {}): ApproversOptions => ({ keys: [spki(ann), spki(ben)], threshold: 2, ...over });

  it('QUO-054 QUO-058 APPR-020 keys and a threshold make a set of epoch 1 without an allowance', () => {
    const quorum = quorumOfOptions(optionsOf());
    assert.deepEqual(
      [
        quorum.approverKeys.map(({ kid }) => kid),
        quorum.approverThreshold,
        quorum.unbatchedDestructivePerHour,
        quorum.approverSetEpoch,
        quorum.tiers,
      ],
      [[ann.kid, ben.kid], 2, 0, 1, []],
    );
  });

  it('QUO-055 QUO-056 QUO-057 QUO-061 QUO-062 QUO-063 QUO-064 QUO-065 each set that cannot be one is told', () => {
    const p384 = new Uint8Array(generateKeyPairSync('ec', { namedCurve: 'P-384' }).publicKey.export({ type: 'spki', format: 'der' }));
    const bad: readonly [Partial<ApproversOptions>, RegExp][] = [
      [{ keys: [spki(ann), spki(ann)] }, /listed more than once/],
      [{ keys: [spki(ann), p384] }, /approver key 2 of 2 is not a P-256 public key/],
      [{ keys: [] }, /has no keys/],
      [{ threshold: 0 }, /threshold 0 is not a whole number from 1 to the number of keys, 2/],
      [{ threshold: 3 }, /threshold 3 is not/],
      [{ threshold: 1.5 }, /threshold 1.5 is not/],
      [{ tiers: [{ maxScopeSize: 0, threshold: 1 }] }, /tier 0:1 has a size/],
      [{ tiers: [{ maxScopeSize: 5, threshold: 0 }] }, /tier 5:0 has a threshold/],
      [
        {
          tiers: [
            { maxScopeSize: 5, threshold: 1 },
            { maxScopeSize: 5, threshold: 1 },
          ],
        },
        /sizes must ascend/,
      ],
      [
        {
          tiers: [
            { maxScopeSize: 5, threshold: 2 },
            { maxScopeSize: 10, threshold: 1 },
          ],
        },
        /thresholds must not decrease/,
      ],
      [{ keys: [spki(ann), spki(ben), spki(cem)], tiers: [{ maxScopeSize: 5, threshold: 3 }] }, /asks for more than the threshold 2/],
      [{ unbatchedDestructivePerHour: -1 }, /unbatchedDestructivePerHour -1/],
    ];
    for (const [over, message] of bad) assert.throws(() => quorumOfOptions(optionsOf(over)), refused('INVALID_CONFIG', message));
    const tiered = quorumOfOptions(optionsOf({ tiers: [{ maxScopeSize: 5, threshold: 1 }] }));
    assert.deepEqual(tiered.tiers, [{ maxScopeSize: 5, threshold: 1 }]);
  });

  it('APPR-021 APPR-022 signatures need the epoch they sign, and are base64url or bytes', async () => {
    const { kid, sig } = await signApproverSet(ann.signer, { epoch: 2, quorum: second, trustDomain });
    const text = Buffer.from(sig).toString('base64url');
    assert.throws(
      () => quorumOfOptions(optionsOf({ setSignatures: [{ kid, sig }] })),
      refused('INVALID_CONFIG', /without pki.approvers.epoch/, 'approver-epoch'),
    );
    const [asText, asBytes] = [text, sig].map((one) => quorumOfOptions(optionsOf({ epoch: 2, setSignatures: [{ kid, sig: one }] })));
    assert.deepEqual(Buffer.from(asText!.approverSetSignatures[0]!.sig), Buffer.from(asBytes!.approverSetSignatures[0]!.sig));
    for (const one of [`${text}=`, text.slice(2), '']) {
      const wrong = optionsOf({ epoch: 2, setSignatures: [{ kid, sig: one }] });
      assert.throws(() => quorumOfOptions(wrong), refused('INVALID_CONFIG', /not 64 bytes in base64url/, 'approver-signature'));
    }
  });

  it('QUO-047 QUO-059 QUO-060 options without join or command signing, or with a set that cannot be one, do not start', async () => {
    const { nodeCa, commandSigning } = await testBundle();
    const start = (pki: object) => initialise(defineConfig(() => ({ pki: { nodeCa, commandSigning, ...pki } }) as never));
    await assert.rejects(
      start({ approvers: optionsOf() }),
      refused('INVALID_CONFIG', /pki.approvers needs pki.join: approvals are judged for its trust domain/),
    );
    await assert.rejects(
      start({ approvers: optionsOf(), commandSigning: undefined }),
      refused('INVALID_CONFIG', /pki.approvers needs pki.commandSigning/),
    );
    await assert.rejects(start({ approvers: optionsOf({ threshold: 3 }) }), refused('INVALID_CONFIG', /threshold 3 is not/));
    await assert.rejects(
      start({ approvers: { ...optionsOf(), treshold: 1 } }),
      refused('INVALID_CONFIG', /did you mean pki.approvers.threshold/),
    );
  });
});

describe('approvers as the environment names them', () => {
  let folder: string;
  before(() => {
    folder = mkdtempSync(join(tmpdir(), 'bc-approvers-'));
  });
  after(() => rmSync(folder, { recursive: true, force: true }));
  const file = (name: string, text: string): string => {
    writeFileSync(join(folder, name), text, { mode: 0o600 });
    return join(folder, name);
  };
  const pub = (name: string, approver: Approver): string =>
    file(
      name,
      String(createPublicKey({ key: Buffer.from(spki(approver)), format: 'der', type: 'spki' }).export({ type: 'spki', format: 'pem' })),
    );
  const keys = (): string => `${pub('ann.pub', ann)}, ${pub('ben.pub', ben)}`;
  const read = (env: Record<string, string>) =>
    readApiConfig({
      BETTER_COMPUTE_DATABASE_URL: 'postgres://nowhere',
      BETTER_COMPUTE_OPERATOR_TOKEN: 't'.repeat(43),
      ...Object.fromEntries(Object.entries(env).map(([name, value]) => [`BETTER_COMPUTE_${name}`, value])),
    }).approvers;
  const documentOf = async (approver: Approver, quorum: QuorumFields): Promise<string> => {
    const epoch = Number(quorum.approverSetEpoch);
    const { kid, sig } = await signApproverSet(approver.signer, { epoch, quorum, trustDomain });
    return JSON.stringify({
      epoch,
      approverSetSha256: approverSetDigest(quorum),
      kid,
      sig: Buffer.from(sig).toString('base64url'),
      trustDomain,
    });
  };

  it('QUO-067 QUO-069 reads .pub files, and takes no allowance unless one is set', () => {
    const quorum = read({ APPROVER_KEYS: keys(), APPROVER_THRESHOLD: '2' });
    assert.deepEqual(
      quorum?.approverKeys.map(({ kid }) => kid),
      [ann.kid, ben.kid],
    );
    assert.equal(quorum?.unbatchedDestructivePerHour, 0);
    assert.equal(read({ APPROVER_KEYS: keys(), APPROVER_THRESHOLD: '1', UNBATCHED_PER_HOUR: '3' })?.unbatchedDestructivePerHour, 3);
    assert.equal(read({}), null);
  });

  it('QUO-068 a threshold is required with keys, from 1 to their count', () => {
    assert.throws(() => read({ APPROVER_KEYS: keys() }), refused('MISSING_ENV', /APPROVER_THRESHOLD is not set: how many of the 2/));
    for (const threshold of ['0', '3'])
      assert.throws(() => read({ APPROVER_KEYS: keys(), APPROVER_THRESHOLD: threshold }), refused('INVALID_CONFIG', /number of keys, 2/));
    assert.throws(() => read({ APPROVER_THRESHOLD: '1' }), refused('INVALID_CONFIG', /means nothing without BETTER_COMPUTE_APPROVER_KEYS/));
  });

  it('QUO-004 refuses a private key where a process of the control plane would read it', () => {
    const pem = String(generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey.export({ type: 'pkcs8', format: 'pem' }));
    const path = file('ann.pem', pem);
    assert.throws(
      () => read({ APPROVER_KEYS: path, APPROVER_THRESHOLD: '1' }),
      refused('INVALID_CONFIG', /holds a private key/, 'approver-private-key'),
    );
    assert.throws(
      () => read({ APPROVER_KEYS: join(folder, 'none'), APPROVER_THRESHOLD: '1' }),
      refused('INVALID_CONFIG', /none cannot be read/),
    );
    assert.throws(
      () => read({ APPROVER_KEYS: file('x.pub', 'x'), APPROVER_THRESHOLD: '1' }),
      refused('INVALID_CONFIG', /x.pub is no public key/),
    );
  });

  it('APPR-029 APPR-030 APPR-031 APPR-032 signatures of one epoch over exactly this set, whose epoch it becomes', async () => {
    const set = { ...first, approverSetEpoch: 3 };
    const [a, b] = [file('a.json', await documentOf(ann, set)), file('b.json', await documentOf(ben, set))];
    const env = { APPROVER_KEYS: keys(), APPROVER_THRESHOLD: '2' };
    const quorum = read({ ...env, APPROVER_SET_SIGNATURES: `${a},${b}` });
    assert.deepEqual([quorum?.approverSetEpoch, quorum?.approverSetSignatures.map(({ kid }) => kid)], [3, [ann.kid, ben.kid]]);
    const other = file('c.json', await documentOf(ben, { ...set, approverSetEpoch: 4 }));
    assert.throws(
      () => read({ ...env, APPROVER_SET_SIGNATURES: `${a},${other}` }),
      refused('INVALID_CONFIG', /signs epoch 3, .*c.json epoch 4/, 'approver-epoch'),
    );
    const threshold = file('d.json', await documentOf(ben, { ...set, approverThreshold: 1 }));
    assert.throws(
      () => read({ ...env, APPROVER_SET_SIGNATURES: threshold }),
      refused('INVALID_CONFIG', /d.json signs the set/, 'approver-set-differs'),
    );
    const tiers = file('e.json', await documentOf(ben, { ...set, tiers: [{ maxScopeSize: 5, threshold: 1 }] }));
    assert.throws(
      () => read({ ...env, APPROVER_SET_SIGNATURES: tiers }),
      refused('INVALID_CONFIG', /e.json signs the set/, 'approver-set-differs'),
    );
    assert.throws(
      () => read({ ...env, APPROVER_SET_SIGNATURES: file('f.json', '{}') }),
      refused('INVALID_CONFIG', /is no document of batch sign-approvers/),
    );
    assert.throws(() => read({ ...env, APPROVER_SET_SIGNATURES: file('g.json', '{') }), refused('INVALID_CONFIG', /is not JSON/));
    assert.equal(quorumOfFiles({ keys: [spki(ann)], threshold: 1, unbatchedDestructivePerHour: 0, setSignatures: [] }).approverSetEpoch, 1);
  });
});

describe('which approver set is published', () => {
  const used = useDatabase();
  beforeEach(() => used.db.query({ text: 'truncate trust_bundle_state, trust_bundle_history, approver_set_changes' }));

  async function publish(approvers: QuorumFields | null, floorOption = 0) {
    const log = recordingLog();
    const bundle = await testBundle();
    const options = { db: used.db, bundle, floorOption, overlapMs: hour, processId: 'api@test:1', now: t0, log };
    const publication = await settleAndPublish({ ...options, approvers });
    const state = await publishedTrust(used.db);
    return { ...publication, log, trust: decodeMessage(TrustBundleSchema, state!.body, 'trustBundle') };
  }
  const kidsOf = (trust: TrustBundle) => trust.approverKeys.map(({ kid }) => kid);
  const both = (by: readonly Approver[]) => signedSet(second, by, trustDomain);
  const warnings = ({ log }: { log: ReturnType<typeof recordingLog> }) =>
    log.lines.filter(({ level }) => level === 'warn').map(({ message }) => message);

  it('QUO-050 QUO-051 QUO-052 TRUST-026 the first set needs nothing, is in the signed bundle, and raises the version by itself', async () => {
    const before = await publish(null);
    const after = await publish(first);
    assert.deepEqual([before.version, after.version, after.kind], [1, 2, 'publish']);
    assert.deepEqual([kidsOf(after.trust), after.trust.approverThreshold, after.trust.approverSetEpoch], [[ann.kid, ben.kid], 2, 1n]);
    assert.deepEqual(warnings(after), []);
    const [row] = await used.db.query<{ sha: string; epoch: number; set: { threshold: number } }>({
      text: `select encode(approver_set_sha256, 'hex') as sha, approver_set_epoch as epoch, approver_set as set from trust_bundle_state`,
    });
    assert.deepEqual([row?.sha, row?.epoch, row?.set.threshold], [approverSetDigest(first), 1, 2]);
    assert.equal((await publish(first)).kind, 'unchanged');
    assert.equal(decideApproverSet({ quorum: null, epoch: 0 }, after.trust, { trustDomain }).kind, 'take');
  });

  it('A-PKI-19 a process that is told of no approvers publishes those that are recorded', async () => {
    await publish(first);
    const other = await publish(null);
    assert.deepEqual([other.kind, kidsOf(other.trust)], ['unchanged', [ann.kid, ben.kid]]);
  });

  it('APPR-026 H-10 a change signed by the set before it and by its own threshold is published, and walked by a machine that was away', async () => {
    await publish(first);
    const changed = await publish(await both([ann, ben, cem]));
    assert.deepEqual([changed.kind, kidsOf(changed.trust), warnings(changed)], ['publish', [ann.kid, cem.kid], []]);
    const held = { quorum: first, epoch: 1 };
    assert.equal(decideApproverSet(held, changed.trust, { trustDomain }).kind, 'take');
    const third = await signedSet(quorumOfApprovers({ approvers: [cem, dora], approverSetEpoch: 3 }), [ann, cem, dora], trustDomain);
    const later = await publish(third);
    assert.deepEqual(
      later.trust.approverSetChanges.map(({ epoch }) => epoch),
      [1n, 2n, 3n],
    );
    const walked = decideApproverSet(held, later.trust, { trustDomain });
    assert.deepEqual([walked.kind, walked.kind === 'take' && walked.epoch], ['take', 3]);
    assert.deepEqual((await readSetChanges(used.db)).length, 3);
  });

  it('APPR-023 APPR-024 APPR-025 QUO-053 an unsigned change is published for machines without approvers, with a warning that names the epoch', async () => {
    await publish(first);
    const changed = await publish({ ...second, approverSetEpoch: 1 });
    assert.deepEqual([changed.kind, kidsOf(changed.trust)], ['publish', [ann.kid, cem.kid]]);
    assert.match(warnings(changed)[0] ?? '', /changed without the signatures of 2 current approvers.*batch sign-approvers --epoch 2 /);
    assert.equal(decideApproverSet({ quorum: first, epoch: 1 }, changed.trust, { trustDomain }).kind, 'refuse');
    assert.equal(decideApproverSet({ quorum: null, epoch: 0 }, changed.trust, { trustDomain }).kind, 'take');
    const signed = await publish(await both([ann, ben, cem]));
    assert.deepEqual(warnings(signed), []);
    assert.equal(decideApproverSet({ quorum: first, epoch: 1 }, signed.trust, { trustDomain }).kind, 'take');
    assert.equal((await readSetChanges(used.db)).length, 2, 'what was never introduced is no step of the way');
  });

  it('H-10 a change that its own approvers have not signed is not published: nobody could lead machines back', async () => {
    await publish(first);
    const lost = await signedSet(quorumOfApprovers({ approvers: [cem, dora], approverSetEpoch: 2 }), [ann, ben], trustDomain);
    const held = await publish(lost);
    assert.deepEqual([held.kind, kidsOf(held.trust)], ['unchanged', [ann.kid, ben.kid]]);
    assert.match(warnings(held)[0] ?? '', /epoch 2 is not published: 0 of 2 approvers of the new set itself signed it/);
  });

  it('APPR-006 signatures for another deployment introduce nothing', async () => {
    await publish(first);
    const staging = await signedSet(second, [ann, ben, cem], 'staging.example');
    assert.match(warnings(await publish(staging))[0] ?? '', /changed without the signatures/);
    assert.equal((await readSetChanges(used.db)).length, 1);
  });

  it('A-PKI-14 the epoch is that of the configuration, and never goes back', async () => {
    await publish(first);
    await publish(await both([ann, ben, cem]));
    const old = await publish(first);
    assert.deepEqual([old.kind, old.trust.approverSetEpoch, kidsOf(old.trust)], ['unchanged', 2n, [ann.kid, cem.kid]]);
    assert.match(warnings(old)[0] ?? '', /configured with the approver set of epoch 1, the deployment publishes epoch 2/);
  });

  it('APPR-013 signatures that come later are another content of the same set', async () => {
    await publish(first);
    const late = await publish(await signedSet(first, [ann], trustDomain));
    assert.deepEqual([late.kind, late.trust.approverSetSignatures.map(({ kid }) => kid)], ['publish', [ann.kid]]);
    assert.equal((await publish(first)).kind, 'unchanged', 'a process that has fewer takes none away');
  });

  it('APPR-033 APPR-004 a floor moves the version and not the epoch', async () => {
    const raised = await publish(first, 20);
    assert.deepEqual([raised.version, raised.trust.approverSetEpoch], [20, 1n]);
  });

  it('a change that a workflow stored is published with its signatures by whichever api comes', async () => {
    await publish(first);
    const signed = await both([ann, ben, cem]);
    const store = (quorum: QuorumFields) => publishApproverSet(used.db, { quorum, actor: 'olga' }, { now: t0, trustDomain });
    await assert.rejects(
      store(await both([ann, cem])),
      refused('INVALID_STATE', /1 of 2 approvers of the current set signed it/, 'approver-set-unsigned'),
    );
    await assert.rejects(
      store(await both([ann, ben])),
      refused('INVALID_STATE', /1 of 2 approvers of the new set itself signed it/, 'approver-set-unsigned'),
    );
    const same = await signedSet({ ...second, approverSetEpoch: 1 }, [ann, ben, cem], trustDomain);
    await assert.rejects(store(same), refused('INVALID_STATE', /comes after epoch 1: let it be signed for 2/, 'stale-epoch'));
    const stored = await store(signed);
    assert.deepEqual([stored.changed, stored.byOld, stored.byNew], [true, [ann.kid, ben.kid], [ann.kid, cem.kid]]);
    assert.equal((await store(signed)).changed, false);
    const published = await publish(first);
    assert.deepEqual([published.kind, published.trust.approverSetEpoch, kidsOf(published.trust)], ['publish', 2n, [ann.kid, cem.kid]]);
    const [row] = await used.db.query<{ version: number }>({
      text: 'select published_version as version from approver_set_changes where epoch = 2',
    });
    assert.equal(row?.version, published.version);
  });

  it('APPR-016 a removal that is signed is published, and after it any set is a first one', async () => {
    await publish(first);
    const removal = await signedSet({ ...noQuorum, approverSetEpoch: 2 }, [ann, ben], trustDomain);
    await publishApproverSet(used.db, { quorum: removal, actor: 'olga' }, { now: t0, trustDomain });
    const gone = await publish(null);
    assert.deepEqual([gone.kind, kidsOf(gone.trust), gone.trust.approverSetEpoch], ['publish', [], 2n]);
    const choice = chooseApproverSet({
      configured: { ...second, approverSetEpoch: 3 },
      published: removal,
      introduced: removal,
      trustDomain,
    });
    assert.deepEqual([choice.isIntroduced, choice.warning], [true, null]);
  });
});
