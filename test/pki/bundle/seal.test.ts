import assert from 'node:assert/strict';
import fc from 'fast-check';
import { isControlError } from '../../../domain/errors.ts';
import { encodeBundle, minSecretLength, openBundle, type PkiBundle } from '../../../pki/bundle/index.ts';
import { edited, type OpenDocument, refusal, secret, sharedBundle } from '../support.ts';

describe('the seal', () => {
  let bundle: PkiBundle;
  let text: string;
  before(async () => {
    bundle = await sharedBundle();
    text = encodeBundle(bundle, { secret });
  });

  it('KEY-016 CLI-002 opens with its secret only', () => {
    assert.equal(openBundle(text, { secret }).authenticated, true);
    assert.throws(
      () => openBundle(text, { secret: `${secret}.` }),
      refusal('INVALID_CONFIG', 'seal', /BETTER_COMPUTE_SECRET is not the one.*restore it from a backup/),
    );
  });

  it('KEY-044 without a secret a sealed bundle is MISSING_ENV, also when the variable is empty', () => {
    for (const options of [{}, { secret: '' }, { allowUnauthenticated: true }]) {
      assert.throws(
        () => openBundle(text, options),
        refusal('MISSING_ENV', 'secret-missing', /is sealed and BETTER_COMPUTE_SECRET is not set/),
      );
    }
  });

  it('CLI-038 A-PKI-06 seals with 32 characters and not with 31', () => {
    const short = 'x'.repeat(minSecretLength - 1);
    assert.throws(
      () => encodeBundle(bundle, { secret: short }),
      refusal('MISSING_ENV', 'secret-too-short', /has 31 characters.*at least 32/),
    );
    assert.throws(() => encodeBundle(bundle, { secret: '' }), refusal('MISSING_ENV', 'secret-too-short', /is not set/));
    assert.ok(encodeBundle(bundle, { secret: `${short}x` }));
  });

  it('KEY-015 seals the same bundle to other bytes every time, under a salt of its own', () => {
    const [one, two] = [text, encodeBundle(bundle, { secret })].map((file) => (JSON.parse(file) as { seal: Record<string, string> }).seal);
    for (const field of ['salt', 'iv', 'tag', 'ciphertext']) assert.notEqual(one?.[field], two?.[field], field);
  });

  it('KEY-015 KEY-017 KEY-018 KEY-021 any changed character never loads, unless it is white space between values', () => {
    const original = JSON.parse(text) as unknown;
    const isSame = (mutated: string): boolean => {
      try {
        assert.deepEqual(JSON.parse(mutated), original);
        return true;
      } catch {
        return false;
      }
    };
    fc.assert(
      fc.property(fc.nat(text.length - 1), fc.integer({ min: 1, max: 127 }), (at, mask) => {
        const mutated = text.slice(0, at) + String.fromCharCode(text.charCodeAt(at) ^ mask) + text.slice(at + 1);
        if (isSame(mutated)) {
          assert.equal(openBundle(mutated, { secret }).authenticated, true);
          return;
        }
        assert.throws(
          () => openBundle(mutated, { secret }),
          (error) => isControlError(error) && error.code === 'INVALID_CONFIG' && /restore it from a backup/.test(error.message),
          `character ${at} of the file, mask ${mask}`,
        );
      }),
      { numRuns: 400 },
    );
  });

  it('KEY-015 any flipped bit of the sealed bytes never loads', () => {
    fc.assert(
      fc.property(fc.constantFrom('salt', 'iv', 'tag', 'ciphertext'), fc.nat(), fc.nat(7), (field, at, bit) => {
        const mutated = edited(text, ({ seal }) => {
          const bytes = Buffer.from(seal[field], 'base64');
          bytes[at % bytes.length] = (bytes[at % bytes.length] as number) ^ (1 << bit);
          seal[field] = bytes.toString('base64');
        });
        assert.throws(() => openBundle(mutated, { secret }), refusal('INVALID_CONFIG', 'seal', /does not open/));
      }),
      { numRuns: 200 },
    );
  });

  it('KEY-018 KEY-049 every public field is covered', () => {
    const document: OpenDocument = JSON.parse(text);
    const paths = leaves(document).filter(([head]) => head !== 'seal');
    assert.ok(paths.length > 20);
    for (const path of paths) {
      const mutated = edited(text, (d) => {
        const last = path.at(-1) as string;
        const parent = path.slice(0, -1).reduce((value, key) => value[key], d);
        parent[last] = typeof parent[last] === 'number' ? parent[last] + 1 : 'other';
      });
      assert.throws(
        () => openBundle(mutated, { secret }),
        (error) => isControlError(error) && error.code === 'INVALID_CONFIG' && /restore it from a backup/.test(error.message),
        path.join('.'),
      );
    }
  });

  const malformed: Readonly<Record<string, (seal: OpenDocument) => void>> = {
    'another algorithm': (seal) => (seal.algorithm = 'AES-256-GCM'),
    'another form': (seal) => (seal.form = 'newest'),
    'a missing field': (seal) => delete seal.iv,
    'an extra field': (seal) => (seal.rounds = 1),
    'loose base64': (seal) => (seal.ciphertext += '='),
    'blanks in base64': (seal) => (seal.tag = ` ${seal.tag}`),
    'a tag of 4 bytes': (seal) => (seal.tag = seal.tag.slice(0, 6).padEnd(8, '=')),
    'an empty tag': (seal) => (seal.tag = ''),
    'no text': (seal) => (seal.salt = 7),
  };
  for (const [name, change] of Object.entries(malformed)) {
    it(`H-19 a seal with ${name} is INVALID_CONFIG`, () => {
      assert.throws(
        () =>
          openBundle(
            edited(text, ({ seal }) => change(seal)),
            { secret },
          ),
        refusal('INVALID_CONFIG', 'seal', /the key bundle is not valid \(its seal/),
      );
    });
  }

  it('H-19 a seal that is no object is INVALID_CONFIG', () => {
    for (const seal of [null, 7, 'x', []]) {
      assert.throws(
        () =>
          openBundle(
            edited(text, (d) => (d.seal = seal)),
            { secret },
          ),
        refusal('INVALID_CONFIG', 'seal', /its seal lacks a field/),
      );
    }
  });
});

/** Paths of every text, number and null of a document. */
function leaves(value: OpenDocument, path: readonly string[] = []): string[][] {
  if (typeof value !== 'object' || value === null) return [[...path]];
  return Object.entries(value).flatMap(([key, inner]) => leaves(inner, [...path, key]));
}
