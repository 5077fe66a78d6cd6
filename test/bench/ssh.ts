/**
 * OpenSSH user certificates made and checked, against the bare Ed25519 signature and the bare verification: what is signed is read and
 * verified again before it leaves. The detail has what a machine's reading of one costs, of one bare verification.
 */
import { generateKeyPairSync, sign, verify } from 'node:crypto';
import { assertSignature, createSshCertificate, parseSshCertificate, sshSignerFromPrivateKey } from '../../pki/ssh/index.ts';
import type { Figure } from './main.ts';
import { atLeast, inTurns } from './turns.ts';

const goal = 0.35;

export async function figure(): Promise<Figure> {
  const { privateKey, publicKey } = generateKeyPairSync('ed25519');
  const signer = sshSignerFromPrivateKey(privateKey);
  const user = sshSignerFromPrivateKey(generateKeyPairSync('ed25519').privateKey);
  const template = {
    publicKey: user.publicKey,
    kind: 'user',
    serial: 1n,
    keyId: 'ada@node-1',
    principals: ['root'],
    validAfter: 1_700_000_000n,
    validBefore: 1_700_003_600n,
    criticalOptions: new Map(),
    extensions: new Map([['permit-pty', null]]),
  } as const;
  const make = () => createSshCertificate({ template, signer });
  const { blob } = await make();
  const signature = sign(null, blob, privateKey);
  const perRound = 200;
  const made = await inTurns({
    ours: make,
    bare: () => {
      sign(null, blob, privateKey);
      return verify(null, blob, publicKey, signature);
    },
    perRound,
  });
  const read = await inTurns({
    ours: () => assertSignature(parseSshCertificate(blob)),
    bare: () => verify(null, blob, publicKey, signature),
    perRound,
  });
  return atLeast('ssh', goal, { ...made, detail: { readAndVerified: read } });
}
