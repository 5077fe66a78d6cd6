/** `better-compute start` and the demonstration, with real engines and real daemons. The slowest tests there are: they come last. */
import assert from 'node:assert/strict';
import { existsSync, readFileSync, statSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { parseEvidenceFile } from '../../pki/audit/evidence-file.ts';
import { readPublicBundle } from '../../pki/bundle/index.ts';
import { eventually } from '../harness/eventually.ts';
import { freePorts, nothingLeftOf, processesOf, runStart, type StartedProgram, stateFolder } from '../harness/run-start.ts';
import { removeScratchFolders } from '../harness/scratch.ts';

interface Summary {
  outcome: string;
  nodes: number;
  trustVersions: { before: number; after: number };
  roots: { before: string; after: string };
  secondsPerPhase: Record<string, number>;
  commands: { run: number; rejected: number; failed: number; failures: string[] };
  historyEvents: number;
  evidence: { file: string; documents: number; valid: boolean };
}

const linux = process.platform === 'linux';
const up = /^the next rotation, in any of these ways:/;

describe('better-compute start', function () {
  this.timeout(600_000);
  const programs: StartedProgram[] = [];
  const start = (args: readonly string[], env: NodeJS.ProcessEnv): StartedProgram => {
    const program = runStart(args, env);
    programs.push(program);
    return program;
  };
  const addressesOf = (home: string): Record<string, string> =>
    (JSON.parse(readFileSync(join(home, 'run', 'stack.json'), 'utf8')) as { addresses: Record<string, string> }).addresses;
  afterEach(async () => {
    for (const program of programs) program.kill('SIGKILL');
    await Promise.all(programs.splice(0).map((program) => program.ended));
  });
  after(removeScratchFolders);

  it('shows one rotation, is killed in the middle of it, leaves nothing behind, and goes on with it at the next start', async function () {
    if (!linux) this.skip();
    const home = stateFolder();
    const env = { ...freePorts, BETTER_COMPUTE_HOME: home };
    const first = start(['--demonstration', '--nodes', '3'], env);
    assert.match(await first.untilSaid(/daemons are connected/), /3 daemons are connected \(3 joined by token\)/);
    // Killed while one daemon is stopped, which alone could not see that its parent is gone.
    assert.match(
      await first.untilSaid(/waiting-fleet: /),
      /waiting-fleet: \d of 3 connected node\(s\) have not applied it \(.*node-3 at 1.*\)/,
    );
    assert.ok(processesOf(home).length >= 10, 'the stack and its daemons run');
    first.kill('SIGKILL');
    await first.ended;
    await nothingLeftOf(home);

    const second = start(['--demonstration', '--once', '--nodes', '3'], env);
    assert.match(await second.untilSaid(/daemons are connected/), /3 daemons are connected \(0 joined by token, 3 found again\)/);
    await second.untilSaid(/a rotation is under way already: going on with it/);
    const { code, out, err } = await second.ended;
    assert.equal(code, 0, err);
    const summary = JSON.parse(out.trimEnd().split('\n').at(-1) ?? '') as Summary;
    assert.equal(summary.outcome, 'dropped');
    assert.deepEqual([summary.commands.rejected, summary.commands.failed, summary.commands.failures], [0, 0, []]);
    assert.ok(summary.commands.run >= 3, String(summary.commands.run));
    assert.notEqual(summary.roots.before, summary.roots.after);
    assert.ok(summary.historyEvents <= 120, String(summary.historyEvents));
    assert.deepEqual(Object.keys(summary.secondsPerPhase).includes('waiting-drop'), true);
    assert.equal(summary.evidence.valid, true);
    assert.equal(parseEvidenceFile(readFileSync(summary.evidence.file, 'utf8')).documents.length, summary.evidence.documents);
    const bundle = readPublicBundle(readFileSync(join(home, 'pki.json'), 'utf8'));
    assert.equal(bundle.commandRoots.signing, summary.roots.after);
    await nothingLeftOf(home);
  });

  it('runs two stacks side by side, each with its own state, and ends both cleanly on Ctrl-C', async function () {
    if (!linux) this.skip();
    const homes = [stateFolder(), stateFolder()];
    // The usual ports: the second stack, and any that a person runs here, makes way by itself.
    const stacks = homes.map((home) => start([], { BETTER_COMPUTE_HOME: home }));
    await Promise.all(stacks.map((stack) => stack.untilSaid(up)));
    const [one = {}, two = {}] = homes.map(addressesOf);
    for (const name of ['api', 'gateway', 'temporal', 'temporalUi', 'database']) assert.notEqual(one[name], two[name], name);
    for (const [i, { api, temporalUi, apiMetrics, gatewayMetrics, controlMetrics, signingMetrics }] of [one, two].entries()) {
      const authorization = `Bearer ${readFileSync(join(homes[i] ?? '', 'operator.token'), 'utf8').trim()}`;
      assert.equal((await fetch(`${api}/v1/trust`, { headers: { authorization } })).status, 200);
      assert.equal((await fetch(`${temporalUi}`)).status, 200);
      for (const metrics of [apiMetrics, gatewayMetrics, controlMetrics, signingMetrics]) {
        assert.equal((await fetch(`http://${metrics}/readyz`)).status, 200, metrics);
        assert.match(await (await fetch(`http://${metrics}/metrics`)).text(), /process_cpu_seconds_total/);
      }
    }
    await assertClosed(homes[0] ?? '');
    await assertRefusesASecond(homes[0] ?? '', stacks[0]?.pid ?? 0);
    await assertRestarts(homes[0] ?? '', stacks[0]);
    for (const stack of stacks) stack.kill('SIGINT');
    for (const { code, err } of await Promise.all(stacks.map((stack) => stack.ended))) {
      assert.equal(code, 0, err);
      assert.match(err, /ending …\nended; the state stays in the state folder, and the next start goes on from it\n$/);
    }
    for (const home of homes) {
      await nothingLeftOf(home);
      assert.equal(existsSync(join(home, 'run', 'stack.json')), false);
      assert.equal(existsSync(join(home, 'stack.lock')), false);
    }
  });

  /** What opens something is closed to others, and no process knows more than its row says. */
  async function assertClosed(home: string): Promise<void> {
    for (const file of [
      'secret',
      'pki.json',
      'operator.token',
      'postgres.json',
      'run/stack.json',
      'tls/gateway.key',
      'tls/internal-api.key',
    ]) {
      assert.equal(statSync(join(home, file)).mode & 0o077, 0, file);
    }
    const secret = readFileSync(join(home, 'secret'), 'utf8').trim();
    // Not esbuild: tsx starts it where the sources run, with the environment of its program.
    const knows = processesOf(home)
      .filter(({ command }) => !command.includes('esbuild'))
      .filter(({ pid }) => readFileSync(`/proc/${pid}/environ`, 'utf8').includes(secret));
    assert.deepEqual(
      new Set(knows.map(({ command }) => /(api\/main|workers\/signing)/.exec(command)?.[1])),
      new Set(['api/main', 'workers/signing']),
    );
    for (const log of ['api', 'gateway', 'worker-control', 'worker-signing']) {
      const text = readFileSync(join(home, 'logs', `${log}.log`), 'utf8');
      assert.ok(!text.includes(secret), log);
      assert.ok(!text.includes(readFileSync(join(home, 'operator.token'), 'utf8').trim()), log);
    }
  }

  async function assertRefusesASecond(home: string, pid: number): Promise<void> {
    const { code, err } = await start([], { BETTER_COMPUTE_HOME: home }).ended;
    assert.equal(code, 4);
    assert.ok(err.includes(`error: a stack of ${home} is running already (pid ${pid})\n`), err);
    assert.match(err, /hint: end it with Ctrl-C or kill \d+, or set BETTER_COMPUTE_HOME to another folder\n$/);
  }

  /** A process that dies by itself is back without anybody's help. */
  async function assertRestarts(home: string, stack: StartedProgram | undefined): Promise<void> {
    const gateway = processesOf(home).find(({ command }) => command.includes('gateway/main'));
    assert.ok(gateway !== undefined);
    process.kill(gateway.pid, 'SIGKILL');
    await stack?.untilSaid(/^gateway ended by itself \(SIGKILL\); starting it again/);
    await stack?.untilSaid(/^gateway is back/);
    const { gatewayMetrics } = addressesOf(home);
    await eventually('a ready gateway', async () => (await fetch(`http://${gatewayMetrics}/readyz`).catch(() => null))?.status === 200);
  }

  it('names who asked for a port that is taken, and leaves nothing running', async () => {
    const holder = createServer().listen(0, '127.0.0.1');
    const port = await eventually('a port', () => (holder.address() as { port: number } | null)?.port);
    const home = stateFolder();
    const { code, err } = await start([], { ...freePorts, BETTER_COMPUTE_HOME: home, BETTER_COMPUTE_API_PORT: String(port) }).ended;
    await new Promise((resolve) => holder.close(resolve));
    assert.equal(code, 3);
    assert.match(
      err,
      new RegExp(`^error: port 127\\.0\\.0\\.1:${port} is taken; the operator API asked for it \\(set by BETTER_COMPUTE_API_PORT\\)$`, 'm'),
    );
    if (linux) assert.deepEqual(processesOf(home), []);
  });

  it('refuses what it cannot do, in two lines', async () => {
    const refusals: [string[], NodeJS.ProcessEnv, number, RegExp][] = [
      [['--once'], {}, 2, /^error: --once says when the demonstration ends: it needs --demonstration$/m],
      [['--demonstration', '--nodes', '51'], {}, 2, /^error: --nodes 51 is more than 50: each is a process of its own$/m],
      [[], { BETTER_COMPUTE_API_PORT: 'many' }, 3, /^error: BETTER_COMPUTE_API_PORT "many" must be a port number from 0 to 65535$/m],
    ];
    for (const [args, env, code, line] of refusals) {
      const ended = await start(args, { BETTER_COMPUTE_HOME: stateFolder(), ...env }).ended;
      assert.equal(ended.code, code, ended.err);
      assert.match(ended.err, line);
    }
  });
});
