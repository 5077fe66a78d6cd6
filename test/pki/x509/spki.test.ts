import assert from 'node:assert/strict';
import { createHash, createPublicKey, ECDH, generateKeyPairSync, sign } from 'node:crypto';
import {
  derFromRawSignature,
  isSpkiPin,
  kidOf,
  parseP256Spki,
  publicKeyOf,
  rawFromDerSignature,
  signerFromPrivateKey,
  spkiOf,
  spkiPin,
  verifyRawSignature,
} from '../../../pki/x509/index.ts';
import { createKey, refusedWith } from './authorities.ts';
import { describeVectors, readJsonVectors } from './vectors.ts';

const hex = (text: string): Buffer => Buffer.from(text, 'hex');
const order = BigInt('0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551');

describe('pki/x509 keys', () => {
  const { spki, privateKey, signer } = createKey();

  it('H-19 takes the 91 bytes of a named-curve, uncompressed key, as a private copy', () => {
    const given = Uint8Array.from(spki);
    const parsed = parseP256Spki(given);
    given.fill(0);
    assert.deepEqual(Buffer.from(parsed), Buffer.from(spki));
    assert.equal(parsed.length, 91);
  });

  const point = spki.subarray(26);
  const compressed = (): Uint8Array =>
    Buffer.concat([
      hex('3039301306072a8648ce3d020106082a8648ce3d030107032200'),
      ECDH.convertKey(point, 'prime256v1', undefined, undefined, 'compressed') as Buffer,
    ]);
  const wrong: ReadonlyArray<readonly [name: string, bytes: Uint8Array, message: RegExp]> = [
    ['trailing bytes', Buffer.concat([spki, Buffer.of(0)]), /91 bytes, not 92/],
    ['a compressed point', compressed(), /91 bytes, not 59/],
    ['a hybrid point', Uint8Array.from(spki, (octet, i) => (i === 26 ? 6 : octet)), /not P-256 with the named curve/],
    ['another curve of the same size', Uint8Array.from(spki, (octet, i) => (i === 22 ? octet ^ 1 : octet)), /not P-256/],
    ['a point that is not on the curve', Uint8Array.from(spki, (octet, i) => (i === 90 ? octet ^ 1 : octet)), /not on P-256/],
    ['a coordinate not below the prime', Buffer.concat([spki.subarray(0, 27), Buffer.alloc(32, 0xff), spki.subarray(59)]), /not on P-256/],
    ['the point at infinity, padded', Buffer.concat([spki.subarray(0, 27), Buffer.alloc(64)]), /not on P-256/],
    ['nothing', new Uint8Array(), /91 bytes, not 0/],
  ];
  for (const [name, bytes, message] of wrong)
    it(`H-19 refuses ${name}`, () => {
      for (const read of [parseP256Spki, publicKeyOf, spkiPin, kidOf])
        assert.throws(() => read(bytes), refusedWith('MALFORMED', 'spki', message));
    });

  it('H-09 gives one canonical form to a key however it was imported', () => {
    const imported = createPublicKey({ key: Buffer.from(compressed()), format: 'der', type: 'spki' });
    assert.deepEqual(Buffer.from(spkiOf(imported)), Buffer.from(spki));
    assert.deepEqual(Buffer.from(spkiOf(privateKey)), Buffer.from(spki));
  });

  it('KEY-004 takes P-256 keys only', () => {
    for (const key of [generateKeyPairSync('ed25519').privateKey, generateKeyPairSync('ec', { namedCurve: 'P-384' }).privateKey])
      assert.throws(() => signerFromPrivateKey(key), refusedWith('INVALID_INPUT', 'not-p256', /a P-256 key is needed/));
    assert.throws(
      () => signerFromPrivateKey(createPublicKey(privateKey)),
      refusedWith('INVALID_INPUT', 'not-private', /a private key is needed to sign/),
    );
  });

  it('A-PKI-25 pins and key ids are SHA-256 over the SubjectPublicKeyInfo', () => {
    const digest = createHash('sha256').update(spki).digest();
    assert.equal(spkiPin(spki), `sha256/${digest.toString('base64')}`);
    assert.equal(kidOf(spki), digest.toString('hex'));
    assert.ok(isSpkiPin(spkiPin(spki)));
    const pin = spkiPin(spki);
    for (const loose of [
      pin.slice(0, -1),
      `${pin}=`,
      `sha512/${pin.slice(7)}`,
      pin.replace('sha256/', 'sha256/ '),
      `sha256/${digest.toString('base64url')}`,
      'sha256/',
    ])
      assert.equal(isSpkiPin(loose), false, loose);
  });

  it('signs raw r‖s of 64 bytes, and each form converts to the other exactly', async () => {
    for (let i = 0; i < 64; i++) {
      const input = Buffer.from(`message ${i}`);
      const raw = await signer.sign(input);
      assert.equal(raw.length, 64);
      assert.ok(verifyRawSignature({ spki, input, signature: raw }));
      assert.deepEqual(Buffer.from(rawFromDerSignature(derFromRawSignature(raw))), Buffer.from(raw));
      const der = sign('sha256', input, privateKey);
      assert.deepEqual(Buffer.from(derFromRawSignature(rawFromDerSignature(der))), der);
      assert.ok(verifyRawSignature({ spki, input, signature: rawFromDerSignature(der) }));
    }
  });

  it('signs many at once as it signs one', async () => {
    const inputs = Array.from({ length: 100 }, (_, i) => Buffer.from(`message ${i}`));
    for (const count of [1, 4, 5, 100]) {
      const signatures = await Promise.all(inputs.slice(0, count).map((input) => signer.sign(input)));
      assert.ok(
        signatures.every((signature, i) => signature.length === 64 && verifyRawSignature({ spki, input: inputs[i] as Buffer, signature })),
      );
    }
  });

  it('writes small and large signature integers in their shortest form', () => {
    const raw = (r: string, s: string): Buffer => Buffer.concat([hex(r.padStart(64, '0')), hex(s.padStart(64, '0'))]);
    const cases: ReadonlyArray<readonly [string, string, string]> = [
      ['01', '01', '3006020101020101'],
      ['80', '01', '300702020080020101'],
      ['01', '80', '300702010102020080'],
      ['80', `80${'00'.repeat(31)}`, `30270202008002210080${'00'.repeat(31)}`],
      [`80${'00'.repeat(31)}`, '7f', `302602210080${'00'.repeat(31)}02017f`],
    ];
    for (const [r, s, der] of cases) {
      assert.equal(Buffer.from(derFromRawSignature(raw(r, s))).toString('hex'), der);
      assert.deepEqual(Buffer.from(rawFromDerSignature(hex(der))), raw(r, s));
    }
  });

  it('H-19 refuses signatures of another length, of r or s zero or not below n, and padded integers', () => {
    const n = order.toString(16);
    for (const raw of [
      '',
      '00'.repeat(64),
      '01'.repeat(63),
      '01'.repeat(65),
      n + '01'.repeat(32),
      '01'.repeat(32) + n,
      '00'.repeat(32) + '01'.repeat(32),
    ])
      assert.throws(() => derFromRawSignature(hex(raw)), refusedWith('MALFORMED', 'signature', /64 bytes|out of range/));
    for (const der of ['3006020100020101', '30060201ff020101', `3026022100${n}020101`])
      assert.throws(() => rawFromDerSignature(hex(der)), refusedWith('MALFORMED', 'signature', /out of range/));
    assert.throws(() => rawFromDerSignature(hex('300702020001020101')), refusedWith('MALFORMED', 'der-integer', /shortest/));
    assert.throws(() => rawFromDerSignature(hex('300602010102010100')), refusedWith('MALFORMED', 'der-trailing', /left over/));
    assert.equal(verifyRawSignature({ spki, input: new Uint8Array(), signature: new Uint8Array(63) }), false);
  });

  it('(r, n−s) still verifies: nothing may key a replay cache by the signature', async () => {
    const raw = Buffer.from(await signer.sign(Buffer.from('once')));
    const other = Buffer.concat([
      raw.subarray(0, 32),
      hex((order - BigInt(`0x${raw.subarray(32).toString('hex')}`)).toString(16).padStart(64, '0')),
    ]);
    assert.notDeepEqual(other, raw);
    assert.ok(verifyRawSignature({ spki, input: Buffer.from('once'), signature: other }));
  });
});

