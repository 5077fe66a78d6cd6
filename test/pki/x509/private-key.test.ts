/** Reading PKCS#8 by its numbers gives what node's own reading gives, key or refusal, for whatever bytes. */
import assert from 'node:assert/strict';
import { createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject, sign, verify } from 'node:crypto';
import fc from 'fast-check';
import { readPrivateKey } from '../../../pki/x509/index.ts';

const pkcs8 = (key: KeyObject): Buffer => key.export({ type: 'pkcs8', format: 'der' });
const fresh = (): Buffer => pkcs8(generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey);

/** The key as DER; null: refused. */
function outcome(read: () => KeyObject): string | null {
  try {
    return pkcs8(read()).toString('hex');
  } catch {
    return null;
  }
}

const both = (der: Uint8Array): [string | null, string | null] => [
  outcome(() => readPrivateKey(der)),
  outcome(() => createPrivateKey({ key: Buffer.from(der), format: 'der', type: 'pkcs8' })),
];

describe('a PKCS#8 private key', () => {
  it('is the key it was, and signs as it did', () => {
    const der = fresh();
    const key = readPrivateKey(der);
    assert.deepEqual(pkcs8(key), der);
    const input = Buffer.from('statement');
    assert.ok(verify('sha256', input, createPublicKey({ key: der, format: 'der', type: 'pkcs8' } as never), sign('sha256', input, key)));
  });

  it('of another kind or another form is read too', () => {
    for (const { privateKey } of [
      generateKeyPairSync('ed25519'),
      generateKeyPairSync('ec', { namedCurve: 'P-384' }),
      generateKeyPairSync('ec', { namedCurve: 'P-256', paramEncoding: 'explicit' }),
    ]) {
      const [ours, theirs] = both(pkcs8(privateKey));
      assert.notEqual(ours, null);
      assert.equal(ours, theirs);
    }
  });

  it('that lies inside a larger buffer is read from there', () => {
    const der = fresh();
    const larger = Buffer.concat([Buffer.alloc(7, 1), der, Buffer.alloc(5, 2)]);
    assert.deepEqual(pkcs8(readPrivateKey(larger.subarray(7, 7 + der.length))), der);
  });

  it('with any byte changed, cut or longer is taken or refused as node does', () => {
    const der = fresh();
    const change = fc.record({ at: fc.nat(der.length - 1), value: fc.nat(255), length: fc.integer({ min: 0, max: der.length + 3 }) });
    fc.assert(
      fc.property(change, fc.boolean(), ({ at, value, length }, isCut) => {
        const changed = Buffer.alloc(isCut ? length : der.length);
        der.copy(changed);
        if (at < changed.length) changed[at] = value;
        const [ours, theirs] = both(changed);
        assert.equal(ours, theirs);
      }),
      { numRuns: 600 },
    );
  });
});
