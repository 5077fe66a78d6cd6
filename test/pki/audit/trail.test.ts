import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { hour } from '../../../domain/time.ts';
import {
  type AuditCheckpoint,
  createCheckpoint,
  noCheckpoint,
  parseCheckpoint,
  type SignedCheckpoint,
} from '../../../pki/audit/checkpoint.ts';
import { type AuditRow, auditHash } from '../../../pki/audit/event.ts';
import { createTrailVerifier, type TrailOptions, type TrailVerdict } from '../../../pki/audit/verify-trail.ts';
import { type Signer, signerFromPrivateKey, spkiPin } from '../../../pki/x509/index.ts';
import { now, refusal, trustDomain } from '../support.ts';

const tenant = 'acme';
const newSigner = (): Signer => signerFromPrivateKey(generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey);

/** Ten events of one tenant, every second place of the deployment's chain; three, then four are sealed, three are not. */
function eventsOf(count: number): AuditRow[] {
  let hash: Uint8Array = new Uint8Array(32);
  const rows: AuditRow[] = [];
  for (let seq = 1; seq <= count * 2; seq++) {
    const event = { key: `k/${seq}`, actor: 'ann', action: 'test.act', subject: `s-${seq}`, details: { seq }, seq, at: now + seq };
    const own = seq % 2 === 0 ? { ...event, tenant } : event;
    const prevHash = hash;
    hash = auditHash(prevHash, own);
    if (seq % 2 === 0) rows.push({ ...own, prevHash, hash });
  }
  return rows;
}

