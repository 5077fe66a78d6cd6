/** The gateway as a process: what it needs, what it prints, how it ends. */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect } from 'node:tls';
import { fileURLToPath } from 'node:url';
import { encodePem } from '../../pki/x509/index.ts';
import {
  createAuthorities,
  hostLeaf,
  nodeCaPem,
  nodeLeaf,
  serialOf,
  TestAgent,
  type TestAuthorities,
  trustDomain,
} from '../harness/agent.ts';
import { eventually } from '../harness/eventually.ts';
import { useDatabase } from '../harness/postgres.ts';

const mainPath = fileURLToPath(new URL(`../../gateway/main${import.meta.url.endsWith('.ts') ? '.ts' : '.js'}`, import.meta.url));

describe('the gateway process', function () {
  this.timeout(60_000);
  const used = useDatabase();
  let folder: string;
  let authorities: TestAuthorities;
  let child: ChildProcess | null = null;

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'bc-gateway-'));
    authorities = await createAuthorities();
    const serving = await hostLeaf(authorities, 'gateway');
    const internal = await hostLeaf(authorities, 'internal', { role: 'gateway' });
    const files: Record<string, string> = {
      'gateway.key': serving.keyPem,
      'gateway.crt': serving.chainPem,
      'node-ca.pem': nodeCaPem(authorities),
      'internal-gateway.key': internal.keyPem,
      'internal-gateway.crt': internal.chainPem,
      'internal-ca.pem': encodePem('CERTIFICATE', authorities.internalCa.certificate),
    };
    for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text, { mode: 0o600 });
  });
  afterEach(async () => {
    if (child === null || child.exitCode !== null) return;
    child.kill('SIGKILL');
    await once(child, 'exit');
  });
  after(() => rm(folder, { recursive: true }));

  function start(over: NodeJS.ProcessEnv = {}): { child: ChildProcess; out: string[]; err: string[] } {
    const { BETTER_COMPUTE_SECRET: _, ...inherited } = process.env;
    const env = {
      ...inherited,
      BETTER_COMPUTE_READY: 'json',
      BETTER_COMPUTE_DATABASE_URL: used.url,
      BETTER_COMPUTE_TLS: folder,
      BETTER_COMPUTE_TRUST_DOMAIN: trustDomain,
      BETTER_COMPUTE_GATEWAY_ID: 'gw-test',
      BETTER_COMPUTE_GATEWAY_HOST: '127.0.0.1',
      BETTER_COMPUTE_GATEWAY_PORT: '0',
      BETTER_COMPUTE_INTERNAL_URL: 'https://127.0.0.1:1',
      ...over,
    };
    const started = spawn(process.execPath, [...(mainPath.endsWith('.ts') ? ['--import', 'tsx'] : []), mainPath], {
      env,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    child = started;
    const out: string[] = [];
    const err: string[] = [];
    started.stdout.on('data', (chunk: Buffer) => void out.push(String(chunk)));
    started.stderr.on('data', (chunk: Buffer) => void err.push(String(chunk)));
    return { child: started, out, err };
  }

  async function ready({ child: started, out, err }: ReturnType<typeof start>): Promise<Record<string, string>> {
    while (!out.join('').includes('\n')) {
      const [first] = await Promise.race([
        once(started.stdout as NodeJS.ReadableStream, 'data').then(() => ['data']),
        once(started, 'exit').then(() => ['exit']),
      ]);
      if (first === 'exit') throw new Error(err.join(''));
    }
    return (JSON.parse(out.join('')) as { addresses: Record<string, string> }).addresses;
  }

  it('says where it is, records itself, refuses strangers, and leaves in order on SIGTERM', async () => {
    const started = start();
    const addresses = await ready(started);
    const port = Number(addresses['gateway']?.split(':')[1]);
    const agent = new TestAgent({ port, leaf: await nodeLeaf(authorities, 'nobody') });
    agent.hello();
    assert.deepEqual([(await agent.ended).status, (await agent.ended).reason], [7, 'unknown-node']);
    agent.close();
    const rows = await used.db.query<{ id: string; kind: string }>({ text: 'select id, kind from control_processes' });
    assert.deepEqual(rows, [{ id: 'gateway/gw-test', kind: 'gateway' }]);
    const answer = await fetch(`http://${addresses['metrics']}/readyz`);
    assert.equal(answer.status, 200);
    assert.match(
      await (await fetch(`http://${addresses['metrics']}/metrics`)).text(),
      /bc_gateway_refusals_total\{reason="unknown-node",process="gateway"\} 1/,
    );
    started.child.kill('SIGTERM');
    assert.deepEqual(await once(started.child, 'exit'), [0, null]);
    assert.deepEqual(await used.db.query({ text: 'select 1 from control_processes' }), []);
  });

  it('TLS-001, TLS-002, TLS-010, TLS-013, R-04 takes renewed files for both its ends without a restart, and keeps what it has for broken ones', async () => {
    const started = start({ BETTER_COMPUTE_TLS_INTERVAL_MS: '50', BETTER_COMPUTE_GATEWAY_REGION: 'eu-1' });
    const addresses = await ready(started);
    const port = Number(addresses['gateway']?.split(':')[1]);
    const [serving, broken] = [await hostLeaf(authorities, 'gateway'), await hostLeaf(authorities, 'gateway')];
    const internal = await hostLeaf(authorities, 'internal', { role: 'gateway' });
    const write = async (name: string, { keyPem, chainPem }: { keyPem: string; chainPem: string }): Promise<void> => {
      await writeFile(join(folder, `${name}.key`), keyPem);
      await writeFile(join(folder, `${name}.crt`), chainPem);
    };
    await write('internal-gateway', internal);
    await write('gateway', serving);
    const reported = async (): Promise<string | undefined> =>
      (await used.db.query<{ serial: string }>({ text: 'select serving_serial as serial from control_processes' }))[0]?.serial;
    assert.notEqual(await reported(), undefined, 'it says from the start which one it presents');
    await eventually('a new handshake sees the new certificate', async () => (await serialOf(port)) === serving.serial);
    await eventually('whoever exchanges it can see that', async () => (await reported()) === serving.serial);
    const logged = (message: string): Promise<unknown> => eventually(message, () => started.err.join('').includes(message));
    await logged('gateway internal certificate reloaded');
    await write('gateway', { ...broken, keyPem: serving.keyPem });
    await logged('Gateway serving certificate not reloaded: the private key does not belong to the certificate');
    await write('internal-gateway', { ...internal, keyPem: serving.keyPem });
    await logged('Gateway internal certificate not reloaded: the private key does not belong to the certificate');
    assert.deepEqual([await serialOf(port), await reported()], [serving.serial, serving.serial]);
    assert.equal(started.child.exitCode, null);
    assert.match(
      await (await fetch(`http://${addresses['metrics']}/metrics`)).text(),
      /bc_gateway_info\{gateway_id="gw-test",region="eu-1",process="gateway"\} 1/,
    );
    await write('gateway', serving);
    await write('internal-gateway', internal);
  });

  it('names everything that is wrong with its environment at once', async () => {
    const started = start({
      BETTER_COMPUTE_TRUST_DOMAIN: '',
      BETTER_COMPUTE_GATEWAY_ID: 'Not Good',
      BETTER_COMPUTE_INTERNAL_URL: 'http://x',
      BETTER_COMPUTE_TLS_INTERVAL_MS: '0',
    });
    const [code] = await once(started.child, 'exit');
    assert.equal(code, 3);
    const text = started.err.join('');
    for (const name of [
      'BETTER_COMPUTE_TRUST_DOMAIN',
      'BETTER_COMPUTE_GATEWAY_ID',
      'BETTER_COMPUTE_INTERNAL_URL',
      'BETTER_COMPUTE_TLS_INTERVAL_MS',
    ])
      assert.match(text, new RegExp(name));
  });

  async function writeHost(options: string): Promise<string> {
    const module = join(folder, 'host.mjs');
    const home = new URL('../../runtime/host.ts', import.meta.url).href;
    await writeFile(module, `import { defineHost } from ${JSON.stringify(home)};\nexport const host = ${options};\n`);
    return module;
  }

  it('TLS-020, TLS-006 takes region, options and files from a host module before its environment', async () => {
    const files = (name: string, ca: string): Record<string, string> => ({
      key: join(folder, `${name}.key`),
      cert: join(folder, `${name}.crt`),
      ca: join(folder, ca),
    });
    const gateway = {
      region: 'eu-2',
      tls: { ciphers: 'TLS_AES_256_GCM_SHA384' },
      tlsFiles: files('gateway', 'node-ca.pem'),
      internal: { tlsFiles: files('internal-gateway', 'internal-ca.pem') },
    };
    const module = await writeHost(`defineHost(() => (${JSON.stringify({ gateway })}))`);
    // A folder that is not there: the module's files are what is read.
    const addresses = await ready(
      start({ BETTER_COMPUTE_HOST_MODULE: module, BETTER_COMPUTE_TLS: join(folder, 'none'), BETTER_COMPUTE_GATEWAY_REGION: 'eu-1' }),
    );
    const socket = connect({ port: Number(addresses['gateway']?.split(':')[1]), rejectUnauthorized: false, ALPNProtocols: ['h2'] });
    await once(socket, 'secureConnect');
    assert.equal(socket.getCipher().standardName, 'TLS_AES_256_GCM_SHA384');
    socket.destroy();
    assert.match(await (await fetch(`http://${addresses['metrics']}/metrics`)).text(), /bc_gateway_info\{[^}]*region="eu-2"/);
  });

  it('TLS-020 does not start with a host module that is wrong, naming everything that is', async () => {
    const cases: readonly (readonly [string, RegExp])[] = [
      ['{}', /exports no host: export const host = defineHost/],
      ["defineHost(() => ({ gateway: { regoin: 'eu' } }))", /host\.gateway\.regoin is no option: did you mean region\?/],
      ["defineHost(() => ({ gateway: { tlsFiles: { key: 'a', cert: '', ca: 'c' } } }))", /host\.gateway\.tlsFiles\.cert: must be a path/],
      ["defineHost(() => ({ gateway: { tls: { minVersion: 'TLSv1.2' } } }))", /host\.gateway\.tls\.minVersion/],
      ['nothing', /does not load: nothing is not defined/],
    ];
    for (const [options, message] of cases) {
      const started = start({ BETTER_COMPUTE_HOST_MODULE: await writeHost(options) });
      assert.deepEqual([(await once(started.child, 'exit'))[0], message.test(started.err.join(''))], [3, true], started.err.join(''));
    }
  });

  it('does not start with a key that is not its certificate’s', async () => {
    const other = await hostLeaf(authorities, 'gateway');
    await writeFile(join(folder, 'gateway.key'), other.keyPem);
    const started = start();
    const [code] = await once(started.child, 'exit');
    assert.equal(code, 3);
    assert.match(started.err.join(''), /error: the private key does not belong to the certificate/);
  });
});
