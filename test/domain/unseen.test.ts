import assert from 'node:assert/strict';
import { judgeReason } from '../../domain/batch/limits.ts';
import { codePointEscape, codePointName, findUnseen, showUnseen } from '../../domain/text/unseen.ts';

/** One of each kind that a screen obeys or does not show. */
const kinds = [
  '\u0000',
  '\u001b',
  '\u0085',
  '\u00ad',
  '\u061c',
  '\u200b',
  '\u202e',
  '\u2028',
  '\u2069',
  '\ufeff',
  '\u{e0041}',
  '\ue000',
  '\ud800',
];

describe('characters that no screen shows', () => {
  it('BAT-056 finds each kind of them, and none in what people write', () => {
    for (const kind of kinds) assert.deepEqual(findUnseen(`a\n${kind}b`), { character: kind, index: 2 }, codePointName(kind));
    for (const plain of ['', 'two\nlines', 'Zürich – naïve … 日本 “quoted”', 'e\u0301'] as const)
      assert.equal(findUnseen(plain), null, plain);
  });

  it('writes them out by their code points, and keeps line feeds where there may be lines', () => {
    const text = 'a\u202eb\n\u{e0041}';
    assert.equal(showUnseen(text, codePointEscape, { lines: false }), String.raw`a\u{202e}b\u{a}\u{e0041}`);
    assert.equal(
      showUnseen(text, (one) => `<${codePointName(one)}>`, { lines: true }),
      'a<U+202E>b\n<U+E0041>',
    );
  });

  it('BAT-056 a reason holds none of them: what approvers read is what they sign', () => {
    for (const kind of kinds) assert.equal(judgeReason(`ok${kind}`)?.reason, 'deceptive-reason', codePointName(kind));
    assert.match(judgeReason('ab\u200bc')?.message ?? '', /^the reason holds U\+200B at position 2: a terminal would not show it$/);
    assert.equal(judgeReason('kernel update\nof rack 7'), null);
  });
});
