import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { concatKdf, encodeBase64url, openGcm, openJwe, sealGcm, sealJwe, unwrapKey, wrapKey } from '../../../pki/jose/index.ts';
import { createKey, refusedWith } from '../x509/authorities.ts';

const plaintext = Buffer.from('a secret, as long as it needs to be');
const typ = 'bcsecret+jwe';
const bind = { rid: 'request-1', exp: 1_800_000_000 };

const rebuilt = (text: string, change: (header: Record<string, unknown>) => unknown): string => {
  const [head = '', ...rest] = text.split('.');
  const header = JSON.parse(Buffer.from(head, 'base64url').toString()) as Record<string, unknown>;
  return [encodeBase64url(Buffer.from(JSON.stringify(change(header)))), ...rest].join('.');
};

describe('pki/jose JWE', () => {
  const { spki, privateKey } = createKey();
  const text = sealJwe({ recipient: spki, plaintext, typ, bind });
  const open = (sealed: string, more: Partial<Parameters<typeof openJwe>[1]> = {}) => openJwe(sealed, { privateKey, typ, bind, ...more });

  it('SEC-008 SEC-013 seals with ECDH-ES+A256KW and A256GCM under its typ, and opens again', () => {
    const header = JSON.parse(Buffer.from(text.split('.')[0] ?? '', 'base64url').toString()) as Record<string, unknown>;
    assert.deepEqual({ ...header, epk: null }, { alg: 'ECDH-ES+A256KW', enc: 'A256GCM', epk: null, typ, ...bind });
    assert.deepEqual(Buffer.from(open(text).plaintext), plaintext);
    assert.deepEqual(open(text).header, { kid: null, typ });
    assert.equal(open(sealJwe({ recipient: spki, plaintext: new Uint8Array(), typ, bind })).plaintext.length, 0);
  });

  it('every box has an ephemeral key, a content key and an IV of its own', () => {
    const again = sealJwe({ recipient: spki, plaintext, typ, bind }).split('.');
    for (const [i, part] of text.split('.').entries()) assert.notEqual(again[i], part);
  });

  it('opens for the request it is bound to, and for no other', () => {
    assert.throws(
      () => open(text, { bind: { ...bind, rid: 'request-2' } }),
      refusedWith('PERMISSION_DENIED', 'bound-member', /jwe.header.rid is not what this box must be bound to/),
    );
    assert.throws(
      () => open(text, { bind: { ...bind, exp: String(bind.exp) } }),
      refusedWith('PERMISSION_DENIED', 'bound-member', /jwe.header.exp /),
    );
    assert.throws(() => open(text, { bind: { ...bind, iid: 'x' } }), refusedWith('PERMISSION_DENIED', 'bound-member', /jwe.header.iid /));
    assert.throws(
      () => open(text, { bind: { rid: bind.rid } }),
      refusedWith('MALFORMED', 'field', /jwe.header.exp is not a member that is read here/),
    );
    assert.throws(
      () => open(text, { typ: 'bcworkload+jwe' }),
      refusedWith('PERMISSION_DENIED', 'typ', /is "bcsecret\+jwe", not bcworkload\+jwe/),
    );
    assert.throws(
      () => sealJwe({ recipient: spki, plaintext, typ, bind: { alg: 'none' } }),
      refusedWith('INVALID_INPUT', 'member', /bind.alg is a member of the format itself/),
    );
  });

  it('opens with the key it was sealed to, and with no other', () => {
    const other = createKey().privateKey;
    assert.throws(
      () => open(text, { privateKey: other }),
      refusedWith('UNAUTHENTICATED', 'key-wrap', /was not made with this key, or was changed/),
    );
  });

  const headers: ReadonlyArray<
    readonly [name: string, change: (header: Record<string, unknown>) => unknown, code: string, reason: string, message: RegExp]
  > = [
    ['direct agreement', (header) => ({ ...header, alg: 'ECDH-ES' }), 'UNSUPPORTED', 'algorithm', /jwe.header.alg is not ECDH-ES\+A256KW/],
    ['a shorter content key', (header) => ({ ...header, enc: 'A128GCM' }), 'UNSUPPORTED', 'algorithm', /jwe.header.enc is not A256GCM/],
    ['compression', (header) => ({ ...header, zip: 'DEF' }), 'MALFORMED', 'field', /jwe.header.zip is not a member/],
    ['critical members', (header) => ({ ...header, crit: [] }), 'MALFORMED', 'field', /jwe.header.crit is not a member/],
    ['no ephemeral key', (header) => ({ ...header, epk: undefined }), 'MALFORMED', 'field', /jwe.header.epk is not a JSON object/],
    [
      'an ephemeral key on another curve',
      (header) => ({ ...header, epk: { ...(header['epk'] as object), crv: 'P-384' } }),
      'UNSUPPORTED',
      'algorithm',
      /epk is not a P-256 key/,
    ],
    [
      'an ephemeral key off the curve',
      (header) => ({ ...header, epk: { ...(header['epk'] as object), x: 'A'.repeat(43) } }),
      'MALFORMED',
      'field',
      /jwe.header.epk is not a point on P-256/,
    ],
    [
      'a private ephemeral key',
      (header) => ({ ...header, epk: { ...(header['epk'] as object), d: 'AA' } }),
      'MALFORMED',
      'field',
      /jwe.header.epk.d is not a member/,
    ],
    [
      'long party information',
      (header) => ({ ...header, apu: 'A'.repeat(400) }),
      'MALFORMED',
      'field',
      /jwe.header.apu has more than 256 bytes/,
    ],
    [
      'loose party information',
      (header) => ({ ...header, apv: 'AA==' }),
      'MALFORMED',
      'field',
      /jwe.header.apv is not canonical base64url/,
    ],
    ['another kid', (header) => ({ ...header, kid: 'other' }), 'PERMISSION_DENIED', 'kid', /jwe.header.kid names another key/],
    ['blanks in it', (header) => header, 'UNAUTHENTICATED', 'gcm-tag', /was changed/],
  ];
  for (const [name, change, code, reason, message] of headers)
    it(`H-19 refuses a header with ${name}`, () => {
      const changed = name.startsWith('blanks')
        ? [
            encodeBase64url(
              Buffer.from(JSON.stringify(JSON.parse(Buffer.from(text.split('.')[0] ?? '', 'base64url').toString()), null, 1)),
            ),
            ...text.split('.').slice(1),
          ].join('.')
        : rebuilt(text, change);
      assert.throws(() => open(changed, { kid: 'mine' }), refusedWith(code, reason, message));
    });

  it('H-19 has exact sizes: a tag cut short, an IV or a wrapped key of another length', () => {
    const part = (i: number, bytes: number): string => {
      const parts = text.split('.');
      parts[i] = encodeBase64url(Buffer.from(parts[i] ?? '', 'base64url').subarray(0, bytes));
      return parts.join('.');
    };
    for (const [changed, message] of [
      [part(4, 12), /jwe.tag has 12 bytes, not 16/],
      [part(4, 4), /jwe.tag has 4 bytes, not 16/],
      [part(2, 8), /jwe.iv has 8 bytes, not 12/],
      [part(1, 24), /jwe.encrypted_key has 24 bytes, not 40/],
      [text.split('.').slice(1).join('.'), /jwe is not five parts/],
      [`${text}.`, /jwe is not five parts/],
      ['.'.repeat(262_145), /jwe has more than 262144 characters/],
      [
        `${encodeBase64url(Buffer.from(`{"a":${'['.repeat(50_000)}${']'.repeat(50_000)}}`))}.....`.slice(0, -1),
        /jwe.header has more than 8192 characters/,
      ],
    ] as const)
      assert.throws(() => open(changed), refusedWith('MALFORMED', 'field', message));
  });

  it('falls with every part of it', () => {
    for (const [i] of text.split('.').entries()) {
      const parts = text.split('.');
      const bytes = Buffer.from(parts[i] ?? '', 'base64url');
      bytes[bytes.length - 1] = (bytes.at(-1) as number) ^ 1;
      parts[i] = encodeBase64url(bytes);
      assert.throws(() => open(parts.join('.')));
    }
  });

  it('is not sealed beyond its bound', () => {
    assert.throws(
      () => sealJwe({ recipient: spki, plaintext: Buffer.alloc(200_000), typ }),
      refusedWith('INVALID_INPUT', 'too-large', /more than 262144 characters/),
    );
    assert.throws(
      () => sealJwe({ recipient: spki, plaintext, typ, bind: { rid: 'r'.repeat(8_192) } }),
      refusedWith('INVALID_INPUT', 'too-large', /^bind makes a header of more than 8192 characters$/),
    );
  });
});

