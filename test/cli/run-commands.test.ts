/** Second table for `commands …`: options and a real server's answers → output. */
import assert from 'node:assert/strict';
import { type CommandsRunOptions, commandsRunRun } from '../../cli/commands/commands/run.ts';
import { commandsShowRun } from '../../cli/commands/commands/show.ts';
import { ControlError } from '../../domain/errors.ts';
import { aCommand, createDeployment, type FakeDeployment, type RunningApi, startApi } from '../api/support.ts';
import { createTestIo, createTestPorts, envFor, type TestIo, type TestIoOptions } from './support.ts';

describe('better-compute commands', () => {
  let deployment: FakeDeployment;
  let api: RunningApi;

  beforeEach(async () => {
    deployment = createDeployment();
    api = await startApi(deployment);
  });
  afterEach(() => api.close());

  const set = (options: TestIoOptions = {}): { io: TestIo; ports: ReturnType<typeof createTestPorts> } => {
    const io = createTestIo({ env: envFor(api.url), ...options });
    return { io, ports: createTestPorts(io) };
  };
  const refusal = (code: string, message: RegExp) => (error: ControlError) => {
    assert.equal(error.code, code, error.message);
    assert.match(error.message, message);
    return true;
  };

  describe('commands run', () => {
    const run: CommandsRunOptions = {
      json: false,
      kind: 'inventory.refresh',
      nodes: ['node-a', 'node-b'],
      all: false,
      payload: {},
      deadlineMs: null,
      reason: null,
      actor: 'ann',
      key: 'once',
      wait: true,
      yes: false,
    };
    const of = (node: string, over: Parameters<typeof aCommand>[1] = {}): ReturnType<typeof aCommand> =>
      aCommand(`command/once/${node}`, { nodeId: node, ...over });

    it('waits until every node has ended, and shows each', async () => {
      const steps = [[], [of('node-a', { state: 'acked', finishedAt: null })], [of('node-a'), of('node-b')]];
      const { io, ports } = set({ onSleep: () => void (deployment.commands = steps.shift() ?? deployment.commands) });
      await commandsRunRun(run, ports);
      assert.deepEqual(deployment.commandsAsked, [
        { kind: 'inventory.refresh', nodes: ['node-a', 'node-b'], payload: {}, actor: 'ann', unique: 'once' },
      ]);
      assert.equal(
        io.stdout(),
        `COMMAND              NODE    KIND               STATE  CREATED  DETAIL
command/once/node-a  node-a  inventory.refresh  done   5 s ago  in 2000 ms
command/once/node-b  node-b  inventory.refresh  done   5 s ago  in 2000 ms
`,
      );
      assert.equal(io.slept.length, 3);
    });

    it('a run that was refused before it sent anything ends with why, instead of waiting for ever', async () => {
      deployment.commands = [];
      const io = createTestIo({ env: envFor(api.url) });
      const why = new ControlError('NOT_FOUND', 'no node is called node-b');
      const ports = createTestPorts(io, { runFailure: async (id) => (io.slept.length < 20 || id !== 'command/once' ? null : why) });
      await assert.rejects(commandsRunRun(run, ports), refusal('NOT_FOUND', /^no node is called node-b$/));
      assert.ok(io.slept.length < 30, String(io.slept.length));
    });

    it('fails when one did not succeed, after showing all', async () => {
      deployment.commands = [of('node-a'), of('node-b', { state: 'rejected', rejectReason: 'bad-signature' })];
      const { io, ports } = set();
      await assert.rejects(
        commandsRunRun(run, ports),
        refusal('INVALID_STATE', /^1 of 2 command\(s\) did not succeed \(node-b: rejected\)$/),
      );
      assert.match(io.stdout(), /bad-signature/);
    });

    it('does not wait when told so', async () => {
      const { io, ports } = set();
      await commandsRunRun({ ...run, all: true, nodes: [], wait: false }, ports);
      assert.equal(io.stdout(), 'started: better-compute commands show command/once\n');
      assert.equal(deployment.commandsAsked[0]?.nodes, 'all');
    });

    it('stops waiting with Ctrl-C and says that the command goes on', async () => {
      const interrupt = new AbortController();
      const { ports } = set({ signal: interrupt.signal, onSleep: () => interrupt.abort() });
      await assert.rejects(commandsRunRun(run, ports), refusal('CANCELLED', /^stopped waiting; the command itself goes on$/));
    });

    it('asks before what is destructive, and needs a target', async () => {
      await assert.rejects(
        commandsRunRun({ ...run, kind: 'node.reboot' }, set().ports),
        refusal('INVALID_INPUT', /^this needs --yes where nobody can be asked: Run node.reboot on node-a, node-b\?$/),
      );
      await assert.rejects(
        commandsRunRun({ ...run, nodes: [] }, set().ports),
        refusal('INVALID_INPUT', /^no node is named: give node ids, or --all$/),
      );
      await assert.rejects(
        commandsRunRun({ ...run, all: true }, set().ports),
        refusal('INVALID_INPUT', /^--all and node ids exclude each other$/),
      );
      assert.deepEqual(deployment.commandsAsked, []);
    });
  });

  it('commands show names an error of the machine', async () => {
    deployment.commands = [
      aCommand('command/x/node-a', {
        state: 'failed',
        result: { outcome: 2, errorCode: 'UNIT_UNKNOWN', errorMessage: 'no such unit', payload: '' },
      }),
    ];
    const { io, ports } = set();
    await commandsShowRun({ json: false, id: 'command/x' }, ports);
    assert.match(io.stdout(), /failed {2}5 s ago {2}UNIT_UNKNOWN: no such unit$/m);
  });
});
