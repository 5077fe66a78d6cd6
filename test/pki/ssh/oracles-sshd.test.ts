/** A real sshd as judge: with our authority, lists and principals it lets in whom a certificate names, and nobody else. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { create } from '@bufbuild/protobuf';
import { sshAccessFiles } from '../../../daemon/access/ssh-access.ts';
import { type BreakGlassRequest, createKrl, parseSshKeyLine, sshCertAuthorityLine, sshTrustFiles } from '../../../pki/ssh/index.ts';
import { AccessSpecSchema } from '../../../proto/index.ts';
import { scratchFolder } from '../../harness/scratch.ts';
import { makeSshKey, publicLineOf, type SshAnswer, type Sshd, sshdIsMissing, sshLogin, startSshd } from '../../harness/sshd.ts';
import { createTestAuthorities, minute } from './support.ts';

const account = userInfo().username;

(sshdIsMissing === null ? describe : describe.skip)('pki/ssh oracle: sshd (skipped where openssh-server is absent)', function () {
  this.timeout(60_000);
  let clockOffset = 0;
  const { breakGlass, sandbox } = createTestAuthorities('ed25519', () => Date.now() + clockOffset);
  const stranger = createTestAuthorities('ed25519', Date.now).breakGlass;
  let folder: string;
  let userKey: string;
  const daemons: Sshd[] = [];
  const file = (name: string, content: string | Uint8Array, mode = 0o600): string => {
    const path = join(folder, name);
    writeFileSync(path, content, { mode });
    return path;
  };
  const makeKey = (name: string): string => makeSshKey(folder, name);

  interface Daemon {
    readonly port: number;
    readonly krl: string;
  }

  /** A machine that trusts one authority, for our account at one place, and presents a host certificate. */
  const startDaemon = async (
    name: string,
    { ca, host, include }: { ca: typeof breakGlass | typeof sandbox; host: string; include?: string },
  ): Promise<Daemon> => {
    const trust = sshTrustFiles({ caPublicKey: ca.publicKey, account, place: name });
    const hostKey = makeKey(`${name}-host`);
    const issued = await ca.issueHostCertificate({
      publicKey: publicLineOf(hostKey),
      principals: [host],
      keyId: name,
      validBefore: Date.now() + 60 * minute,
    });
    const krl = file(`${name}-krl`, createKrl({ version: 1n, generatedAt: Date.now(), comment: '', certificates: [], keys: [] }).bytes);
    const daemon = await startSshd({
      folder,
      name,
      lines: [
        `HostKey ${hostKey}`,
        `HostCertificate ${file(`${name}-host-cert.pub`, `${issued.certificate}\n`)}`,
        ...(include === undefined
          ? [
              `TrustedUserCAKeys ${file(`${name}-ca`, trust.trustedUserCaKeys)}`,
              `AuthorizedPrincipalsFile ${file(`${name}-principals`, trust.authorizedPrincipals, 0o644)}`,
              `RevokedKeys ${krl}`,
            ]
          : [`Include ${include}`]),
        'AuthorizedKeysFile none',
        'PasswordAuthentication no',
        'KbdInteractiveAuthentication no',
        'PermitRootLogin prohibit-password',
      ],
    });
    daemons.push(daemon);
    return { port: daemon.port, krl };
  };

  let node: Daemon;
  let guest: Daemon;
  let knownHosts: string;
  before(async () => {
    folder = scratchFolder();
    userKey = makeKey('user');
    knownHosts = file(
      'known_hosts',
      sshCertAuthorityLine({ caPublicKey: breakGlass.publicKey, host: 'node_1' }) +
        sshCertAuthorityLine({ caPublicKey: sandbox.publicKey, host: 'i-1' }),
    );
    [node, guest] = [
      await startDaemon('node_1', { ca: breakGlass, host: 'node_1' }),
      await startDaemon('i-1', { ca: sandbox, host: 'i-1' }),
    ];
  });
  after(async () => {
    for (const daemon of daemons) await daemon.stop();
  });

  interface Login {
    readonly to: Daemon;
    readonly certificate: string;
    readonly host?: string;
  }

  const login = ({ to, certificate, host = 'node_1' }: Login): Promise<SshAnswer> =>
    sshLogin({ account, key: userKey, certificate: file('user-cert.pub', `${certificate}\n`), knownHosts, host, to });
  const request = (change: Partial<BreakGlassRequest> = {}): BreakGlassRequest => ({
    publicKey: publicLineOf(userKey),
    account,
    nodeId: 'node_1',
    keyId: 'ada',
    sessionEndsAt: Date.now() + 60 * minute,
    ...change,
  });
  const issue = (change: Partial<BreakGlassRequest> = {}, ca = breakGlass) => ca.issueUserCertificate(request(change));
  const sandboxed = (): Promise<{ certificate: string }> =>
    sandbox.issueUserCertificate({ ...request(), instanceId: 'i-1', ttlSeconds: 60, sandboxExpiresAt: Date.now() + 60 * minute });
  const refused = async (attempt: Login): Promise<void> => {
    const { out, err } = await login(attempt);
    assert.equal(out, '');
    assert.match(err, /Permission denied \(publickey\)/);
  };

  it('lets in whom the certificate names', async () => {
    const { out, err } = await login({ to: node, certificate: (await issue()).certificate });
    assert.equal(out, 'in', err);
  });

  it('SSH-004 refuses a certificate for another node', async () => {
    await refused({ to: node, certificate: (await issue({ nodeId: 'node_2' })).certificate });
  });

  it('SBX-007 neither authority opens what the other is for', async () => {
    const forGuest = (await sandboxed()).certificate;
    assert.equal((await login({ to: guest, host: 'i-1', certificate: forGuest })).out, 'in');
    await refused({ to: node, certificate: forGuest });
    await refused({ to: guest, host: 'i-1', certificate: (await issue({ nodeId: 'i-1' })).certificate });
  });

  it('refuses a certificate of a stranger, and one that has expired', async () => {
    await refused({ to: node, certificate: (await issue({}, stranger)).certificate });
    clockOffset = -61 * minute;
    const expired = await issue({ sessionEndsAt: Date.now() });
    clockOffset = 0;
    await refused({ to: node, certificate: expired.certificate });
  });

  it('runs the command the certificate forces', async () => {
    assert.equal((await login({ to: node, certificate: (await issue({ forceCommand: 'echo forced' })).certificate })).out, 'forced');
  });

  it('refuses a certificate from an address that it does not name', async () => {
    assert.equal((await login({ to: node, certificate: (await issue({ sourceAddresses: ['127.0.0.0/8'] })).certificate })).out, 'in');
    await refused({ to: node, certificate: (await issue({ sourceAddresses: ['192.0.2.1/32'] })).certificate });
  });

  it('refuses a revoked serial as soon as the list says so, and no other', async () => {
    const [gone, kept] = [await issue(), await issue()];
    const authority = parseSshKeyLine(breakGlass.publicKey);
    const { bytes } = createKrl({
      version: 2n,
      generatedAt: Date.now(),
      comment: 'ours',
      certificates: [{ authority, serials: [gone.serial], keyIds: [] }],
      keys: [],
    });
    assert.equal((await login({ to: node, certificate: gone.certificate })).out, 'in');
    writeFileSync(node.krl, bytes);
    await refused({ to: node, certificate: gone.certificate });
    assert.equal((await login({ to: node, certificate: kept.certificate })).out, 'in');
  });

  it('SSH-006 SSH-007 follows the files that a daemon writes: one Include, and a revoked serial and the sandbox stay outside', async function () {
    // sshd runs the command that names the principals as another user, which only root may.
    if (process.getuid?.() !== 0) return this.skip();
    const trust = join(folder, 'managed');
    const files = sshAccessFiles({ folder: trust, nodeId: 'node_1' });
    const authority = parseSshKeyLine(breakGlass.publicKey);
    const apply = (serials: readonly bigint[]) => {
      const certificates = [{ authority, serials, keyIds: [] }];
      const { bytes } = createKrl({ version: BigInt(serials.length + 1), generatedAt: Date.now(), comment: '', certificates, keys: [] });
      return files.apply(
        create(AccessSpecSchema, { sshUserCa: breakGlass.publicKey, sshKrl: serials.length === 0 ? new Uint8Array() : bytes }),
      );
    };
    await apply([]);
    const managed = await startDaemon('node_1-managed', { ca: breakGlass, host: 'node_1', include: join(trust, 'sshd.conf') });
    const [gone, kept] = [await issue(), await issue()];
    assert.equal((await login({ to: managed, certificate: gone.certificate })).out, 'in');
    await refused({ to: managed, certificate: (await issue({ nodeId: 'node_2' })).certificate });
    await refused({ to: managed, certificate: (await sandboxed()).certificate });
    await apply([gone.serial]);
    await refused({ to: managed, certificate: gone.certificate });
    assert.equal((await login({ to: managed, certificate: kept.certificate })).out, 'in');
  });

  it('a client that pins by @cert-authority takes a certified host under its own name only', async () => {
    const certificate = (await sandboxed()).certificate;
    for (const [to, host] of [
      [guest, 'node_1'],
      [node, 'i-1'],
      [guest, 'i-2'],
    ] as const) {
      const { out, err } = await login({ to, host, certificate });
      assert.equal(out, '');
      assert.match(err, /Host key verification failed/);
    }
  });
});
