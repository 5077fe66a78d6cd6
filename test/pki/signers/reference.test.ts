import assert from 'node:assert/strict';
import fc from 'fast-check';
import { formatSignerReference, parseSignerReference, type SignerReference, successorReference } from '../../../pki/signers/index.ts';
import { refusal } from '../support.ts';

describe('references to keys that are kept elsewhere', () => {
  const good: readonly [string, string, SignerReference][] = [
    ['pkcs11:token=bc;object=command-root', 'pkcs11:token=bc;object=command-root', { kind: 'pkcs11', token: 'bc', object: 'command-root' }],
    ['pkcs11:object=a;serial=0a1b', 'pkcs11:serial=0a1b;object=a', { kind: 'pkcs11', serial: '0a1b', object: 'a' }],
    ['pkcs11:token=My%20token;id=%01%ff', 'pkcs11:token=My%20token;id=%01%FF', { kind: 'pkcs11', token: 'My token', id: '01ff' }],
    ['pkcs11:token=gr%C3%BCn;id=AB', 'pkcs11:token=gr%C3%BCn;id=%41%42', { kind: 'pkcs11', token: 'grün', id: '4142' }],
    ['external:alias/command-root', 'external:alias/command-root', { kind: 'external', key: 'alias/command-root' }],
    ['external:arn:aws:kms:eu-1:1:key/2', 'external:arn:aws:kms:eu-1:1:key/2', { kind: 'external', key: 'arn:aws:kms:eu-1:1:key/2' }],
  ];
  for (const [text, canonical, reference] of good) {
    it(`KEY-039 reads ${text}`, () => {
      assert.deepEqual(parseSignerReference(text), reference);
      assert.equal(formatSignerReference(reference), canonical);
    });
  }

  const bad: readonly [string, string, RegExp][] = [
    [
      'a library path',
      'pkcs11:token=a;object=b?module-path=/tmp/evil.so',
      /has a query: the library and its PIN are told by the environment/,
    ],
    ['a PIN', 'pkcs11:token=a;object=b?pin-value=1234', /has a query/],
    ['a library as an attribute', 'pkcs11:token=a;object=b;library-manufacturer=c', /none of token=, serial=, object=, id=/],
    ['no token', 'pkcs11:object=a', /names no token/],
    ['no key', 'pkcs11:token=a', /names no key/],
    ['one name twice', 'pkcs11:token=a;object=b;object=c', /names object twice/],
    ['an empty value', 'pkcs11:token=;object=b', /no proper value for token/],
    ['a broken escape', 'pkcs11:token=a;object=%4', /no proper value for object/],
    ['a line end in a label', 'pkcs11:token=a;object=b%0Ac', /object that is no label/],
    ['a label that is no UTF-8', 'pkcs11:token=a;object=%ff', /object that is no label/],
    ['another scheme', 'file:/root.key', /begins neither with pkcs11: nor with external:/],
    ['no program key', 'external:', /no key name/],
    ['a shell word', 'external:a;rm -rf /', /no key name/],
    ['an argument', 'external:--help', /no key name/],
    ['a novel', `external:${'a'.repeat(600)}`, /longer than 512/],
  ];
  for (const [what, text, message] of bad) {
    it(`KEY-039 refuses ${what}: a reference names a key and nothing else`, () =>
      assert.throws(() => parseSignerReference(text), refusal('INVALID_INPUT', 'signer-reference', message)));
  }

  it('KEY-039 every reference has one text, which reads back', () => {
    const label = fc
      .string({ unit: 'grapheme', minLength: 1, maxLength: 20 })
      .filter((text) => Buffer.from(text).every((byte) => byte >= 0x20 && byte !== 0x7f));
    const id = fc.uint8Array({ minLength: 1, maxLength: 20 }).map((bytes) => Buffer.from(bytes).toString('hex'));
    const reference = fc.record(
      { kind: fc.constant('pkcs11' as const), token: label, object: label, id },
      { requiredKeys: ['kind', 'token', 'object'] },
    );
    fc.assert(fc.property(reference, (one) => assert.deepEqual({ ...parseSignerReference(formatSignerReference(one)) }, { ...one })));
  });

  it('ROT-006 the next root belongs beside the present one, under the name of its rotation', () => {
    const next = (text: string): string => formatSignerReference(successorReference(parseSignerReference(text), 'cli-1'));
    assert.equal(next('pkcs11:token=bc;object=command-root;id=%01'), 'pkcs11:token=bc;object=command-root-cli-1');
    assert.equal(next('external:alias/command-root'), 'external:alias/command-root-cli-1');
  });
});
