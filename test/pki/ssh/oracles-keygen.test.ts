/** OpenSSH's ssh-keygen as judge, in both directions: certificates (-L, -s) and revocation lists (-Q, -k). */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  assertSoundCertificate,
  createKrl,
  findRevocation,
  parseKrl,
  parseSshCertificateLine,
  parseSshKeyLine,
  type SshCertificate,
  sshFingerprint,
} from '../../../pki/ssh/index.ts';
import { scratchFolder } from '../../harness/scratch.ts';
import { hasSshKeygen } from '../../harness/sshd.ts';
import { createTestAuthorities, minute, now, user } from './support.ts';

const keygen = (...words: string[]): { status: number | null; out: string } => {
  const { status, stdout, stderr } = spawnSync('ssh-keygen', words, { encoding: 'utf8', env: { ...process.env, TZ: 'UTC' } });
  return { status, out: `${stdout}${stderr}` };
};

const done = (...words: string[]): string => {
  const { status, out } = keygen(...words);
  assert.equal(status, 0, out);
  return out;
};

(hasSshKeygen ? describe : describe.skip)('pki/ssh oracle: ssh-keygen (skipped where the command is absent)', function () {
  this.timeout(60_000);
  let folder: string;
  before(() => {
    folder = scratchFolder();
  });
  const file = (name: string, content?: string | Uint8Array): string => {
    const path = join(folder, name);
    if (content !== undefined) writeFileSync(path, content);
    return path;
  };
  const list = (line: string): string =>
    done('-L', '-f', file('listed.pub', `${line}\n`))
      .split('\n')
      .slice(1)
      .join('\n');

  for (const kind of ['ed25519', 'p256'] as const)
    it(`SSH-001 SBX-019 SBX-020 lists what a ${kind} authority issued as we meant it`, async () => {
      const { breakGlass } = createTestAuthorities(kind);
      const ca = sshFingerprint(parseSshKeyLine(breakGlass.publicKey).blob);
      const [type, name] = kind === 'ed25519' ? ['ssh-ed25519', 'ED25519'] : ['ecdsa-sha2-nistp256', 'ECDSA'];
      const issued = await breakGlass.issueUserCertificate({
        publicKey: user.line,
        account: 'root',
        nodeId: 'node_1',
        keyId: 'ada é',
        sessionEndsAt: now + 600 * minute,
        forceCommand: 'journalctl -b',
        sourceAddresses: ['10.0.0.0/8', '::1/128'],
      });
      const head = (what: string): string[] => [
        `        Type: ssh-ed25519-cert-v01@openssh.com ${what} certificate`,
        `        Public key: ED25519-CERT ${sshFingerprint(parseSshKeyLine(user.line).blob)}`,
        `        Signing CA: ${name} ${ca} (using ${type})`,
      ];
      assert.deepEqual(list(issued.certificate).split('\n'), [
        ...head('user'),
        '        Key ID: "ada é"',
        `        Serial: ${issued.serial}`,
        '        Valid: from 2026-01-15T11:59:00 to 2026-01-15T13:00:00',
        '        Principals: ',
        '                root@node_1',
        '        Critical Options: ',
        '                force-command journalctl -b',
        '                source-address 10.0.0.0/8,::1/128',
        '        Extensions: ',
        '                permit-pty',
        '',
      ]);
      const host = await breakGlass.issueHostCertificate({
        publicKey: user.line,
        principals: ['b.example.com', 'a_1'],
        keyId: 'h',
        validBefore: now + 60 * minute,
      });
      assert.deepEqual(list(host.certificate).split('\n'), [
        ...head('host'),
        '        Key ID: "h"',
        `        Serial: ${host.serial}`,
        '        Valid: from 2026-01-15T11:59:00 to 2026-01-15T13:00:00',
        '        Principals: ',
        '                b.example.com',
        '                a_1',
        '        Critical Options: (none)',
        '        Extensions: (none)',
        '',
      ]);
    });

  /** A key that ssh-keygen made: path without .pub. */
  const makeKey = (name: string, type: string): string => {
    const path = file(name);
    done('-q', '-t', type, '-N', '', '-C', name, '-f', path);
    return path;
  };

  it('reads what it signs, and answers its lists as it does, and it ours', () => {
    const authorities = [makeKey('ca-ed', 'ed25519'), makeKey('ca-ec', 'ecdsa')];
    const keys = [makeKey('u-ed', 'ed25519'), makeKey('u-ec', 'ecdsa'), makeKey('u-rsa', 'rsa')];
    const serials = ['1', '2', '63', '64', '9007199254740993', '18446744073709551615'];
    const certificates = authorities.flatMap((ca) => keys.flatMap((key) => serials.map((serial) => certify(ca, key, serial))));
    const specification = file('spec', 'serial: 1-2\nserial: 64\nserial: 9007199254740993\nid: id-63\n');
    done('-k', '-f', file('theirs'), '-s', `${authorities[0]}.pub`, specification);
    const written = readFileSync(file('theirs'));
    const caKey = parseSshKeyLine(readFileSync(`${authorities[1]}.pub`, 'utf8').trimEnd());
    const { bytes } = createKrl({
      version: 5n,
      generatedAt: now,
      comment: 'ours',
      certificates: [{ authority: caKey, serials: [1n, 2n, 3n, 64n, 18446744073709551615n], keyIds: ['id-63'] }],
      keys: [parseSshKeyLine(readFileSync(`${keys[1]}.pub`, 'utf8').trimEnd())],
    });
    file('ours', bytes);
    const answers = new Set<string>();
    for (const [name, krl] of [
      ['theirs', parseKrl(written)],
      ['ours', parseKrl(bytes)],
    ] as const)
      for (const { path, certificate } of certificates) {
        const { status, out } = keygen('-Q', '-f', file(name), path);
        const ours = findRevocation(krl, certificate);
        assert.equal(ours !== null, /REVOKED/.test(out), `${name} ${path}: ${ours} but ${status} ${out}`);
        answers.add(`${name} ${ours}`);
      }
    assert.deepEqual([...answers].sort(), [
      'ours key',
      'ours key-id',
      'ours null',
      'ours serial',
      'theirs key-id',
      'theirs null',
      'theirs serial',
    ]);
  });

  const certify = (ca: string, key: string, serial: string): { path: string; certificate: SshCertificate } => {
    done('-q', '-s', ca, '-I', `id-${serial}`, '-n', 'root@n1', '-V', 'always:forever', '-z', serial, `${key}.pub`);
    const text = readFileSync(`${key}-cert.pub`, 'utf8');
    const path = file(`${ca.split('/').at(-1)}-${key.split('/').at(-1)}-${serial}.pub`, text);
    const certificate = parseSshCertificateLine(text);
    assert.equal(String(certificate.serial), serial);
    if (!key.endsWith('rsa')) assertSoundCertificate(certificate);
    return { path, certificate };
  };

  it('takes an empty list of ours', () => {
    const path = file('empty', createKrl({ version: 1n, generatedAt: now, comment: '', certificates: [], keys: [] }).bytes);
    assert.match(done('-Q', '-f', path, file('key.pub', `${user.line}\n`)), /: ok$/m);
  });
});
