import assert from 'node:assert/strict';
import fc from 'fast-check';
import { settleTrustVersion, type TrustCandidate } from '../../domain/trust/version.ts';

const a: TrustCandidate = { digest: 'a', floor: 0, explicitFloor: 0 };
const b: TrustCandidate = { digest: 'b', floor: 0, explicitFloor: 0 };

describe('the version of the trust bundle', () => {
  it('A-PKI-16 starts at 1, or at the floor', () => {
    assert.deepEqual(settleTrustVersion(null, null, a), { kind: 'publish', version: 1 });
    assert.deepEqual(settleTrustVersion(null, null, { ...a, floor: 4 }), { kind: 'publish', version: 4 });
  });

  it('TRUST-009 keeps the version of unchanged content', () => {
    assert.deepEqual(settleTrustVersion({ version: 3, digest: 'a' }, 3, a), { kind: 'unchanged', version: 3 });
  });

  it('TRUST-010 gives changed content the next version', () => {
    assert.deepEqual(settleTrustVersion({ version: 3, digest: 'a' }, null, b), { kind: 'publish', version: 4 });
  });

  it('ROT-011 TRUST-018 never publishes below the floor, and a floor below changes nothing', () => {
    assert.deepEqual(settleTrustVersion({ version: 3, digest: 'a' }, 3, { ...a, floor: 10 }), { kind: 'publish', version: 10 });
    assert.deepEqual(settleTrustVersion({ version: 3, digest: 'a' }, null, { ...b, floor: 10 }), { kind: 'publish', version: 10 });
    assert.deepEqual(settleTrustVersion({ version: 3, digest: 'a' }, 3, { ...a, floor: 1 }), { kind: 'unchanged', version: 3 });
    assert.deepEqual(settleTrustVersion({ version: 9, digest: 'a' }, null, { ...b, floor: 3 }), { kind: 'publish', version: 10 });
  });

  it('TRUST-012 TRUST-014 serves a replaced bundle at its old version', () => {
    assert.deepEqual(settleTrustVersion({ version: 4, digest: 'b' }, 3, a), { kind: 'stale', version: 3, currentVersion: 4 });
  });

  it("A-PKI-17 does not take the replaced bundle's own floor for an order to publish it again", () => {
    assert.equal(settleTrustVersion({ version: 4, digest: 'b' }, 3, { ...a, floor: 9 }).kind, 'stale');
  });

  it('TRUST-017 H-04 publishes a replaced bundle again only above the recorded version and only when asked by name', () => {
    assert.deepEqual(settleTrustVersion({ version: 4, digest: 'b' }, 3, { ...a, explicitFloor: 5 }), { kind: 'publish', version: 5 });
    assert.equal(settleTrustVersion({ version: 4, digest: 'b' }, 3, { ...a, explicitFloor: 4 }).kind, 'stale');
  });

  it('TRUST-001 TRUST-025 never gives two contents one version, and never goes down, whatever happens in whatever order', () => {
    const step = fc.record({
      digest: fc.constantFrom('a', 'b', 'c', 'd'),
      floor: fc.nat(12),
      explicitFloor: fc.oneof(fc.constant(0), fc.nat(12)),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
        const history = new Map<number, string>();
        let recorded: { version: number; digest: string } | null = null;
        for (const candidate of steps) {
          const at = [...history].filter(([, digest]) => digest === candidate.digest).map(([version]) => version);
          const decision = settleTrustVersion(recorded, at.length === 0 ? null : Math.max(...at), candidate);
          if (decision.kind === 'publish') {
            assert.ok(decision.version > (recorded?.version ?? 0), 'a publication raises the version');
            assert.ok(decision.version >= Math.max(candidate.floor, candidate.explicitFloor));
            history.set(decision.version, candidate.digest);
            recorded = { version: decision.version, digest: candidate.digest };
          } else {
            assert.equal(history.get(decision.version), candidate.digest, 'what is served was published so');
          }
        }
      }),
    );
  });
});
