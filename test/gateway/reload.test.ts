import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type FileWatch, readTlsFiles, watchTlsFiles } from '../../runtime/tls-files.ts';
import {
  createAuthorities,
  dialTls,
  hostLeaf,
  nodeCaPem,
  nodeLeaf,
  openAgent,
  serialOf,
  type TestAuthorities,
  type TestLeaf,
} from '../harness/agent.ts';
import { eventually } from '../harness/eventually.ts';
import { ManualScheduler, turns } from './manual-scheduler.ts';
import { type RunningGateway, startGateway } from './start-gateway.ts';

describe('watching TLS files', () => {
  let folder: string;
  let authorities: TestAuthorities;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'bc-tls-'));
    authorities = await createAuthorities();
  });
  after(() => rm(folder, { recursive: true }));
  const started: RunningGateway[] = [];
  const open = async (options: Parameters<typeof startGateway>[0]): Promise<RunningGateway> => {
    const running = await startGateway(options);
    started.push(running);
    return running;
  };
  afterEach(async () => {
    for (const { gateway } of started.splice(0)) await gateway.close();
  });

  const write = async (leaf: TestLeaf, parts: readonly ('key' | 'cert')[] = ['key', 'cert']): Promise<void> => {
    if (parts.includes('key')) await writeFile(join(folder, 'gateway.key'), leaf.keyPem);
    if (parts.includes('cert')) await writeFile(join(folder, 'gateway.crt'), leaf.chainPem);
  };

  it('TLS-005, TLS-007, TLS-008, TLS-009, TLS-013, TLS-014, TLS-019, H-12 hands over each changed set once, keeps the old one for a broken pair, and tries the next change', async () => {
    const [first, second] = [await hostLeaf(authorities, 'gateway'), await hostLeaf(authorities, 'gateway')];
    await write(first);
    await writeFile(join(folder, 'node-ca.pem'), nodeCaPem(authorities));
    const files = { key: join(folder, 'gateway.key'), cert: join(folder, 'gateway.crt'), ca: join(folder, 'node-ca.pem') };
    const { gateway, port } = await open({ authorities });
    const errors: string[] = [];
    let reloads = 0;
    const scheduler = new ManualScheduler();
    const watch: FileWatch = watchTlsFiles(files, (material) => gateway.setTls(material), {
      what: 'Gateway serving certificate',
      every: scheduler.every,
      onError: (error) => void errors.push(error.message),
      onReload: () => void (reloads += 1),
    });
    await watch.check();
    assert.equal(await serialOf(port), first.serial, 'the files win over what the gateway was made with');
    // Same content under a new time: nothing happens. New content under the old time: it does.
    const stamp = new Date(1_000_000_000_000);
    for (const path of [files.key, files.cert]) await utimes(path, stamp, stamp);
    await watch.check();
    assert.equal(reloads, 1);
    await write(second, ['key']);
    await watch.check();
    await watch.check();
    assert.deepEqual(errors, ['Gateway serving certificate not reloaded: the private key does not belong to the certificate']);
    assert.equal(await serialOf(port), first.serial);
    await write(second);
    for (const path of [files.key, files.cert]) await utimes(path, stamp, stamp);
    await watch.check();
    assert.equal(await serialOf(port), second.serial);
    assert.equal(reloads, 2);
    await rm(files.cert);
    await watch.check();
    assert.match(errors[1] as string, /^Gateway serving certificate not reloaded: ENOENT/);
    // TLS-005: by itself each 60 s.
    await write(first);
    scheduler.advance(59_999);
    await watch.check();
    scheduler.advance(1);
    await eventually('the timer looks', () => reloads === 3);
    watch.close();
    assert.equal(scheduler.pending, 0);
  });

  it('TLS-015 without a watch the material is what was read at the start, whatever becomes of the files', async () => {
    const [first, second] = [await hostLeaf(authorities, 'gateway'), await hostLeaf(authorities, 'gateway')];
    const files = { key: join(folder, 'gateway.key'), cert: join(folder, 'gateway.crt') };
    await write(first);
    const scheduler = new ManualScheduler();
    const { port } = await open({
      authorities,
      scheduler,
      tls: { ...(await readTlsFiles(files)), ca: nodeCaPem(authorities) },
    });
    await write(second);
    for (let minutes = 0; minutes < 120; minutes += 1) scheduler.advance(60_000);
    await turns();
    assert.equal(await serialOf(port), first.serial);
  });

  it('TLS-006, TLS-017, A-PRO-16 other options of the listener apply beside the files, before and after a reload', async () => {
    const leaf = await nodeLeaf(authorities, 'node-1');
    const [first, second] = [await hostLeaf(authorities, 'gateway'), await hostLeaf(authorities, 'gateway')];
    const old = { minVersion: 'TLSv1.2', maxVersion: 'TLSv1.2' } as const;
    const ca = nodeCaPem(authorities);
    const { gateway, port } = await open({ authorities, tls: { key: first.keyPem, cert: first.chainPem, ca }, tlsOptions: old });
    for (const renewed of [null, second]) {
      if (renewed !== null) gateway.setTls({ key: renewed.keyPem, cert: renewed.chainPem });
      const { agent } = await openAgent({ port, leaf, tls: { minVersion: 'TLSv1.2' } });
      agent.close();
      const newer = dialTls({ port, leaf });
      await once(newer, 'error');
      newer.destroy();
    }
  });

  it('refuses a listener without node authorities', async () => {
    const leaf = await hostLeaf(authorities, 'gateway');
    await assert.rejects(startGateway({ tls: { key: leaf.keyPem, cert: leaf.chainPem } }), {
      code: 'INVALID_CONFIG',
      message: 'no authority is named that the other end must chain to (ca)',
    });
  });

  it('SKEW-021 refuses a protocol range that is none', async () => {
    for (const protocol of [
      { min: 0, max: 1 },
      { min: 2, max: 1 },
      { min: 1.5, max: 2 },
      { min: 1, max: Number.NaN },
    ]) {
      await assert.rejects(startGateway({ protocol }), { code: 'INVALID_CONFIG', message: /protocol range/ });
    }
  });
});
