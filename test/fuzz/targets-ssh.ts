/** OpenSSH certificates, keys and revocation lists. */
import { generateKeyPairSync } from 'node:crypto';
import {
  createKrl,
  createSshCertificate,
  encodeSshCertificateLine,
  encodeSshKeyLine,
  findRevocation,
  forever,
  maxKrlBytes,
  parseKrl,
  parseSshCaLine,
  parseSshCertificate,
  parseSshCertificateLine,
  parseSshKeyBlob,
  parseSshKeyLine,
  sshSignerFromPrivateKey,
} from '../../pki/ssh/index.ts';
import type { Target } from './engine.ts';
import { mutateSsh } from './mutate-fields.ts';
import { mutateBase64 } from './mutate-text.ts';
import { bytesOf, mutatorsOf, now, textOf } from './world.ts';

const small = 64 * 1024;

export async function sshTargets(): Promise<Target[]> {
  const authority = sshSignerFromPrivateKey(generateKeyPairSync('ed25519').privateKey);
  const other = sshSignerFromPrivateKey(generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey);
  const make = (signer: typeof authority, kind: 'user' | 'host') =>
    createSshCertificate({
      signer,
      template: {
        publicKey: other.publicKey,
        kind,
        serial: 2n ** 53n + 1n,
        keyId: 'ada@node-1',
        principals: kind === 'user' ? ['root', 'deploy'] : ['node-1.example'],
        validAfter: BigInt(now / 1_000),
        validBefore: forever,
        criticalOptions: kind === 'user' ? new Map([['force-command', 'true']]) : new Map(),
        extensions: kind === 'user' ? new Map([['permit-pty', null]]) : new Map(),
      },
    });
  const certificates = [await make(authority, 'user'), await make(other, 'host')];
  const [first] = certificates;
  if (first === undefined) throw new Error('no certificate was made');
  const krl = createKrl({
    version: 3n,
    generatedAt: now,
    comment: 'fleet',
    certificates: [{ authority: authority.publicKey, serials: [1n, 2n, 3n, 900n, 2n ** 64n - 1n], keyIds: ['ada@node-1'] }],
    keys: [other.publicKey],
  });
  const blobs = certificates.map(({ blob }) => blob);
  const lines = certificates.map((one) => bytesOf(encodeSshCertificateLine(one, 'comment')));
  const keyLine = bytesOf(encodeSshKeyLine(authority.publicKey, 'comment'));
  const wire = mutatorsOf(small, mutateSsh);
  const line = mutatorsOf(small, mutateBase64);
  return [
    { name: 'ssh-certificate', maxBytes: small, seeds: blobs, mutators: wire, run: (input) => parseSshCertificate(input) },
    { name: 'ssh-certificate-line', maxBytes: small, seeds: lines, mutators: line, run: (input) => parseSshCertificateLine(textOf(input)) },
    {
      name: 'ssh-key',
      maxBytes: small,
      seeds: [authority.publicKey.blob, other.publicKey.blob],
      mutators: wire,
      run: (input) => parseSshKeyBlob(input, 'key'),
    },
    { name: 'ssh-key-line', maxBytes: small, seeds: [keyLine], mutators: line, run: (input) => parseSshKeyLine(textOf(input)) },
    { name: 'ssh-ca-line', maxBytes: small, seeds: [keyLine], mutators: line, run: (input) => parseSshCaLine(textOf(input)) },
    {
      name: 'ssh-krl',
      maxBytes: maxKrlBytes + 1,
      seeds: [krl.bytes],
      mutators: mutatorsOf(maxKrlBytes, mutateSsh),
      run: (input) => findRevocation(parseKrl(input), first),
    },
  ];
}
