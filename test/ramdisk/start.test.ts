/** `bcd ramdisk` in one process: discovery join, one boot's state, and the jump. */
import assert from 'node:assert/strict';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { parseDaemonConfig } from '../../daemon/config.ts';
import { folderDisks, folderMachine } from '../../daemon/ramdisk/disks/folder.ts';
import type { JumpDoer } from '../../daemon/ramdisk/jump/journaled-jump.ts';
import { startRamdisk } from '../../daemon/ramdisk/start.ts';
import { parseAssertRequest } from '../../daemon/site/boot/assert-request.ts';
import { neverCrash } from '../../daemon/state/crash-points.ts';
import { getIdentity } from '../../daemon/state/identity.ts';
import type { BootCmdline } from '../../domain/metal/cmdline.ts';
import { day, second } from '../../domain/time.ts';
import { encodePinsFile } from '../../pki/enroll/index.ts';
import { approverSetDigest, type QuorumFields } from '../../pki/trust/index.ts';
import { CommandOutcome } from '../../proto/index.ts';
import { grantJoin, joinRequestsOf, type Lie } from '../daemon/join-stage.ts';
import { createApprover, quorumOfApprovers } from '../harness/approvers.ts';
import { commandOf, createDeployment, joinBundleOf, sha256, type TestDeployment, trustMessage } from '../harness/deployment.ts';
import { eventually } from '../harness/eventually.ts';
import { type FakeGateway, type FakeSession, startFakeGateway } from '../harness/fake-gateway.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';

const trustWith = ({ rootA }: TestDeployment, quorum?: QuorumFields) => ({
  version: 3,
  roots: [rootA],
  ...(quorum === undefined ? {} : { quorum }),
});

