import assert from 'node:assert/strict';
import { encodeBase64url, encodePublicJwk, jwkThumbprint, parsePublicJwk, signJws, verifyJws } from '../../../pki/jose/index.ts';
import { createKey, refusedWith } from '../x509/authorities.ts';

const typ = 'bc-test+jwt';
const payload = Buffer.from('{"sub":"ada"}');
const header = (value: unknown): string => encodeBase64url(Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)));

describe('pki/jose JWS', () => {
  const { signer, spki } = createKey();
  const kid = jwkThumbprint(spki);
  const keys = [{ kid, spki }];
  let text = '';
  before(async () => {
    text = await signJws({ signer, typ, payload });
  });

  /** A token with this header, properly signed. */
  const signed = async (value: unknown): Promise<string> => {
    const input = `${header(value)}.${encodeBase64url(payload)}`;
    return `${input}.${encodeBase64url(await signer.sign(Buffer.from(input)))}`;
  };

  it('EXEC-007 signs ES256 under the thumbprint of its key, and reads it back', () => {
    const verified = verifyJws(text, { keys, typ });
    assert.deepEqual(verified.header, { kid, typ });
    assert.deepEqual(Buffer.from(verified.payload), payload);
    assert.deepEqual(Buffer.from(verified.spki), Buffer.from(spki));
    assert.deepEqual(JSON.parse(Buffer.from(text.split('.')[0] ?? '', 'base64url').toString()), { alg: 'ES256', kid, typ });
    assert.equal(Buffer.from(text.split('.')[2] ?? '', 'base64url').length, 64);
  });

  it('a signer that answers wrongly makes no token', async () => {
    const broken = { spki, sign: async () => new Uint8Array(64).fill(1) };
    await assert.rejects(signJws({ signer: broken, typ, payload }), refusedWith('BAD_SIGNATURE', 'bad-signature', /not by the key/));
    const short = { spki, sign: async () => new Uint8Array(63) };
    await assert.rejects(signJws({ signer: short, typ, payload }), refusedWith('MALFORMED', 'field', /jws.signature has 63 bytes, not 64/));
  });

  const headers: ReadonlyArray<readonly [name: string, value: unknown, code: string, reason: string, message: RegExp]> = [
    ['another algorithm', { alg: 'HS256' }, 'UNSUPPORTED', 'algorithm', /^jws.header.alg is not ES256$/],
    ['no algorithm', { alg: 'none' }, 'UNSUPPORTED', 'algorithm', /^jws.header.alg is not ES256$/],
    ['an algorithm in other letters', { alg: 'es256' }, 'UNSUPPORTED', 'algorithm', /^jws.header.alg is not ES256$/],
    ['a key', { alg: 'ES256', jwk: {} }, 'MALFORMED', 'field', /^jws.header.jwk is not a member that is read here$/],
    ['a place to fetch a key from', { alg: 'ES256', jku: 'https://evil.example' }, 'MALFORMED', 'field', /^jws.header.jku /],
    ['a certificate', { alg: 'ES256', x5u: '' }, 'MALFORMED', 'field', /^jws.header.x5u /],
    ['critical members', { alg: 'ES256', crit: ['exp'] }, 'MALFORMED', 'field', /^jws.header.crit /],
    ['an unencoded payload', { alg: 'ES256', b64: false }, 'MALFORMED', 'field', /^jws.header.b64 /],
    ['a kid that is no text', { alg: 'ES256', kid: 7 }, 'MALFORMED', 'field', /^jws.header.kid is not a text/],
    ['an empty kid', { alg: 'ES256', kid: '' }, 'MALFORMED', 'field', /^jws.header.kid is not a text of 1 to 256/],
    ['a member twice', '{"alg":"ES256","alg":"ES256"}', 'MALFORMED', 'field', /^jws.header names "alg" twice$/],
    ['a member twice, spelled otherwise', '{"alg":"ES256","\\u0061lg":"none"}', 'UNSUPPORTED', 'algorithm', /is not ES256/],
    ['a member twice, the good one last', '{"\\u0061lg":"none","alg":"ES256"}', 'MALFORMED', 'field', /names "alg" twice/],
    ['a list', [], 'MALFORMED', 'field', /^jws.header is not a JSON object$/],
    ['words', 'alg', 'MALFORMED', 'field', /^jws.header is not JSON$/],
  ];
  for (const [name, value, code, reason, message] of headers)
    it(`H-19 refuses a header with ${name}, however well it is signed`, async () => {
      const token = await signed(value);
      // Duplicates are found whichever of the two the reader of JSON keeps.
      assert.throws(
        () => verifyJws(token, { keys }),
        name.includes('spelled') ? refusedWith('MALFORMED', 'field', /names "alg" twice/) : refusedWith(code, reason, message),
      );
    });

  it('H-19 has one text for one token', () => {
    const [head = '', body = '', signature = ''] = text.split('.');
    const last = signature.at(-1) ?? '';
    const spare = signature.slice(0, -1) + String.fromCharCode(last.charCodeAt(0) + 1);
    const variants: ReadonlyArray<readonly [string, RegExp]> = [
      [`${head}=.${body}.${signature}`, /jws.header is not canonical base64url/],
      [`${head}.${body} .${signature}`, /jws.payload is not canonical base64url/],
      [`${head}.${body}.${signature}==`, /jws.signature is not canonical/],
      [`${head}.${body}.${spare}`, /jws.signature is not canonical/],
      [`${head}.${body}.${signature}\n`, /jws.signature is not canonical/],
      [`${head}.${body}.${signature}.`, /jws is not three parts/],
      [`${head}.${body}`, /jws is not three parts/],
      [JSON.stringify({ protected: head, payload: body, signature }), /jws is not three parts/],
      ['', /jws is not three parts/],
      ['a'.repeat(16_385), /jws has more than 16384 characters/],
    ];
    for (const [variant, message] of variants)
      assert.throws(() => verifyJws(variant, { keys }), refusedWith('MALFORMED', 'field', message));
  });

  it('is by exactly one key of the set: the one it names, or the only one', async () => {
    const other = createKey();
    const set = [...keys, { kid: 'other', spki: other.spki }];
    assert.ok(verifyJws(text, { keys: set }));
    const nameless = await signed({ alg: 'ES256' });
    assert.ok(verifyJws(nameless, { keys }));
    assert.throws(
      () => verifyJws(nameless, { keys: set }),
      refusedWith('BAD_SIGNATURE', 'unknown-key', /kid is absent, and there are 2 keys/),
    );
    assert.throws(() => verifyJws(text, { keys: [] }), refusedWith('BAD_SIGNATURE', 'unknown-key', /names no key/));
    assert.throws(() => verifyJws(text, { keys: [...keys, ...keys] }), refusedWith('BAD_SIGNATURE', 'unknown-key', /or several/));
    assert.throws(() => verifyJws(text, { keys: [{ kid: null, spki }] }), refusedWith('BAD_SIGNATURE', 'unknown-key', /names no key/));
    assert.throws(
      () => verifyJws(text, { keys: [{ kid, spki: other.spki }] }),
      refusedWith('BAD_SIGNATURE', 'bad-signature', /is not by the key it names/),
    );
  });

  it('is of the kind that was asked for', async () => {
    assert.throws(
      () => verifyJws(text, { keys, typ: 'bc-exec+jwt' }),
      refusedWith('PERMISSION_DENIED', 'typ', /is "bc-test\+jwt", not bc-exec\+jwt/),
    );
    const bare = await signed({ alg: 'ES256' });
    assert.throws(() => verifyJws(bare, { keys, typ }), refusedWith('PERMISSION_DENIED', 'typ', /typ is absent/));
  });

  it('falls with every byte of it', () => {
    for (let i = 0; i < text.length; i += 3) {
      if (text[i] === '.') continue;
      const changed = text.slice(0, i) + (text[i] === 'A' ? 'B' : 'A') + text.slice(i + 1);
      assert.throws(() => verifyJws(changed, { keys, typ }));
    }
  });

  it('a published key reads back, under its thumbprint', () => {
    assert.deepEqual(parsePublicJwk(encodePublicJwk(spki, 'sig'), 'sig'), { kid, spki: Uint8Array.from(spki) });
  });
});
