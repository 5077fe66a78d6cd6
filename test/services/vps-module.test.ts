/** The vps module: what it refuses, and the user data it makes, read as YAML. */
import assert from 'node:assert/strict';
import { createPublicKey, generateKeyPairSync } from 'node:crypto';
import { day, hour } from '../../domain/time.ts';
import { parseSshCertificateLine, parseSshKeyLine, renderGuestUserData, sshKeyOf, verifySshCertificate } from '../../pki/ssh/index.ts';
import { type SandboxExecOptions, type SandboxGuest, vps } from '../../services/vps-module.ts';
import { parseCloudConfig } from '../harness/cloud-init.ts';
import { createPair, createTestAuthorities, now } from '../pki/ssh/support.ts';
import { refusal } from '../pki/support.ts';

describe('services/vps-module', () => {
  const { breakGlass, sandbox } = createTestAuthorities();
  const sandboxExec: SandboxExecOptions = { caPublicKey: sandbox.publicKey, certifyHostKey: sandbox.issueHostCertificate };
  const guest: SandboxGuest = { instanceId: 'i-1', account: 'sandbox', keyId: 'ada', endsAt: now + hour, now };
  const rsa = (): string => {
    const { n = '', e = '' } = generateKeyPairSync('rsa', { modulusLength: 2_048 }).publicKey.export({ format: 'jwk' });
    const part = (bytes: Uint8Array): Buffer => Buffer.concat([Buffer.from([0, 0, bytes.length >> 8, bytes.length & 255]), bytes]);
    const number = Buffer.concat([Buffer.from([0]), Buffer.from(n, 'base64url')]);
    return `ssh-rsa ${Buffer.concat([part(Buffer.from('ssh-rsa')), part(Buffer.from(e, 'base64url')), part(number)]).toString('base64')} x`;
  };

  it('SBX-015 SBX-016 refuses a key that is not one line, or neither Ed25519 nor P-256', () => {
    const attempts: readonly (readonly [string, RegExp])[] = [
      [`${sandbox.publicKey}\n${breakGlass.publicKey}`, /vps\.sandboxExec\.caPublicKey is not one line of OpenSSH form/],
      [`${sandbox.publicKey}\n`, /is not one line/],
      ['', /is not one line/],
      [rsa(), /vps\.sandboxExec\.caPublicKey is ssh-rsa, neither Ed25519 nor ECDSA P-256/],
    ];
    for (const [caPublicKey, message] of attempts)
      assert.throws(() => vps({ sandboxExec: { ...sandboxExec, caPublicKey } }), refusal('INVALID_CONFIG', 'ssh-ca-key', message));
    assert.equal(vps({ sandboxExec: { ...sandboxExec, caPublicKey: createPair('p256').line } }).name, 'vps');
  });

  it('SBX-023 refuses options without a function that certifies host keys', () => {
    assert.throws(
      () => vps({ sandboxExec: { caPublicKey: sandbox.publicKey } as never }),
      refusal('INVALID_CONFIG', 'certify-host-key', /certifyHostKey must be the sandbox authority's issueHostCertificate/),
    );
  });

  it('is UNSUPPORTED without sandboxExec', async () => {
    await assert.rejects(vps().guestUserData(guest), refusal('UNSUPPORTED', 'no-sandbox-exec', /nobody can log in to its sandboxes/));
  });

  const filesOf = async (change: Partial<SandboxGuest> = {}): Promise<Map<string, { content: string; permissions: string }>> => {
    const { userData } = await vps({ sandboxExec }).guestUserData({ ...guest, ...change });
    return new Map(parseCloudConfig(userData).write_files.map(({ path, ...file }) => [path, file]));
  };
  const folder = '/etc/ssh/better-compute';

  it('SBX-013 SBX-014 SBX-008 the user data trusts the sandbox key alone, for exactly one principal', async () => {
    const files = await filesOf();
    assert.deepEqual(
      [...files.keys()],
      [
        `${folder}/user_ca`,
        `${folder}/principals/sandbox`,
        `${folder}/host_key`,
        `${folder}/host_key-cert.pub`,
        '/etc/ssh/sshd_config.d/00-better-compute.conf',
      ],
    );
    assert.equal(files.get(`${folder}/user_ca`)?.content, `${sandbox.publicKey}\n`);
    assert.equal(files.get(`${folder}/principals/sandbox`)?.content, 'sandbox@i-1\n');
    const sshd = files.get('/etc/ssh/sshd_config.d/00-better-compute.conf')?.content ?? '';
    assert.match(sshd, /^TrustedUserCAKeys \/etc\/ssh\/better-compute\/user_ca$/m);
    assert.match(sshd, /^AuthorizedPrincipalsFile \/etc\/ssh\/better-compute\/principals\/%u$/m);
  });

  it('SBX-018 nothing in it names a list of what was revoked', async () => {
    for (const { content } of (await filesOf()).values()) assert.doesNotMatch(content, /RevokedKeys|krl/i);
  });

  it('SBX-023 it holds a host key, and the certificate of the sandbox authority for it, as long as the sandbox lives', async () => {
    for (const [endsAt, end] of [
      [now + hour, now + hour],
      [now + 90 * day, now + 30 * day],
    ] as const) {
      const files = await filesOf({ endsAt });
      const key = files.get(`${folder}/host_key`);
      const certificate = parseSshCertificateLine((files.get(`${folder}/host_key-cert.pub`)?.content ?? '').trimEnd());
      verifySshCertificate(certificate, { authorities: [parseSshKeyLine(sandbox.publicKey)], kind: 'host', principal: 'i-1', now });
      assert.deepEqual(certificate.principals, ['i-1']);
      assert.equal(certificate.validBefore, BigInt(end / 1_000));
      assert.deepEqual(certificate.publicKey.blob, sshKeyOf(createPublicKey(key?.content ?? '')).blob);
      assert.equal(key?.permissions, '0600');
    }
  });

  it('makes the account, without a password; root is there already, and may not use one', async () => {
    const { userData } = await vps({ sandboxExec }).guestUserData(guest);
    const { users } = parseCloudConfig(userData);
    assert.deepEqual(users, ['default', { name: 'sandbox', lock_passwd: true, shell: '/bin/bash' }]);
    const root = (await vps({ sandboxExec }).guestUserData({ ...guest, account: 'root' })).userData;
    assert.equal(parseCloudConfig(root).users, undefined);
    assert.match(root, /PermitRootLogin prohibit-password/);
  });

  it('two guests have two host keys', async () => {
    const [one, other] = [await filesOf(), await filesOf()];
    assert.notEqual(one.get(`${folder}/host_key`)?.content, other.get(`${folder}/host_key`)?.content);
  });

  it('refuses an account or instance that could be more than a name', async () => {
    for (const change of [{ account: 'a,b' }, { account: '../x' }, { account: 'a\nb' }, { instanceId: 'i 1' }, { instanceId: '*' }])
      await assert.rejects(vps({ sandboxExec }).guestUserData({ ...guest, ...change }), refusal('INVALID_INPUT', 'ssh-request', /./));
  });

  it('SBX-023 what certifies host keys is not believed: another authority, another name, another key', async () => {
    const other = createPair();
    const wrong: readonly SandboxExecOptions['certifyHostKey'][] = [
      breakGlass.issueHostCertificate,
      (request) => sandbox.issueHostCertificate({ ...request, principals: ['i-2'] }),
      (request) => sandbox.issueHostCertificate({ ...request, publicKey: other.line }),
    ];
    for (const certifyHostKey of wrong)
      await assert.rejects(
        vps({ sandboxExec: { ...sandboxExec, certifyHostKey } }).guestUserData(guest),
        refusal('INVALID_CONFIG', 'host-certificate', /did not certify the key of instance i-1/),
      );
  });

  it('a key with a line end is still one value of the file', () => {
    const hostKey = createPair();
    const render = async () => {
      const { certificate } = await sandbox.issueHostCertificate({
        publicKey: hostKey.line,
        principals: ['i-1'],
        keyId: 'ada',
        validBefore: now + hour,
      });
      const privateKey = 'one: "two"\n- three\n# four\n';
      const key = { privateKey, publicKey: hostKey.line, certificate };
      return renderGuestUserData({ caPublicKey: sandbox.publicKey, account: 'sandbox', instanceId: 'i-1', hostKey: key, now });
    };
    return render().then((userData) => assert.equal(parseCloudConfig(userData).write_files[2]?.content, 'one: "two"\n- three\n# four\n'));
  });
});