describe('bcd ramdisk', () => {
  let deployment: TestDeployment;
  let gateway: FakeGateway;
  let site: Server;
  let asked: ReturnType<typeof parseAssertRequest>[];
  let refuse: number | null;
  let granted: Lie['granted'];
  let root: string;
  let disks: string;
  const running: { stop(): Promise<void> }[] = [];

  beforeEach(async () => {
    deployment = await createDeployment();
    [refuse, granted] = [null, {}];
    asked = [];
    gateway = await startFakeGateway({
      deployment,
      confirmsResults: false,
      onJoin: () => {
        const request = joinRequestsOf(gateway).at(-1);
        assert.ok(request);
        return grantJoin(deployment, request, { granted: { generation: 4n, ...granted } });
      },
    });
    site = createServer((request, response) => {
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        asked.push(parseAssertRequest(Buffer.concat(chunks)));
        if (refuse !== null)
          return void response
            .writeHead(refuse)
            .end(JSON.stringify({ code: 'PERMISSION_DENIED', message: 'the token is used', details: { reason: 'token-used' } }));
        response.end('an assertion');
      });
    });
    await new Promise<void>((resolve) => site.listen(0, '127.0.0.1', resolve));
    root = scratchFolder();
    disks = scratchFolder();
    writeFileSync(join(disks, 'machine.json'), JSON.stringify({ systemUuid: 'uuid-1', systemSerial: 'S-1' }));
    writeFileSync(join(disks, 'vda.img'), Buffer.alloc(1024 * 1024, 7));
    writeFileSync(join(disks, 'vda.json'), JSON.stringify({ serial: 'A', sizeBytes: 1024 * 1024 }));
  });
  afterEach(async () => {
    for (const one of running.splice(0)) await one.stop();
    await gateway.close();
    site.closeAllConnections();
    await new Promise((resolve) => site.close(resolve));
  });
  after(removeScratchFolders);

  const lineOf = (over: Partial<BootCmdline> = {}): BootCmdline => ({
    site: `http://127.0.0.1:${(site.address() as AddressInfo).port}`,
    entryId: 'entry-1',
    token: Buffer.alloc(32, 5).toString('base64url'),
    bootNonce: '09'.repeat(16),
    nodeId: 'node-7',
    runId: 'a1b2c3d4e5f6',
    gatewayUrl: gateway.url,
    pins: Buffer.from(encodePinsFile(joinBundleOf(deployment, gateway.url))).toString('base64url'),
    macAddress: '02:00:00:00:00:01',
    ...over,
  });
  async function start(over: Partial<BootCmdline> = {}, doer: JumpDoer = { load: async () => 'vmlinuz', go: async () => undefined }) {
    const daemon = await startRamdisk({
      line: lineOf(over),
      root,
      disks: folderDisks(disks),
      machine: () => folderMachine(disks),
      doer,
      config: parseDaemonConfig('config', '{}'),
      plugins: null,
      minOverlapMs: day,
      patienceMs: second,
      log: { debug: () => undefined, info: () => undefined, warn: () => undefined, error: () => undefined },
      crash: neverCrash,
      onFailed: (error) => assert.fail(String(error)),
    });
    running.push(daemon);
    return daemon;
  }
  const deliver = async (session: FakeSession, init: Parameters<typeof commandOf>[1]): Promise<void> => {
    const payload = { runId: 'a1b2c3d4e5f6', bootNonce: Buffer.alloc(16, 9), target: { serial: 'A' } };
    const command = await commandOf(deployment, { nodeId: 'node-7', generation: 4n, payload, ...init });
    session.send({ frame: { case: 'command', value: { ...command, epoch: BigInt(gateway.sessions.length) } } });
  };
  const confirm = (session: FakeSession, commandId: string): void =>
    session.send({ frame: { case: 'resultReceipt', value: { commandId } } });

  it('JOIN-018 joins as the ramdisk with what the site agent asserts for its very key', async () => {
    await start();
    const [request] = joinRequestsOf(gateway);
    assert.deepEqual(
      [request?.attestor, request?.role, Buffer.from(request?.evidence ?? []).toString()],
      ['discovery', 'ramdisk', 'an assertion'],
    );
    assert.deepEqual(asked, [
      {
        token: new Uint8Array(Buffer.alloc(32, 5)),
        csrSha256: sha256(request?.csr ?? new Uint8Array()).toString('hex'),
        macAddress: '02:00:00:00:00:01',
        systemUuid: 'uuid-1',
        systemSerial: 'S-1',
      },
    ]);
    const session = await gateway.nextSession();
    assert.equal(session.hello?.role, 'ramdisk');
    assert.deepEqual(session.hello?.capabilities, ['boot.kexec', 'deploy.image', 'diag.dcgm', 'diag.disks', 'disk.wipe']);
  });

  it('PIN-007 PIN-008 PIN-015 BAT-030 pinned by its line, it wipes nothing for a control plane that hands it no approvers, or its own', async () => {
    const [anna, ben, own] = [createApprover(), createApprover(), createApprover()];
    const quorum = quorumOfApprovers({ approvers: [anna, ben] });
    const pins = { ...joinBundleOf(deployment, gateway.url), approverSetSha256: approverSetDigest(quorum) };
    const line = { pins: Buffer.from(encodePinsFile(pins)).toString('base64url') };
    const theirs = quorumOfApprovers({ approvers: [own], approverThreshold: 1 });
    const before = readFileSync(join(disks, 'vda.img'));
    const answers = [undefined, theirs, quorum].map((set) => trustMessage(deployment, trustWith(deployment, set)));
    for (const [n, verdict] of [/^awaiting-pinned-set: /, /^awaiting-pinned-set: /, /^unbatched-limit: /].entries()) {
      granted = { trust: answers[n] as never };
      const daemon = await start({ ...line, bootNonce: `0${n + 1}`.repeat(16), entryId: `entry-${n}` });
      const session = await gateway.nextSession();
      await deliver(session, { id: `run/wipe.${n}`, kind: 'disk.wipe' });
      assert.match((await session.take('commandReject')).detail, verdict);
      await daemon.stop();
    }
    assert.deepEqual(readFileSync(join(disks, 'vda.img')), before);
  });

  it('says the site agent’s own words when it does not vouch for the machine', async () => {
    refuse = 403;
    await assert.rejects(start(), /^ControlError: the site agent does not vouch for this machine: the token is used$/);
    assert.equal(gateway.joins.length, 0);
  });

  it('M68 spends its token once: a process started again in the same boot goes on with its identity, another boot begins anew', async () => {
    const first = await start();
    const { identity } = await getIdentity(join(root, 'state'));
    await first.stop();
    await start();
    assert.equal(gateway.joins.length, 1);
    assert.deepEqual((await getIdentity(join(root, 'state'))).identity.chain, identity.chain);
    await running.at(-1)?.stop();
    await start({ bootNonce: '0a'.repeat(16), entryId: 'entry-2' });
    assert.equal(gateway.joins.length, 2);
    assert.notDeepEqual((await getIdentity(join(root, 'state'))).identity.chain, identity.chain);
  });

  it('M11 answers boot.kexec before it jumps, and jumps when the answer was confirmed', async () => {
    const jumps: unknown[] = [];
    await start({}, { load: async () => 'vmlinuz-6', go: async (wanted) => void jumps.push(wanted) });
    const session = await gateway.nextSession();
    await deliver(session, { id: 'run/kexec.1', kind: 'boot.kexec' });
    const result = await session.take('commandResult');
    assert.deepEqual([CommandOutcome[result.outcome], jumps], ['SUCCEEDED', []]);
    confirm(session, 'run/kexec.1');
    await eventually('the jump', () => jumps.length === 1);
    assert.deepEqual(jumps, [{ diskPath: join(disks, 'vda.img'), partition: 0, kernelArgs: '', reboot: false }]);
  });

  it('M11 jumps once after a kill between the answer and the jump, and nowhere when the answer was never confirmed', async () => {
    const jumps: unknown[] = [];
    const doer: JumpDoer = { load: async () => 'vmlinuz-6', go: async (wanted) => void jumps.push(wanted) };
    const first = await start({}, doer);
    const session = await gateway.nextSession();
    await deliver(session, { id: 'run/kexec.1', kind: 'boot.kexec' });
    await session.take('commandResult');
    await first.stop();
    await start({}, doer);
    const second = await gateway.nextSession();
    assert.equal((await second.take('commandResult')).commandId, 'run/kexec.1');
    assert.deepEqual(jumps, []);
    confirm(second, 'run/kexec.1');
    await eventually('the jump', () => jumps.length === 1);
    assert.ok(readFileSync(join(root, 'state', 'jump.json'), 'utf8').includes('run/kexec.1'));
  });

  it('M12 a kernel that refuses to load fails the command; a jump that does not happen leaves the ramdisk where it is', async () => {
    let refuses = true;
    await start(
      {},
      {
        load: async () => (refuses ? Promise.reject(new Error('kexec_load: Operation not permitted')) : 'vmlinuz-6'),
        go: async () => Promise.reject(new Error('it came back')),
      },
    );
    const session = await gateway.nextSession();
    await deliver(session, { id: 'run/kexec.1', kind: 'boot.kexec' });
    const failed = await session.take('commandResult');
    assert.deepEqual([CommandOutcome[failed.outcome], failed.errorMessage], ['FAILED', 'kexec_load: Operation not permitted']);
    confirm(session, 'run/kexec.1');
    assert.equal(existsSync(join(root, 'state', 'jump.json')), false, 'an answer that is no success jumps nowhere');
    refuses = false;
    await deliver(session, { id: 'run/kexec.2', kind: 'boot.kexec', seq: 2n });
    await session.take('commandResult');
    confirm(session, 'run/kexec.2');
    await eventually('the note is gone', () => !existsSync(join(root, 'state', 'jump.json')));
    await deliver(session, { id: 'run/diag.1', kind: 'diag.disks', seq: 3n });
    assert.equal(CommandOutcome[(await session.take('commandResult')).outcome], 'SUCCEEDED');
  });
});
