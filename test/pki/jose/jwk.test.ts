import assert from 'node:assert/strict';
import { encodeBase64url, encodePublicJwk, jwkThumbprint, parseJwks, parsePrivateJwk, parsePublicJwk } from '../../../pki/jose/index.ts';
import { createKey, refusedWith } from '../x509/authorities.ts';
import { describeVectors, readJsonVectors } from '../x509/vectors.ts';

describe('pki/jose JWK', () => {
  const { spki, privateKey } = createKey();
  const good = encodePublicJwk(spki, 'sig');
  const whole = privateKey.export({ format: 'jwk' });

  const bad: ReadonlyArray<readonly [name: string, jwk: unknown, code: string, reason: string, message: RegExp]> = [
    ['its private half', { ...good, d: whole.d }, 'MALFORMED', 'private-key', /^jwk.d is the private half of a key that must be public$/],
    ['another kind', { ...good, kty: 'RSA' }, 'UNSUPPORTED', 'algorithm', /^jwk.kty is not EC$/],
    ['a symmetric key', { kty: 'oct', k: 'AAAA' }, 'UNSUPPORTED', 'algorithm', /^jwk.kty is not EC$/],
    ['another curve', { ...good, crv: 'P-384' }, 'UNSUPPORTED', 'algorithm', /^jwk.crv is not P-256$/],
    ['another use', { ...good, use: 'enc' }, 'UNSUPPORTED', 'algorithm', /^jwk.use is not sig$/],
    ['another algorithm', { ...good, alg: 'ES384' }, 'UNSUPPORTED', 'algorithm', /^jwk.alg is not ES256$/],
    [
      'an operation of its other half',
      { ...good, key_ops: ['verify', 'sign'] },
      'UNSUPPORTED',
      'algorithm',
      /^jwk.key_ops says more than verify$/,
    ],
    ['an operation twice', { ...good, key_ops: ['verify', 'verify'] }, 'UNSUPPORTED', 'algorithm', /^jwk.key_ops /],
    ['a member nobody reads', { ...good, x5c: [] }, 'MALFORMED', 'field', /^jwk.x5c is not a member that is read here$/],
    ['a point off the curve', { ...good, y: good.x }, 'MALFORMED', 'field', /^jwk is not a point on P-256$/],
    ['a short coordinate', { ...good, x: encodeBase64url(new Uint8Array(31)) }, 'MALFORMED', 'field', /^jwk.x has 31 bytes, not 32$/],
    ['a long coordinate', { ...good, x: encodeBase64url(new Uint8Array(33)) }, 'MALFORMED', 'field', /^jwk.x has 33 bytes, not 32$/],
    ['padding', { ...good, x: `${good.x}=` }, 'MALFORMED', 'field', /^jwk.x is not canonical base64url$/],
    ['a coordinate that is no text', { ...good, x: 7 }, 'MALFORMED', 'field', /^jwk.x is not a text$/],
    ['a kid that is no text', { ...good, kid: null }, 'MALFORMED', 'field', /^jwk.kid is not a text of 1 to 256 characters$/],
    ['no object', [], 'MALFORMED', 'field', /^jwk is not a JSON object$/],
  ];
  for (const [name, jwk, code, reason, message] of bad)
    it(`H-19 refuses a public key with ${name}`, () => {
      assert.throws(() => parsePublicJwk(jwk, 'sig'), refusedWith(code, reason, message));
    });

  it('reads a private key whose halves belong together, and no other', () => {
    const read = parsePrivateJwk({ ...whole, use: 'enc', alg: 'ECDH-ES+A256KW', key_ops: ['deriveKey'] }, 'enc');
    assert.deepEqual(read.privateKey.export({ format: 'jwk' }), whole);
    const other = createKey().privateKey.export({ format: 'jwk' });
    assert.throws(
      () => parsePrivateJwk({ ...whole, d: other.d }, 'enc'),
      refusedWith('MALFORMED', 'field', /^jwk.d is not the private half of x and y$/),
    );
    for (const [d, message] of [
      [encodeBase64url(new Uint8Array(32)), /is not a scalar of P-256/],
      [encodeBase64url(new Uint8Array(32).fill(0xff)), /is not a scalar of P-256/],
      [encodeBase64url(new Uint8Array(31)), /has 31 bytes, not 32/],
      [undefined, /jwk.d is not a text/],
    ] as const)
      assert.throws(() => parsePrivateJwk({ ...whole, d }, 'enc'), refusedWith('MALFORMED', 'field', message));
  });

  it('a set has a kid for each key, every one another', () => {
    const other = encodePublicJwk(createKey().spki, 'sig');
    const { kid: _, ...nameless } = other;
    assert.equal(parseJwks({ keys: [good, other] }, 'sig').length, 2);
    assert.equal(parseJwks({ keys: [nameless] }, 'sig').length, 1);
    assert.equal(parseJwks({ keys: [] }, 'sig').length, 0);
    const sets: ReadonlyArray<readonly [unknown, RegExp]> = [
      [{ keys: [good, { ...other, kid: good.kid }] }, /^jwks.keys\[1\].kid stands twice in the set$/],
      [{ keys: [good, nameless] }, /^jwks.keys\[1\].kid is missing beside other keys$/],
      [{ keys: good }, /^jwks.keys is not a list/],
      [{ keys: Array(65).fill(good) }, /^jwks.keys is not a list of at most 64 keys$/],
      [{ keys: [], more: 1 }, /^jwks.more is not a member/],
      [[good], /^jwks is not a JSON object$/],
    ];
    for (const [set, message] of sets) assert.throws(() => parseJwks(set, 'sig'), refusedWith('MALFORMED', 'field', message));
  });

  it('one symmetric key spoils a set: nobody can tell which of them was meant', () => {
    assert.throws(
      () => parseJwks({ keys: [good, { kty: 'oct', k: 'AA', kid: 'k' }] }, 'sig'),
      refusedWith('UNSUPPORTED', 'algorithm', /^jwks.keys\[1\].kty is not EC$/),
    );
  });

  it('EXEC-007 the thumbprint is that of RFC 7638, however the key came', () => {
    const text = `{"crv":"P-256","kty":"EC","x":"${good.x}","y":"${good.y}"}`;
    const sha256 = (input: string): Promise<ArrayBuffer> => crypto.subtle.digest('SHA-256', Buffer.from(input));
    return sha256(text).then((digest) => {
      assert.equal(jwkThumbprint(spki), Buffer.from(digest).toString('base64url'));
      assert.equal(good.kid, jwkThumbprint(spki));
    });
  });
});

describeVectors('pki/jose RFC 7520 keys', ['jose-cookbook', '3_1.ec_public_key.json'], () => {
  it('are on P-521, and therefore not taken', () => {
    const jwk = readJsonVectors('jose-cookbook', '3_1.ec_public_key.json');
    assert.throws(() => parsePublicJwk(jwk, 'sig'), refusedWith('UNSUPPORTED', 'algorithm', /jwk.crv is not P-256/));
  });
});
