/** zlint over one certificate of every kind: nothing but what docs/conformance.md lists as meant so. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describeWithGo } from './go-judge.ts';
import { createDeployment, isOfOwnKind } from './issued.ts';
import { isFailure } from './program.ts';

interface Finding {
  readonly lint: string;
  readonly status: string;
  readonly source: string;
}

/** Which lints apply depends on when a certificate begins: 2027-03-04T05:06:07Z. */
const now = 1_804_136_767_000;

/** Rows `| \`lint\` | source | kinds | why |`. */
const documented = (): ReadonlyMap<string, string> => {
  const text = readFileSync(new URL('../../docs/conformance.md', import.meta.url), 'utf8');
  const rows = text.matchAll(/^\| `([enw]_[a-z0-9_]+)` \| (\S+) \| ([A-Za-z, ]+) \| [^|]{10,} \|$/gm);
  return new Map([...rows].map(([, lint, source, kinds]) => [`${lint} ${source}`, kinds as string]));
};

describeWithGo('zlint', (go) => {
  const found = new Map<string, Set<string>>();
  before(async () => {
    const issued = (await createDeployment(now)).all.filter(isOfOwnKind);
    const orders = issued.map(({ certificate }) => ({ certificate: Buffer.from(certificate.der).toString('base64') }));
    const answers = await go().ask<Finding[]>('lint', orders);
    for (const [i, { kind }] of issued.entries()) {
      const answer = answers[i];
      if (answer === undefined || isFailure(answer)) assert.fail(`${kind}: ${answer?.error}`);
      // A renewed authority and a node with a statement are linted as what they are.
      for (const { lint, source } of answer) {
        const row = `${lint} ${source}`;
        found.set(row, (found.get(row) ?? new Set()).add(kind.replace(/ (renewed|with a statement)$/, '')));
      }
    }
  });

  it('finds nothing against RFC 5280 and its relatives in anything we issue', () => {
    const serious = [...found.keys()].filter((row) => !/ (CABF_[A-Z]+|Apple|Mozilla)$/.test(row));
    assert.deepEqual(serious, []);
  });

  it('finds against the rules of the public web exactly what docs/conformance.md explains', () => {
    const rows = [...found].map(([row, kinds]) => [row, [...kinds].join(', ')] as const);
    assert.deepEqual(new Map(rows), documented());
  });
});
