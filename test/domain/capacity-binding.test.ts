/** When a node's word about an allocation counts: exactly when every fact agrees, and each that does not has its word. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { type BindingFacts, eventErrors, judgeBinding } from '../../domain/capacity/binding.ts';
import { errorTable } from '../../domain/errors.ts';

const now = 1_000;
const good: BindingFacts & {
  readonly certificate: NonNullable<BindingFacts['certificate']>;
  readonly reservation: NonNullable<BindingFacts['reservation']>;
} = {
  statement: { trustDomain: 'fleet.example', nodeId: 'node-1', reservationId: 'r-1', allocationId: 'i-1' },
  node: { id: 'node-1', state: 'active', identityGeneration: 3 },
  certificate: {
    trustDomain: 'fleet.example',
    nodeId: 'node-1',
    role: 'node',
    generation: 3,
    notBefore: 0,
    notAfter: 2_000,
    revokedAt: null,
  },
  reservation: { nodeId: 'node-1', allocationId: 'i-1', state: 'pending' },
  now,
};

/** One change each: what then is wrong, and its word. */
const faults: readonly (readonly [name: string, change: (facts: BindingFacts) => BindingFacts, word: string])[] = [
  ['no such key', (facts) => ({ ...facts, certificate: null }), 'access-denied'],
  ['another node’s certificate', (facts) => withCertificate(facts, { nodeId: 'node-2' }), 'access-denied'],
  ['a tenant’s machine', (facts) => withCertificate(facts, { role: 'node-tenant' }), 'access-denied'],
  ['a site agent', (facts) => withCertificate(facts, { role: 'site' }), 'access-denied'],
  ['revoked', (facts) => withCertificate(facts, { revokedAt: 5 }), 'access-denied'],
  ['not yet valid', (facts) => withCertificate(facts, { notBefore: now + 1 }), 'access-denied'],
  ['over', (facts) => withCertificate(facts, { notAfter: now }), 'access-denied'],
  ['of a former identity', (facts) => withCertificate(facts, { generation: 2 }), 'access-denied'],
  ['node quarantined', (facts) => ({ ...facts, node: { ...facts.node, state: 'quarantined' } }), 'access-denied'],
  ['said by another node', (facts) => ({ ...facts, statement: { ...facts.statement, nodeId: 'node-2' } }), 'access-denied'],
  [
    'said for another deployment',
    (facts) => ({ ...facts, statement: { ...facts.statement, trustDomain: 'other.example' } }),
    'access-denied',
  ],
  ['no reservation', (facts) => ({ ...facts, reservation: null }), 'not-bound'],
  ['a reservation of another node', (facts) => withReservation(facts, { nodeId: 'node-2' }), 'not-bound'],
  ['a swapped allocation', (facts) => ({ ...facts, statement: { ...facts.statement, allocationId: 'i-2' } }), 'not-bound'],
  ['ended', (facts) => withReservation(facts, { state: 'ended' }), 'ended'],
];

function withCertificate(facts: BindingFacts, change: Partial<NonNullable<BindingFacts['certificate']>>): BindingFacts {
  return { ...facts, certificate: facts.certificate === null ? null : { ...facts.certificate, ...change } };
}
function withReservation(facts: BindingFacts, change: Partial<NonNullable<BindingFacts['reservation']>>): BindingFacts {
  return { ...facts, reservation: facts.reservation === null ? null : { ...facts.reservation, ...change } };
}

describe('the word of a node about an allocation', () => {
  it('SIGN-014 counts when the node’s own key said it for its own reservation; a repeated one changes nothing', () => {
    assert.deepEqual(judgeBinding(good), { kind: 'bound' });
    assert.deepEqual(judgeBinding(withReservation(good, { state: 'active' })), { kind: 'already' });
  });

  it('SIGN-014 one fact that does not fit is enough, and has its word', () => {
    for (const [name, change, word] of faults)
      for (const state of ['pending', 'active'] as const) {
        const verdict = judgeBinding(change(withReservation(good, { state })));
        assert.deepEqual([name, verdict.kind, verdict.kind === 'refused' && verdict.word], [name, 'refused', word]);
      }
  });

  it('SIGN-014 whatever else is wrong, it counts only when nothing is, and who may not speak learns of no reservation (property)', () => {
    fc.assert(
      fc.property(fc.subarray([...faults]), fc.constantFrom('pending' as const, 'active' as const), (wrong, state) => {
        const facts = wrong.reduce((at, [, change]) => change(at), withReservation(good, { state }));
        const verdict = judgeBinding(facts);
        assert.equal(verdict.kind === 'refused', wrong.length > 0);
        if (verdict.kind !== 'refused') return assert.equal(verdict.kind, state === 'pending' ? 'bound' : 'already');
        if (wrong.some(([, , word]) => word === 'access-denied')) assert.equal(verdict.word, 'access-denied');
      }),
    );
  });

  it('every word is a code of the table', () => {
    for (const { code, summary } of Object.values(eventErrors)) assert.ok(Object.hasOwn(errorTable, code) && summary.length > 0);
  });
});
