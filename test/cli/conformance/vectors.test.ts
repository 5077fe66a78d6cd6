/** Every set of ../shared/vectors through the entry, against what the suites expect and what docs/conformance.md says. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { type Answer, answerLine } from '../../../cli/conformance/answer.ts';
import { getSet, sets } from '../../../cli/conformance/sets/table.ts';
import { codeOf, isCode } from '../../../domain/errors.ts';
import { describeVectors } from '../../pki/x509/vectors.ts';

interface Expectation {
  readonly id: string;
  readonly expect: 'accept' | 'refuse' | 'either';
  readonly value?: unknown;
}

const casesOf = (set: string, ...flags: string[]): Buffer[] => {
  const script = resolve(process.cwd(), '../shared/vectors/cases.mjs');
  const out = execFileSync(process.execPath, [script, set, ...flags], { maxBuffer: 1 << 27, stdio: ['ignore', 'pipe', 'ignore'] });
  return out
    .toString('utf8')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => Buffer.from(line));
};

interface Judged {
  readonly answers: readonly Answer[];
  readonly expected: readonly Expectation[];
}

const judge = (set: string): Judged => ({
  answers: casesOf(set).map((line) => answerLine(line, getSet(set), Date.now())),
  expected: casesOf(set, '--expect').map((line) => JSON.parse(line.toString('utf8')) as Expectation),
});

const docs = (): string => readFileSync(new URL('../../../docs/conformance.md', import.meta.url), 'utf8');

/** Rows `| \`set\` | from | cases | accepted | refused |`. */
const documentedCounts = (): ReadonlyMap<string, string> =>
  new Map(
    [...docs().matchAll(/^\| `([a-z0-9-]+)` \| [^|]+ \| (\d+ \| \d+ \| \d+) \|$/gm)].map(([, set = '', counts = '']) => [set, counts]),
  );

/** Rows `| \`set\` | accept or either | \`CODE reason\` | count | why |`. */
const documentedGroups = (set: string): ReadonlyMap<string, number> =>
  new Map(
    [...docs().matchAll(/^\| `([a-z0-9-]+)` \| (accept|either) \| `([A-Z_]+ [a-z0-9-]+)` \| (\d+) \| [^|]+ \|$/gm)]
      .filter(([, of]) => of === set)
      .map(([, , expected, ours, count]) => [`${expected} → ${ours}`, Number(count)]),
  );

const groupsOf = ({ answers, expected }: Judged): ReadonlyMap<string, number> => {
  const groups = new Map<string, number>();
  for (const [i, { result, code, reason }] of answers.entries()) {
    const expect = expected[i]?.expect;
    if (expect === 'refuse' || result === 'accept') continue;
    const group = `${expect} → ${code} ${reason}`;
    groups.set(group, (groups.get(group) ?? 0) + 1);
  }
  return groups;
};

describeVectors('conformance', ['cases.mjs'], () => {
  for (const set of Object.keys(sets))
    describe(set, () => {
      let judged: Judged;
      before(function () {
        this.timeout(60_000);
        judged = judge(set);
      });

      it('answers every case in order, each refusal with a code of the table and none with a fault of ours', () => {
        assert.deepEqual(
          judged.answers.map(({ id }) => id),
          judged.expected.map(({ id }) => id),
        );
        const faults = judged.answers.filter(
          ({ result, code }) => result === 'refuse' && (!isCode(code) || code === codeOf(new Error('ours'))),
        );
        assert.deepEqual(faults, []);
      });

      it('accepts nothing that must be refused', () => {
        const loose = judged.answers.filter(({ result }, i) => result === 'accept' && judged.expected[i]?.expect === 'refuse');
        assert.deepEqual(loose, []);
      });

      it('gives the value that the suite knows', () => {
        const wrong = judged.answers.filter(({ result, value }, i) => {
          const { value: known } = judged.expected[i] as Expectation;
          return result === 'accept' && known !== undefined && value !== known;
        });
        assert.deepEqual(wrong, []);
      });

      it('refuses beyond the suite only what docs/conformance.md lists, with our reason, and as often', () => {
        const found = groupsOf(judged);
        const listed = documentedGroups(set);
        const [, cases = ''] = /^(\d+)/.exec(documentedCounts().get(set) ?? '0') ?? [];
        // Another edition of the vectors has other counts; its groups must be known all the same.
        if (judged.answers.length === Number(cases))
          assert.deepEqual(Object.fromEntries(found), Object.fromEntries([...listed].filter(([, count]) => count > 0)));
        else
          assert.deepEqual(
            [...found.keys()].filter((group) => !listed.has(group)),
            [],
          );
      });

      it('has the figures that docs/conformance.md prints', () => {
        const accepted = judged.answers.filter(({ result }) => result === 'accept').length;
        const counts = `${judged.answers.length} | ${accepted} | ${judged.answers.length - accepted}`;
        const printed = documentedCounts().get(set);
        if (judged.answers.length === 0 || printed?.startsWith(`${judged.answers.length} `) !== true) return;
        assert.equal(counts, printed);
      });
    });
});
