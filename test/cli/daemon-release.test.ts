/** A release from its signature to the command that machines get: the real files, the real api. */
import assert from 'node:assert/strict';
import { createHash, generateKeyPairSync } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fromJson } from '@bufbuild/protobuf';
import { newSignRelease, type SignReleaseOptions, signReleaseRun } from '../../cli/commands/daemon/sign-release.ts';
import { type DaemonUpgradeOptions, daemonUpgradeRun, newDaemonUpgrade } from '../../cli/commands/daemon/upgrade.ts';
import { toExit } from '../../cli/exit.ts';
import { openDaemonRelease } from '../../pki/envelope/index.ts';
import { spkiOf } from '../../pki/x509/index.ts';
import { DaemonUpgradeSchema } from '../../proto/index.ts';
import { createDeployment, type FakeDeployment, type RunningApi, startApi } from '../api/support.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { createTestIo, createTestPorts, envFor, parseWith, type TestIo } from './support.ts';

describe('releases of bcd, on the command line', () => {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const content = '#!/bin/sh\necho 0.2.0\n';
  let folder: string;
  let deployment: FakeDeployment;
  let api: RunningApi;

  beforeEach(async () => {
    folder = scratchFolder();
    writeFileSync(join(folder, 'bcd'), content, { mode: 0o755 });
    writeFileSync(join(folder, 'release.pem'), privateKey.export({ type: 'pkcs8', format: 'pem' }), { mode: 0o600 });
    deployment = createDeployment();
    api = await startApi(deployment);
  });
  afterEach(() => api.close());
  after(removeScratchFolders);

  const at = (name: string): string => join(folder, name);
  const sign = async (...more: string[]): Promise<TestIo> => {
    const io = createTestIo();
    const argv = [at('bcd'), '--release', '0.2.0', '--key', at('release.pem'), '--out', at('bcd.json'), ...more];
    await signReleaseRun(await parseWith<SignReleaseOptions>(newSignRelease, argv), createTestPorts(io));
    return io;
  };
  const upgrade = async (...argv: string[]): Promise<TestIo> => {
    const io = createTestIo({ env: envFor(api.url) });
    const ports = createTestPorts(io);
    const made = (run: (options: DaemonUpgradeOptions) => Promise<void>) => newDaemonUpgrade(ports, run);
    await daemonUpgradeRun(await parseWith<DaemonUpgradeOptions>(made, argv), ports);
    return io;
  };
  const refused = async (work: Promise<unknown>): Promise<string> => {
    const error = await work.then(
      () => assert.fail('it was not refused'),
      (cause: unknown) => cause,
    );
    const { exitCode, lines } = toExit(error);
    return `${exitCode} ${lines.join('\n')}`.replaceAll(folder, 'HERE');
  };
  const url = 'https://downloads.example.com/0.2.0/bcd';
  const how = ['--release', 'HERE/bcd.json', '--url', url, '--reason', 'faster', '--actor', 'ann', '--no-wait'];
  const here = (): string[] => how.map((word) => word.replace('HERE', folder));

  it('KIND-009 what sign-release writes reaches machines as it was signed', async () => {
    const io = await sign();
    assert.match(io.stderr(), /^bcd 0\.2\.0 for any: 21 bytes, SHA-256 [0-9a-f]{64}, signed by [0-9a-f]{12}\n$/);
    await upgrade('node-a', ...here());
    const [asked] = deployment.commandsAsked;
    assert.deepEqual([asked?.kind, asked?.nodes, asked?.reason, asked?.actor], ['daemon.upgrade', ['node-a'], 'faster', 'ann']);
    const payload = fromJson(DaemonUpgradeSchema, asked?.payload as never);
    assert.equal(payload.url, url);
    assert.deepEqual(openDaemonRelease(payload, [spkiOf(publicKey)]), {
      version: '0.2.0',
      sha256: createHash('sha256').update(content).digest('hex'),
      bytes: content.length,
      platform: 'any',
    });
  });

  it('KIND-009 a signed release is never written over, and its key must be for its owner alone', async () => {
    await sign();
    const before = readFileSync(at('bcd.json'));
    assert.match(await refused(sign('--platform', 'linux-x64')), /^4 error: HERE\/bcd\.json is there already\n/);
    assert.deepEqual(readFileSync(at('bcd.json')), before);
    writeFileSync(at('open.pem'), privateKey.export({ type: 'pkcs8', format: 'pem' }), { mode: 0o644 });
    assert.match(await refused(sign('--key', at('open.pem'), '--out', at('x.json'))), /^4 error: HERE\/open\.pem can be read by others/);
  });

  const files: readonly [what: string, text: string, message: RegExp][] = [
    ['no JSON', '{', /bcd\.json is no signed release: it is not JSON/],
    ['another file', '{"format":"better-compute-pins"}', /is no signed release: format: .*; version: .*; bcd: .*; release: /],
    [
      'a release that does not decode',
      JSON.stringify({ format: 'better-compute-release', version: 1, bcd: 'x', release: 'AAAA', kid: 'a'.repeat(64), signature: 'AAAA' }),
      /its release does not decode/,
    ],
  ];
  for (const [what, text, message] of files) {
    it(`KIND-009 upgrade says what is wrong with ${what}, and asks no machine`, async () => {
      writeFileSync(at('bcd.json'), text);
      assert.match(await refused(upgrade('node-a', ...here())), message);
      assert.deepEqual(deployment.commandsAsked, []);
    });
  }

  it('KIND-009 upgrade names the file that is missing, and wants nodes or --all', async () => {
    assert.match(await refused(upgrade('node-a', ...here())), /^5 error: HERE\/bcd\.json cannot be read\nhint: make one: .*sign-release/);
    await sign();
    assert.match(await refused(upgrade(...here())), /^2 error: no node is named/);
  });
});
