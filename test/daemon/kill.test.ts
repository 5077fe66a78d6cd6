import assert from 'node:assert/strict';
import { chmod, readFile, writeFile } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { CommandOutcome, type CommandResult } from '../../proto/index.ts';
import type { CrashPoint } from '../../daemon/state/crash-points.ts';
import { saveIdentity } from '../../daemon/state/identity.ts';
import { commandOf, createDeployment, joinedNode, type TestDeployment } from '../harness/deployment.ts';
import { type FakeGateway, startFakeGateway } from '../harness/fake-gateway.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { type Bcd, startBcd } from './bcd-process.ts';

/** B54: a real bcd, killed by SIGKILL between every two steps of a command, started again, and asked what became of it. */
describe('a daemon that is killed in the middle of a command', function () {
  this.timeout(60_000);
  let deployment: TestDeployment;
  let gateway: FakeGateway;
  let bcd: Bcd | undefined;

  before(async () => {
    deployment = await createDeployment();
  });
  beforeEach(async () => {
    gateway = await startFakeGateway({ deployment });
  });
  afterEach(async () => {
    await bcd?.stop('SIGKILL');
    await gateway.close();
  });
  after(removeScratchFolders);

  interface Machine {
    readonly dataDir: string;
    readonly env: NodeJS.ProcessEnv;
    effects(): Promise<number>;
  }

  /** A machine whose systemctl counts the restarts it was asked for. */
  async function machine(): Promise<Machine> {
    const dataDir = scratchFolder();
    const programs = scratchFolder();
    const effects = join(programs, 'effects');
    await writeFile(join(programs, 'systemctl'), `#!/bin/sh\ncase "$1" in restart) echo "$@" >> ${effects};; show) echo active;; esac\n`);
    await chmod(join(programs, 'systemctl'), 0o755);
    await saveIdentity(dataDir, await joinedNode(deployment, { gatewayUrl: gateway.url }));
    await writeFile(join(dataDir, 'config.json'), '{"restartableUnits":["app.service"]}', { mode: 0o600 });
    const count = async (): Promise<number> => (await readFile(effects, 'utf8').catch(() => '')).split('\n').length - 1;
    return { dataDir, env: { PATH: `${programs}${delimiter}${process.env['PATH']}` }, effects: async () => Math.max(0, await count()) };
  }

  const run = ({ dataDir, env }: Machine, args: readonly string[] = [], more: NodeJS.ProcessEnv = {}): Bcd => {
    bcd = startBcd(['run', '--data-dir', dataDir, ...args], { env: { ...env, ...more } });
    return bcd;
  };

  /** Killed at the point, started again; the gateway delivers again what it has no result of, as it does for open rows. */
  async function killedAt(on: Machine, point: CrashPoint, command: Parameters<typeof commandOf>[1]): Promise<CommandResult> {
    const first = run(on, ['--simulate-reboot'], { BETTER_COMPUTE_TEST_ONLY: 'yes', BETTER_COMPUTE_TEST_ONLY_CRASH_AT: point });
    (await gateway.nextSession()).send({ frame: { case: 'command', value: await commandOf(deployment, { ...command, epoch: 1n }) } });
    const end = await first.ended;
    assert.equal(end.signal, 'SIGKILL', `the point ${point} was reached\n${end.stderr}`);
    run(on, ['--simulate-reboot']);
    const session = await gateway.nextSession();
    session.send({ frame: { case: 'command', value: await commandOf(deployment, { ...command, epoch: 2n }) } });
    return session.take('commandResult');
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

  const times = { issuedAtMs: Date.now(), expiresAtMs: Date.now() + 600_000 };

  for (const [point, outcome, effects] of points) {
    it(`B54 delivery rule 5: service.restart, killed ${point}: ${CommandOutcome[outcome].toLowerCase()}, ${effects} effect(s), never two`, async () => {
      const on = await machine();
      const result = await killedAt(on, point, { id: 'c-1', kind: 'service.restart', payload: { unit: 'app.service' }, ...times });
      assert.deepEqual([CommandOutcome[result.outcome], result.commandId, await on.effects()], [CommandOutcome[outcome], 'c-1', effects]);
      if (outcome === O.INTERRUPTED) assert.match(result.errorMessage, /stopped after service\.restart was started at .* it is not repeated/);
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
    const first = await gateway.nextSession();
    first.send({ frame: { case: 'command', value: await commandOf(deployment, { id: 'c-1', kind: 'node.reboot' }) } });
    await first.take('commandAck');
    const second = await gateway.nextSession();
    const result = await second.take('commandResult');
    assert.deepEqual([CommandOutcome[result.outcome], result.payload?.typeUrl], ['SUCCEEDED', 'type.googleapis.com/bettercompute.agent.v1.NodeRebootResult']);
    assert.notEqual(second.hello?.bootId, first.hello?.bootId);
  });

  it('a command that expired while the daemon was down is not started', async () => {
    const on = await machine();
    const first = run(on, [], { BETTER_COMPUTE_TEST_ONLY: 'yes', BETTER_COMPUTE_TEST_ONLY_CRASH_AT: 'after-received' });
    const expiresAtMs = Date.now() + 300_000;
    (await gateway.nextSession()).send({ frame: { case: 'command', value: await commandOf(deployment, { id: 'c-1', kind: 'service.restart', payload: { unit: 'app.service' }, expiresAtMs }) } });
    await first.ended;
    await gateway.close();
    gateway = await startFakeGateway({ deployment, now: () => expiresAtMs + 1 });
    const stored = await joinedNode(deployment, { gatewayUrl: gateway.url });
    await saveIdentity(on.dataDir, stored);
    run(on);
    const result = await (await gateway.nextSession()).take('commandResult');
    assert.deepEqual([CommandOutcome[result.outcome], result.errorCode, await on.effects()], ['FAILED', 'EXPIRED', 0]);
  });
});
