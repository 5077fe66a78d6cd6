import assert from 'node:assert/strict';
import { chmod, readFile, writeFile } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import type { CrashPoint } from '../../daemon/state/crash-points.ts';
import { saveIdentity } from '../../daemon/state/identity.ts';
import { CommandOutcome, type CommandResult } from '../../proto/index.ts';
import { commandOf, createDeployment, joinedNode, type TestDeployment } from '../harness/deployment.ts';
import { type FakeGateway, startFakeGateway } from '../harness/fake-gateway.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { type Bcd, startBcd } from './bcd-process.ts';

/** B54: a real bcd, killed by SIGKILL between every two steps of a command, started again, and asked what became of it. */
describe('a daemon that is killed in the middle of a command', function () {
  this.timeout(120_000);
  let deployment: TestDeployment;
  const running: { stop(): Promise<unknown> }[] = [];

  before(async () => {
    deployment = await createDeployment();
  });
  after(async () => {
    for (const one of running.splice(0).toReversed()) await one.stop();
    removeScratchFolders();
  });

  interface Machine {
    readonly gateway: FakeGateway;
    readonly dataDir: string;
    readonly env: NodeJS.ProcessEnv;
    effects(): Promise<number>;
  }

  /** A machine whose systemctl counts the restarts it was asked for. */
  async function machine(): Promise<Machine> {
    const gateway = await startFakeGateway({ deployment });
    running.push({ stop: () => gateway.close() });
    const dataDir = scratchFolder();
    const programs = scratchFolder();
    const effects = join(programs, 'effects');
    await writeFile(join(programs, 'systemctl'), `#!/bin/sh\ncase "$1" in restart) echo "$@" >> ${effects};; show) echo active;; esac\n`);
    await chmod(join(programs, 'systemctl'), 0o755);
    await saveIdentity(dataDir, await joinedNode(deployment, { gatewayUrl: gateway.url }));
    await writeFile(join(dataDir, 'config.json'), '{"restartableUnits":["app.service"]}', { mode: 0o600 });
    const count = async (): Promise<number> => (await readFile(effects, 'utf8').catch(() => '')).split('\n').length - 1;
    return {
      gateway,
      dataDir,
      env: { PATH: `${programs}${delimiter}${process.env['PATH']}` },
      effects: async () => Math.max(0, await count()),
    };
  }

  const run = ({ dataDir, env }: Machine, args: readonly string[] = [], more: NodeJS.ProcessEnv = {}): Bcd => {
    const bcd = startBcd(['run', '--data-dir', dataDir, ...args], { env: { ...env, ...more } });
    running.push({ stop: () => bcd.stop('SIGKILL') });
    return bcd;
  };

  /** Killed at the point, started again; the gateway delivers again what it has no result of, as it does for open rows. */
  async function killedAt(on: Machine, point: CrashPoint, command: Parameters<typeof commandOf>[1]): Promise<CommandResult> {
    const first = run(on, ['--simulate-reboot'], { BETTER_COMPUTE_TEST_ONLY: 'yes', BETTER_COMPUTE_TEST_ONLY_CRASH_AT: point });
    (await on.gateway.nextSession()).send({ frame: { case: 'command', value: await commandOf(deployment, { ...command, epoch: 1n }) } });
    const end = await first.ended;
    assert.equal(end.signal, 'SIGKILL', `the point ${point} was reached\n${end.stderr}`);
    const second = run(on, ['--simulate-reboot']);
    const session = await on.gateway.nextSession();
    session.send({ frame: { case: 'command', value: await commandOf(deployment, { ...command, epoch: 2n }) } });
    const result = await session.take('commandResult');
    await second.stop('SIGKILL');
    return result;
  }

  const O = CommandOutcome;
  const points: [point: CrashPoint, outcome: CommandOutcome, effects: number][] = [
    ['before-received', O.SUCCEEDED, 1],
    ['received-unsynced', O.SUCCEEDED, 1],
    ['after-received', O.SUCCEEDED, 1],
    ['after-ack', O.SUCCEEDED, 1],
    ['before-started', O.SUCCEEDED, 1],
    // From here on a restart may have happened: it is never done again, and the daemon says that it does not know.
    ['started-unsynced', O.INTERRUPTED, 0],
    ['after-started', O.INTERRUPTED, 0],
    ['effect-done', O.INTERRUPTED, 1],
    ['before-finished', O.INTERRUPTED, 1],
    // From here on its end is in the journal.
    ['finished-unsynced', O.SUCCEEDED, 1],
    ['after-finished', O.SUCCEEDED, 1],
    ['after-result-sent', O.SUCCEEDED, 1],
    ['before-receipted', O.SUCCEEDED, 1],
    ['after-receipted', O.SUCCEEDED, 1],
  ];

  const times = { issuedAtMs: Date.now(), expiresAtMs: Date.now() + 3_600_000 };

  // Starting a process costs most here: two at a time, each test waits for its own.
  const turns = [Promise.resolve(), Promise.resolve()];
  const inTurn = <T>(n: number, work: () => Promise<T>): Promise<T> => {
    const done = (turns[n % 2] as Promise<void>).then(work);
    turns[n % 2] = done.then(
      () => undefined,
      () => undefined,
    );
    return done;
  };
  let ends: Promise<{ result: CommandResult; effects: number }>[];

  before(() => {
    ends = points.map(([point], n) =>
      inTurn(n, async () => {
        const on = await machine();
        const result = await killedAt(on, point, { id: 'c-1', kind: 'service.restart', payload: { unit: 'app.service' }, ...times });
        return { result, effects: await on.effects() };
      }),
    );
    for (const end of ends) end.catch(() => undefined);
  });

  for (const [n, [point, outcome, effects]] of points.entries()) {
    it(`B54 delivery rule 5: service.restart, killed ${point}: ${CommandOutcome[outcome].toLowerCase()}, ${effects} effect(s), never two`, async () => {
      const end = await ends[n];
      assert.deepEqual(
        [CommandOutcome[end?.result.outcome ?? 0], end?.result.commandId, end?.effects],
        [CommandOutcome[outcome], 'c-1', effects],
      );
      if (outcome === O.INTERRUPTED)
        assert.match(end?.result.errorMessage ?? '', /stopped after service\.restart was started at .* it is not repeated/);
    });
  }

  for (const point of ['after-started', 'effect-done'] as const) {
    it(`a kind that does no harm twice, killed ${point}, is done again`, async () => {
      const result = await killedAt(await machine(), point, { id: 'c-1', kind: 'inventory.refresh', ...times });
      assert.equal(CommandOutcome[result.outcome], 'SUCCEEDED');
    });
  }

  it('node.reboot, killed after it was noted and before the machine went down, is interrupted and not repeated', async () => {
    const on = await machine();
    const result = await killedAt(on, 'after-started', { id: 'c-1', kind: 'node.reboot', ...times });
    assert.equal(CommandOutcome[result.outcome], 'INTERRUPTED');
    assert.match(result.errorMessage, /came back in the same boot/);
  });

  it('node.reboot ends in the first session of the next boot, whose Hello carries another boot id', async () => {
    const on = await machine();
    run(on, ['--simulate-reboot']);
    const first = await on.gateway.nextSession();
    first.send({ frame: { case: 'command', value: await commandOf(deployment, { id: 'c-1', kind: 'node.reboot' }) } });
    await first.take('commandAck');
    const second = await on.gateway.nextSession();
    const result = await second.take('commandResult');
    assert.deepEqual(
      [CommandOutcome[result.outcome], result.payload?.typeUrl],
      ['SUCCEEDED', 'type.googleapis.com/bettercompute.agent.v1.NodeRebootResult'],
    );
    assert.notEqual(second.hello?.bootId, first.hello?.bootId);
  });

  it('a command that expired while the daemon was down is not started', async () => {
    const on = await machine();
    const first = run(on, [], { BETTER_COMPUTE_TEST_ONLY: 'yes', BETTER_COMPUTE_TEST_ONLY_CRASH_AT: 'after-received' });
    const expiresAtMs = Date.now() + 300_000;
    (await on.gateway.nextSession()).send({
      frame: {
        case: 'command',
        value: await commandOf(deployment, { id: 'c-1', kind: 'service.restart', payload: { unit: 'app.service' }, expiresAtMs }),
      },
    });
    await first.ended;
    const gateway = await startFakeGateway({ deployment, now: () => expiresAtMs + 1 });
    running.push({ stop: () => gateway.close() });
    const stored = await joinedNode(deployment, { gatewayUrl: gateway.url });
    await saveIdentity(on.dataDir, stored);
    run(on);
    const result = await (await gateway.nextSession()).take('commandResult');
    assert.deepEqual([CommandOutcome[result.outcome], result.errorCode, await on.effects()], ['FAILED', 'EXPIRED', 0]);
  });
});
