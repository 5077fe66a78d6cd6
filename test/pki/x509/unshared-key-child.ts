/** Reads keys in the moment after they were made, with a young generation so small that collections come all the time. */
import { generateKeyPairSync } from 'node:crypto';
import { sshKeyOf } from '../../../pki/ssh/index.ts';
import { spkiOf } from '../../../pki/x509/index.ts';

for (let made = 0; made < 500; made += 1) {
  const key = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const sshKey = generateKeyPairSync('ed25519');
  for (let read = 0; read < 15; read += 1) {
    spkiOf(made % 2 === 0 ? key.privateKey : key.publicKey);
    sshKeyOf(sshKey.privateKey);
  }
}
process.stdout.write('read all');
