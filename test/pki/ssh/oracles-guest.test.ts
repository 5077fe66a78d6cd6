/** A real sshd with exactly the files of a guest's user data: the sandbox authority's certificate for this instance opens it, nothing else does. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { sshCertAuthorityLine } from '../../../pki/ssh/index.ts';
import { vps } from '../../../services/vps-module.ts';
import { parseCloudConfig, writeCloudFiles } from '../../harness/cloud-init.ts';
import { scratchFolder } from '../../harness/scratch.ts';
import { makeSshKey, publicLineOf, type SshAnswer, type Sshd, sshdIsMissing, sshLogin, startSshd } from '../../harness/sshd.ts';
import { createTestAuthorities, minute } from './support.ts';

const account = userInfo().username;

(sshdIsMissing === null ? describe : describe.skip)('a guest of a sandbox (skipped where openssh-server is absent)', function () {
  this.timeout(120_000);
  let offset = 0;
  const { breakGlass, sandbox } = createTestAuthorities('ed25519', () => Date.now() + offset);
  const strangers = createTestAuthorities('ed25519', Date.now);
  const module = vps({ sandboxExec: { caPublicKey: sandbox.publicKey, certifyHostKey: sandbox.issueHostCertificate } });
  let folder: string;
  let userKey: string;
  let guest: Sshd;
  /** Its host key is certified by somebody else. */
  let impostor: Sshd;
  const started: Sshd[] = [];

  const userDataOf = async (instanceId: string): Promise<string> => {
    const now = Date.now();
    return (await module.guestUserData({ instanceId, account, keyId: 'ada', endsAt: now + 60 * minute, now })).userData;
  };
  /** What stands in the image of a guest is one line: the folder of drop-ins. */
  const start = async (name: string, userData: string): Promise<Sshd> => {
    const root = join(folder, name);
    writeCloudFiles(userData, root);
    const sshd = await startSshd({ folder, name, lines: [`Include ${root}/etc/ssh/sshd_config.d/*.conf`, 'PasswordAuthentication yes'] });
    started.push(sshd);
    return sshd;
  };

  before(async () => {
    folder = scratchFolder();
    userKey = makeSshKey(folder, 'user');
    guest = await start('i-1', await userDataOf('i-1'));
    const { sandbox: other } = strangers;
    const theirs = vps({ sandboxExec: { caPublicKey: other.publicKey, certifyHostKey: other.issueHostCertificate } });
    const now = Date.now();
    impostor = await start(
      'impostor',
      (await theirs.guestUserData({ instanceId: 'i-1', account, keyId: 'eve', endsAt: now + 60 * minute, now })).userData,
    );
  });
  after(async () => {
    for (const sshd of started) await sshd.stop();
  });

  const certified = (instanceId = 'i-1', ca = sandbox) =>
    ca.issueUserCertificate({
      publicKey: publicLineOf(userKey),
      account,
      instanceId,
      keyId: 'ada',
      ttlSeconds: 60,
      sessionEndsAt: Date.now() + 60 * minute,
      sandboxExpiresAt: Date.now() + 60 * minute,
    });
  const login = async ({ certificate }: { certificate: string }, { to = guest, host = 'i-1' } = {}): Promise<SshAnswer> => {
    const [file, knownHosts] = [join(folder, 'user-cert.pub'), join(folder, 'known_hosts')];
    writeFileSync(file, `${certificate}\n`);
    writeFileSync(knownHosts, sshCertAuthorityLine({ caPublicKey: sandbox.publicKey, host: 'i-1' }));
    return sshLogin({ account, key: userKey, certificate: file, knownHosts, host, to });
  };
  const refused = async (issued: { certificate: string }): Promise<void> => {
    const { out, err } = await login(issued);
    assert.equal(out, '');
    assert.match(err, /Permission denied \(publickey\)/);
  };

  it('SBX-013 SBX-014 lets in whom a certificate of the sandbox authority names for this instance', async () => {
    const { out, err } = await login(await certified());
    assert.equal(out, 'in', err);
  });

  it('SBX-008 refuses the break-glass authority, for the very same principal', async () => {
    await refused(
      await breakGlass.issueUserCertificate({
        publicKey: publicLineOf(userKey),
        account,
        nodeId: 'i-1',
        keyId: 'ada',
        sessionEndsAt: Date.now() + 60 * minute,
      }),
    );
  });

  it('SBX-014 refuses the principal of another instance', async () => {
    await refused(await certified('i-2'));
  });

  it('SBX-018 refuses a certificate that is over, and needs no list for it', async () => {
    offset = -20 * minute;
    const over = await sandbox.issueUserCertificate({
      publicKey: publicLineOf(userKey),
      account,
      instanceId: 'i-1',
      keyId: 'ada',
      ttlSeconds: 60,
      sessionEndsAt: Date.now(),
      sandboxExpiresAt: Date.now(),
    });
    offset = 0;
    await refused(over);
    const { write_files: files } = parseCloudConfig(await userDataOf('i-1'));
    assert.ok(files.every(({ content }) => !/RevokedKeys/i.test(content)));
  });

  it('refuses a key without a certificate, and offers no password although the image does', async () => {
    const { out, err } = await login({ certificate: publicLineOf(userKey) });
    assert.equal(out, '');
    assert.match(err, /Permission denied \(publickey\)\./);
  });

  it('SBX-023 SBX-024 is taken by its certificate under its own name; a host that another authority certified is not', async () => {
    for (const [to, host] of [
      [impostor, 'i-1'],
      [guest, 'i-2'],
    ] as const) {
      const { out, err } = await login(await certified(), { to, host });
      assert.equal(out, '');
      assert.match(err, /Host key verification failed|No .* host key is known/);
    }
  });
});
