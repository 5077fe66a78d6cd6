/** What real TPMs say (test/golden/tpm.json), read strictly and held to one key and one request. */
import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { isControlError } from '../../../domain/errors.ts';
import {
  assertAttestationKey,
  assertEndorsementKey,
  makeCredential,
  parseQuote,
  parseTpmPublic,
  parseTpmSignature,
  verifyKeyAttestation,
} from '../../../pki/tpm/index.ts';
import { parseTpmAkUri, spkiOf, tpmAkUri } from '../../../pki/x509/index.ts';
import { createSoftwareAk } from '../../fakes/attestation-key.ts';
import { refusal } from '../support.ts';

interface Golden {
  readonly spki: string;
  readonly request: string;
  readonly tpms: readonly { kind: 'ecc' | 'rsa'; ekPublic: string; akPublic: string; akName: string; quote: string; signature: string }[];
}

const golden = JSON.parse(readFileSync(join(import.meta.dirname, '../../golden/tpm.json'), 'utf8')) as Golden;
const bytes = (hex: string): Buffer => Buffer.from(hex, 'hex');
const attested = { spki: bytes(golden.spki), request: bytes(golden.request) };
const flipped = (from: Uint8Array, at: number): Uint8Array => Uint8Array.from(from, (value, index) => (index === at ? value ^ 1 : value));
const at = (from: Uint8Array, offset: number, hex: string): Buffer => {
  const out = Buffer.from(from);
  bytes(hex).copy(out, offset);
  return out;
};

