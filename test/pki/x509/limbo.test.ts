/** x509-limbo against verifyChain: agreement, except for the table in docs/conformance.md, which this suite keeps honest. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { answerLine } from '../../../cli/conformance/answer.ts';
import { judgeX509 } from '../../../cli/conformance/sets/x509.ts';
import { now } from './authorities.ts';
import { describeVectors, readJsonVectors } from './vectors.ts';

interface LimboCase {
  readonly id: string;
  readonly expected_result: 'SUCCESS' | 'FAILURE';
  readonly expected_peer_name: { readonly kind: string; readonly value: string } | null;
}

/** null: accepted; else code and reason. As the conformance entry is asked. */
const refusalOf = ({ expected_peer_name, ...limbo }: LimboCase): string | null => {
  const line = Buffer.from(JSON.stringify({ ...limbo, peer_name: expected_peer_name }));
  const { result, code, reason, message } = answerLine(line, judgeX509, now);
  if (result === 'accept') return null;
  const known = ['MALFORMED', 'BAD_SIGNATURE', 'CERTIFICATE_EXPIRED', 'PERMISSION_DENIED', 'UNSUPPORTED'];
  assert.ok(known.includes(code ?? ''), `${limbo.id}: ${code} ${message}`);
  return `${code} ${reason}`;
};

/** Rows `| \`case\` | accept | \`CODE reason\` | …` of the table of differences. */
const documented = (): ReadonlyMap<string, string> =>
  new Map(
    [
      ...readFileSync(new URL('../../../docs/conformance.md', import.meta.url), 'utf8').matchAll(
        /^\| `([a-z0-9:-]+)` \| (accept|refuse) \| (?:`([A-Z_]+ [a-z-]+)`|accept) \|/gm,
      ),
    ].map(([, id = '', expected = '', ours = 'accept']) => [id, `${expected} → ${ours}`]),
  );

describeVectors('pki/x509 x509-limbo', ['x509-limbo', 'limbo-regenerated.json'], () => {
  const { testcases } = readJsonVectors('x509-limbo', 'limbo-regenerated.json') as { testcases: readonly LimboCase[] };

  it('agrees with every case but those that docs/conformance.md lists, with our reason', () => {
    const differences = testcases.flatMap((limbo) => {
      const refusal = refusalOf(limbo);
      const expected = limbo.expected_result === 'SUCCESS' ? 'accept' : 'refuse';
      return (refusal === null ? 'accept' : 'refuse') === expected ? [] : [[limbo.id, `${expected} → ${refusal ?? 'accept'}`] as const];
    });
    assert.deepEqual(
      Object.fromEntries(differences),
      Object.fromEntries([...documented()].filter(([id]) => testcases.some((limbo) => limbo.id === id))),
    );
  });

  it('accepts nothing that the suite says must be refused', () => {
    const loose = testcases.filter((limbo) => limbo.expected_result === 'FAILURE' && refusalOf(limbo) === null).map(({ id }) => id);
    assert.deepEqual(loose, []);
  });

  it('has cases of both kinds that it agrees with', () => {
    const agreed = (result: LimboCase['expected_result']): number =>
      testcases.filter((limbo) => limbo.expected_result === result && (refusalOf(limbo) === null) === (result === 'SUCCESS')).length;
    assert.ok(agreed('SUCCESS') >= 5, `${agreed('SUCCESS')} accepted`);
    assert.ok(agreed('FAILURE') >= 70, `${agreed('FAILURE')} refused`);
  });
});
