/** What evidence is made of: one spelling for a value, one hash for a list. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import type { ControlError } from '../../../domain/errors.ts';
import { type CanonicalValue, canonicalJson, parseCanonicalJson } from '../../../pki/audit/canonical-json.ts';
import { merkleRoot } from '../../../pki/audit/merkle.ts';
import { describeVectors, readJsonVectors } from '../x509/vectors.ts';

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
const text = (value: string): Uint8Array => new TextEncoder().encode(value);
const refused = (code: string, message: RegExp) => (error: unknown) => {
  assert.equal((error as ControlError).code, code);
  assert.match((error as Error).message, message);
  return true;
};

const knownRoots = ['merkle-rfc6962', 'known-roots.json'];

describeVectors('the Merkle root', knownRoots, () => {
  const vectors = readJsonVectors(...knownRoots) as { leafInputsHex: string[]; rootsBySize: string[] };
  const leaves = vectors.leafInputsHex.map((leaf) => new Uint8Array(Buffer.from(leaf, 'hex')));

  for (const [size, root] of vectors.rootsBySize.entries()) {
    it(`is RFC 6962's for ${size} leaves`, () => assert.equal(hex(merkleRoot(leaves.slice(0, size))), root));
  }
});

describe('canonical JSON', () => {
  it('has one spelling', () => {
    assert.equal(Buffer.from(canonicalJson({ b: [1, null, true], a: 'ä\n', A: {} })).toString(), '{"A":{},"a":"ä\\n","b":[1,null,true]}');
  });

  it('reads back what it wrote, whatever the value', () => {
    const value = fc.letrec((tie) => ({
      any: fc.oneof(
        fc.constant(null),
        fc.boolean(),
        fc.maxSafeInteger(),
        fc.string({ unit: 'grapheme' }),
        fc.array(tie('any')),
        fc.dictionary(fc.string({ unit: 'grapheme' }), tie('any')),
      ),
    })).any;
    fc.assert(
      fc.property(value, (given) => {
        if (JSON.stringify(given).includes('-0') || JSON.stringify(given).includes('__proto__')) return;
        const bytes = canonicalJson(given as CanonicalValue);
        assert.deepEqual(canonicalJson(parseCanonicalJson(bytes)), bytes);
      }),
    );
  });

  const refusals: readonly [string, Uint8Array, RegExp][] = [
    ['white space', text('{"a": 1}'), /^the document is not in canonical form$/],
    ['keys out of order', text('{"b":1,"a":1}'), /^the document is not in canonical form$/],
    ['a key twice', text('{"a":1,"a":1}'), /^the document is not in canonical form$/],
    ['a fraction', text('{"a":1.5}'), /^1.5 is no integer that has one spelling$/],
    ['an escape that is not needed', text('"\\u0061"'), /^the document is not in canonical form$/],
    ['half a surrogate pair', text('"\\ud800"'), /^a string holds half of a surrogate pair$/],
    [
      'more lists in each other than any stack holds',
      text(`${'['.repeat(100_000)}${']'.repeat(100_000)}`),
      /^a value is in more than 64 lists and objects$/,
    ],
    ['bytes that are not UTF-8', new Uint8Array([0x22, 0xff, 0x22]), /^the document is not JSON$/],
    ['a byte order mark', text('\ufeff{}'), /^the document is not JSON$/],
    ['bytes behind the end', text('{}x'), /^the document is not JSON$/],
  ];
  for (const [title, bytes, message] of refusals) {
    it(`refuses ${title}`, () => assert.throws(() => parseCanonicalJson(bytes), refused('MALFORMED', message)));
  }
});
