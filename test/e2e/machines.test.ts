/**
 * A machine from its controller to a node and out again, on everything real but the metal: a stack as a person starts it, a `bcd site`
 * process, ramdisks and systems as processes. On the way every process that carries a run is killed while it is needed.
 */
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { ProfileStep } from '../../domain/metal/profile-steps.ts';
import type { RunKind } from '../../domain/metal/run-ends.ts';
import { workflowIds } from '../../temporal.config.ts';
import type { RunResult, RunStatus } from '../../workflows/shared/machine-messages.ts';
import { startBcd } from '../daemon/bcd-process.ts';
import { invokeStep, requestStep } from '../domain/metal/profiles.ts';
import { eventually } from '../harness/eventually.ts';
import { type LiveSite, startLiveSite } from '../harness/live-site.ts';
import { type LiveStack, startLiveStack } from '../harness/live-stack.ts';
import { writePlugin } from '../harness/plugins.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';

const times = { overlapMs: 10_000, marginMs: 1_000, workerLifetimeMs: 45_000 };
const words = { actor: 'ann', reason: 'a test' };
const patienceMs = 180_000;

describe('machines on the whole stack', function () {
  this.timeout(400_000);
  let stack: LiveStack;
  let site: LiveSite;
  let plugins: string;
  let server: Server;
  const requests: string[] = [];

  before(async function () {
    if (process.platform !== 'linux') this.skip();
    stack = await startLiveStack(times);
    plugins = join(scratchFolder(), 'plugins');
    mkdirSync(plugins);
    // Ready at the second look.
    server = createServer((request, response) => {
      requests.push(`${request.method} ${request.url}`);
      response.writeHead(requests.length < 2 ? 503 : 200).end();
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const proxyAllow = [`http://127.0.0.1:${(server.address() as AddressInfo).port}/`];
    site = await startLiveSite(stack, { machines: 1, rootOverlapMs: times.overlapMs, plugins, proxyAllow });
  });
  after(async () => {
    await site?.stop();
    await stack?.stop();
    server?.close();
    removeScratchFolders();
  });

  const handleOf = (machine: string, kind: RunKind) =>
    stack.client.workflow.getHandle<() => Promise<RunResult>>(workflowIds.machineRun(machine, kind));
  /** A machine of them is in the phase, or past it. */
  const untilPhase = (kind: RunKind, phase: RunStatus['phase']): Promise<unknown> =>
    eventually(
      `${kind} at ${phase}`,
      async () => {
        const all = await Promise.all(
          site.machines.map((name) =>
            handleOf(name, kind)
              .query<RunStatus>('status')
              .catch(() => undefined),
          ),
        );
        return all.some((status) => status?.phase === phase || status?.end != null);
      },
      patienceMs,
    );
  const begin = (kind: Exclude<RunKind, 'provision'>): Promise<unknown> =>
    Promise.all(site.machines.map((name) => stack.machinesApi.begin(name, kind, words)));
  const ends = async (kind: RunKind): Promise<string[]> => {
    const results = await Promise.all(site.machines.map((name) => handleOf(name, kind).result()));
    return results.map(({ end, failure, detail, reboots }) => `${end} ${failure}${detail} ${reboots}`);
  };
  const allDone = ['done  0'];
  /** Ids of the commands of a machine's newest run, without what names the run. */
  const commandsOf = async (machine: string): Promise<string[]> => {
    const { runs } = await stack.machinesApi.get(machine);
    const { commands } = await stack.machinesApi.run(String(runs[0]?.id));
    return commands.map(({ id, state }) => `${id.slice(id.lastIndexOf('/') + 1)} ${state}`);
  };
  const statesOf = (): Promise<string[]> => Promise.all(site.machines.map(async (name) => (await stack.machinesApi.get(name)).state));

  /** A destructive call in the ramdisk, a request that waits for an answer, a harmless call of the system. */
  const ownSteps = (manifestSha256: string): readonly ProfileStep[] => [
    invokeStep({}, { manifestSha256, input: 'slot 1 of {machine}\n' }),
    requestStep(
      { name: 'ready' },
      { method: 'GET', body: '', url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/machines/{machine}` },
    ),
    invokeStep({ name: 'nic-is-flashed', after: 'provisioned-join' }, { manifestSha256, method: 'read', input: '', harmless: true }),
  ];

  it('bcd site says what it cannot run with, and runs with nothing of it', async () => {
    const bad = join(site.folder, 'bad.json');
    writeFileSync(bad, JSON.stringify({ site: { boot: { host: 'not a host', folder: 'relative', tftpPrt: 69 } } }));
    const refusals: readonly (readonly [args: readonly string[], says: RegExp])[] = [
      [['--data-dir', join(site.folder, 'nobody')], /bcd join/],
      [['--data-dir', site.folder, '--config', bad], /site\.boot\.host.*site\.boot\.folder.*absolute.*tftpPrt/s],
      [['--data-dir', site.folder, '--config', join(site.folder, 'none.json')], /none\.json/],
      [['--data-dir', site.folder, '--nodes', '3'], /unknown option '--nodes'/],
    ];
    const ended = await Promise.all(refusals.map(([args]) => startBcd(['site', ...args]).ended));
    for (const [at, [args, says]] of refusals.entries()) {
      const { code, stderr } = ended[at] ?? {};
      assert.ok(code !== 0 && code !== null, args.join(' '));
      assert.match(String(stderr), says);
      assert.match(String(stderr), /^hint: /m, args.join(' '));
    }
  });

  it('inspects machines through their controllers, also when the agent is started in the middle of it', async () => {
    await begin('inspect');
    await untilPhase('inspect', 'reading-bmc');
    await site.start();
    assert.deepEqual(await ends('inspect'), allDone);
    assert.deepEqual(await statesOf(), ['available']);
  });

  it('BAT-036 KIND-008 M38 M11 provisions them with the steps of their profile, with the worker and the site agent killed on the way: every command once, one boot each, evidence, a node', async () => {
    const flashed = join(scratchFolder(), 'flashed');
    const script = `case "$1" in flash) cat >> ${flashed};; read) cat ${flashed};; esac`;
    const { manifestSha256 } = writePlugin(plugins, { name: 'nic', script, methods: { flash: { destructive: true }, read: {} } });
    const profile = { ...site.profile, steps: ownSteps(manifestSha256) };
    for (const name of site.machines) await stack.machinesApi.provision(name, { ...words, profile });
    await untilPhase('provision', 'booting');
    await site.end('SIGKILL');
    await site.start();
    await untilPhase('provision', 'wiping');
    await stack.kill('control');
    assert.deepEqual(await ends('provision'), allDone);
    for (const name of site.machines) {
      const { state, runs } = await stack.machinesApi.get(name);
      assert.equal(state, 'provisioned');
      await eventually(`${name} connected`, async () => (await stack.machinesApi.get(name)).connected, patienceMs);
      const { documents } = await stack.machinesApi.evidence(String(runs[0]?.id));
      assert.deepEqual(documents.map(({ kind }) => kind).toSorted(), ['deploy', 'erase']);
      const commands = await commandsOf(name);
      assert.equal(readFileSync(flashed, 'utf8'), `slot 1 of ${name}\n`, 'the plugin of the ramdisk ran once');
      assert.deepEqual(
        requests,
        Array.from({ length: 2 }, () => `GET /machines/${name}`),
      );
      assert.ok(commands.includes('ask-node.1 done'), commands.join());
      for (const act of ['read-disks', 'invoke-ramdisk', 'wipe', 'deploy', 'start'])
        assert.equal(commands.filter((one) => one.startsWith(`${act}.`)).length, 1, commands.join());
      assert.deepEqual(site.power(name), ['On'], `${name} was turned on once`);
    }
  });

  it('M40 changes their controllers’ passwords, with the signing worker killed in the middle, and speaks to them with the new one', async () => {
    await begin('rotate-bmc');
    await stack.kill('signing');
    assert.deepEqual(await ends('rotate-bmc'), allDone);
    await begin('inspect');
    assert.deepEqual(await ends('inspect'), allDone);
    assert.deepEqual(await statesOf(), ['provisioned']);
  });

  it('M20 M28 REV-005 retires them, with the gateway killed while disks are erased: off, retired, and their nodes speak for nobody', async () => {
    await begin('retire');
    await untilPhase('retire', 'waiting-ramdisk');
    await stack.kill('gateway');
    assert.deepEqual(await ends('retire'), allDone);
    assert.deepEqual(await statesOf(), ['retired']);
    for (const name of site.machines) {
      assert.equal(site.power(name).at(-1), 'Off');
      const [node] = await stack.db.query<{ state: string }>({ text: 'select state from nodes where id = $1' }, [name]);
      assert.equal(node?.state, 'retired');
    }
  });

  it('bcd site ends by SIGTERM with 0, and says nothing of a failure', async () => {
    const { code, stderr } = await site.end('SIGTERM');
    assert.equal(code, 0);
    assert.doesNotMatch(stderr, /"level":"(error|fatal)"/);
  });
});
