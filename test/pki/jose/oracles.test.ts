/** Other implementations as judges, in both directions: the npm package jose, and python's joserfc where it is installed. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { CompactEncrypt, CompactSign, calculateJwkThumbprint, compactDecrypt, compactVerify, importJWK } from 'jose';
import { encodePublicJwk, jwkThumbprint, openJwe, parsePublicJwk, sealJwe, signJws, verifyJws } from '../../../pki/jose/index.ts';
import { createKey } from '../x509/authorities.ts';

const typ = 'bc-test+jwt';
const payload = Buffer.from('{"sub":"ada"}');
const { signer, spki, privateKey } = createKey();
const kid = jwkThumbprint(spki);
const privateJwk = { ...privateKey.export({ format: 'jwk' }) } as Record<string, string>;
const keys = [{ kid, spki }];

describe('pki/jose oracle: jose', () => {
  it('verifies what we sign, with the key we publish', async () => {
    const key = await importJWK({ ...encodePublicJwk(spki, 'sig') });
    const verified = await compactVerify(await signJws({ signer, typ, payload }), key, { algorithms: ['ES256'] });
    assert.deepEqual(Buffer.from(verified.payload), payload);
    assert.deepEqual(verified.protectedHeader, { alg: 'ES256', kid, typ });
  });

  it('signs what we verify', async () => {
    const token = await new CompactSign(payload).setProtectedHeader({ alg: 'ES256', kid, typ }).sign(privateKey);
    assert.deepEqual(Buffer.from(verifyJws(token, { keys, typ }).payload), payload);
  });

  it('comes to the same thumbprint', async () => {
    assert.equal(await calculateJwkThumbprint({ ...encodePublicJwk(spki, 'sig') }, 'sha256'), kid);
  });

  it('opens what we seal, header members and all', async () => {
    const sealed = sealJwe({ recipient: spki, plaintext: payload, typ, bind: { rid: 'r-1' } });
    const opened = await compactDecrypt(sealed, privateKey, {
      keyManagementAlgorithms: ['ECDH-ES+A256KW'],
      contentEncryptionAlgorithms: ['A256GCM'],
    });
    assert.deepEqual(Buffer.from(opened.plaintext), payload);
    assert.equal(opened.protectedHeader['rid'], 'r-1');
  });

  it('seals what we open, with party information and without', async () => {
    const header = { alg: 'ECDH-ES+A256KW', enc: 'A256GCM', typ };
    const key = await importJWK({ ...encodePublicJwk(spki, 'enc') });
    for (const parties of [{}, { apu: Buffer.from('Alice'), apv: Buffer.from('Bob') }]) {
      const sealed = await new CompactEncrypt(payload).setProtectedHeader(header).setKeyManagementParameters(parties).encrypt(key);
      assert.deepEqual(Buffer.from(openJwe(sealed, { privateKey, typ }).plaintext), payload);
    }
  });
});

const python = (script: string, input: unknown): unknown => {
  const { status, stdout, stderr } = spawnSync('python3', ['-c', script], { input: JSON.stringify(input), encoding: 'utf8' });
  assert.equal(status, 0, stderr);
  return JSON.parse(stdout);
};

const hasJoserfc = spawnSync('python3', ['-c', 'import joserfc']).status === 0;

const script = `
import json, sys
from joserfc import jws, jwe
from joserfc.jwk import ECKey
given = json.load(sys.stdin)
key = ECKey.import_key(given["key"])
algorithms = ["ECDH-ES+A256KW", "A256GCM"]
header = {"alg": "ECDH-ES+A256KW", "enc": "A256GCM", "typ": given["typ"]}
print(json.dumps({
  "verified": jws.deserialize_compact(given["jws"], key, algorithms=["ES256"]).payload.decode(),
  "signed": jws.serialize_compact({"alg": "ES256", "typ": given["typ"], "kid": given["kid"]}, given["payload"], key, algorithms=["ES256"]),
  "opened": jwe.decrypt_compact(given["jwe"], key, algorithms=algorithms).plaintext.decode(),
  "sealed": jwe.encrypt_compact(header, given["payload"], key, algorithms=algorithms),
}))
`;

(hasJoserfc ? describe : describe.skip)('pki/jose oracle: joserfc (skipped where the python package is absent)', () => {
  it('reads what we write, and writes what we read', async () => {
    const answer = python(script, {
      key: privateJwk,
      typ,
      kid,
      payload: payload.toString(),
      jws: await signJws({ signer, typ, payload }),
      jwe: sealJwe({ recipient: spki, plaintext: payload, typ }),
    }) as Record<'verified' | 'signed' | 'opened' | 'sealed', string>;
    assert.equal(answer.verified, payload.toString());
    assert.equal(answer.opened, payload.toString());
    assert.deepEqual(Buffer.from(verifyJws(answer.signed, { keys, typ }).payload), payload);
    assert.deepEqual(Buffer.from(openJwe(answer.sealed, { privateKey, typ }).plaintext), payload);
  }).timeout(30_000);

  it('publishes keys that we read', () => {
    const jwk = python(
      'import json,sys\nfrom joserfc.jwk import ECKey\nprint(json.dumps(ECKey.generate_key("P-256", private=False).as_dict()))',
      {},
    );
    const { kid: _, ...plain } = jwk as Record<string, unknown>;
    assert.equal(parsePublicJwk(plain, 'sig').spki.length, 91);
  }).timeout(30_000);
});
