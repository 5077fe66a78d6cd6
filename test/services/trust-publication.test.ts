import assert from 'node:assert/strict';
import { fromBinary } from '@bufbuild/protobuf';
import { day, hour } from '../../domain/time.ts';
import { publishedTrust } from '../../drizzle/queries/trust.ts';
import {
  abortCommandRotation,
  addCommandRoot,
  createBundle,
  dropCommandRoot,
  nextGeneration,
  type PkiBundle,
  switchCommandRoot,
} from '../../pki/bundle/index.ts';
import { parseSignature } from '../../pki/envelope/index.ts';
import { decideApproverSet } from '../../pki/quorum/index.ts';
import { acceptTrustBundle, type HeldTrust, type QuorumFields, verifySignedTrustBundle } from '../../pki/trust/index.ts';
import { TrustBundleSchema } from '../../proto/index.ts';
import { judgeRemoval, settleAndPublish } from '../../services/trust-publication.ts';
import { createApprover, quorumOfApprovers, signedSet } from '../harness/approvers.ts';
import { useDatabase } from '../harness/postgres.ts';
import { keyring, type RecordingLog, recordingLog, refused, t0, trustDomain } from './support.ts';

interface Steps {
  readonly a: PkiBundle;
  /** A and B, A signs. */
  readonly added: PkiBundle;
  /** A and B, B signs. */
  readonly switched: PkiBundle;
  /** B only. */
  readonly dropped: PkiBundle;
}

async function rotation(): Promise<Steps> {
  const a = await createBundle({ trustDomain, now: t0 - 30 * day });
  const added = nextGeneration((await addCommandRoot(a, { rotationId: 'r1', now: t0 })).bundle);
  const switched = nextGeneration(switchCommandRoot(added, { rotationId: 'r1', now: t0 + hour }).bundle);
  const opensAt = t0 + 25 * hour;
  const dropped = nextGeneration(dropCommandRoot(switched, { rotationId: 'r1', now: opensAt, opensAt, forcedReason: '' }).bundle);
  return { a, added, switched, dropped };
}

