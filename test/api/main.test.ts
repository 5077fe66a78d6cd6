/** The whole api process over a real database and a real key bundle: what is started, published, served and left behind. */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { createPublicKey } from 'node:crypto';
import { chmodSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { writeTlsFiles } from '../../cli/stack/tls-files.ts';
import { addCommandRoot, bundleDigest, createBundle, encodeBundle, type PkiBundle, updateBundle } from '../../pki/bundle/index.ts';
import { openJoinToken, parseJoinBundle } from '../../pki/enroll/index.ts';
import { spkiPin } from '../../pki/x509/index.ts';
import { createBundleFileStore } from '../../runtime/bundle-file-store.ts';
import { listProcesses } from '../../services/processes.ts';
import { createApprover } from '../harness/approvers.ts';
import { eventually } from '../harness/eventually.ts';
import { useDatabase } from '../harness/postgres.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { ask, bearer, post } from './support.ts';

const secret = 'a secret of at least thirty-two characters';
const root = new URL('../../', import.meta.url).pathname;

interface Api {
  readonly addresses: Record<string, string>;
  readonly child: ChildProcess;
  stderr(): string;
  stop(signal?: NodeJS.Signals): Promise<number | null>;
}

describe('the api process', function () {
  this.timeout(60_000);
  const used = useDatabase();
  let home: string;
  let bundle: PkiBundle;
  const running: Api[] = [];

  beforeEach(async () => {
    home = scratchFolder();
    const now = Date.now();
    bundle = await createBundle({ trustDomain: 'compute.example.com', now });
    await createBundleFileStore(join(home, 'pki.json')).create(encodeBundle(bundle, { secret }));
    await writeTlsFiles(join(home, 'tls'), { bundle, names: { dns: ['localhost'], ips: [] }, now });
    writeFileSync(join(home, 'operator.token'), `${bearer}\n`, { mode: 0o600 });
  });
  afterEach(async () => {
    await Promise.all(running.splice(0).map((api) => api.stop('SIGKILL')));
    for (const table of [
      'control_processes',
      'bundle_freshness',
      'trust_bundle_state',
      'trust_bundle_history',
      'join_tokens',
      'workload_issuers',
    ]) {
      await used.db.query({ text: `delete from ${table}` });
    }
    removeScratchFolders();
  });

  const envOf = (more: Record<string, string> = {}): NodeJS.ProcessEnv => ({
    PATH: process.env['PATH'],
    BETTER_COMPUTE_HOME: home,
    BETTER_COMPUTE_DATABASE_URL: used.url,
    BETTER_COMPUTE_SECRET: secret,
    BETTER_COMPUTE_API_PORT: '0',
    BETTER_COMPUTE_INTERNAL_PORT: '0',
    BETTER_COMPUTE_READY: 'json',
    BETTER_COMPUTE_EXIT_WITH_PARENT: '1',
    TEMPORAL_ADDRESS: '127.0.0.1:1',
    ...more,
  });

  /** Waits for the ready line, or for the end. */
  async function start(more?: Record<string, string>): Promise<Api> {
    const child = spawn(process.execPath, ['--import', 'tsx', 'api/main.ts'], {
      cwd: root,
      env: envOf(more),
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    let stderr = '';
    child.stderr.on('data', (chunk: Buffer) => {
      stderr += String(chunk);
    });
    const exited = new Promise<number | null>((resolve) => void child.once('exit', (code) => resolve(code)));
    const ready = new Promise<string | null>((resolve) => {
      createInterface({ input: child.stdout }).once('line', resolve);
      void exited.then(() => resolve(null));
    });
    const line = await ready;
    const api: Api = {
      child,
      addresses: line === null ? {} : (JSON.parse(line) as { addresses: Record<string, string> }).addresses,
      stderr: () => stderr,
      stop: async (signal = 'SIGTERM') => {
        child.kill(signal);
        return exited;
      },
    };
    running.push(api);
    return api;
  }

  const trustOf = async (api: Api): Promise<Record<string, unknown>> => (await ask(`${api.addresses['api']}/v1/trust`)).body;

  it('publishes the trust bundle, reports what it runs, and follows a change without a restart (H-02, ROT-031, TRUST-007, TRUST-022)', async () => {
    const api = await start();
    const path = join(home, 'pki.json');
    const first = await trustOf(api);
    assert.deepEqual([first['version'], (first['roots'] as string[]).length], [1, 1]);
    const [row] = await listProcesses(used.db);
    assert.equal(row?.kind, 'api');

    const changed = await updateBundle(
      createBundleFileStore(path),
      secret,
      async (bundle) => (await addCommandRoot(bundle, { rotationId: 'r1', now: Date.now() })).bundle,
    );
    const second = await eventually('the new bundle is published', async () => {
      const trust = await trustOf(api);
      return trust['version'] === 2 && trust;
    });
    assert.equal((second['roots'] as string[]).length, 2);
    await eventually('the heartbeat names the new bundle', async () => {
      const [process] = await listProcesses(used.db);
      return process?.bundleDigest === bundleDigest(changed.bundle);
    });
    assert.equal(await api.stop(), 0);
    assert.deepEqual(await listProcesses(used.db), [], 'a process that ends in order takes its row away');
  });

  it('WID-004 WID-011 WID-015 serves the documents of the issuer it is configured with, from keys that every api shares', async () => {
    const issuer = { BETTER_COMPUTE_WORKLOAD_ISSUER: 'https://id.example.com/wid' };
    const [one, two] = await Promise.all([start(issuer), start({ ...issuer, BETTER_COMPUTE_METRICS_PORT: '0' })]);
    const read = async (api: Api, name: string) =>
      (await fetch(`${api.addresses['api']}/wid/.well-known/${name}`)).json() as Promise<Record<string, unknown>>;
    assert.equal((await read(one, 'openid-configuration'))['jwks_uri'], 'https://id.example.com/wid/.well-known/jwks.json');
    const { status } = await post(`${one.addresses['api']}/v1/workload/keys`, { actor: 'ann' });
    assert.equal(status, 200);
    const keys = await read(two, 'jwks.json');
    assert.equal((keys['keys'] as unknown[]).length, 2, 'a key that one adds the other publishes');
    assert.deepEqual(keys, await read(one, 'jwks.json'));
  });

  it('WID-010 refuses to start with an issuer that is none, or a secret that seals nothing, and says which', async () => {
    const bad = await start({ BETTER_COMPUTE_WORKLOAD_ISSUER: 'https://id.example.com:8443' });
    assert.deepEqual([await bad.stop(), bad.addresses], [3, {}]);
    assert.match(bad.stderr(), /"https:\/\/id\.example\.com:8443" cannot be the workload issuer: it must be on port 443, not 8443/);
    const short = await start({ BETTER_COMPUTE_WORKLOAD_ISSUER: 'https://id.example.com', BETTER_COMPUTE_SECRET: 'short' });
    assert.match(short.stderr(), /BETTER_COMPUTE_SECRET has 5 characters/);
  });

  it('creates join tokens that the bundle opens and whose pins are those of pki show (JOIN-024, JOIN-029)', async () => {
    const api = await start({ BETTER_COMPUTE_GATEWAY_URL: 'https://gw.example.com:8443' });
    const { status, body } = await post(`${api.addresses['api']}/v1/tokens`, { actor: 'ann', siteId: 'eu-1', nodeId: 'node-17' });
    assert.equal(status, 201);
    const { bundle } = await updateBundle(createBundleFileStore(join(home, 'pki.json')), secret, async () => 'unchanged');
    const joining = parseJoinBundle(String(body['join']));
    assert.deepEqual(
      [joining.gateway, joining.trustDomain, joining.servingCaPin],
      ['https://gw.example.com:8443', 'compute.example.com', spkiPin(bundle.servingCa.spki)],
    );
    const claims = openJoinToken(bundle.joinEncryption.privateKey, joining.token, { trustDomain: bundle.trustDomain });
    assert.deepEqual([claims.siteId, claims.role, claims.nodeId], ['eu-1', 'node', 'node-17']);
    const events = (await ask(`${api.addresses['api']}/v1/audit`)).body['events'] as { actor: string; action: string }[];
    assert.ok(events.some(({ actor, action }) => actor === 'ann' && action === 'token.create'));
    assert.equal(api.stderr().includes(joining.token), false, 'no token in the log');
  });

  it('serves what the database knows while Temporal is away, and says so where it is needed', async () => {
    const api = await start();
    const { body } = await ask(`${api.addresses['api']}/v1/stuck`);
    assert.deepEqual(
      (body['stuck'] as { kind: string; subject: string }[]).map(({ kind, subject }) => [kind, subject]),
      [['source', 'temporal']],
    );
    const run = await post(`${api.addresses['api']}/v1/commands`, { actor: 'ann', kind: 'inventory.refresh', nodes: 'all' });
    assert.deepEqual([run.status, run.body['code']], [503, 'UNAVAILABLE']);
  });

  it('is ready only with its database and its keys, and counts what it does', async () => {
    const api = await start();
    const ready = await ask(`http://${api.addresses['metrics']}/readyz`, { auth: null });
    assert.deepEqual([ready.status, ready.body['checks']], [200, { database: 'ok', keys: 'ok' }]);
    await trustOf(api);
    const metrics = await (await fetch(`http://${api.addresses['metrics']}/metrics`)).text();
    assert.match(metrics, /bc_trust_version\{process="api"\} 1/);
    assert.match(metrics, /bc_api_request_seconds_count\{process="api",route="\/v1\/trust",status="200"\} 1/);
  });

  it('H-07 issues nothing from a bundle older than the deployment has run, and says what to do', async () => {
    const path = join(home, 'pki.json');
    const old = readFileSync(path, 'utf8');
    await updateBundle(
      createBundleFileStore(path),
      secret,
      async (bundle) => (await addCommandRoot(bundle, { rotationId: 'r1', now: Date.now() })).bundle,
    );
    assert.equal(await (await start()).stop(), 0);
    writeFileSync(path, old);
    const api = await start();
    const ready = await ask(`http://${api.addresses['metrics']}/readyz`, { auth: null });
    assert.equal(ready.status, 503);
    assert.match(
      JSON.stringify(ready.body['checks']),
      /STALE_BUNDLE: the key bundle at hand is generation 0?\d*, the deployment runs \d+: restore the current one/,
    );
    assert.deepEqual([(await trustOf(api))['version']], [2], 'and what is published stays');
  });

  it('keeps the bundle it has when the file no longer opens', async () => {
    const api = await start();
    writeFileSync(join(home, 'pki.json'), 'not a bundle');
    await eventually('the log names it', () => api.stderr().includes('the changed key bundle does not open'));
    assert.equal((await trustOf(api))['version'], 1);
  });

  const broken: readonly [string, () => Record<string, string>, number, RegExp][] = [
    [
      'a name nobody knows',
      () => ({ BETTER_COMPUTE_APl_PORT: '1' }),
      3,
      /^error: .*BETTER_COMPUTE_APl_PORT is not a name of this system \(did you mean BETTER_COMPUTE_API_PORT\?\)$/m,
    ],
    ['another secret', () => ({ BETTER_COMPUTE_SECRET: 'another secret of more than 32 characters' }), 3, /^error: /m],
    [
      'a bundle of another deployment',
      () => ({ BETTER_COMPUTE_TRUST_DOMAIN: 'other.example.com' }),
      3,
      /^error: the key bundle belongs to compute.example.com, this deployment is other.example.com$/m,
    ],
    [
      'a token others can read',
      () => (chmodSync(join(home, 'operator.token'), 0o644), {}),
      3,
      /^error: the operator token .*operator.token can be read by others: chmod 600/m,
    ],
    [
      'approvers and a bundle that signs no commands (QUO-070)',
      () => {
        const { commandSigning: _none, ...unsigned } = bundle;
        const without = { ...unsigned, commandRootsById: new Map(), commandRoots: { ...bundle.commandRoots, roots: [], signing: '' } };
        writeFileSync(join(home, 'pki.json'), encodeBundle(without, { secret }), { mode: 0o600 });
        const key = createPublicKey({ key: Buffer.from(createApprover().signer.spki), format: 'der', type: 'spki' });
        writeFileSync(join(home, 'ann.pub'), key.export({ type: 'spki', format: 'pem' }));
        return { BETTER_COMPUTE_APPROVER_KEYS: join(home, 'ann.pub'), BETTER_COMPUTE_APPROVER_THRESHOLD: '1' };
      },
      3,
      /^error: approvers are configured, but the key bundle has no command-signing root: nothing could be approved$/m,
    ],
    ['no database', () => ({ BETTER_COMPUTE_DATABASE_URL: 'postgres://127.0.0.1:1/none' }), 8, /^error: /m],
  ];
  for (const [title, change, exitCode, message] of broken) {
    it(`does not start with ${title}`, async () => {
      const api = await start(change());
      assert.equal(await api.stop(), exitCode, api.stderr());
      assert.match(api.stderr(), message);
      assert.match(api.stderr(), /^hint: /m);
    });
  }
});
