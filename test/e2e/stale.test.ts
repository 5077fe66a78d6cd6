/**
 * What is older than the deployment: a process with yesterday's key bundle, a database from a backup, a daemon that slept through a
 * rotation. Each is noticed, says so and how it is repaired, and the repair works.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { copyFileSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { getIdentity, saveIdentity } from '../../daemon/state/identity.ts';
import { findStatus } from '../../daemon/state/status-file.ts';
import { createAuthorities } from '../../pki/authority/index.ts';
import { openBundle, readPublicBundle } from '../../pki/bundle/index.ts';
import { spkiOf } from '../../pki/x509/index.ts';
import { startBcd } from '../daemon/bcd-process.ts';
import { eventually } from '../harness/eventually.ts';
import { projectRoot } from '../harness/imports.ts';
import { type LiveStack, startLiveStack } from '../harness/live-stack.ts';
import { copyDatabase, type DatabaseCopy } from '../harness/restored-database.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';

const times = { overlapMs: 6_000, marginMs: 500, workerLifetimeMs: 20_000 };
/** For a hang, on a machine that does much else. */
const patienceMs = 120_000;

describe('what is older than the deployment', function () {
  this.timeout(420_000);
  let stack: LiveStack;
  let backup: DatabaseCopy;
  let oldBundle: string;
  const bundlePath = (): string => join(stack.home, 'pki.json');
  const rootNow = (): string => readPublicBundle(readFileSync(bundlePath(), 'utf8')).commandRoots.signing ?? '';

  before(async function () {
    if (process.platform !== 'linux') this.skip();
    stack = await startLiveStack(times);
    for (const name of ['node-1', 'node-2', 'node-3', 'node-4']) await stack.daemon(name).start();
    for (const name of ['node-3', 'node-4']) await stack.daemon(name).stop();
    oldBundle = join(scratchFolder(), 'pki.json');
    copyFileSync(bundlePath(), oldBundle);
    backup = await copyDatabase(stack.address('database'));
    await eventually(
      'a rotation',
      () => stack.rotation.start({ actor: 'test', reason: 'to be older than' }).catch(() => undefined),
      patienceMs,
    );
    const end = await eventually(
      'the end of the rotation',
      async () => {
        const run = await stack.rotation.find().catch(() => null);
        return run !== null && run.state !== 'running' && run;
      },
      patienceMs,
    );
    assert.equal(end.result?.outcome, 'dropped', end.failure ?? '');
  });
  after(async () => {
    await stack?.stop();
    removeScratchFolders();
  });

  describe('a daemon that was off during the whole rotation', () => {
    it('ROT-016 TRUST-002 takes the new root in its first session when its certificate is still good', async () => {
      const daemon = stack.daemon('node-4');
      assert.deepEqual((await getIdentity(daemon.folder)).identity.trust.version, 1n);
      await daemon.start();
      const status = await eventually('the new trust', async () => {
        const found = await findStatus(daemon.folder);
        return found?.trustVersion === '3' && found;
      });
      assert.deepEqual(status.commandRoots, [rootNow()]);
      await runsOn('node-4');
    });

    it('RENEW-001 with a certificate that has ended says how to join again; the runbook works as it is written', async () => {
      const daemon = stack.daemon('node-3');
      const { siteId } = (await getIdentity(daemon.folder)).identity;
      await letExpire(daemon.folder);
      const bcd = daemon.run();
      const parked = await eventually('the daemon says what to do', async () => {
        const status = await findStatus(daemon.folder);
        return status?.state === 'parked' && status;
      });
      assert.match(
        parked.stateDetail,
        /^the node's certificate [0-9a-f]+ expired at .*Z\. Join again: better-compute tokens create --site /,
      );
      const told = await startBcd(['status', '--data-dir', daemon.folder]).ended;
      assert.ok(`${told.stdout}${told.stderr}`.includes(parked.stateDetail), told.stdout + told.stderr);
      // docs/runbooks/a-machine-comes-back.md, the command as the daemon writes it.
      const [, command = ''] = /Join again: better-compute (tokens create .*?) on the control plane/.exec(parked.stateDetail) ?? [];
      assert.equal(command, `tokens create --site ${siteId} --role node --node node-3`);
      const token = await stack.betterCompute(...command.split(' '));
      assert.equal(token.code, 0, token.err);
      assert.match(parked.stateDetail, /bcd join --replace --data-dir /);
      const joined = await daemon.join(token.out, '--replace');
      assert.equal(joined.code, 0, joined.err);
      await daemon.untilConnected();
      assert.equal(bcd.child.exitCode, null, 'the daemon that was parked goes on by itself');
      assert.equal((await findStatus(daemon.folder))?.trustVersion, '3');
      await runsOn('node-3');
    });
  });

  describe('a key bundle from before the rotation', () => {
    it('C21 TRUST-014 TRUST-016 H-07 a replica that starts with it signs nothing, says why and changes no record', async () => {
      const recorded = await record();
      const stale = await startReplica('signing', { BETTER_COMPUTE_PKI: oldBundle });
      try {
        const { status, body } = await readiness(stale.metrics);
        assert.equal(status, 503, body);
        assert.match(body, /the key bundle at hand is generation 1, the deployment runs 4: restore the current one/);
        // The queue is shared: a command that meets the replica first waits for the other one.
        for (let turn = 0; turn < 4; turn++) await runsOn('node-1');
        assert.deepEqual(await signedUnderOther(), []);
        assert.deepEqual(await record(), recorded);
      } finally {
        await stale.stop();
      }
    });

    it('C21 TRUST-014 TRUST-015 TRUST-016 H-07 an api that starts with it publishes nothing, issues nothing and says why', async () => {
      const recorded = await record();
      const ports = { BETTER_COMPUTE_API_PORT: '0', BETTER_COMPUTE_INTERNAL_PORT: '0' };
      const stale = await startReplica('api', { BETTER_COMPUTE_PKI: oldBundle, ...ports });
      try {
        const { status, body } = await readiness(stale.metrics);
        assert.equal(status, 503, body);
        assert.match(body, /the key bundle at hand is generation 1, the deployment runs 4: restore the current one/);
        assert.match(stale.log(), /this process issues nothing until this is repaired/);
        assert.deepEqual(await record(), recorded);
      } finally {
        await stale.stop();
      }
    });

    it('C22 H-07 the deployment restarted with it holds still, doctor names it, and the newest bundle repairs it without a restart', async () => {
      const newest = join(scratchFolder(), 'newest.json');
      copyFileSync(bundlePath(), newest);
      const recorded = await record();
      copyFileSync(oldBundle, bundlePath());
      await stack.kill('signing');
      await stack.kill('api');
      const doctor = await stack.betterCompute('doctor');
      assert.notEqual(doctor.code, 0, doctor.out);
      assert.match(doctor.out + doctor.err, /the key bundle here is generation 1, the deployment has run 4/);
      assert.match(doctor.out + doctor.err, /restore the newest bundle: docs\/runbooks\/after-restoring-a-backup\.md/);
      const waiting = stack.betterCompute('commands', 'run', 'inventory.refresh', 'node-1', '--reason', 'with an old bundle');
      await eventually(
        'the reason stands where operators look',
        async () =>
          (await lastFailures()).some((message) => message.includes('generation 1, the deployment runs 4: restore the current one')),
        patienceMs,
      );
      assert.deepEqual(await record(), recorded);
      copyFileSync(newest, bundlePath());
      const ran = await waiting;
      assert.equal(ran.code, 0, ran.out + ran.err);
      await runsOn('node-2');
    });
  });

  describe('a database from before the rotation', () => {
    it('C20 H-07 nothing is signed under a root that is not published; doctor says how to repair; the runbook repairs it', async () => {
      await backup.restore();
      await stack.kill('signing');
      const doctor = await eventually(
        'doctor names it',
        async () => {
          const answer = await stack.betterCompute('doctor');
          return /it was restored from an older copy/.test(answer.out + answer.err) && answer;
        },
        patienceMs,
      );
      assert.match(doctor.out + doctor.err, /publish above 3 with BETTER_COMPUTE_TRUST_VERSION/);
      const waiting = stack.betterCompute('commands', 'run', 'inventory.refresh', 'node-2', '--reason', 'before the repair');
      await eventually(
        'the reason stands where operators look',
        async () => (await lastFailures()).some((message) => message.includes('it was restored from an older copy')),
        patienceMs,
      );
      assert.deepEqual(await signedUnderOther(), []);
      // docs/runbooks/after-restoring-a-backup.md
      await stack.restart({ BETTER_COMPUTE_TRUST_VERSION: '4' });
      await eventually('publication', async () => (await stack.api.getTrust().catch(() => null))?.version === 4, patienceMs);
      assert.notEqual((await waiting).code, undefined);
      await runsOn('node-1');
      await runsOn('node-2');
      assert.deepEqual((await findStatus(stack.daemon('node-1').folder))?.trustVersion, '4');
      assert.deepEqual(await signedUnderOther(), []);
    });
  });

  /** A command lives as long as the key that signed it, which here is shorter than the longest pause between two dials. */
  async function runsOn(node: string): Promise<void> {
    await eventually(`${node} dials again`, async () => (await findStatus(stack.daemon(node).folder))?.state === 'connected', patienceMs);
    const { code, out, err } = await stack.betterCompute('commands', 'run', 'inventory.refresh', node, '--reason', 'test');
    assert.equal(code, 0, out + err);
  }

  /** Of activities that try again: what the Temporal UI shows, and stuck. */
  async function lastFailures(): Promise<string[]> {
    const messages: string[] = [];
    for await (const { workflowId } of stack.client.workflow.list({ query: `ExecutionStatus = 'Running'` })) {
      const { raw } = await stack.client.workflow.getHandle(workflowId).describe();
      for (const { lastFailure } of raw.pendingActivities ?? []) messages.push(lastFailure?.message ?? '');
    }
    return messages;
  }

  /** The published trust, its history and the worker keys there are: what a stale process must leave alone. */
  const record = (): Promise<unknown[]> =>
    stack.db.query({
      text: `select version, digest, published_by, (select count(*)::int from trust_bundle_history) as history,
               (select generation::int from bundle_freshness) as generation
             from trust_bundle_state`,
    });

  /** Worker keys made since the publication under a root that is not published. */
  const signedUnderOther = (): Promise<unknown[]> =>
    stack.db.query({
      text: `select w.root_id from worker_certs w, trust_bundle_state t where w.issued_at > t.published_at and not (w.root_id = any (t.roots))`,
    });

  /** A certificate of this node that ended: issued by the same authority, for its key. */
  async function letExpire(folder: string): Promise<void> {
    const { identity, key } = await getIdentity(folder);
    const bundle = openBundle(readFileSync(bundlePath(), 'utf8'), { secret: stack.secret() });
    const { trustDomain, siteId, nodeId } = identity;
    const issued = await createAuthorities(bundle).issueNode({
      spki: spkiOf(key),
      identity: { trustDomain, siteId, nodeId },
      role: 'node',
      now: Date.now(),
      lifetimeMs: 1_000,
    });
    await saveIdentity(folder, { key, identity: { ...identity, chain: issued.chain } });
    await eventually('its end', () => Date.now() > issued.certificate.notAfter, patienceMs);
  }

  interface Replica {
    readonly metrics: string;
    log(): string;
    stop(): Promise<void>;
  }

  /** One more process of a kind, with the environment of the one that runs and what is given instead. */
  async function startReplica(kind: 'api' | 'signing', env: NodeJS.ProcessEnv): Promise<Replica> {
    const entry = { api: 'api/main', signing: 'workers/signing' }[kind];
    const running = readFileSync(`/proc/${stack.pidOf(kind)}/environ`, 'utf8')
      .split('\0')
      .filter(Boolean);
    const inherited = Object.fromEntries(running.map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]));
    const child: ChildProcess = spawn(process.execPath, ['scripts/run.mjs', entry], {
      cwd: projectRoot,
      env: { ...inherited, BETTER_COMPUTE_METRICS_PORT: '0', ...env },
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    let out = '';
    let log = '';
    child.stdout?.on('data', (data: Buffer) => void (out += data.toString()));
    child.stderr?.on('data', (data: Buffer) => void (log += data.toString()));
    const ended = new Promise((resolve) => child.once('close', resolve));
    const ready = await eventually(
      `${entry} is ready`,
      () => {
        if (child.exitCode !== null) throw new Error(log);
        return out.includes('\n') && out;
      },
      patienceMs,
    );
    const { metrics } = (JSON.parse(ready.split('\n')[0] ?? '') as { addresses: { metrics: string } }).addresses;
    return {
      metrics,
      log: () => log,
      async stop() {
        child.kill('SIGTERM');
        await ended;
      },
    };
  }

  async function readiness(address: string): Promise<{ status: number; body: string }> {
    const response = await fetch(`http://${address}/readyz`);
    return { status: response.status, body: await response.text() };
  }
});