interface Group<T> {
  readonly testGroups: ReadonlyArray<{ readonly publicKeyDer?: string; readonly keyDer?: string; readonly tests: readonly T[] }>;
}

interface SignatureCase {
  readonly tcId: number;
  readonly comment: string;
  readonly msg: string;
  readonly sig: string;
  readonly result: 'valid' | 'invalid' | 'acceptable';
}

const verdictsOf = (file: string, toRaw: (signature: Uint8Array) => Uint8Array): { cases: number; wrong: string[] } => {
  const wrong: string[] = [];
  let cases = 0;
  for (const group of (readJsonVectors('wycheproof', file) as Group<SignatureCase>).testGroups)
    for (const { tcId, comment, msg, sig, result } of group.tests) {
      cases += 1;
      const spki = hex(group.publicKeyDer ?? (group.keyDer as string));
      const isTaken = isFine(() => verifyRawSignature({ spki, input: hex(msg), signature: toRaw(hex(sig)) }));
      if (isTaken !== (result === 'valid')) wrong.push(`${tcId} ${comment}: ${result}, ours ${isTaken}`);
    }
  return { cases, wrong };
};

const isFine = (verify: () => boolean): boolean => {
  try {
    return verify();
  } catch (error) {
    assert.equal((error as { code?: string }).code, 'MALFORMED', String(error));
    return false;
  }
};

