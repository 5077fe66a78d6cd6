/**
 * A sealed bundle is opened; against the cryptography that this takes, bare: the key derived, the box opened, the public half hashed,
 * every private key read and its public half computed, every public key read, the root's signature over each of the four authorities
 * verified.
 */
import { createDecipheriv, createHash, createPrivateKey, createPublicKey, hkdfSync, verify } from 'node:crypto';
import { createBundle, encodeBundle, openBundle } from '../../pki/bundle/index.ts';
import type { Figure } from './main.ts';
import { atMost, inTurns } from './turns.ts';

const goal = 1.2;
const secret = 'a secret of thirty-two characters at least';
const trustDomain = 'bench.example';

export async function figure(): Promise<Figure> {
  const bundle = await createBundle({ trustDomain, now: Date.now() });
  const text = encodeBundle(bundle, { secret });
  const { seal, ...publicHalf } = JSON.parse(text) as { seal: Record<'salt' | 'iv' | 'ciphertext' | 'tag', string> };
  const hashed = JSON.stringify(publicHalf);
  const plain = JSON.parse(encodeBundle(bundle, { plaintext: true })) as { privateKeys: Record<string, string> };
  const privateKeys = Object.values(plain.privateKeys).map((pem) => createPrivateKey(pem).export({ type: 'pkcs8', format: 'der' }));
  const publicKeys = privateKeys.map((key) =>
    createPublicKey(createPrivateKey({ key, type: 'pkcs8', format: 'der' })).export({ type: 'spki', format: 'der' }),
  );
  const bytes = (name: keyof typeof seal): Buffer => Buffer.from(seal[name], 'base64');
  const box = { salt: bytes('salt'), iv: bytes('iv'), ciphertext: bytes('ciphertext'), tag: bytes('tag') };
  const signed = (['rootCa', 'nodeCa', 'servingCa', 'internalCa'] as const).map((name) => bundle[name].certificate);
  const root = bundle.rootCa.publicKey;
  const info = 'better-compute-pki seal v2: private keys and digest of the public half';
  const bare = (): void => {
    const key = Buffer.from(hkdfSync('sha256', Buffer.from(secret), box.salt, info, 32));
    const decipher = createDecipheriv('aes-256-gcm', key, box.iv, { authTagLength: 16 });
    decipher.setAAD(Buffer.from(trustDomain));
    decipher.setAuthTag(box.tag);
    Buffer.concat([decipher.update(box.ciphertext), decipher.final()]);
    createHash('sha256').update(hashed).digest();
    for (const der of privateKeys)
      createPublicKey(createPrivateKey({ key: der, type: 'pkcs8', format: 'der' })).export({ type: 'spki', format: 'der' });
    for (const der of publicKeys) createPublicKey({ key: der, type: 'spki', format: 'der' });
    for (const { tbs, signature } of signed) verify('sha256', tbs, { key: root, dsaEncoding: 'der' }, signature);
  };
  const turns = await inTurns({ ours: () => openBundle(text, { secret }), bare, perRound: 10 });
  return atMost('seal', goal, { ...turns, detail: { privateKeys: privateKeys.length, bytes: text.length } });
}
