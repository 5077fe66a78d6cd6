import assert from 'node:assert/strict';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { runBcd } from '../../daemon/cli/program.ts';
import { type DaemonOptions, type RunningDaemon, startDaemon } from '../../daemon/run.ts';
import { neverCrash } from '../../daemon/state/crash-points.ts';
import { getIdentity, saveIdentity } from '../../daemon/state/identity.ts';
import { lockFolder } from '../../daemon/state/lock.ts';
import { findStatus } from '../../daemon/state/status-file.ts';
import { ControlError } from '../../domain/errors.ts';
import { day, hour, minute, second } from '../../domain/time.ts';
import { desiredStateFromStored, storedDesiredState } from '../../pki/envelope/index.ts';
import { openSecretRequest, sealSecretResponse } from '../../pki/secrets/index.ts';
import { parseCertificate } from '../../pki/x509/index.ts';
import { CommandRejectReason, NodeSpecSchema, SecretRequestSchema, SecretResponseSchema, SectionState } from '../../proto/index.ts';
import { commandOf, createDeployment, joinedNode, type TestDeployment, workerUnder } from '../harness/deployment.ts';
import { eventually } from '../harness/eventually.ts';
import { type FakeGateway, type FakeGatewayOptions, startFakeGateway } from '../harness/fake-gateway.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { startBcd } from './bcd-process.ts';

const silent = { debug: () => undefined, info: () => undefined, warn: () => undefined, error: () => undefined };