describe('publishing the trust bundle', () => {
  const used = useDatabase({ max: 20 });
  let steps: Steps;
  let log: RecordingLog;
  before(async () => {
    steps = await rotation();
  });
  beforeEach(async () => {
    log = recordingLog();
    await used.db.query({
      text: `truncate trust_bundle_state, trust_bundle_history, worker_certs, bundle_freshness, approver_set_changes`,
    });
  });
  const publish = (bundle: PkiBundle, changes: { floorOption?: number; now?: number; processId?: string; approvers?: QuorumFields } = {}) =>
    settleAndPublish({ db: used.db, bundle, floorOption: 0, overlapMs: day, processId: 'api@test:1', now: t0, log, ...changes });
  const state = () => publishedTrust(used.db);
  const history = () =>
    used.db.query<{ version: number; digest: string; reason: string; by: string }>({
      text: 'select version, digest, reason, published_by as by from trust_bundle_history order by version',
    });

  it('TRUST-003 TRUST-013 records digest, version and the signed bytes that daemons verify', async () => {
    assert.equal(await state(), null);
    const { kind, version } = await publish(steps.a);
    assert.deepEqual([kind, version], ['publish', 1]);
    const published = (await state())!;
    const signed = {
      body: Buffer.from(published.body),
      signature: parseSignature(published.signature),
      $typeName: 'bettercompute.agent.v1.SignedTrustBundle' as const,
    };
    const bundle = verifySignedTrustBundle(signed, { joinKey: steps.a.joinSigning.spki, trustDomain });
    assert.deepEqual([bundle.version, bundle.commandRoots.length], [1n, 1]);
    assert.deepEqual(published.roots, [steps.a.commandSigning!.id]);
    assert.deepEqual(
      (await history()).map((row) => [row.version, row.digest, row.by]),
      [[1, published.digest, 'api@test:1']],
    );
  });

  it('TRUST-001 TRUST-009 ROT-003 ROT-005 keeps the version of unchanged content and raises it with every other', async () => {
    const versions = [];
    for (const bundle of [steps.a, steps.a, steps.added, steps.switched, steps.dropped]) {
      const { kind, version } = await publish(bundle, { now: t0 + 26 * hour });
      versions.push([kind, version]);
    }
    assert.deepEqual(versions, [
      ['publish', 1],
      ['unchanged', 1],
      ['publish', 2],
      ['unchanged', 2],
      ['publish', 3],
    ]);
  });

  it('TRUST-024 counts the approver set apart: field 8, untouched by a rotation that raises the version', async () => {
    assert.equal(TrustBundleSchema.field.approverSetEpoch.number, 8);
    const seen: [bigint, bigint][] = [];
    for (const bundle of [steps.a, steps.added, steps.switched, steps.dropped]) {
      await publish(bundle);
      const { version, approverSetEpoch } = fromBinary(TrustBundleSchema, (await state())!.body);
      seen.push([version, approverSetEpoch]);
    }
    assert.deepEqual(seen, [
      [1n, 0n],
      [2n, 0n],
      [2n, 0n],
      [3n, 0n],
    ]);
  });

  it('TRUST-023 the signatures of the approver set are in every version while it is the set, and machines that held the one before still follow', async () => {
    const [ann, ben, cem] = [createApprover(), createApprover(), createApprover()];
    const held = quorumOfApprovers({ approvers: [ann, ben] });
    const next = await signedSet(quorumOfApprovers({ approvers: [ben, cem], approverSetEpoch: 2 }), [ann, ben, cem], trustDomain);
    await publish(steps.a, { approvers: held });
    await publish(steps.a, { approvers: next });
    const seen: [bigint, string[], string][] = [];
    // Whichever api publishes: one that is told of the set, and one that is told of no approvers.
    for (const [bundle, told] of [
      [steps.added, { approvers: next }],
      [steps.switched, {}],
      [steps.dropped, {}],
    ] as const) {
      await publish(bundle, { now: t0 + 26 * hour, ...told });
      const trust = fromBinary(TrustBundleSchema, (await state())!.body);
      const walked = decideApproverSet({ quorum: held, epoch: 1 }, trust, { trustDomain });
      seen.push([trust.version, trust.approverSetSignatures.map(({ kid }) => kid).sort(), walked.kind]);
    }
    const signers = [ann, ben, cem].map(({ kid }) => kid).sort();
    assert.deepEqual(
      seen,
      [3n, 3n, 4n].map((version) => [version, signers, 'take']),
    );
  });

  it('TRUST-011 ten processes that start at once agree on one version and publish it once', async function () {
    this.timeout(20_000);
    const answers = await Promise.all(Array.from({ length: 10 }, (_, index) => publish(steps.a, { processId: `api@host:${index}` })));
    assert.deepEqual(
      answers.map(({ version }) => version),
      Array.from({ length: 10 }, () => 1),
    );
    assert.equal(answers.filter(({ kind }) => kind === 'publish').length, 1);
    const next = await Promise.all(Array.from({ length: 10 }, () => publish(steps.added)));
    assert.deepEqual(
      next.map(({ version }) => version),
      Array.from({ length: 10 }, () => 2),
    );
    assert.equal((await history()).length, 2);
  });

  it('TRUST-012 TRUST-014 TRUST-015 TRUST-016 a stale replica keeps its old version, warns, and changes nothing', async () => {
    await publish(steps.a);
    await publish(steps.added);
    const before = [await state(), await history()];
    const stale = await publish(steps.a, { now: t0 + hour });
    assert.deepEqual([stale.kind, stale.version, stale.publishedVersion], ['stale', 1, 2]);
    assert.deepEqual([await state(), await history()], before);
    const warnings = log.lines.filter((line) => line.level === 'warn');
    assert.equal(warnings.length, 1);
    assert.match(warnings[0]!.message, /holds a replaced key bundle: its trust content is version 1, the deployment publishes 2/);
  });

  it('TRUST-017 TRUST-018 only an explicit floor above the recorded version publishes replaced content again', async () => {
    await publish(steps.a, { floorOption: 10 });
    assert.equal((await state())?.version, 10);
    await publish(steps.added, { floorOption: 3 });
    assert.equal((await state())?.version, 11);
    assert.equal((await publish(steps.a, { floorOption: 11 })).kind, 'stale');
    const again = await publish(
      {
        ...steps.a,
        commandRoots: {
          ...steps.a.commandRoots,
          removed: [{ id: [...steps.added.commandRootsById.keys()][1]!, switchedAt: 0, removedAt: t0, forcedReason: '' }],
        },
      },
      { floorOption: 12 },
    );
    assert.deepEqual([again.kind, again.version], ['publish', 12]);
    assert.equal((await history()).at(-1)?.reason, 'BETTER_COMPUTE_TRUST_VERSION');
  });

  it('C12 H-04 an abort takes the added root back at a higher version, and a daemon follows', async () => {
    const daemon = async (held: HeldTrust | null): Promise<HeldTrust> => {
      const offered = fromBinary(TrustBundleSchema, (await state())!.body);
      const decision = acceptTrustBundle(held, offered, { now: t0, minOverlapMs: day });
      assert.ok(
        decision.kind === 'take',
        JSON.stringify(decision, (_, value: unknown) => (typeof value === 'bigint' ? String(value) : value)),
      );
      return decision.held;
    };
    await publish(steps.a);
    let held = await daemon(null);
    await publish(steps.added);
    held = await daemon(held);
    assert.equal(held.roots.length, 2);
    const aborted = nextGeneration(
      abortCommandRotation(steps.added, { rotationId: 'r1', now: t0 + hour, actor: 'olga', reason: 'wrong window', recordedVersion: 2 })
        .bundle,
    );
    const { kind, version } = await publish(aborted);
    assert.deepEqual([kind, version], ['publish', 3]);
    held = await daemon(held);
    assert.deepEqual([held.version, held.roots.length], [3, 1]);
    assert.equal((await history()).at(-1)?.reason, 'wrong window (olga)');
    assert.equal((await publish(aborted)).kind, 'unchanged');
    assert.equal((await publish(steps.added)).kind, 'stale');
  });

  it('H-06 never publishes a bundle without any root', async () => {
    const empty = { ...steps.a, commandRootsById: new Map(), commandRoots: { ...steps.a.commandRoots, roots: [] } };
    await assert.rejects(publish(empty), refused('INVALID_CONFIG', /without any command root is never published/, 'no-roots'));
    assert.equal(await state(), null);
  });

  it('C31 refuses to replace a root in one step: it signed within the last 24 h and nothing says why it leaves', async () => {
    await publish(steps.a);
    await (await keyring(used.db, { bundle: () => steps.a })).current();
    const other = await createBundle({ trustDomain, now: t0 - day });
    await assert.rejects(
      publish(other),
      refused('INVALID_STATE', /root [0-9a-f]{12} would be removed although it signed within the last 24 h/, 'root-removed-unexplained'),
    );
    await used.db.query({ text: 'delete from worker_certs' });
    await assert.rejects(publish(other), refused('INVALID_STATE', /would be removed without a record of why/, 'root-removed-unexplained'));
    assert.equal((await state())?.version, 1);
  });

  it('C31 judges each way a root may leave', () => {
    const entry = { id: 'a', switchedAt: t0, removedAt: t0 + 24 * hour, forcedReason: '' };
    const unused = { ever: false, recently: false };
    const signed = { ever: true, recently: true };
    const table: [Parameters<typeof judgeRemoval>[0], typeof signed, string | null][] = [
      [undefined, unused, 'root-removed-unexplained'],
      [undefined, signed, 'root-removed-unexplained'],
      [entry, signed, null],
      [{ ...entry, removedAt: entry.removedAt - 1 }, signed, 'root-removed-too-early'],
      [{ ...entry, removedAt: entry.removedAt - 1, forcedReason: 'key stolen' }, signed, null],
      [{ ...entry, switchedAt: 0 }, unused, null],
      [{ ...entry, switchedAt: 0 }, signed, 'root-has-signed'],
      [{ ...entry, switchedAt: 0, forcedReason: 'key stolen' }, signed, null],
    ];
    for (const [removed, issuance, reason] of table)
      assert.equal(judgeRemoval(removed, issuance, day)?.reason ?? null, reason, JSON.stringify(removed));
  });

  it('C18 two different contents in one moment: one version each, or one is refused, never one version twice', async () => {
    await publish(steps.a);
    const [b, c] = await Promise.all(
      ['r2', 'r3'].map(async (rotationId) => (await addCommandRoot(steps.a, { rotationId, now: t0 })).bundle),
    );
    const answers = await Promise.allSettled([publish(b!), publish(c!)]);
    const versions = (await history()).map((row) => row.version);
    assert.equal(new Set(versions).size, versions.length);
    assert.deepEqual(answers.map((answer) => answer.status).sort(), ['fulfilled', 'rejected']);
    assert.equal((await state())?.version, 2);
  });

  it('notifies gateways of a new version, and of nothing else', async () => {
    const listener = await used.db.connect();
    const heard: string[] = [];
    listener.on('notification', (message) => void heard.push(message.payload ?? ''));
    await listener.query('listen bc_trust');
    await publish(steps.a);
    await publish(steps.a);
    await publish(steps.added);
    await listener.query('select 1');
    await listener.end();
    assert.deepEqual(heard, ['1', '2']);
  });
});
