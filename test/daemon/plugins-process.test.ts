import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fromBinary } from '@bufbuild/protobuf';
import { processesOf } from '../../daemon/plugins/leftovers.ts';
import { saveIdentity } from '../../daemon/state/identity.ts';
import { CommandOutcome, CommandRejectReason, driver } from '../../proto/index.ts';
import { createApprover, quorumOfApprovers } from '../harness/approvers.ts';
import { commandOf, createDeployment, joinedNode, type NodeInit, type TestDeployment } from '../harness/deployment.ts';
import { eventually } from '../harness/eventually.ts';
import { type FakeGateway, startFakeGateway } from '../harness/fake-gateway.ts';
import { writePlugin } from '../harness/plugins.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { type Bcd, startBcd } from './bcd-process.ts';

/** A real bcd with a real plugin beside it, over the real protocol. */
describe('driver.invoke on a real bcd', function () {
  this.timeout(120_000);
  let deployment: TestDeployment;
  const running: { stop(): Promise<unknown> }[] = [];

  before(async () => {
    deployment = await createDeployment();
  });
  afterEach(async () => {
    for (const one of running.splice(0).toReversed()) await one.stop();
  });
  after(removeScratchFolders);

  interface Machine {
    readonly gateway: FakeGateway;
    readonly dataDir: string;
    readonly plugins: string;
  }

  async function machine(node: Partial<NodeInit> = {}): Promise<Machine> {
    const gateway = await startFakeGateway({ deployment });
    running.push({ stop: () => gateway.close() });
    const dataDir = scratchFolder();
    const plugins = join(scratchFolder(), 'plugins');
    mkdirSync(plugins);
    await saveIdentity(dataDir, await joinedNode(deployment, { gatewayUrl: gateway.url, ...node }));
    writeFileSync(join(dataDir, 'config.json'), JSON.stringify({ pluginsFolder: plugins }), { mode: 0o600 });
    return { gateway, dataDir, plugins };
  }
  const run = ({ dataDir }: Machine): Bcd => {
    const bcd = startBcd(['run', '--data-dir', dataDir, '--simulate-reboot']);
    running.push({ stop: () => bcd.stop('SIGKILL') });
    return bcd;
  };
  const times = { issuedAtMs: Date.now(), expiresAtMs: Date.now() + 3_600_000 };
  const invoke = (payload: Record<string, unknown>, over: Record<string, unknown> = {}) =>
    commandOf(deployment, { id: 'c-plugin', kind: 'driver.invoke', payload, ...times, ...over });

  it('KIND-008 SKEW-001 announces it, runs the method of its plugin, and gives back what the plugin answered', async () => {
    const on = await machine();
    const { manifestSha256 } = writePlugin(on.plugins, { script: 'printf "%s: " "$1"; tr a-z A-Z' });
    run(on);
    const session = await on.gateway.nextSession();
    assert.ok(session.hello?.capabilities.includes('driver.invoke'));
    const payload = { plugin: 'psu', manifestSha256, method: 'read', input: Buffer.from('volts'), harmless: true };
    session.send({ frame: { case: 'command', value: await invoke(payload, { epoch: 1n }) } });
    const result = await session.take('commandResult');
    assert.equal(CommandOutcome[result.outcome], 'SUCCEEDED', result.errorMessage);
    assert.equal(result.payload?.typeUrl, 'type.googleapis.com/bettercompute.driver.v1.DriverInvokeResult');
    const { output } = fromBinary(driver.DriverInvokeResultSchema, result.payload?.value ?? new Uint8Array());
    assert.equal(Buffer.from(output).toString(), 'read: VOLTS');
  });

  it('KIND-008 SKEW-001 without a folder of plugins it does not announce it, and answers UNSUPPORTED', async () => {
    const on = await machine();
    writeFileSync(join(on.dataDir, 'config.json'), '{}', { mode: 0o600 });
    run(on);
    const session = await on.gateway.nextSession();
    assert.equal(session.hello?.capabilities.includes('driver.invoke'), false);
    const payload = { plugin: 'psu', manifestSha256: 'a'.repeat(64), method: 'read', harmless: true };
    session.send({ frame: { case: 'command', value: await invoke(payload, { epoch: 1n }) } });
    const result = await session.take('commandResult');
    assert.deepEqual([CommandOutcome[result.outcome], result.errorCode], ['FAILED', 'UNSUPPORTED']);
    assert.match(result.errorMessage, /this machine hosts no plugins/);
  });

  it('DMN-035 under a quorum a call that may destroy is refused without a batch before its plugin is looked at; a false claim of harmlessness runs nothing', async () => {
    const quorum = quorumOfApprovers({ approvers: [createApprover()], approverThreshold: 1, unbatchedDestructivePerHour: 5 });
    const on = await machine({ trust: { version: 1, roots: [deployment.rootA], quorum } });
    const mark = join(scratchFolder(), 'mark');
    const { manifestSha256 } = writePlugin(on.plugins, { script: `touch ${mark}`, methods: { flash: { destructive: true } } });
    run(on);
    const session = await on.gateway.nextSession();
    const payload = { plugin: 'psu', manifestSha256, method: 'flash' };
    session.send({ frame: { case: 'command', value: await invoke(payload, { id: 'c-bare', epoch: 1n }) } });
    const reject = await session.take('commandReject');
    assert.equal(CommandRejectReason[reject.reason], 'BATCH_UNAPPROVED');
    assert.match(reject.detail, /^unbound-write: driver\.invoke runs in a batch only/);
    session.send({ frame: { case: 'command', value: await invoke({ ...payload, harmless: true }, { id: 'c-lie', epoch: 1n, seq: 2n }) } });
    const result = await session.take('commandResult');
    assert.deepEqual([CommandOutcome[result.outcome], result.errorCode], ['FAILED', 'PERMISSION_DENIED'], result.errorMessage);
    assert.equal(existsSync(mark), false);
  });

  it('B54 killed while a plugin runs: interrupted, never repeated, and what of it ran on is ended', async () => {
    const on = await machine();
    const starts = join(scratchFolder(), 'starts');
    const { manifestSha256 } = writePlugin(on.plugins, { script: `echo start >> ${starts}; sleep 600` });
    const first = run(on);
    const payload = { plugin: 'psu', manifestSha256, method: 'read', harmless: true };
    const session = await on.gateway.nextSession();
    session.send({ frame: { case: 'command', value: await invoke(payload, { epoch: 1n }) } });
    await eventually('the plugin runs', () => existsSync(starts));
    await first.stop('SIGKILL');
    assert.ok((await processesOf('c-plugin', null)).length > 0, 'it outlived the daemon');
    run(on);
    const next = await on.gateway.nextSession();
    next.send({ frame: { case: 'command', value: await invoke(payload, { epoch: 2n }) } });
    const result = await next.take('commandResult');
    assert.equal(CommandOutcome[result.outcome], 'INTERRUPTED');
    assert.match(
      result.errorMessage,
      /read of plugin psu ran: how far it came is not known, and it is not repeated; \d process\(es\) of it ran on/,
    );
    assert.deepEqual(await processesOf('c-plugin', null), []);
    assert.equal(readFileSync(starts, 'utf8'), 'start\n');
  });

  it('bcd plugins shows the manifest that a command has to name, and what is wrong with a plugin', async () => {
    const on = await machine();
    const { manifestSha256, executable } = writePlugin(on.plugins, { script: 'cat', methods: { read: {}, flash: { destructive: true } } });
    const good = await startBcd(['plugins', '--data-dir', on.dataDir]).ended;
    assert.deepEqual(
      [good.code, good.stdout],
      [0, `psu 1.0.0: can be called\n  manifest ${manifestSha256}\n  harmless    read\n  destructive flash\n`],
    );
    writeFileSync(executable, '#!/bin/sh\n');
    assert.equal((await startBcd(['plugins', '--folder', on.plugins]).ended).code, 4);
    const bad = await startBcd(['plugins', '--folder', on.plugins, '--json']).ended;
    assert.match((JSON.parse(bad.stdout) as { plugins: { problem: string }[] }).plugins[0]?.problem ?? '', /its manifest names/);
  });
});
