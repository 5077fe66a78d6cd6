/** The exchange of the exec ticket key in the bundle, and what every process that opens it lists and signs with. */
import assert from 'node:assert/strict';
import { minute } from '../../../domain/time.ts';
import {
  addExecTicketKey,
  bundleDigest,
  encodeBundle,
  openBundle,
  type PkiBundle,
  promoteExecTicketKey,
  readPublicBundle,
  retireExecTicketKey,
  ticketRetireAfterMs,
  withdrawExecTicketKey,
} from '../../../pki/bundle/index.ts';
import {
  createTicketGuard,
  type ExecTicketIssuer,
  encodeTicketKeys,
  execTicketIssuer,
  parseTicketKeys,
  verifyExecTicket,
} from '../../../pki/exec/index.ts';
import { edited, now, refusal, secret, sharedBundle } from '../support.ts';

const issuer = 'https://compute.example.com';
const subject = { nodeId: 'node-7', sessionId: 's-1', operation: 'node.shell', actor: 'olga' };
/** As another process opens it. */
const reopened = (bundle: PkiBundle): PkiBundle => openBundle(encodeBundle(bundle, { secret }), { secret });
const issuerOf = (bundle: PkiBundle, at: number): ExecTicketIssuer => execTicketIssuer(bundle, { issuer, now: () => at });
const kidsOf = (bundle: PkiBundle): string[] =>
  issuerOf(bundle, now)
    .jwks()
    .keys.map(({ kid }) => kid);

describe('the exec ticket key of a bundle', () => {
  it('R-05 a next key that has not signed is withdrawn at any time, and nothing else changes', async () => {
    const start = await sharedBundle();
    const added = addExecTicketKey(start, { now }).bundle;
    const withdrawn = withdrawExecTicketKey(added);
    assert.equal(withdrawn.changed, true);
    assert.deepEqual(kidsOf(reopened(withdrawn.bundle)), kidsOf(start));
    assert.equal(bundleDigest(withdrawn.bundle), bundleDigest(start));
    assert.deepEqual(withdrawExecTicketKey(start), { bundle: start, changed: false });
    // With the former key of an exchange before still listed, that one keeps its time.
    const promoted = promoteExecTicketKey(added, { now }).bundle;
    const both = withdrawExecTicketKey(addExecTicketKey(promoted, { now: now + 1 }).bundle).bundle;
    assert.deepEqual(reopened(both).execTicketTimes, promoted.execTicketTimes);
  });

  it('EXEC-007 EXEC-008 add, promote, retire: every process lists and signs alike, and no ticket fails', async () => {
    const start = await sharedBundle();
    const added = reopened(addExecTicketKey(start, { now }).bundle);
    const promoted = reopened(promoteExecTicketKey(added, { now: now + minute }).bundle);
    const retired = reopened(retireExecTicketKey(promoted, { now: now + minute + ticketRetireAfterMs }).bundle);
    const [old] = kidsOf(start) as [string];
    const [, next] = kidsOf(added) as [string, string];
    assert.deepEqual(kidsOf(added), [old, next]);
    assert.deepEqual(kidsOf(promoted), [next, old]);
    assert.deepEqual(kidsOf(retired), [next]);
    assert.equal(issuerOf(reopened(promoted), now).kid, issuerOf(promoted, now).kid);
    // Each stage's tickets verify by the keys of that stage and of the one after it.
    for (const [at, stages] of [
      [now, [start, added]],
      [now + minute - 1, [added, promoted]],
      [now + minute, [promoted, promoted]],
    ] as const) {
      const { ticket } = await issuerOf(stages[0], at).issue(subject);
      for (const stage of stages) {
        const keys = parseTicketKeys(encodeTicketKeys(issuerOf(stage, at).jwks()));
        verifyExecTicket(ticket, { keys, issuer, nodeId: subject.nodeId, now: at + minute - 1_000, guard: createTicketGuard() });
      }
    }
  });

  it('EXEC-008 a former key is listed until its last ticket is over, its private half gone at once', async () => {
    const promoted = promoteExecTicketKey(addExecTicketKey(await sharedBundle(), { now }).bundle, { now }).bundle;
    assert.throws(
      () => reopened(promoted).execTicketKeyFormer?.signer(),
      refusal('INVALID_STATE', 'key-offline', /is not in the key bundle/),
    );
    const early = now + ticketRetireAfterMs - 1;
    assert.throws(
      () => retireExecTicketKey(promoted, { now: early }),
      refusal('INVALID_STATE', 'retire-too-early', /^not retiring the former exec ticket key before 2026-01-15T12:02:00Z/),
    );
    const again = addExecTicketKey(promoted, { now }).bundle;
    assert.throws(() => promoteExecTicketKey(again, { now }), refusal('INVALID_STATE', 'former-listed', /retire it first$/));
    const cleared = retireExecTicketKey(again, { now: early + 1 }).bundle;
    assert.deepEqual(cleared.execTicketTimes, { nextAddedAt: now, formerStoppedAt: null });
    assert.equal(promoteExecTicketKey(cleared, { now }).changed, true);
  });

  it('repeated steps change nothing; a step without the one before is refused', async () => {
    const bundle = await sharedBundle();
    assert.equal(retireExecTicketKey(bundle, { now }).changed, false);
    assert.throws(() => promoteExecTicketKey(bundle, { now }), refusal('INVALID_STATE', 'no-next-key', /add one first$/));
    const added = addExecTicketKey(bundle, { now }).bundle;
    assert.deepEqual(addExecTicketKey(added, { now: now + 1 }), { bundle: added, changed: false });
  });

  it('KEY-036 KEY-038 a bundle made before there was a ticket key gets its first, which signs', async () => {
    const { execTicketKey: _none, ...older } = await sharedBundle();
    const first = reopened(addExecTicketKey(older, { now }).bundle);
    assert.equal(kidsOf(first).length, 1);
    assert.equal(first.execTicketKeyNext, undefined);
    await issuerOf(first, now).issue(subject);
  });

  it('KEY-018 KEY-049 the other keys and their times are under the seal', async () => {
    const bundle = promoteExecTicketKey(addExecTicketKey(await sharedBundle(), { now }).bundle, { now }).bundle;
    const text = encodeBundle(bundle, { secret });
    assert.equal(bundleDigest(readPublicBundle(text)), bundleDigest(bundle));
    const changes: ((document: any) => void)[] = [
      (document) => delete document.keys.execTicketKeyFormer,
      (document) => (document.execTicketTimes.formerStoppedAt = 0),
      (document) => (document.keys.execTicketKeyFormer.publicKey = document.keys.joinSigning.publicKey),
    ];
    for (const change of changes) assert.throws(() => openBundle(edited(text, change), { secret }), { code: 'INVALID_CONFIG' });
    const plain = encodeBundle(bundle, { plaintext: true });
    for (const change of [...changes.slice(0, 1), (document: any) => (document.execTicketTimes.nextAddedAt = 5)])
      assert.throws(
        () => openBundle(edited(plain, change), {}),
        refusal('INVALID_CONFIG', 'bundle-invalid', /execTicketTimes does not fit execTicketKey/),
      );
    assert.throws(
      () =>
        openBundle(
          edited(plain, (document) => delete document.keys.execTicketKey),
          {},
        ),
      refusal('INVALID_CONFIG', 'bundle-invalid', /execTicketKey/),
    );
  });
});
