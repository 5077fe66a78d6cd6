import assert from 'node:assert/strict';
import {
  assertRoomForCertificate,
  type CaCertificateEntry,
  caRenewalStage,
  isRenewalDue,
  judgeCaRetirement,
  maxCaCertificates,
  retireCertificate,
  retirementOpensAt,
} from '../../domain/rotation/ca-renewal.ts';
import { productionTimes } from '../../domain/rotation/gates.ts';
import { day, minute } from '../../domain/time.ts';
import { refusal } from '../pki/support.ts';

const now = Date.UTC(2026, 0, 15, 12);
const entry = (serial: string): CaCertificateEntry => ({ serial, notBefore: now, notAfter: now + 700 * day });
const two = [entry('new'), entry('old')];

describe('the renewal of a certificate authority', () => {
  it('CLI-053 is named by the certificate it replaces: due, then renewed, then gone', () => {
    assert.deepEqual(
      ['new', 'old', 'other'].map((serial) => caRenewalStage(two, serial)),
      ['due', 'renewed', 'gone'],
    );
    assert.equal(isRenewalDue(two, 'new'), true);
    assert.equal(isRenewalDue(two, 'old'), false, 'repeated: nothing to do');
    assert.throws(
      () => isRenewalDue(two, 'other'),
      refusal('INVALID_STATE', 'renewed-since', /^certificate other is no longer in the key bundle: another renewal has replaced it$/),
    );
  });

  it('at most eight certificates of one authority overlap', () => {
    const many = Array.from({ length: maxCaCertificates }, (_, at) => entry(String(at)));
    assert.doesNotThrow(() => assertRoomForCertificate(many.slice(1)));
    assert.throws(() => assertRoomForCertificate(many), refusal('INVALID_STATE', 'too-many-certificates', /has 8 certificates already/));
  });

  it('CLI-055 the old one may leave after the overlap and after its last leaf, and never later than its own end', () => {
    const far = now + 700 * day;
    const opens = (lastLeafNotAfter: number, oldNotAfter = far): number =>
      retirementOpensAt({ renewedAt: now, oldNotAfter, lastLeafNotAfter }, productionTimes);
    assert.equal(opens(now), now + day);
    assert.equal(opens(now + 90 * day), now + 90 * day + productionTimes.dropMarginMs);
    assert.equal(opens(now + 90 * day, now + minute), now + minute);
    const facts = { renewedAt: now, oldNotAfter: far, lastLeafNotAfter: now };
    assert.deepEqual(judgeCaRetirement({ ...facts, now: now + day - 1 }, productionTimes), {
      kind: 'closed',
      reason: 'retire-too-early',
      message: 'the earlier certificate can leave from 2026-01-16T12:00:00Z (in 1 s)',
      behind: [],
    });
    assert.deepEqual(judgeCaRetirement({ ...facts, now: now + day }, productionTimes), { kind: 'open' });
  });

  it('CLI-055 an earlier certificate leaves once; the present one never, and none before its time without a reason', () => {
    const input = { serial: 'old', now, opensAt: now, forcedReason: '' };
    assert.deepEqual(retireCertificate(two, input), [two[0]]);
    assert.equal(retireCertificate([two[0] as CaCertificateEntry], input), null);
    assert.throws(
      () => retireCertificate(two, { ...input, serial: 'new' }),
      refusal('INVALID_STATE', 'out-of-order', /^certificate new is the present one: renew it before it can leave$/),
    );
    const early = { ...input, opensAt: now + 1 };
    assert.throws(
      () => retireCertificate(two, early),
      refusal('INVALID_STATE', 'retire-too-early', /^certificate old cannot leave before 2026-01-15T12:00:00Z$/),
    );
    assert.deepEqual(retireCertificate(two, { ...early, forcedReason: 'the old key was printed' }), [two[0]]);
  });
});