describe('what a TPM says', () => {
  for (const { kind, ...hex } of golden.tpms) {
    const ekPublic = bytes(hex.ekPublic);
    const akPublic = bytes(hex.akPublic);
    const akName = bytes(hex.akName);
    const attestation = { akPublic, quote: bytes(hex.quote), signature: bytes(hex.signature) };

    it(`ID-014 ID-015 ${kind}: a key has the name that its TPM gave it`, () => {
      const ak = parseTpmPublic(akPublic, 'ak');
      assert.deepEqual([ak.type, Buffer.from(ak.name).toString('hex')], [kind, hex.akName]);
      assert.deepEqual(Buffer.from(parseTpmAkUri(tpmAkUri(ak.name)) as Uint8Array), akName);
      assertAttestationKey(ak);
      assertEndorsementKey(parseTpmPublic(ekPublic, 'ek'));
      assert.throws(() => assertEndorsementKey(ak), refusal('PERMISSION_DENIED', 'tpm-ek-attributes', /is not decrypt/));
      assert.throws(
        () => assertAttestationKey(parseTpmPublic(ekPublic, 'ek')),
        refusal('PERMISSION_DENIED', 'tpm-ak-attributes', /is not sign/),
      );
    });

    it(`RENEW-008 ${kind}: its attestation key speaks for one key and one request`, () => {
      verifyKeyAttestation(attestation, attested, akName);
      const other = spkiOf(generateKeyPairSync('ec', { namedCurve: 'P-256' }).publicKey);
      const elsewhere = refusal('PERMISSION_DENIED', 'tpm-other-key', /another key or another request/);
      assert.throws(() => verifyKeyAttestation(attestation, { ...attested, spki: other }, akName), elsewhere);
      assert.throws(() => verifyKeyAttestation(attestation, { ...attested, request: bytes('00') }, akName), elsewhere);
      assert.throws(
        () => verifyKeyAttestation(attestation, attested, flipped(akName, 20)),
        refusal('PERMISSION_DENIED', 'tpm-other-ak', /another attestation key/),
      );
    });

    it(`${kind}: not a bit of it can be changed`, () => {
      const refusedWith = (changed: Partial<typeof attestation>) => {
        try {
          verifyKeyAttestation({ ...attestation, ...changed }, attested, akName);
        } catch (error) {
          if (isControlError(error)) return error.code;
          throw error;
        }
        return 'taken';
      };
      for (let byte = 0; byte < attestation.quote.length; byte++)
        assert.equal(refusedWith({ quote: flipped(attestation.quote, byte) as Buffer }), 'BAD_SIGNATURE', `quote ${byte}`);
      for (let byte = 0; byte < attestation.signature.length; byte++)
        assert.match(
          refusedWith({ signature: flipped(attestation.signature, byte) as Buffer }),
          /^(BAD_SIGNATURE|MALFORMED)$/,
          `signature ${byte}`,
        );
      for (let byte = 0; byte < akPublic.length; byte++)
        assert.match(refusedWith({ akPublic: flipped(akPublic, byte) as Buffer }), /^(PERMISSION_DENIED|MALFORMED)$/, `key ${byte}`);
    });

    it(`${kind}: nothing may be missing or left over`, () => {
      const readers: [string, Uint8Array, (input: Uint8Array) => unknown][] = [
        ['ek', ekPublic, (input) => parseTpmPublic(input, 'key')],
        ['ak', akPublic, (input) => parseTpmPublic(input, 'key')],
        ['quote', attestation.quote, parseQuote],
        ['signature', attestation.signature, parseTpmSignature],
      ];
      for (const [name, whole, read] of readers) {
        read(whole);
        for (let size = 0; size < whole.length; size++)
          assert.throws(
            () => read(whole.subarray(0, size)),
            refusal('MALFORMED', 'tpm', /is cut short|is empty|odd number/),
            `${name} ${size}`,
          );
        assert.throws(() => read(Buffer.concat([whole, bytes('00')])), refusal('MALFORMED', 'tpm', /1 bytes left over/), name);
      }
    });

    it(`${kind}: a credential has the form that this key opens, and holds at most 32 bytes`, () => {
      const ek = parseTpmPublic(ekPublic, 'ek');
      const { blob, encryptedSecret } = makeCredential(ek, akName, Buffer.alloc(32, 1));
      assert.deepEqual([blob.length, encryptedSecret.length], [2 + 34 + 34, kind === 'ecc' ? 70 : 258]);
      for (const size of [0, 33])
        assert.throws(() => makeCredential(ek, akName, Buffer.alloc(size)), refusal('INVALID_INPUT', 'tpm-secret', /1 to 32 bytes, not/));
    });
  }

  // Where each field lies: size 0, type 2, nameAlg 4, attributes 6, policy 10; an endorsement key has 32 bytes of policy, an attestation key none.
  const [ecc, rsa] = golden.tpms.map(({ ekPublic, akPublic }) => ({ ek: bytes(ekPublic), ak: bytes(akPublic) }));
  const odd: [string, Uint8Array | undefined, RegExp][] = [
    ['another kind of key', ecc && at(ecc.ak, 2, '0008'), /key.type is 0x0008, neither ECC nor RSA/],
    ['another digest for its name', ecc && at(ecc.ak, 4, '000c'), /key.nameAlg is 0x000c, not 0x000b/],
    ['a digest that is weak', ecc && at(ecc.ak, 4, '0004'), /key.nameAlg is 0x0004/],
    ['another cipher for its children', ecc && at(ecc.ek, 44, '0026'), /key.symmetric is 0x0026, not AES/],
    ['a longer key of that', ecc && at(ecc.ek, 46, '0100'), /symmetric.keyBits is 0x0100/],
    ['another mode of it', ecc && at(ecc.ek, 48, '0044'), /symmetric.mode is 0x0044/],
    ['a scheme for groups', ecc && at(ecc.ak, 14, '001a'), /key.scheme is 0x001a, neither ECDSA nor RSASSA/],
    ['a scheme with SHA-1', ecc && at(ecc.ak, 16, '0004'), /scheme.hash is 0x0004/],
    ['another curve', ecc && at(ecc.ak, 18, '0004'), /key.curve is 0x0004/],
    ['a point beside the curve', ecc && flipped(ecc.ak, ecc.ak.length - 1), /is not a point on P-256/],
    ['a coordinate that is too long', ecc && at(ecc.ak, 22, '0021'), /key.x has 33 bytes, more than 32/],
    ['1024 bits', rsa && at(rsa.ek, 52, '0400'), /key.keyBits is 0x0400/],
    ['the exponent 3', rsa && at(rsa.ek, 54, '00000003'), /key.exponent is 3, not 65537/],
    ['an even modulus', rsa && flipped(rsa.ek, rsa.ek.length - 1), /key.modulus is not an odd number of 2048 bits/],
    ['a modulus that is short', rsa && at(rsa.ek, 58, '00'), /key.modulus is not an odd number of 2048 bits/],
    ['a size beyond all bounds', bytes('ffff'), /key.size has 65535 bytes, more than 512/],
  ];
  for (const [title, input, message] of odd) {
    it(`a public area with ${title} is none`, () => {
      assert.ok(input);
      assert.throws(() => parseTpmPublic(input, 'key'), refusal('MALFORMED', 'tpm', message));
    });
  }

  it('a restricted key’s word of another kind is no quote: certified, timed, or never of a TPM', () => {
    const { quote } = createSoftwareAk().quote(Buffer.alloc(32));
    parseQuote(quote);
    assert.throws(() => parseQuote(at(quote, 4, '8017')), refusal('MALFORMED', 'tpm', /quote.type is 0x8017, not that of a quote/));
    assert.throws(() => parseQuote(at(quote, 0, '00')), refusal('MALFORMED', 'tpm', /quote.magic is not that of a TPM/));
    assert.throws(() => parseQuote(Buffer.alloc(2_000)), refusal('MALFORMED', 'tpm', /2000 bytes, more than 1024/));
    const banks = quote.length - 34 - 10;
    assert.throws(() => parseQuote(at(quote, banks, '00000011')), refusal('MALFORMED', 'tpm', /17 banks, more than 16/));
  });

  for (const [lacking, attributes] of [
    ['fixedTPM', 0x0005_0070],
    ['fixedParent', 0x0005_0062],
    ['sensitiveDataOrigin', 0x0005_0052],
    ['restricted', 0x0004_0072],
    ['sign', 0x0001_0072],
  ] as const) {
    it(`a key that is not ${lacking} attests nothing, whatever name is stated`, () => {
      const ak = createSoftwareAk({ attributes });
      const said = ak.attest(attested.spki, attested.request);
      assert.throws(
        () => verifyKeyAttestation(said, attested, ak.name),
        refusal('PERMISSION_DENIED', 'tpm-ak-attributes', new RegExp(`is not ${lacking}$`)),
      );
    });
  }

  it('a key that decrypts too attests nothing', () => {
    const ak = createSoftwareAk({ attributes: 0x0007_0072 });
    assert.throws(
      () => verifyKeyAttestation(ak.attest(attested.spki, attested.request), attested, ak.name),
      refusal('PERMISSION_DENIED', 'tpm-ak-attributes', /decrypts too/),
    );
  });

  it('whatever the bytes: an answer, or MALFORMED', () => {
    const calm = (read: (input: Uint8Array) => unknown) => (input: Uint8Array) => {
      try {
        read(input);
      } catch (error) {
        assert.ok(isControlError(error) && error.code === 'MALFORMED', String(error));
      }
    };
    const sized = fc
      .uint8Array({ maxLength: 400 })
      .map((body) => Buffer.concat([Buffer.from([body.length >> 8, body.length & 255]), body]));
    fc.assert(
      fc.property(
        sized,
        calm((input) => parseTpmPublic(input, 'key')),
      ),
    );
    fc.assert(fc.property(fc.uint8Array({ maxLength: 400 }), calm(parseQuote)));
    fc.assert(fc.property(fc.uint8Array({ maxLength: 400 }), calm(parseTpmSignature)));
  });
});
