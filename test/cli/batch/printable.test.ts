/** The filter before the terminal. */
import assert from 'node:assert/strict';
import { lookAlikes, printable, shortened, suspicions } from '../../../cli/batch/printable.ts';

describe('the printable filter', () => {
  it('BAT-056 leaves plain and foreign text as it is, and escapes what hides, moves or passes for something else', () => {
    for (const plain of ['kernel update, rack 7', 'Änderung für Müller', '更新', 'обновление ядра']) assert.equal(printable(plain), plain);
    assert.equal(printable('a\nb\tc\u0000'), 'a\\u{a}b\\u{9}c\\u{0}');
    assert.equal(printable('\u202ex\u2066\ufeff\u200b\u3164\u{e0041}'), '\\u{202e}x\\u{2066}\\u{feff}\\u{200b}\\u{3164}\\u{e0041}');
    assert.equal(printable('p\u0430ypal \uff41dmin'), 'p\\u{430}ypal \\u{ff41}dmin');
    assert.equal(printable('e\u0301\u0302\u0303'), 'e\u0301\\u{302}\\u{303}', 'one mark is a letter, a pile of them covers lines');
  });

  it('BAT-056 what was escaped is told from what was written', () => {
    assert.notEqual(printable('\\u{1b}'), printable('\u001b'));
  });

  it('BAT-056 takes time in proportion to the text, whatever it is made of', function () {
    this.timeout(5_000);
    for (const unit of ['a', '\u0430', 'a\u0430', '\u0301', '\u202e'])
      assert.ok(printable(unit.repeat(65_536 / unit.length)).length >= 65_536);
  });

  it('BATCLI-023 a long text keeps both of its ends and says how much is between them', () => {
    assert.equal(shortened('x'.repeat(80)), 'x'.repeat(80));
    assert.equal(shortened(`${'a'.repeat(50)}${'b'.repeat(50)}`), `${'a'.repeat(34)}…32 more…${'b'.repeat(34)}`);
  });

  it('names what deceives, once each', () => {
    assert.deepEqual(suspicions('plain\ntext'), []);
    assert.deepEqual(suspicions('\u0430\u0430\u200b'), [
      'holds letters that look like others: U+0430',
      'holds characters that a terminal does not show: U+200B',
    ]);
  });

  it('finds names that differ and hardly look it', () => {
    assert.deepEqual(lookAlikes(['node-1', 'node-l', 'node-2', 'node_O', 'node-0']), [
      ['node-1', 'node-l'],
      ['node-0', 'node_O'],
    ]);
  });
});
