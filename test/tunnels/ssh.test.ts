/**
 * ssh through a tunnel, everything real: PostgreSQL, the api, a gateway, bcd as a process, Debian's sshd and ssh, and this project's command
 * line as the ProxyCommand.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createHash, generateKeyPairSync, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { joinNode } from '../../daemon/join.ts';
import { day, hour, minute } from '../../domain/time.ts';
import { createGateway, type Gateway } from '../../gateway/gateway.ts';
import { createSystemScheduler } from '../../gateway/scheduler.ts';
import { createPostgresStore } from '../../gateway/session/store-postgres.ts';
import { createAuthorities } from '../../pki/authority/index.ts';
import { createBundle, type PkiBundle, type SshAuthority, sandboxAuthorityOf } from '../../pki/bundle/index.ts';
import {
  createBreakGlassAuthority,
  type SandboxAuthority,
  sshCertAuthorityLine,
  sshSignerFromPrivateKey,
  sshTrustFiles,
} from '../../pki/ssh/index.ts';
import { encodePem, spkiOf, spkiPin } from '../../pki/x509/index.ts';
import { createGatewayServices } from '../../services/gateway-services.ts';
import { pkiJoinCrypto } from '../../services/join-crypto.ts';
import { accessKeysOf, writeAccess } from '../../services/node-access.ts';
import { createJoinToken } from '../../services/tokens.ts';
import { settleAndPublish } from '../../services/trust-publication.ts';
import { vps } from '../../services/vps-module.ts';
import { type BatchApi, operatorToken, startBatchApi } from '../api/batch-api.ts';
import { type Bcd, startBcd } from '../daemon/bcd-process.ts';
import { writeCloudFiles } from '../harness/cloud-init.ts';
import { eventually } from '../harness/eventually.ts';
import { projectRoot } from '../harness/imports.ts';
import { useDatabase } from '../harness/postgres.ts';
import { scratchFolder } from '../harness/scratch.ts';
import { makeSshKey, publicLineOf, type SshAnswer, type Sshd, sshdIsMissing, sshLogin, startSshd } from '../harness/sshd.ts';
import { createTestAuthorities } from '../pki/ssh/support.ts';
import { keyring, recordingLog, trustDomain } from '../services/support.ts';

const account = userInfo().username;
const ticketIssuer = 'https://compute.example.com';
const nodes = ['node-1', 'node-2'] as const;
type NodeName = (typeof nodes)[number];
/** A guest has port 22 of an address of its own; only root may listen there. */
const guestAddress = `127.77.${process.pid % 250}.22`;
const mayListenAt22 = process.getuid?.() === 0;

const cli = [process.execPath, '--import', import.meta.resolve('tsx'), join(projectRoot, 'cli/main.ts')];