describe('the checkpoints of an audit trail', () => {
  const signer = newSigner();
  const pin = spkiPin(signer.spki);
  const events = eventsOf(10);
  let first: SignedCheckpoint & { checkpoint: AuditCheckpoint };
  let second: SignedCheckpoint & { checkpoint: AuditCheckpoint };
  before(async () => {
    first = await createCheckpoint({ trustDomain, tenant, at: now + hour, previous: null, events: events.slice(0, 3), signer });
    second = await createCheckpoint({
      trustDomain,
      tenant,
      at: now + 2 * hour,
      previous: first.document,
      events: events.slice(3, 7),
      signer,
    });
  });
  const check = (rows: readonly AuditRow[] = events, change: Partial<TrailOptions> = {}): TrailVerdict => {
    const verifier = createTrailVerifier({ tenant, trustDomain, pin, checkpoints: [first, second], ...change });
    for (const row of rows) verifier.add(row);
    return verifier.end();
  };
  const problemsOf = (...args: Parameters<typeof check>): string[] => {
    const { valid, problems } = check(...args);
    assert.equal(valid, problems.length === 0);
    return problems.map(({ check: kind, at, message }) => `${kind}: ${at} ${message}`);
  };

  it('AUD-001 AUD-002 a checkpoint names the tenant, the one before, what it covers and how many there were', () => {
    const { root, auditKey, previous, ...rest } = parseCheckpoint(second.document);
    assert.deepEqual(rest, {
      format: 'better-compute/audit-checkpoint/1',
      trustDomain,
      tenant,
      number: 2,
      at: now + 2 * hour,
      fromSeq: 8,
      throughSeq: 14,
      count: 4,
      total: 7,
    });
    assert.equal(first.checkpoint.previous, noCheckpoint);
    assert.match(previous, /^[0-9a-f]{64}$/);
    assert.match(root, /^[0-9a-f]{64}$/);
    assert.equal(auditKey, Buffer.from(signer.spki).toString('base64'));
  });

  it('AUD-004 an intact trail is valid: what is sealed, what is not yet, and the last checkpoint', () => {
    const verdict = check();
    assert.deepEqual(verdict.problems, []);
    assert.deepEqual(
      [verdict.valid, verdict.sealed, verdict.unsealed, verdict.oldestUnsealedAt, verdict.lastCheckpoint?.number],
      [true, 7, 3, now + 16, 2],
    );
    const kept = { number: 2, sha256: verdict.lastCheckpoint?.sha256 ?? '' };
    assert.deepEqual(problemsOf(events, { kept }), []);
  });

  /** The event at `index`, changed, with its hash computed anew as somebody with the database would. */
  const forged = (index: number, change: Partial<AuditRow>): AuditRow[] =>
    events.map((row, at) => {
      if (at !== index) return row;
      const changed = { ...row, ...change };
      return { ...changed, hash: auditHash(changed.prevHash, changed) };
    });
  const swapped = (): AuditRow[] => {
    const [a, b] = [events[0] as AuditRow, events[1] as AuditRow];
    const exchanged = [
      { ...a, key: b.key, subject: b.subject, details: b.details, at: b.at },
      { ...b, key: a.key, subject: a.subject, details: a.details, at: a.at },
    ].map((row) => ({ ...row, hash: auditHash(row.prevHash, row) }));
    return [...exchanged, ...events.slice(2)];
  };

  const tamperings: readonly [string, () => string[], RegExp][] = [
    [
      'an event that was changed',
      () => problemsOf(events.map((row, at) => (at === 1 ? { ...row, actor: 'mallory' } : row))),
      /^event: event 4 does not match its hash/,
    ],
    [
      'an event that was changed with its hash',
      () => problemsOf(forged(1, { actor: 'mallory' })),
      /^interval: checkpoint 1 covers other events/,
    ],
    [
      'an event that was removed',
      () => problemsOf(events.filter((_, at) => at !== 4)),
      /^interval: checkpoint 2 covers 4 event\(s\), the trail has 3/,
    ],
    ['all events of a checkpoint', () => problemsOf(events.slice(7)), /^interval: checkpoint 1 covers 3 event\(s\), the trail has 0/],
    [
      'an event put in between',
      () => problemsOf([...events.slice(0, 1), ...forged(0, { seq: 3 }).slice(0, 1), ...events.slice(1)]),
      /^interval: checkpoint 1 covers 3 event\(s\), the trail has 4/,
    ],
    ['two events exchanged', () => problemsOf(swapped()), /^interval: checkpoint 1 covers other events/],
    [
      'rows in another order',
      () => problemsOf([...events.slice(0, 5), events[6] as AuditRow, events[5] as AuditRow, ...events.slice(7)]),
      /^event: event 12 is out of order/,
    ],
    ["another tenant's event", () => problemsOf(forged(1, { tenant: 'other' })), /^event: event 4 is of tenant other/],
    [
      'the first checkpoint left out',
      () => problemsOf(events, { checkpoints: [second] }),
      /^chain: checkpoint 1 says that it is number 2: one before it is missing/,
    ],
    ['checkpoints exchanged', () => problemsOf(events, { checkpoints: [second, first] }), /^chain: checkpoint 1 says that it is number 2/],
    ['a checkpoint twice', () => problemsOf(events, { checkpoints: [first, first] }), /^chain: checkpoint 2 says that it is number 1/],
    [
      'a checkpoint that is no document',
      () => problemsOf(events, { checkpoints: [first, { ...second, document: Buffer.from('{}') }] }),
      /^checkpoint: checkpoint 2 not an audit checkpoint/,
    ],
    [
      'a signature that was cut',
      () => problemsOf(events, { checkpoints: [first, { ...second, signature: second.signature.subarray(1) }] }),
      /^signature: checkpoint 2 has a signature that does not match/,
    ],
    [
      'the signature of another',
      () => problemsOf(events, { checkpoints: [first, { ...second, signature: first.signature }] }),
      /^signature: checkpoint 2/,
    ],
    [
      'another pin',
      () => problemsOf(events, { pin: spkiPin(newSigner().spki) }),
      /^pin: checkpoint 1 is signed by sha256\/.*, not by the pinned audit key/,
    ],
    ["another tenant's checkpoints", () => problemsOf([], { tenant: 'other' }), /^checkpoint: checkpoint 1 is of tenant acme/],
    [
      "another deployment's checkpoints",
      () => problemsOf(events, { trustDomain: 'other.example.com' }),
      /^checkpoint: checkpoint 1 is of compute\.example\.com/,
    ],
    [
      'a trail cut off behind a kept checkpoint',
      () => problemsOf(events.slice(0, 3), { checkpoints: [first], kept: { number: 2, sha256: 'a'.repeat(64) } }),
      /^chain: checkpoint 2 is not the one that was kept/,
    ],
  ];
  for (const [name, problems, first_] of tamperings) {
    it(`AUD-006 finds ${name}`, () => {
      const found = problems();
      assert.match(found[0] ?? 'nothing was found', first_);
    });
  }

  it('AUD-006 finds a checkpoint made anew with another key, though its own signature holds', async () => {
    const other = newSigner();
    const forgedTrail = await createCheckpoint({ trustDomain, tenant, at: now, previous: null, events: events.slice(0, 2), signer: other });
    assert.match(problemsOf(events, { checkpoints: [forgedTrail] })[0] ?? '', /^pin: checkpoint 1/);
  });

  it('a checkpoint is made over events, behind one of the same tenant, with a signature that was checked', async () => {
    const make = (change: object) =>
      createCheckpoint({ trustDomain, tenant, at: now, previous: first.document, events, signer, ...change });
    await assert.rejects(make({ events: [] }), refusal('INVALID_INPUT', 'no-event', /covers at least one event/));
    await assert.rejects(make({ tenant: 'other' }), refusal('MALFORMED', 'other-tenant', /the checkpoint before is of tenant acme/));
    const broken: Signer = { spki: signer.spki, sign: (input) => newSigner().sign(input) };
    await assert.rejects(make({ signer: broken }), refusal('INTERNAL', 'signed-other', /answered a signature that does not match/));
    assert.throws(
      () => parseCheckpoint(Buffer.from('{"format":"x"}')),
      refusal('MALFORMED', 'bad-checkpoint', /format is not one of.*trustDomain is missing/),
    );
  });

  it("the deployment's own events keep the hash they had before there were tenants", () => {
    const event = { key: 'k', actor: 'a', action: 'b', subject: 'c', details: {}, seq: 1, at: 1 };
    const zero = new Uint8Array(32);
    assert.deepEqual(auditHash(zero, event), auditHash(zero, { ...event, tenant: 'deployment' }));
    assert.notDeepEqual(auditHash(zero, event), auditHash(zero, { ...event, tenant: 'acme' }));
    assert.equal(Buffer.from(auditHash(zero, event)).toString('hex'), 'c1782fdbce83f0cb02dfa24ce7d7adc76c4d40dfedabf19c4fdb3491ec2dd056');
  });
});
