/** The evidence of a key's exchange: what it holds, and what a verifier that believes the pin alone finds in a bad one. */
import assert from 'node:assert/strict';
import type { SignedEvidence } from '../../../pki/audit/evidence.ts';
import { createKeyEvidence, type KeyStageFacts, parseKeyEvidence } from '../../../pki/audit/key-evidence.ts';
import { isKeyEvidence, verifyKeyEvidence } from '../../../pki/audit/verify-key-evidence.ts';
import { newSigningKey } from '../../../pki/bundle/index.ts';
import { spkiPin } from '../../../pki/x509/index.ts';

const key = newSigningKey('audit');
const options = { auditKey: key.spki, pin: spkiPin(key.spki) };
const digest = 'd'.repeat(64);
const common = {
  trustDomain: 'fleet.example',
  rotationId: 'rotate-ticket-key/r',
  key: 'ticket',
  subject: '',
  actor: 'system',
  bundle: { digest, generation: 4 },
  from: 'old',
  to: 'new',
  processes: null,
  overrides: [],
} as const;
const [old, next] = ['old', 'new'];
const facts: readonly KeyStageFacts[] = [
  { ...common, stage: 'plan', at: 1, to: null, keys: [{ id: old, state: 'signing', opensAt: null }] },
  {
    ...common,
    stage: 'add',
    at: 2,
    keys: [
      { id: old, state: 'signing', opensAt: null },
      { id: next, state: 'waiting', opensAt: 10 },
    ],
  },
  {
    ...common,
    stage: 'processes',
    at: 3,
    keys: [
      { id: old, state: 'signing', opensAt: null },
      { id: next, state: 'waiting', opensAt: 10 },
    ],
    processes: [{ id: 'api-1', kind: 'api', runs: digest }],
  },
  {
    ...common,
    stage: 'promote',
    at: 10,
    keys: [
      { id: next, state: 'signing', opensAt: null },
      { id: old, state: 'former', opensAt: 50 },
    ],
  },
  { ...common, stage: 'retire', at: 50, keys: [{ id: next, state: 'signing', opensAt: null }] },
  { ...common, stage: 'confirm', at: 51, keys: [{ id: next, state: 'signing', opensAt: null }] },
];

async function sign(list: readonly KeyStageFacts[], signer = key.signer()): Promise<SignedEvidence[]> {
  const signed: SignedEvidence[] = [];
  for (const one of list) signed.push(await createKeyEvidence({ signer, facts: one, previous: signed.at(-1) ?? null }));
  return signed;
}
const changed = (stage: KeyStageFacts['stage'], over: Partial<KeyStageFacts>): KeyStageFacts[] =>
  facts.map((one) => (one.stage === stage ? { ...one, ...over } : one));
const problemsOf = (signed: readonly SignedEvidence[]): string[] =>
  verifyKeyEvidence(signed, options).problems.map(({ check, stage, message }) => `${check}: ${stage} ${message}`);

describe("the evidence of a key's exchange", () => {
  it('H-17 a whole exchange is valid, and says which key and how it ended', async () => {
    const signed = await sign(facts);
    const verdict = verifyKeyEvidence(signed, options);
    assert.deepEqual(verdict.problems, []);
    assert.deepEqual([verdict.key, verdict.outcome, verdict.stages.length], ['ticket', 'completed', 6]);
    assert.equal(isKeyEvidence(signed), true);
    assert.equal(verifyKeyEvidence(signed.slice(0, 3), options).outcome, 'in-progress');
  });

  const bad: readonly [what: string, list: readonly KeyStageFacts[], says: string][] = [
    ['a promotion before its time', changed('promote', { at: 9 }), 'overlap: promote before 1970-01-01T00:00:00Z, when it was to open'],
    ['a retirement before its time', changed('retire', { at: 49 }), 'overlap: retire before 1970-01-01T00:00:00Z, when it was to open'],
    ['a key that was not retired', changed('retire', { keys: facts[3]?.keys ?? [] }), 'keys: retire still holds old'],
    ['a promotion that did not sign', changed('promote', { keys: facts[2]?.keys ?? [] }), 'keys: promote is not signing with new'],
    [
      'a process that was behind',
      changed('processes', { processes: [{ id: 'w-1', kind: 'worker-signing', runs: null }] }),
      'processes: processes worker-signing w-1 did not have it yet',
    ],
    ['a gate that passed on nothing', changed('processes', { processes: [] }), 'processes: processes the gate passed on no process at all'],
    [
      'a promotion without its add',
      facts.filter(({ stage }) => stage !== 'add' && stage !== 'processes'),
      'order: promote has no add before it',
    ],
    [
      'another exchange in its chain',
      changed('confirm', { rotationId: 'rotate-ticket-key/s' }),
      'chain: confirm belongs to rotationId rotate-ticket-key/s',
    ],
  ];
  for (const [what, list, says] of bad) {
    it(`H-17 finds ${what}`, async () => assert.ok(problemsOf(await sign(list)).includes(says), problemsOf(await sign(list)).join('; ')));
  }

  it('H-08 a force answers for a process that was behind, by name', async () => {
    const overrides = [{ kind: 'force', subject: 'processes', actor: 'ann', reason: 'scrap', at: 3 } as const];
    const forced = changed('processes', { processes: [{ id: 'w-1', kind: 'worker-signing', runs: null }], overrides });
    assert.deepEqual(problemsOf(await sign(forced)), []);
  });

  it('H-17 finds a document that is missing, changed, or signed by another key', async () => {
    const signed = await sign(facts);
    assert.ok(problemsOf(signed.filter((_, at) => at !== 2)).includes('chain: promote does not follow the document before it'));
    const [first, ...rest] = signed as [SignedEvidence, ...SignedEvidence[]];
    const text = Buffer.from(first.document).toString().replace('"system"', '"sys-ad"');
    assert.ok(problemsOf([{ ...first, document: Buffer.from(text) }, ...rest]).includes('signature: #1 is not signed by the audit key'));
    const forged = await sign(facts, newSigningKey('other').signer());
    assert.equal(problemsOf(forged).filter((problem) => problem.startsWith('signature')).length, 6);
    assert.throws(
      () => verifyKeyEvidence(signed, { ...options, pin: 'sha256/x' }),
      /^ControlError: the evidence is signed by sha256\/.*, not by the pinned audit key sha256\/x$/,
    );
  });

  it('H-19 a document with a field more, or of the other format, is none', async () => {
    const [first] = (await sign(facts)) as [SignedEvidence];
    const more = Buffer.from(first.document).toString().replace('"actor"', '"aaa":1,"actor"');
    assert.throws(
      () => parseKeyEvidence(Buffer.from(more)),
      /^ControlError: not the evidence of a key's exchange: aaa is not a known field$/,
    );
    assert.equal(isKeyEvidence([{ document: Buffer.from('{}') }]), false);
  });
});
