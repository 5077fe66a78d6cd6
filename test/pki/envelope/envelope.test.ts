import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { create } from '@bufbuild/protobuf';
import fc from 'fast-check';
import { signEnvelope, verifyEnvelope } from '../../../pki/envelope/index.ts';
import { kidOf, signerFromPrivateKey } from '../../../pki/x509/index.ts';
import { derFromRawSignature } from '../../../pki/x509/signature.ts';
import { type Purpose, purposes, SignatureSchema, signingInput } from '../../../proto/index.ts';
import { refusal } from '../support.ts';

interface Golden {
  readonly spki: string;
  readonly kid: string;
  /** A vector with a key of its own was added later. */
  readonly vectors: readonly {
    purpose: Purpose;
    names: string[];
    parts: string[];
    input: string;
    signature: string;
    spki?: string;
    kid?: string;
  }[];
}

const golden = JSON.parse(readFileSync(join(import.meta.dirname, '../../golden/signing-inputs.json'), 'utf8')) as Golden;
const bytes = (hex: string): Uint8Array => new Uint8Array(Buffer.from(hex, 'hex'));

const key = bytes(golden.spki);
const signed = (vector: Golden['vectors'][number], change: { sig?: Uint8Array; kid?: string } = {}) => ({
  purpose: vector.purpose,
  parts: vector.parts.map(bytes),
  key: vector.spki === undefined ? key : bytes(vector.spki),
  signature: create(SignatureSchema, { sig: bytes(vector.signature), kid: vector.kid ?? golden.kid, ...change }),
});

const signer = signerFromPrivateKey(generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey);

describe('signed envelopes', () => {
  it('ENV-008 every purpose has its vector, with the same parts', () => {
    assert.deepEqual(Object.fromEntries(golden.vectors.map(({ purpose, names }) => [purpose, names])), { ...purposes });
    assert.equal(kidOf(key), golden.kid);
  });

  for (const vector of golden.vectors) {
    it(`ENV-005 ENV-006 ENV-007 ${vector.purpose}: the signed bytes, and a signature by another implementation`, () => {
      assert.equal(Buffer.from(signingInput(vector.purpose, vector.parts.map(bytes))).toString('hex'), vector.input);
      verifyEnvelope(signed(vector));
    });
  }

  it('ENV-004 ENV-009 a signature under one purpose never verifies under another', () => {
    for (const vector of golden.vectors) {
      for (const [purpose, names] of Object.entries(purposes) as [Purpose, readonly string[]][]) {
        if (purpose === vector.purpose || names.length !== vector.parts.length) continue;
        assert.throws(
          () => verifyEnvelope({ ...signed(vector), purpose }),
          refusal('BAD_SIGNATURE', 'bad-signature', /does not match its bytes/),
        );
      }
    }
  });

  it('ENV-002 the signature covers exactly the bytes: any flipped bit of any part is refused', async () => {
    const parts = [Buffer.from('csr'), 'node-1', Buffer.from('00000001')];
    const signature = await signEnvelope(signer, 'renew', parts);
    verifyEnvelope({ signature, purpose: 'renew', parts, key: signer.spki });
    fc.assert(
      fc.property(fc.nat(2), fc.nat(), fc.nat(7), (part, at, bit) => {
        const changed = parts.map((value) => Buffer.from(value));
        const bytesOf = changed[part] as Buffer;
        bytesOf[at % bytesOf.length] = (bytesOf[at % bytesOf.length] as number) ^ (1 << bit);
        assert.throws(
          () => verifyEnvelope({ signature, purpose: 'renew', parts: changed, key: signer.spki }),
          refusal('BAD_SIGNATURE', 'bad-signature', /renew/),
        );
      }),
      { numRuns: 50 },
    );
  });

  it('ENV-003 a DER signature, one cut short and one padded are refused by their length', () => {
    const [vector] = golden.vectors;
    assert.ok(vector !== undefined);
    const raw = bytes(vector.signature);
    for (const sig of [derFromRawSignature(raw), raw.subarray(0, 63), Buffer.concat([raw, Buffer.from([0])]), new Uint8Array()]) {
      assert.throws(
        () => verifyEnvelope(signed(vector, { sig })),
        refusal('BAD_SIGNATURE', 'signature-length', new RegExp(`has ${sig.length} bytes, not 64`)),
      );
    }
  });

  it('ENV-003 r or s of zero, or of the order, never verifies', () => {
    const [vector] = golden.vectors;
    assert.ok(vector !== undefined);
    const order = 'ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551';
    for (const half of ['00'.repeat(32), order, 'ff'.repeat(32)]) {
      for (const hex of [half + vector.signature.slice(64), vector.signature.slice(0, 64) + half]) {
        assert.throws(
          () => verifyEnvelope(signed(vector, { sig: bytes(hex) })),
          refusal('BAD_SIGNATURE', 'bad-signature', /does not match/),
        );
      }
    }
  });

  it('ENV-001 an unsigned body, another key and a kid that is none are each named', () => {
    const [vector] = golden.vectors;
    assert.ok(vector !== undefined);
    assert.throws(
      () => verifyEnvelope({ ...signed(vector), signature: undefined }),
      refusal('BAD_SIGNATURE', 'unsigned', /^the command is not signed$/),
    );
    assert.throws(
      () => verifyEnvelope({ ...signed(vector), key: signer.spki }),
      refusal('BAD_SIGNATURE', 'other-key', /names key [0-9a-f]{12}, not [0-9a-f]{12}/),
    );
    assert.throws(
      () => verifyEnvelope(signed(vector, { kid: 'root; drop' })),
      refusal('BAD_SIGNATURE', 'other-key', /names key \(not a key id\)/),
    );
    const own = { ...signed(vector, { kid: kidOf(signer.spki) }), key: signer.spki };
    assert.throws(() => verifyEnvelope(own), refusal('BAD_SIGNATURE', 'bad-signature', /does not match/));
  });

  it('ENV-003 signs 64 raw bytes with the kid of the key, and no chain', async () => {
    const signature = await signEnvelope(signer, 'event', ['body']);
    assert.equal(signature.sig.length, 64);
    assert.equal(signature.kid, kidOf(signer.spki));
    assert.deepEqual(signature.chain, []);
  });

  it('a signer that answers something else than 64 bytes is a fault of ours, never an envelope', async () => {
    const broken = { spki: signer.spki, sign: async () => new Uint8Array(70) };
    await assert.rejects(signEnvelope(broken, 'event', ['body']), refusal('INTERNAL', 'signature-length', /answered 70 bytes/));
  });
});