(sshdIsMissing === null ? describe : describe.skip)('ssh through a tunnel (skipped where openssh-server is absent)', function () {
  this.timeout(240_000);
  const used = useDatabase({ max: 20 });
  let folder: string;
  let bundle: PkiBundle;
  let api: BatchApi;
  let gateway: Gateway;
  let userKey: string;
  let guest: Sshd | undefined;
  const sshds: Sshd[] = [];
  const daemons = new Map<NodeName, Bcd>();
  const breakGlass = () => {
    const { publicKey, privateKey } = bundle.sshCa as SshAuthority;
    return createBreakGlassAuthority({ publicKey, signer: sshSignerFromPrivateKey(privateKey), now: Date.now });
  };
  const sandboxCa = () => sandboxAuthorityOf(bundle.sandboxSshCa as SshAuthority, Date.now);
  const file = (name: string, content: string, mode = 0o600): string => {
    writeFileSync(join(folder, name), content, { mode });
    return join(folder, name);
  };

  /** The machine's own sshd: the break-glass authority, and a host certificate by it. */
  const startMachineSshd = async (name: NodeName): Promise<Sshd> => {
    const trust = sshTrustFiles({ caPublicKey: bundle.sshCa?.publicKey ?? '', account, place: name });
    const hostKey = makeSshKey(folder, `${name}-host`);
    const issued = await breakGlass().issueHostCertificate({
      publicKey: publicLineOf(hostKey),
      principals: [name],
      keyId: name,
      validBefore: Date.now() + hour,
    });
    const sshd = await startSshd({
      folder,
      name,
      lines: [
        `HostKey ${hostKey}`,
        `HostCertificate ${file(`${name}-host-cert.pub`, `${issued.certificate}\n`)}`,
        `TrustedUserCAKeys ${file(`${name}-ca`, trust.trustedUserCaKeys)}`,
        `AuthorizedPrincipalsFile ${file(`${name}-principals`, trust.authorizedPrincipals, 0o644)}`,
        'AuthorizedKeysFile none',
        'PasswordAuthentication no',
        'PermitRootLogin prohibit-password',
      ],
    });
    sshds.push(sshd);
    return sshd;
  };

  const startGuestSshd = async (name: string, { publicKey, issueHostCertificate }: SandboxAuthority): Promise<Sshd> => {
    const module = vps({ sandboxExec: { caPublicKey: publicKey, certifyHostKey: issueHostCertificate } });
    const now = Date.now();
    const { userData } = await module.guestUserData({ instanceId: 's-1', account, keyId: 'ada', endsAt: now + hour, now });
    const root = join(folder, name);
    writeCloudFiles(userData, root);
    const lines = [`Include ${root}/etc/ssh/sshd_config.d/*.conf`];
    const sshd = await startSshd({ folder, name, lines, at: { address: guestAddress, port: 22 } });
    sshds.push(sshd);
    return sshd;
  };

  const startGatewayHere = async (): Promise<string> => {
    const { nodeCa, joinSigning, joinEncryption } = bundle;
    const crypto = pkiJoinCrypto({ trustDomain, nodeCa, signingKey: joinSigning, encryptionKey: joinEncryption.privateKey });
    const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const issued = await createAuthorities(bundle).issueGateway({ spki: spkiOf(publicKey), now: Date.now(), dns: ['localhost'] });
    const scheduler = createSystemScheduler();
    gateway = createGateway({
      tls: {
        key: String(privateKey.export({ type: 'pkcs8', format: 'pem' })),
        cert: issued.chain.map((der) => encodePem('CERTIFICATE', der)).join(''),
        ca: crypto.anchors.map((der) => encodePem('CERTIFICATE', der)).join(''),
      },
      trustDomain,
      gatewayId: 'gw-1',
      store: createPostgresStore(used.db, scheduler.now),
      services: createGatewayServices({ db: used.db, crypto: () => crypto, log: recordingLog(), now: Date.now }),
      scheduler,
    });
    const { port } = await gateway.listen({ host: '127.0.0.1', port: 0 });
    return `https://localhost:${port}`;
  };

  const joinAndRun = async (name: NodeName, url: string, config: object): Promise<void> => {
    const token = await createJoinToken({
      db: used.db,
      trustDomain,
      joinEncryption: bundle.joinEncryption.spki,
      siteId: 'fra1',
      role: 'node',
      nodeId: name,
      lifetimeMs: hour,
      actor: 'ann',
      now: Date.now(),
    });
    const dataDir = join(folder, name);
    const pins = { gateway: url, servingCaPin: spkiPin(bundle.servingCa.spki), joinKey: bundle.joinSigning.spki, trustDomain };
    await joinNode({
      dataDir,
      bundle: { ...pins, token: token.token },
      role: 'node',
      attestor: 'join-token',
      evidence: null,
      replace: false,
      patienceMs: 0,
      host: { root: '/', readBootId: async () => 'boot-1' },
      random: () => 0,
      now: Date.now,
      say: () => undefined,
      sleep: async () => undefined,
    });
    const worker = await keyring(used.db, { bundle: () => bundle, now: Date.now });
    const keys = accessKeysOf(bundle, ticketIssuer);
    await writeAccess({ db: used.db, worker, trustDomain, keys, announce: async () => undefined }, name);
    daemons.set(name, startBcd(['run', '--data-dir', dataDir, '--config', file(`${name}.json`, JSON.stringify(config))]));
  };

  before(async () => {
    folder = scratchFolder();
    mkdirSync(join(folder, 'cli'));
    userKey = makeSshKey(folder, 'user');
    bundle = await createBundle({ trustDomain, now: Date.now() });
    const { db } = used;
    await settleAndPublish({ db, bundle, floorOption: 0, overlapMs: day, processId: 'api', now: Date.now(), log: recordingLog() });
    if (mayListenAt22) guest = await startGuestSshd('guest', sandboxCa());
    const url = await startGatewayHere();
    for (const name of nodes) {
      const sshd = await startMachineSshd(name);
      const operations = ['node.ssh', 'instance.ssh', 'instance.tcp'];
      await joinAndRun(name, url, { tunnels: { operations, sshPort: sshd.port, instanceNetworks: ['127.0.0.0/8'] } });
    }
    api = await startBatchApi(db, { bundle, ticketIssuer, gatewayUrl: url });
    await eventually('both machines have a session', () => nodes.every((name) => gateway.sessions.find(name) !== undefined));
    await eventually('and their desired state', () => nodes.every((name) => /desired state taken/.test(daemons.get(name)?.log() ?? '')));
    const place = {
      instanceId: 's-1',
      tenantId: 'default',
      nodeId: 'node-1',
      address: guestAddress,
      sandbox: { endsAt: Date.now() + hour },
    };
    const headers = { authorization: `Bearer ${operatorToken}`, 'content-type': 'application/json' };
    assert.equal((await fetch(`${api.url}/v1/instances`, { method: 'POST', headers, body: JSON.stringify(place) })).status, 201);
  });
  after(async () => {
    for (const daemon of daemons.values()) await daemon.stop();
    await gateway?.close();
    await api?.close();
    for (const sshd of sshds) await sshd.stop();
  });

  const env = (): NodeJS.ProcessEnv => ({
    BETTER_COMPUTE_API_URL: api.url,
    BETTER_COMPUTE_OPERATOR_TOKEN: operatorToken,
    BETTER_COMPUTE_HOME: join(folder, 'cli'),
  });
  interface Login {
    readonly tunnelTo: NodeName;
    readonly host?: NodeName;
    readonly certifiedFor?: NodeName;
    readonly command?: string;
    readonly stdin?: Buffer;
  }
  const login = async ({ tunnelTo, host = tunnelTo, certifiedFor = host, ...rest }: Login): Promise<SshAnswer> => {
    const issued = await breakGlass().issueUserCertificate({
      publicKey: publicLineOf(userKey),
      account,
      nodeId: certifiedFor,
      keyId: 'ada',
      sessionEndsAt: Date.now() + 10 * minute,
    });
    return sshLogin({
      account,
      key: userKey,
      certificate: file('user-cert.pub', `${issued.certificate}\n`),
      knownHosts: file(
        'known_hosts',
        nodes.map((name) => sshCertAuthorityLine({ caPublicKey: bundle.sshCa?.publicKey ?? '', host: name })).join(''),
      ),
      host,
      to: { proxyCommand: [...cli, 'tunnel', 'open', '--node', tunnelTo].join(' ') },
      env: env(),
      ...rest,
    });
  };
  const run = async (...words: string[]): Promise<SshAnswer> => {
    const [program = '', ...args] = [...cli, ...words];
    const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...env() } });
    let [out, err] = ['', ''];
    child.stdout.on('data', (data) => (out += data));
    child.stderr.on('data', (data) => (err += data));
    const [code] = (await once(child, 'close')) as [number | null];
    return { out: out.trim(), err, code };
  };

  it('TRN-008 TUN-001 TUN-007 runs a command on the machine, over the one connection that its session is on', async () => {
    assert.equal(gateway.connections.size, nodes.length);
    // The command ends when this test has counted.
    const counted = join(folder, 'counted');
    const counting = eventually('the tunnel is open', () => gateway.connections.size === nodes.length + 1).then(() => file('counted', ''));
    const { out, err, code } = await login({
      tunnelTo: 'node-1',
      command: `echo in; echo talk >&2; while [ ! -e ${counted} ]; do sleep 0.1; done; exit 3`,
    });
    await counting;
    assert.deepEqual([out, code], ['in', 3], err);
    assert.match(err, /talk/);
    const sessions = await used.db.query<{ n: number }>({ text: 'select count(*) as n from node_sessions' });
    assert.equal(Number(sessions[0]?.n), nodes.length, 'no machine opened another session');
    await eventually('the caller is gone', () => gateway.connections.size === nodes.length);
  });

  it('carries what ssh carries, whole', async () => {
    const bytes = randomBytes(3 * 1024 * 1024);
    const { out, err } = await login({ tunnelTo: 'node-1', command: 'sha256sum', stdin: bytes });
    assert.equal(out.split(' ')[0], createHash('sha256').update(bytes).digest('hex'), err);
  });

  it('a gateway that led the caller to another machine would be found out: its host is certified under its own name', async () => {
    const { out, err } = await login({ tunnelTo: 'node-2', host: 'node-1' });
    assert.equal(out, '');
    assert.match(err, /Host key verification failed/);
  });

  it('EXEC-005 a tunnel alone opens nothing: the certificate of another machine is refused', async () => {
    const { out, err } = await login({ tunnelTo: 'node-1', certifiedFor: 'node-2' });
    assert.equal(out, '');
    assert.match(err, /Permission denied/);
  });

  it('TUN-010 says why there is no tunnel, and ends', async () => {
    const { out, err, code } = await run('tunnel', 'open', '--node', 'node-9');
    assert.deepEqual([out, code], ['', 5]);
    assert.match(err, /^error: no active node is called node-9/);
  });

  it('SBX-001 SBX-024 sandbox exec runs a command in the guest, by its certificate and known host alone', async function () {
    if (!mayListenAt22) return this.skip();
    const exec = (...words: string[]) => run('sandbox', 'exec', '--instance', 's-1', '--account', account, '--', ...words);
    const { out, err, code } = await exec('echo in; exit 4');
    assert.deepEqual([out, code], ['in', 4], err);
    const seen = await used.db.query<{ action: string }>({ text: "select action from audit_events where subject = 's-1' order by seq" });
    assert.deepEqual(
      seen.map(({ action }) => action),
      ['sandboxes.exec', 'tunnels.open'],
    );
    // The same address, and a guest that somebody else certified.
    await guest?.stop();
    const stranger = createTestAuthorities('ed25519', Date.now).sandbox;
    guest = await startGuestSshd('impostor', stranger);
    const other = await exec('echo in');
    assert.deepEqual([other.out, other.code], ['', 255]);
    assert.match(other.err, /Host key verification failed|No .* host key is known/);
  });
});