describe('bcd run', () => {
  let deployment: TestDeployment;
  const running: { stop(): Promise<unknown> }[] = [];

  before(async () => {
    deployment = await createDeployment();
  });
  afterEach(async () => {
    for (const one of running.splice(0).toReversed()) await one.stop();
  });
  after(removeScratchFolders);

  const gatewayWith = async (options: Partial<FakeGatewayOptions> = {}): Promise<FakeGateway> => {
    const gateway = await startFakeGateway({ deployment, ...options });
    running.push({ stop: () => gateway.close() });
    return gateway;
  };

  const joined = async (gateway: { url: string }, over: Partial<Parameters<typeof joinedNode>[1]> = {}): Promise<string> => {
    const dataDir = scratchFolder();
    await saveIdentity(dataDir, await joinedNode(deployment, { gatewayUrl: gateway.url, ...over }));
    return dataDir;
  };

  const start = async (dataDir: string, over: Partial<DaemonOptions> = {}): Promise<RunningDaemon> => {
    const daemon = await startDaemon({
      dataDir,
      config: { restartableUnits: [], logFiles: {} },
      simulateReboot: true,
      minOverlapMs: day,
      log: silent,
      crash: neverCrash,
      random: () => 0,
      onFailed: (error) => assert.fail(String(error)),
      ...over,
    });
    running.push(daemon);
    return daemon;
  };

  const failsWith =
    (code: string, message: RegExp) =>
    (error: unknown): boolean =>
      error instanceof ControlError && error.code === code && message.test(error.message);

  async function bcd(...args: string[]): Promise<{ code: number; out: string }> {
    let out = '';
    const io = {
      out: (text: string) => void (out += `${text}\n`),
      err: () => undefined,
      env: {},
      now: Date.now,
      readStdin: async () => '',
    };
    return { code: await runBcd(args, io), out };
  }

  describe('starting', () => {
    it('refuses a machine that has not joined, a folder in use and a journal that does not read back', async () => {
      await assert.rejects(start(scratchFolder()), failsWith('NOT_FOUND', /this machine has not joined/));
      const gateway = await gatewayWith();
      const dataDir = await joined(gateway);
      await start(dataDir);
      await assert.rejects(start(dataDir), failsWith('CONFLICT', /in use by another bcd/));
      const damaged = await joined(gateway);
      await (await start(damaged)).stop();
      const [segment = ''] = await readdir(join(damaged, 'journal'));
      await writeFile(join(damaged, 'journal', segment), 'not a journal');
      await assert.rejects(start(damaged), failsWith('DATA_CORRUPT', /does not begin like a journal segment/));
      await (await lockFolder(damaged)).release();
    });

    it('goes on where it was: epoch, trust and journal over a restart', async () => {
      const gateway = await gatewayWith({ confirmsResults: false });
      const dataDir = await joined(gateway, { trust: { version: 4, roots: [deployment.rootA] } });
      const first = await start(dataDir);
      const session = await gateway.nextSession();
      session.send({ frame: { case: 'command', value: await commandOf(deployment, { id: 'c-1', seq: 12n }) } });
      const result = await session.take('commandResult');
      await first.stop();
      await start(dataDir);
      const again = await gateway.nextSession();
      assert.deepEqual([again.hello?.epochSeen, again.hello?.trustVersion, again.hello?.journalSeq], [1n, 4n, 12n]);
      assert.deepEqual(await again.take('commandResult'), result);
    });
  });

  it('SEC-017 SEC-026 a desired state that names a secret has the daemon ask over the same session, write the file and report it', async () => {
    const gateway = await gatewayWith();
    const dataDir = await joined(gateway);
    const credentialsFolder = join(scratchFolder(), 'credentials');
    await start(dataDir, { config: { restartableUnits: [], logFiles: {}, credentialsFolder } });
    const session = await gateway.nextSession();
    const { trustDomain, workerA } = deployment;
    const spec = toBinary(NodeSpecSchema, create(NodeSpecSchema, { k8sJoin: { tokenRef: 'secret://k8s/token' } }));
    const stored = await storedDesiredState(workerA, { nodeId: 'node-1', generation: 1, trustDomain, spec });
    session.send({ frame: { case: 'desiredState', value: desiredStateFromStored(stored) } });

    const request = await session.take('secretRequest');
    assert.deepEqual([request.ref, request.workflowId, request.stepId], ['secret://k8s/token', 'host:k8s-join', 'tokenRef']);
    const { identity } = await getIdentity(dataDir);
    const { spki } = parseCertificate(identity.chain[0] as Uint8Array);
    const question = openSecretRequest(toBinary(SecretRequestSchema, request), { nodeKey: spki });
    const sealed = sealSecretResponse(question, {
      value: Buffer.from('abcdef.0123456789abcdef'),
      expiresAt: (Math.floor(Date.now() / second) + 60) * second,
    });
    session.send({ frame: { case: 'secretResponse', value: fromBinary(SecretResponseSchema, sealed) } });
    await eventually('reported', async () => {
      const { specGeneration, sections } = await session.take('status');

      return specGeneration === 1n && sections[0]?.state === SectionState.APPLIED;
    });
    assert.equal(await readFile(join(credentialsFolder, 'k8s-join.token'), 'utf8'), 'abcdef.0123456789abcdef');
  });

  describe('what no redial can cure', () => {
    const refusals: [string, string, string][] = [
      ['client-certificate-expired', '16', "the node's certificate [0-9a-f]+ expired at "],
      ['revoked', '7', 'the certificate was revoked\\. Join again'],
      ['generation-superseded', '9', 'superseded'],
    ];
    for (const [reason, status, words] of refusals) {
      it(`${reason === 'revoked' ? 'XC-050 ' : ''}B45 ${reason}: says how to join again, does not hammer the gateway, and takes up by itself after that`, async () => {
        let refusing = true;
        const message = reason === 'revoked' ? 'the certificate was revoked' : reason.replaceAll('-', ' ');
        const gateway = await gatewayWith({
          refuseSession: () =>
            refusing ? { 'grpc-status': status, 'x-bc-reason': reason, 'grpc-message': encodeURIComponent(message) } : null,
        });
        const dataDir = await joined(gateway);
        await start(dataDir);
        const report = await eventually('parked', async () => {
          const found = await findStatus(dataDir);
          return found?.state === 'parked' && found;
        });
        assert.match(report.stateDetail, new RegExp(words));
        assert.match(
          report.stateDetail,
          /better-compute tokens create --site site-1 --role node --node node-1 .*bcd join --replace --data-dir .* <join string>/,
        );
        assert.ok((report.nextDialAtMs ?? 0) > Date.now() + 9 * minute);
        assert.equal(gateway.attempts, 1);
        assert.match((await bcd('status', '--data-dir', dataDir)).out, /daemon: +parked \(pid \d+\): .*bcd join --replace/);
        const lock = await lockFolder(dataDir);
        refusing = false;
        await saveIdentity(dataDir, await joinedNode(deployment, { gatewayUrl: gateway.url, generation: 2n }));
        await lock.release();
        const session = await gateway.nextSession();
        session.send({ frame: { case: 'command', value: await commandOf(deployment, { generation: 2n }) } });
        await session.take('commandResult');
      });
    }

    it('XC-050 REV-013 FRM-011 a notice of revocation, and the refusal that follows', async () => {
      const gateway = await gatewayWith({
        refuseSession: (attempt) => (attempt === 1 ? null : { 'grpc-status': '7', 'x-bc-reason': 'revoked' }),
      });
      const dataDir = await joined(gateway);
      await start(dataDir, { random: () => 0.001 });
      const session = await gateway.nextSession();
      await session.take('status');
      session.send({ frame: { case: 'revocation', value: { serial: '01ab', reason: 'stolen' } } });
      session.end({ 'grpc-status': '7', 'x-bc-reason': 'revoked' });
      await eventually('parked', async () => (await findStatus(dataDir))?.state === 'parked');
      assert.equal(gateway.attempts, 1);
    });
  });

  describe('clocks', () => {
    for (const offMs of [-2 * hour, -90 * second, 90 * second, 2 * hour]) {
      it(`the deployment's clock is ${offMs / 1000} s off this machine's: commands live and expire by the deployment's`, async () => {
        const serverNow = (): number => Date.now() + offMs;
        const there = await createDeployment({ now: serverNow() });
        const gateway = await startFakeGateway({ deployment: there, now: serverNow });
        running.push({ stop: () => gateway.close() });
        const dataDir = scratchFolder();
        await saveIdentity(dataDir, await joinedNode(there, { gatewayUrl: gateway.url, now: serverNow() }));
        await start(dataDir);
        const session = await gateway.nextSession();
        const live = { issuedAtMs: serverNow(), expiresAtMs: serverNow() + minute };
        session.send({ frame: { case: 'command', value: await commandOf(there, { id: 'live', ...live }) } });
        assert.equal((await session.take('commandResult')).commandId, 'live');
        const late = { issuedAtMs: serverNow() - minute, expiresAtMs: serverNow() - 10 * second };
        session.send({ frame: { case: 'command', value: await commandOf(there, { id: 'late', ...late }) } });
        assert.equal((await session.take('commandReject')).reason, CommandRejectReason.EXPIRED);
      });
    }

    it('a gateway that turns the time back does not make an expired command live', async () => {
      const there = await createDeployment({ now: Date.now() - 2 * day });
      const worker = await workerUnder(there.rootA, Date.now() - 12 * hour);
      const before = Date.now() - 11 * hour;
      const gateway = await startFakeGateway({ deployment: there, now: () => before });
      running.push({ stop: () => gateway.close() });
      const dataDir = scratchFolder();
      await saveIdentity(dataDir, await joinedNode(there, { gatewayUrl: gateway.url }));
      await start(dataDir);
      const session = await gateway.nextSession();
      session.send({
        frame: { case: 'command', value: await commandOf(there, { worker, issuedAtMs: before - hour, expiresAtMs: before + hour }) },
      });
      assert.equal((await session.take('commandReject')).reason, CommandRejectReason.EXPIRED);
    });
  });

  describe('bcd status', () => {
    it('shows node, daemon, gateway, trust, certificate, last command and last refusal; and that it does not run', async () => {
      const gateway = await gatewayWith();
      const dataDir = await joined(gateway);
      assert.match((await bcd('status', '--data-dir', dataDir)).out, /daemon: +has not run yet: bcd run/);
      const daemon = await start(dataDir);
      const session = await gateway.nextSession();
      session.send({ frame: { case: 'command', value: await commandOf(deployment, { id: 'c-1' }) } });
      await session.take('commandResult');
      session.send({ frame: { case: 'command', value: await commandOf(deployment, { worker: null }) } });
      await session.take('commandReject');
      await eventually('written', async () => (await findStatus(dataDir))?.lastRefusal !== null);
      const { out } = await bcd('status', '--data-dir', dataDir);
      assert.match(out, /^node: +node-1 \(node of site site-1, generation 1\) in test\.example$/m);
      assert.match(out, /^daemon: +connected \(pid \d+\): session with fake-1$/m);
      assert.match(out, new RegExp(`^gateway: +${gateway.url}, fake-1, epoch 1$`, 'm'));
      assert.match(out, new RegExp(`^trust: +version 1, command roots ${deployment.rootA.id.slice(0, 12)}$`, 'm'));
      assert.match(out, /^certificate: +[0-9a-f]+, until .*Z, renews at .*Z$/m);
      assert.match(out, /^last command: +inventory\.refresh c-1 finished \d+ s ago$/m);
      assert.match(out, /^last refusal: +command-unsigned: the command is not signed \(\d+ s ago\)$/m);
      const json = JSON.parse((await bcd('status', '--data-dir', dataDir, '--json')).out);
      assert.deepEqual(
        [json.nodeId, json.isRunning, json.daemon.state, json.commandRoots],
        ['node-1', true, 'connected', [deployment.rootA.id]],
      );
      await daemon.stop();
      assert.equal((await findStatus(dataDir))?.state, 'stopped');
    });
  });

  describe('as a process', function () {
    this.timeout(60_000);

    it('announces that it is ready, serves its health when asked to, and ends cleanly on SIGTERM', async () => {
      const gateway = await gatewayWith();
      const dataDir = await joined(gateway);
      const process = startBcd(['run', '--data-dir', dataDir, '--metrics-port', '0'], { env: { BETTER_COMPUTE_READY: 'json' } });
      running.push({ stop: () => process.stop('SIGKILL') });
      await gateway.nextSession();
      const line = await eventually('the ready line', () => process.output().includes('\n') && process.output());
      const ready = JSON.parse(line) as { process: string; addresses: { metrics: string } };
      assert.equal(ready.process, 'bcd');
      const readiness = await eventually('ready', async () => {
        const response = await fetch(`http://${ready.addresses.metrics}/readyz`);
        return response.status === 200 && response;
      });
      assert.equal(((await readiness.json()) as { status: string }).status, 'ready');
      const end = await process.stop();
      assert.equal(end.code, 0, end.stderr);
      assert.equal((await findStatus(dataDir))?.state, 'stopped');
      for (const line of end.stderr.split('\n').filter((text) => text.includes('command'))) assert.ok(!line.includes('PRIVATE'));
    });

    it('does not outlive its parent, and refuses what it cannot run with by two lines and an exit code', async () => {
      const gateway = await gatewayWith();
      const dataDir = await joined(gateway);
      const orphan = startBcd(['run', '--data-dir', dataDir]);
      await gateway.nextSession();
      orphan.child.stdin?.end();
      assert.equal((await orphan.ended).code, 0);
      const lonely = await startBcd(['run', '--data-dir', scratchFolder()]).ended;
      assert.equal(lonely.code, 5);
      assert.match(lonely.stderr, /^error: no identity in .*: this machine has not joined$/m);
      const misspelt = await startBcd(['run', '--data-dir', dataDir], { env: { BETTER_COMPUTE_LOG_LEVL: 'debug' } }).ended;
      assert.equal(misspelt.code, 3);
      assert.match(misspelt.stderr, /BETTER_COMPUTE_LOG_LEVL is not a name of this system \(did you mean BETTER_COMPUTE_LOG_LEVEL\?\)/);
    });
  });
});