describeVectors('pki/x509 wycheproof ECDSA P-256, raw signatures', ['wycheproof', 'ecdsa_secp256r1_sha256_p1363_test.json'], () => {
  it('agrees with every case', () => {
    const { cases, wrong } = verdictsOf('ecdsa_secp256r1_sha256_p1363_test.json', (signature) => signature);
    assert.deepEqual(wrong, []);
    assert.ok(cases > 200, `${cases} cases`);
  });

  it('agrees with every case that has a DER form, through the DER form', () => {
    const { wrong } = verdictsOf('ecdsa_secp256r1_sha256_p1363_test.json', (signature) =>
      rawFromDerSignature(derFromRawSignature(signature)),
    );
    assert.deepEqual(wrong, []);
  });
});

describeVectors('pki/x509 wycheproof ECDSA P-256, DER signatures', ['wycheproof', 'ecdsa_secp256r1_sha256_test.json'], () => {
  it('agrees with every case', () => {
    const { cases, wrong } = verdictsOf('ecdsa_secp256r1_sha256_test.json', rawFromDerSignature);
    assert.deepEqual(wrong, []);
    assert.ok(cases > 400, `${cases} cases`);
  });
});

describeVectors('pki/x509 wycheproof SubjectPublicKeyInfo', ['wycheproof', 'ecdh_secp256r1_test.json'], () => {
  it('takes valid keys, and nothing that is not the one form of a key', () => {
    const groups = readJsonVectors('wycheproof', 'ecdh_secp256r1_test.json') as Group<{
      tcId: number;
      comment: string;
      public: string;
      result: string;
      flags: string[];
    }>;
    const tests = groups.testGroups.flatMap(({ tests: cases }) => cases);
    const wrong = tests.filter(({ public: key, result }) => isFine(() => parseP256Spki(hex(key)).length === 91) !== (result === 'valid'));
    assert.deepEqual(
      wrong.map(({ tcId, comment, result }) => `${tcId} ${comment}: ${result}`),
      [],
    );
    assert.ok(tests.length > 300, `${tests.length} cases`);
  });
});