/** RFC 7518 appendix C: the published derivation, in the terms of our function (its key is 128 bits long, ours 256). */
describe('pki/jose primitives', () => {
  it('the Concat KDF counts the bits of the derived key and prefixes each part with its length', () => {
    const secret = Buffer.from([...Array(32).keys()]);
    const given = { secret, algorithm: 'ECDH-ES+A256KW', apu: Buffer.from('Alice'), apv: Buffer.from('Bob') };
    const derived = concatKdf(given).toString('hex');
    // sha256(00000001 | secret | 0000000e "ECDH-ES+A256KW" | 00000005 "Alice" | 00000003 "Bob" | 00000100), by sha256sum.
    assert.equal(derived, concatExpected);
    for (const other of [
      { ...given, apu: new Uint8Array() },
      { ...given, apv: new Uint8Array() },
      { ...given, algorithm: 'A256GCM' },
    ])
      assert.notEqual(concatKdf(other).toString('hex'), derived);
  });

  it('AES-KW is that of RFC 3394, and wraps no key of one block', () => {
    const kek = Buffer.from('000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f', 'hex');
    const key = Buffer.from('00112233445566778899aabbccddeeff000102030405060708090a0b0c0d0e0f', 'hex');
    const wrapped = '28c9f404c4b810f4cbccb35cfb87f8263f5786e2d80ed326cbc7f0e71a99f43bfb988b9b7a02dd21';
    assert.equal(wrapKey(kek, key).toString('hex'), wrapped);
    assert.deepEqual(unwrapKey(kek, Buffer.from(wrapped, 'hex')), key);
    assert.throws(() => wrapKey(kek, key.subarray(0, 8)), refusedWith('INVALID_INPUT', 'wrap-size', /16 bytes or more/));
    assert.throws(() => wrapKey(kek, key.subarray(0, 20)), refusedWith('INVALID_INPUT', 'wrap-size', /in blocks of 8, not 20/));
    assert.throws(() => unwrapKey(kek, Buffer.alloc(16)), refusedWith('MALFORMED', 'wrap-size', /24 bytes or more/));
    assert.throws(
      () => unwrapKey(kek.subarray(1), Buffer.alloc(24)),
      refusedWith('INVALID_INPUT', 'key-size', /16, 24 or 32 bytes, not 31/),
    );
    assert.throws(
      () => unwrapKey(kek.subarray(16), Buffer.from(wrapped, 'hex')),
      refusedWith('UNAUTHENTICATED', 'key-wrap', /was changed/),
    );
  });

  it('AES-GCM takes the sizes in use and no others', () => {
    const box = { key: Buffer.alloc(32, 1), iv: Buffer.alloc(12, 2), aad: Buffer.from('aad') };
    const sealed = sealGcm(box, plaintext);
    assert.deepEqual(openGcm({ ...box, ...sealed }), plaintext);
    assert.throws(
      () => openGcm({ ...box, ...sealed, tag: sealed.tag.subarray(0, 12) }),
      refusedWith('MALFORMED', 'gcm-size', /the tag of AES-256-GCM has 16 bytes, not 12/),
    );
    assert.throws(
      () => openGcm({ ...box, ...sealed, iv: Buffer.alloc(16) }),
      refusedWith('MALFORMED', 'gcm-size', /the iv of AES-256-GCM has 12 bytes, not 16/),
    );
    assert.throws(
      () => sealGcm({ ...box, key: Buffer.alloc(16) }, plaintext),
      refusedWith('MALFORMED', 'gcm-size', /the key of AES-256-GCM has 32 bytes, not 16/),
    );
    assert.throws(() => openGcm({ ...box, ...sealed, aad: Buffer.from('AAD') }), refusedWith('UNAUTHENTICATED', 'gcm-tag', /was changed/));
  });

  it('a key on another curve opens nothing', () => {
    const { spki } = createKey();
    const other = generateKeyPairSync('ec', { namedCurve: 'P-384' }).privateKey;
    const sealed = sealJwe({ recipient: spki, plaintext, typ });
    assert.throws(() => openJwe(sealed, { privateKey: other }), refusedWith('INVALID_INPUT', 'not-p256', /a P-256 key is needed/));
  });
});

const concatExpected = '5655555b3d044d53f6b50fd49674ff388654cb284a4f6d4e2112de7b876a59d6';
