/** x509-limbo against verifyChain: agreement, except for the table in docs/conformance.md, which this suite keeps honest. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { parsePemCertificates, verifyChain } from '../../../pki/x509/index.ts';
import { now } from './authorities.ts';
import { describeVectors, readJsonVectors } from './vectors.ts';

interface LimboCase {
  readonly id: string;
  readonly validation_kind: 'SERVER' | 'CLIENT';
  readonly trusted_certs: readonly string[];
  readonly untrusted_intermediates: readonly string[];
  readonly peer_certificate: string;
  readonly validation_time: string | null;
  readonly max_chain_depth: number | null;
  readonly expected_result: 'SUCCESS' | 'FAILURE';
  readonly expected_peer_name: { readonly kind: string; readonly value: string } | null;
}

const der = (pem: string): Uint8Array => parsePemCertificates(pem)[0] as Uint8Array;

/** null: accepted; else code and reason. */
const refusalOf = (limbo: LimboCase): string | null => {
  const { expected_peer_name: name } = limbo;
  try {
    verifyChain([limbo.peer_certificate, ...limbo.untrusted_intermediates].map(der), {
      anchors: limbo.trusted_certs.map(der),
      now: limbo.validation_time === null ? now : Date.parse(limbo.validation_time),
      purpose: limbo.validation_kind === 'CLIENT' ? 'client' : 'server',
      ...(limbo.validation_kind === 'SERVER' && (name?.kind === 'DNS' || name?.kind === 'IP') ? { serverName: name.value } : {}),
      ...(limbo.max_chain_depth === null ? {} : { maxDepth: limbo.max_chain_depth }),
    });
    return null;
  } catch (error) {
    const { code, details } = error as { code: string; details: { reason: string } };
    assert.ok(['MALFORMED', 'BAD_SIGNATURE', 'CERTIFICATE_EXPIRED', 'PERMISSION_DENIED'].includes(code), `${limbo.id}: ${String(error)}`);
    return `${code} ${details.reason}`;
  }
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

  it('accepts nothing that the suite says must be refused, revocation lists apart', () => {
    const loose = testcases
      .filter((limbo) => limbo.expected_result === 'FAILURE' && !limbo.id.startsWith('crl::') && refusalOf(limbo) === null)
      .map(({ id }) => id);
    assert.deepEqual(loose, []);
  });

  it('has cases of both kinds that it agrees with', () => {
    const agreed = (result: LimboCase['expected_result']): number =>
      testcases.filter((limbo) => limbo.expected_result === result && (refusalOf(limbo) === null) === (result === 'SUCCESS')).length;
    assert.ok(agreed('SUCCESS') >= 5, `${agreed('SUCCESS')} accepted`);
    assert.ok(agreed('FAILURE') >= 70, `${agreed('FAILURE')} refused`);
  });
});
