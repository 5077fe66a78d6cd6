import assert from 'node:assert/strict';
import type { ControlError } from '../../../domain/errors.ts';
import { day, hour, minute } from '../../../domain/time.ts';
import { type CanonicalValue, canonicalJson } from '../../../pki/audit/canonical-json.ts';
import {
  createStageEvidence,
  evidenceSigningInput,
  parseStageEvidence,
  type SignedEvidence,
  type StageFacts,
} from '../../../pki/audit/evidence.ts';
import { verifyRotationEvidence } from '../../../pki/audit/verify-evidence.ts';
import { change, createAuditKey, droppedAt, goodRotation, pick, rootA, rootB, signAll, startedAt } from './support.ts';

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
const refused = (code: string, message: RegExp) => (error: unknown) => {
  assert.equal((error as ControlError).code, code);
  assert.match((error as Error).message, message);
  return true;
};

describe('H-17 the evidence of a rotation', () => {
  const key = createAuditKey();
  const verify = (signed: readonly SignedEvidence[], minOverlapMs = day) =>
    verifyRotationEvidence(signed, { auditKey: key.spki, pin: key.pin, minOverlapMs });
  const problemsOf = async (facts: readonly StageFacts[], minOverlapMs = day): Promise<string[]> =>
    verify(await signAll(key, facts), minOverlapMs).problems.map(({ check, stage, message }) => `${check}: ${stage} ${message}`);

  it('holds for a rotation that went well', async () => {
    const verdict = verify(await signAll(key, goodRotation));
    assert.deepEqual(verdict.problems, []);
    assert.equal(verdict.valid, true);
    assert.equal(verdict.outcome, 'completed');
    assert.equal(verdict.rotationId, 'rotation-1');
    assert.equal(verdict.overlapMs, day + 5 * minute);
    assert.deepEqual(
      verdict.stages.map(({ stage }) => stage),
      goodRotation.map(({ stage }) => stage),
    );
  });

  it('gives the same bytes whatever order the query answered in', async () => {
    const [one, other] = await Promise.all(
      [goodRotation, change('switch', { fleet: { version: 2, nodes: (goodRotation[4]?.fleet?.nodes ?? []).toReversed() } })].map((facts) =>
        signAll(key, facts),
      ),
    );
    assert.deepEqual(
      one?.map(({ document }) => hex(document)),
      other?.map(({ document }) => hex(document)),
    );
  });

  it('refuses facts that make no document, naming every field', async () => {
    const facts = { ...goodRotation[0], at: -1, bundle: { digest: 'x', generation: 1 } } as StageFacts;
    await assert.rejects(
      createStageEvidence({ signer: key.signer, facts, previous: null }),
      refused('MALFORMED', /^not a rotation evidence: at is not a whole number; bundle.digest is not 64 lower-case hex digits$/),
    );
  });

  it('is good as far as it went while the rotation goes on', async () => {
    const verdict = verify(await signAll(key, pick(['plan', 'add', 'fleet', 'switch'])));
    assert.deepEqual([verdict.valid, verdict.outcome, verdict.overlapMs], [true, 'in-progress', null]);
  });

  it('H-04 holds for a rotation taken back after the add', async () => {
    const abort = {
      ...(goodRotation[1] as StageFacts),
      stage: 'abort',
      at: startedAt + hour,
      publishedVersion: 3,
      roots: { signing: rootA, trusted: [rootA], old: rootA, new: rootB },
    } as const;
    const verdict = verify(await signAll(key, [...pick(['plan', 'add']), abort]));
    assert.deepEqual([verdict.problems, verdict.outcome], [[], 'aborted']);
  });

  it('H-04 holds for a rotation taken back after the switch', async () => {
    const abortAt = startedAt + 2 * hour;
    const overlap = { switchedAt: abortAt, lastWorkerNotAfter: null, opensAt: abortAt + day, forcedReason: '' };
    const roots = { signing: rootA, trusted: [rootA], old: rootA, new: rootB };
    const facts = [
      ...pick(['plan', 'add', 'fleet', 'switch']),
      { ...(goodRotation[1] as StageFacts), stage: 'abort', at: abortAt, publishedVersion: 2 } as const,
      { ...(goodRotation[6] as StageFacts), at: abortAt + day, roots, overlap },
    ];
    const verdict = verify(await signAll(key, facts));
    assert.deepEqual([verdict.problems, verdict.outcome, verdict.overlapMs], [[], 'aborted', day]);
  });

  describe('what it does not believe', () => {
    it('another key than the pinned one', async () => {
      const signed = await signAll(key, goodRotation);
      const other = createAuditKey();
      assert.throws(
        () => verifyRotationEvidence(signed, { auditKey: other.spki, pin: key.pin, minOverlapMs: day }),
        refused('AUDIT_TAMPERED', /^the evidence is signed by sha256\/.+, not by the pinned audit key sha256\//),
      );
      const forged = verifyRotationEvidence(await signAll(other, goodRotation), { auditKey: key.spki, pin: key.pin, minOverlapMs: day });
      assert.deepEqual(new Set(forged.problems.map(({ check }) => check)), new Set(['signature']));
    });

    it('no document at all', () => {
      assert.throws(() => verify([]), refused('INVALID_INPUT', /^the evidence holds no document$/));
    });

    for (const at of [0, 3, 7]) {
      it(`a document changed by one bit (number ${at + 1})`, async () => {
        const signed = await signAll(key, goodRotation);
        const { document, signature } = signed[at] as SignedEvidence;
        const bytes = Uint8Array.from(document);
        const digit = Buffer.from(bytes).indexOf('"generation":') + '"generation":'.length;
        bytes[digit] = (bytes[digit] ?? 0) ^ 1;
        signed[at] = { document: bytes, signature };
        assert.ok(verify(signed).problems.some(({ check }) => check === 'signature'));
      });
    }

    it('a signature of another purpose, length or place', async () => {
      const signed = await signAll(key, goodRotation);
      const first = signed[0] as SignedEvidence;
      const bare = { ...first, signature: await key.signer.sign(first.document) };
      const long = { ...first, signature: Uint8Array.of(...first.signature, 0) };
      const moved = { ...first, signature: (signed[1] as SignedEvidence).signature };
      for (const one of [bare, long, moved]) {
        assert.deepEqual(
          verify([one, ...signed.slice(1)]).problems.map(({ message }) => message),
          ['is not signed by the audit key'],
        );
      }
    });

    it('a document left out, exchanged, repeated or from another rotation', async () => {
      const signed = await signAll(key, goodRotation);
      const checks = (list: SignedEvidence[]): boolean => verify(list).problems.some(({ check }) => check === 'chain');
      assert.ok(checks(signed.toSpliced(3, 1)));
      assert.ok(checks(signed.slice(1)));
      assert.ok(checks(signed.with(1, signed[2] as SignedEvidence).with(2, signed[1] as SignedEvidence)));
      assert.ok(checks(signed.toSpliced(1, 0, signed[0] as SignedEvidence)));
      const other = await signAll(
        key,
        goodRotation.map((facts) => ({ ...facts, rotationId: 'rotation-2' })),
      );
      assert.ok(checks(signed.with(2, other[2] as SignedEvidence)));
    });
  });

  it('finds a document exchanged for another that the key signed for the same place', async () => {
    const signed = await signAll(key, goodRotation);
    const other = await signAll(key, change('add', { bundle: { digest: 'c'.repeat(64), generation: 2 } }));
    const { problems } = verify(signed.with(1, other[1] as SignedEvidence));
    assert.deepEqual(problems, [{ check: 'chain', stage: 'processes', message: 'does not follow the document before it' }]);
  });

  it('finds a Merkle root that is not that of the nodes it stands over', async () => {
    const signed = await signAll(key, goodRotation.slice(0, 4));
    const stage = parseStageEvidence((signed[3] as SignedEvidence).document);
    const forged = { ...stage, fleet: { ...stage.fleet, root: 'f'.repeat(64) } } as unknown as CanonicalValue;
    const document = canonicalJson(forged);
    const { problems } = verify(signed.with(3, { document, signature: await key.signer.sign(evidenceSigningInput(document)) }));
    assert.deepEqual(
      problems.map(({ check, message }) => [check, message]),
      [['fleet', `its Merkle root ${'f'.repeat(64)} is not that of the nodes it lists`]],
    );
  });

  const rules: readonly [string, readonly StageFacts[], RegExp][] = [
    [
      'a drop before 24 h',
      change('drop', { at: droppedAt - 6 * minute }),
      /^overlap: drop after 23 h 59 min of overlap; the earliest was 2030-01-02T01:02:00Z$/,
    ],
    [
      'H-03 a drop while a worker key of the old root lives',
      change('drop', { overlap: { switchedAt: startedAt + hour, lastWorkerNotAfter: droppedAt, opensAt: droppedAt, forcedReason: '' } }),
      /^overlap: drop after .* the earliest was 2030-01-02T01:07:00Z$/,
    ],
    ['a drop that does not say what opened it', change('drop', { overlap: null }), /^overlap: drop does not say what opened it$/],
    [
      'a switch dated later than its evidence',
      change('drop', {
        at: droppedAt + day,
        overlap: { switchedAt: startedAt + 3 * hour, lastWorkerNotAfter: null, opensAt: 0, forcedReason: '' },
      }).slice(0, 7),
      /^overlap: drop claims a switch at 2030-01-01T03:00:00Z, after the evidence of it$/,
    ],
    ['documents out of order', [...pick(['plan', 'switch'])], /^order: switch has no add before it$/],
    [
      'a document dated before the one before it',
      change('resign', { at: startedAt }),
      /^order: resign is dated 2030-01-01T00:00:00Z, before switch/,
    ],
    [
      'H-01 a gate that passed on no node',
      change('switch', { fleet: { version: 2, nodes: [] } }),
      /^fleet: switch the gate passed on no node at all$/,
    ],
    [
      'ROT-020 a switch with a node behind',
      change('switch', {
        fleet: {
          version: 3,
          nodes: [
            { nodeId: 'node-b', version: 2 },
            { nodeId: 'node-a', version: 3 },
          ],
        },
      }),
      /^fleet: switch 1 of 2 node\(s\) had not applied version 3 \(node-b\)$/,
    ],
    [
      'ROT-021 a switch with a node that reports nothing',
      change('switch', { fleet: { version: 2, nodes: [{ nodeId: 'node-b', version: null }] } }),
      /^fleet: switch 1 of 1 node\(s\) had not applied version 2 \(node-b\)$/,
    ],
    [
      'a switch that does not say whom it counted',
      change('switch', { fleet: null }),
      /^fleet: switch does not say which nodes the gate counted$/,
    ],
    [
      'H-02 a process that ran another bundle',
      change('processes', { processes: [{ id: 'w', kind: 'worker-signing', bundleDigest: 'e'.repeat(64), publishedVersionSeen: null }] }),
      /^processes: processes worker-signing w did not run the bundle yet$/,
    ],
    [
      'H-02 a gateway that had not seen the version',
      change('processes', { processes: [{ id: 'g', kind: 'gateway', bundleDigest: null, publishedVersionSeen: 1 }] }),
      /^processes: processes gateway g did not run the bundle yet$/,
    ],
    [
      'an old root that stays trusted',
      change('drop', { roots: { signing: rootB, trusted: [rootA, rootB], old: rootA, new: rootB } }),
      new RegExp(`^roots: drop still trusts root ${rootA}$`),
    ],
    [
      'a switch that still signs under the old root',
      change('switch', { roots: { signing: rootA, trusted: [rootA, rootB], old: rootA, new: rootB } }),
      new RegExp(`^roots: switch is signing under ${rootA}, not ${rootB}$`),
    ],
    ['a version that falls', change('drop', { publishedVersion: 1 }), /^version: drop version 1 after version 2$/],
  ];
  for (const [title, facts, message] of rules) {
    it(`finds ${title}`, async () => {
      const problems = await problemsOf(facts);
      assert.ok(
        problems.some((problem) => message.test(problem)),
        problems.join('\n') || 'no problem found',
      );
    });
  }

  describe('H-08 what operators answer for', () => {
    const by = { actor: 'ann', reason: 'rack 7 is gone', at: startedAt };

    it('an excluded node does not count, and is named in the verdict', async () => {
      const overrides = [{ kind: 'exclude', subject: 'node-b', ...by } as const];
      const fleet = {
        version: 3,
        nodes: [
          { nodeId: 'node-b', version: 2 },
          { nodeId: 'node-a', version: 3 },
        ],
      };
      const verdict = verify(await signAll(key, change('switch', { overrides, fleet })));
      assert.deepEqual([verdict.problems, verdict.overrides], [[], overrides]);
    });

    it('a forced gate holds whoever is behind; a force of another gate does not', async () => {
      const fleet = { version: 9, nodes: [] };
      assert.deepEqual(await problemsOf(change('switch', { fleet, overrides: [{ kind: 'force', subject: 'fleet', ...by }] })), []);
      assert.equal((await problemsOf(change('switch', { fleet, overrides: [{ kind: 'force', subject: 'confirm', ...by }] }))).length, 1);
    });

    it('A-PKI-21 an overlap cut short by name is told, not refused', async () => {
      const overlap = { switchedAt: startedAt + hour, lastWorkerNotAfter: null, opensAt: droppedAt, forcedReason: 'key leaked' };
      const verdict = verify(await signAll(key, change('drop', { at: startedAt + 2 * hour, overlap }).slice(0, 7)));
      assert.deepEqual(verdict.problems, []);
    });
  });

  it('a demonstration is judged by the overlap the verifier names, never by its own', async () => {
    const times = { overlapMs: 5_000, dropMarginMs: 1_000, workerLifetimeMs: 20_000 };
    const overlap = { switchedAt: startedAt + hour, lastWorkerNotAfter: null, opensAt: startedAt + hour + 5_000, forcedReason: '' };
    const facts = change('drop', { at: startedAt + hour + 6_000, times, overlap }, goodRotation.slice(0, 5).concat(pick(['drop'])));
    assert.equal((await problemsOf(facts)).length, 1);
    assert.deepEqual(await problemsOf(facts, 5_000), []);
  });
});
