import assert from 'node:assert/strict';
import { day, hour } from '../../../domain/time.ts';
import { settleTrustVersion } from '../../../domain/trust/version.ts';
import {
  abortCommandRotation,
  addCommandRoot,
  addTrustRoot,
  createCommandRoot,
  dropCommandRoot,
  encodeBundle,
  openBundle,
  type PkiBundle,
  removeTrustRoot,
  switchCommandRoot,
  trustVersionAcknowledged,
  withCommandRoots,
} from '../../../pki/bundle/index.ts';
import { acceptTrustBundle, type HeldTrust, trustBundleOf, trustContentDigest, trustContentOf } from '../../../pki/trust/index.ts';
import { now, refusal, secret, sharedBundle, trustDomain } from '../support.ts';

const reopened = (bundle: PkiBundle): PkiBundle => openBundle(encodeBundle(bundle, { secret }), { secret });
const ids = (bundle: PkiBundle): string[] => [...bundle.commandRootsById.keys()];
const digestOf = (bundle: PkiBundle): string => trustContentDigest(trustContentOf(bundle));

describe('the rotation of the command root on a bundle', () => {
  let start: PkiBundle;
  let oldRoot: string;
  before(async () => {
    start = await sharedBundle();
    oldRoot = start.commandRoots.signing;
  });

  const add = async (rotationId = 'r1'): Promise<PkiBundle> => (await addCommandRoot(start, { rotationId, now })).bundle;
  const switched = async (from?: PkiBundle): Promise<PkiBundle> =>
    switchCommandRoot(from ?? (await add()), { rotationId: 'r1', now: now + hour }).bundle;

  it('ROT-002 ROT-006 KEY-046 add: two roots, the old one signs, the trust version goes up', async () => {
    const bundle = reopened(await add());
    assert.equal(ids(bundle).length, 2);
    assert.equal(bundle.commandSigning?.id, oldRoot);
    assert.equal(bundle.trustVersion, start.trustVersion + 1);
    assert.notEqual(bundle.commandRoots.rotation?.newRoot, oldRoot);
  });

  it('ROT-007 switch: the new root signs, both stay trusted, the trust version stays', async () => {
    const added = await add();
    const bundle = reopened(await switched(added));
    assert.equal(bundle.commandSigning?.id, added.commandRoots.rotation?.newRoot);
    assert.equal(ids(bundle).length, 2);
    assert.equal(bundle.trustVersion, start.trustVersion + 1);
    assert.equal(digestOf(bundle), digestOf(added));
  });

  it('ROT-005 ROT-008 drop: one root, a higher trust version, and the old key is gone from the file', async () => {
    const before = await switched();
    const bundle = reopened(
      dropCommandRoot(before, { rotationId: 'r1', now: now + 26 * hour, opensAt: now + 25 * hour, forcedReason: '' }).bundle,
    );
    assert.deepEqual(ids(bundle), [before.commandRoots.rotation?.newRoot]);
    assert.equal(bundle.trustVersion, start.trustVersion + 2);
    assert.equal(bundle.commandRoots.removed[0]?.id, oldRoot);
    assert.equal(encodeBundle(bundle, { plaintext: true }).includes(`commandRoot:${oldRoot}`), false);
  });

  it('ROT-012 a step out of order is INVALID_STATE', async () => {
    const added = await add();
    assert.throws(
      () => switchCommandRoot(start, { rotationId: 'r1', now }),
      refusal('INVALID_STATE', 'out-of-order', /switch without add/),
    );
    assert.throws(
      () => dropCommandRoot(added, { rotationId: 'r1', now, opensAt: 0, forcedReason: 'x' }),
      refusal('INVALID_STATE', 'out-of-order', /drop before switch/),
    );
    await assert.rejects(
      addCommandRoot(added, { rotationId: 'r2', now }),
      refusal('INVALID_STATE', 'rotation-in-progress', /rotation r1 is in progress \(stage added\)/),
    );
  });

  it('A-PKI-21 a drop before it opens names the time; a reason opens it and is kept', async () => {
    const bundle = await switched();
    const early = { rotationId: 'r1', now: now + 2 * hour, opensAt: now + 25 * hour };
    assert.throws(
      () => dropCommandRoot(bundle, { ...early, forcedReason: '' }),
      refusal('INVALID_STATE', 'drop-too-early', /not dropping before 2026-01-16T13:00:00Z/),
    );
    assert.equal(
      dropCommandRoot(bundle, { ...early, forcedReason: 'the key leaked' }).bundle.commandRoots.removed[0]?.forcedReason,
      'the key leaked',
    );
  });

  it('a repeated step answers the same bundle and makes no key', async () => {
    const added = await add();
    const again = await addCommandRoot(added, { rotationId: 'r1', now: now + 1 });
    assert.equal(again.changed, false);
    assert.equal(again.bundle, added);
    const done = await switched();
    assert.equal(switchCommandRoot(done, { rotationId: 'r1', now }).bundle, done);
  });

  it('C14 add with the key of a trusted root is INVALID_INPUT', async () => {
    const current = start.commandSigning;
    assert.ok(current !== undefined);
    await assert.rejects(
      addCommandRoot(start, { rotationId: 'r1', now, root: { ...current, id: 'ab'.repeat(32) } }),
      refusal('INVALID_INPUT', 'root-key-known', /has the key of root [0-9a-f]{64}: a rotation needs a new key/),
    );
    await assert.rejects(
      addCommandRoot(start, { rotationId: 'r1', now, root: current }),
      refusal('INVALID_INPUT', 'root-key-known', /new key/),
    );
  });

  it('a root made elsewhere can be added', async () => {
    const root = await createCommandRoot({ trustDomain, now });
    const { bundle } = await addCommandRoot(start, { rotationId: 'r1', now, root });
    assert.equal(bundle.commandRoots.rotation?.newRoot, root.id);
  });

  it('KEY-036 a bundle without command roots has nothing to rotate', async () => {
    const { commandSigning: _signing, ...rest } = withCommandRoots(start, { ...start.commandRoots, signing: '', roots: [] });
    await assert.rejects(
      addCommandRoot(rest, { rotationId: 'r1', now }),
      refusal('INVALID_STATE', 'no-command-signing', /no command-signing root/),
    );
  });

  it('C12 H-04 an abort after add publishes the old content again, at a version above, and daemons give the new root up', async () => {
    const first = settleTrustVersion(null, null, { digest: digestOf(start), floor: start.trustVersion, explicitFloor: 0 });
    const added = await add();
    const second = settleTrustVersion({ version: first.version, digest: digestOf(start) }, null, {
      digest: digestOf(added),
      floor: added.trustVersion,
      explicitFloor: 0,
    });
    assert.deepEqual([first.version, second.version], [1, 2]);
    const abort = { rotationId: 'r1', now: now + hour, actor: 'ada', reason: 'wrong window', recordedVersion: 2 };
    const aborted = reopened(abortCommandRotation(added, abort).bundle);
    assert.equal(digestOf(aborted), digestOf(start));
    assert.deepEqual(aborted.republish, { version: 3, reason: 'wrong window', actor: 'ada', at: now + hour });
    const candidate = { digest: digestOf(aborted), floor: aborted.trustVersion, explicitFloor: aborted.republish?.version ?? 0 };
    assert.deepEqual(settleTrustVersion({ version: 2, digest: digestOf(added) }, 1, candidate), { kind: 'publish', version: 3 });
    const held = take(null, added, 2);
    assert.deepEqual(take(held, aborted, 3).roots.length, 1);
  });

  it('H-04 an abort after switch lets the old root sign again, with nothing rejected', async () => {
    const step = abortCommandRotation(await switched(), {
      rotationId: 'r1',
      now: now + 2 * hour,
      actor: 'ada',
      reason: 'x',
      recordedVersion: 2,
    });
    const bundle = reopened(step.bundle);
    assert.equal(bundle.commandSigning?.id, oldRoot);
    assert.equal(ids(bundle).length, 2);
    assert.equal(bundle.republish, null);
    assert.equal(abortCommandRotation(bundle, { rotationId: 'r1', now, actor: 'ada', reason: 'x', recordedVersion: 2 }).changed, false);
  });

  it('H-04 an abort after the drop is refused', async () => {
    const { bundle } = dropCommandRoot(await switched(), { rotationId: 'r1', now: now + 2 * day, opensAt: now + day, forcedReason: '' });
    assert.throws(
      () => abortCommandRotation(bundle, { rotationId: 'r1', now, actor: 'ada', reason: 'x', recordedVersion: 3 }),
      refusal('INVALID_STATE', 'already-dropped', /start a new rotation instead/),
    );
  });

  describe('ROT-030 the same steps and gates for other tooling', () => {
    it('addTrustRoot and removeTrustRoot are the steps', () => {
      assert.equal(addTrustRoot, addCommandRoot);
      assert.equal(removeTrustRoot, dropCommandRoot);
    });

    it('trustVersionAcknowledged judges the publication first, then the fleet', () => {
      const fleet = {
        connected: 2,
        behind: 1,
        sample: [{ nodeId: 'node_old', trustVersion: 1, daemonVersion: '0.1.0' }],
        knownNodes: 2,
        absentNodes: 0,
        lastPresenceWriteAt: now,
      };
      const publication = { publishedVersion: 2, publishedDigest: 'aa', expectedDigest: 'bb' };
      assert.deepEqual(trustVersionAcknowledged({ publication, fleet, now }), {
        kind: 'closed',
        reason: 'not-published',
        message: 'Not switching: the deployment still publishes trust version 2 without the new root',
        behind: [],
      });
      const published = { ...publication, publishedDigest: 'bb' };
      const verdict = trustVersionAcknowledged({ publication: published, fleet, now });
      assert.equal(verdict.kind === 'closed' && verdict.message, '1 of 2 connected node(s) have not applied it (node_old at 1)');
      assert.deepEqual(trustVersionAcknowledged({ publication: published, fleet: { ...fleet, behind: 0, sample: [] }, now }), {
        kind: 'open',
      });
    });
  });
});

function take(held: HeldTrust | null, bundle: PkiBundle, version: number): HeldTrust {
  const answer = acceptTrustBundle(held, trustBundleOf(bundle, version), { now, minOverlapMs: day });
  assert.equal(answer.kind, 'take');
  return (answer as { held: HeldTrust }).held;
}
