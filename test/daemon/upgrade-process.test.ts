import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { createHash, generateKeyPairSync } from 'node:crypto';
import { once } from 'node:events';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { saveIdentity } from '../../daemon/state/identity.ts';
import { encodePem } from '../../pki/bundle/pem.ts';
import { signDaemonRelease } from '../../pki/envelope/index.ts';
import { signerFromPrivateKey } from '../../pki/x509/index.ts';
import { CommandOutcome } from '../../proto/index.ts';
import { bundledDaemon } from '../../scripts/bcd.mjs';
import { commandOf, createDeployment, joinedNode, type TestDeployment } from '../harness/deployment.ts';
import { eventually } from '../harness/eventually.ts';
import { type FakeGateway, startFakeGateway } from '../harness/fake-gateway.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';

/** Starts the program that is in place again whenever it ends, as Restart=always of its unit does. */
class Supervisor {
  readonly #argv: readonly [string, ...string[]];
  #child: ChildProcess | undefined;
  #stopped = false;
  starts = 0;
  said = '';
  readonly done: Promise<void>;

  constructor(...argv: [string, ...string[]]) {
    this.#argv = argv;
    this.done = this.#run();
  }

  async #run(): Promise<void> {
    while (!this.#stopped) {
      this.starts += 1;
      const [program, ...args] = this.#argv;
      const child = spawn(program, args, {
        stdio: ['pipe', 'pipe', 'pipe'],
        env: { ...process.env, BETTER_COMPUTE_EXIT_WITH_PARENT: '1' },
      });
      this.#child = child;
      for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text: string) => (this.said += text));
      await once(child, 'close');
    }
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#child?.kill('SIGKILL');
    await this.done;
  }
}

describe('a bcd that replaces itself', function () {
  this.timeout(120_000);
  const releaseKey = signerFromPrivateKey(generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey);
  let deployment: TestDeployment;
  let files: Server;
  let next: Buffer;
  let old: Buffer;
  const running: { stop(): Promise<unknown> }[] = [];

  before(async () => {
    deployment = await createDeployment();
    old = await bundledDaemon({ version: '0.8.0', executable: true });
    next = await bundledDaemon({ version: '0.9.0', executable: true });
    files = createServer((_request, answer) => answer.end(next)).listen(0, '127.0.0.1');
    await once(files, 'listening');
  });
  afterEach(async () => {
    for (const one of running.splice(0).toReversed()) await one.stop();
  });
  after(() => {
    files.close();
    removeScratchFolders();
  });

  async function machine(gateway: FakeGateway): Promise<{ program: string; dataDir: string; supervisor: Supervisor }> {
    const folder = scratchFolder();
    const program = join(folder, 'bcd');
    await writeFile(program, old, { mode: 0o755 });
    await writeFile(join(folder, 'release-keys.pem'), encodePem('PUBLIC KEY', releaseKey.spki));
    const dataDir = scratchFolder();
    await saveIdentity(dataDir, await joinedNode(deployment, { gatewayUrl: gateway.url }));
    const supervisor = new Supervisor(program, 'run', '--data-dir', dataDir, '--release-keys', join(folder, 'release-keys.pem'));
    running.push(supervisor);
    return { program, dataDir, supervisor };
  }

  async function upgrade(epoch: bigint) {
    const sha256 = createHash('sha256').update(next).digest('hex');
    const signed = await signDaemonRelease(releaseKey, { version: '0.9.0', sha256, bytes: next.length, platform: 'any', releasedAtMs: 1 });
    const payload = { ...signed, url: `http://127.0.0.1:${(files.address() as AddressInfo).port}/bcd` };
    return commandOf(deployment, { id: 'c-1', kind: 'daemon.upgrade', payload, epoch });
  }

  it('KIND-009 SKEW-016 the next session is that of the new program, which reports the end', async () => {
    const gateway = await startFakeGateway({ deployment });
    running.push({ stop: () => gateway.close() });
    const { program, supervisor } = await machine(gateway);
    const first = await gateway.nextSession();
    assert.equal(first.hello?.daemonVersion, '0.8.0');
    first.send({ frame: { case: 'command', value: await upgrade(1n) } });
    await first.take('commandAck');
    const second = await gateway.nextSession();
    const result = await second.take('commandResult');
    assert.equal(second.hello?.daemonVersion, '0.9.0', supervisor.said);
    assert.deepEqual([CommandOutcome[result.outcome], result.commandId, result.errorMessage], ['SUCCEEDED', 'c-1', '']);
    assert.ok(next.equals(await readFile(program)));
    assert.ok(old.equals(await readFile(`${program}.previous`)));
    assert.equal(supervisor.starts, 2);
  });

  it('KIND-009 a new program that stumbles over its own configuration comes to take itself back, and the old one reports it', async () => {
    const gateway = await startFakeGateway({ deployment });
    running.push({ stop: () => gateway.close() });
    const { program, dataDir, supervisor } = await machine(gateway);
    const first = await gateway.nextSession();
    first.send({ frame: { case: 'command', value: await upgrade(1n) } });
    await first.take('commandAck');
    await writeFile(join(dataDir, 'config.json'), '{"nobodyKnowsThis":1}', { mode: 0o600 });
    await eventually('the old program is back', async () => supervisor.starts > 6 && old.equals(await readFile(program)), 60_000);
    await rm(join(dataDir, 'config.json'));
    const result = await (await gateway.nextSession()).take('commandResult');
    assert.equal(CommandOutcome[result.outcome], 'FAILED');
    assert.match(result.errorMessage, /bcd 0\.9\.0 was put in place and taken back: it had no session in 5 starts/);
  });
});
