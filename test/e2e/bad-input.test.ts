/**
 * Garbage from whoever may type: the real Temporal CLI against a rotation of the real stack, and the edges of processes. Every refusal
 * says what, which value and what to do; the workflow lives and finishes.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { WorkflowExecutionAlreadyStartedError } from '@temporalio/client';
import { eventually } from '../harness/eventually.ts';
import { projectRoot } from '../harness/imports.ts';
import { type Answer, type LiveStack, startLiveStack } from '../harness/live-stack.ts';
import { removeScratchFolders } from '../harness/scratch.ts';

const times = { overlapMs: 3_000, marginMs: 500, workerLifetimeMs: 10_000 };
/** For a hang, on a machine that does much else. */
const patienceMs = 120_000;
const target = ['--workflow-id', 'rotate-command-root'];
/** Bytes that are no text. */
const binary = ['--input-base64', '--input', 'gAH//g=='];
const rotation = ['--type', 'rotateCommandRoot', '--task-queue', 'bc-control'];
const startArgs = ['workflow', 'start', ...rotation];
const executeArgs = ['workflow', 'execute', ...rotation, ...target];

describe('bad input at the edges of the stack', function () {
  this.timeout(420_000);
  let stack: LiveStack;

  before(async function () {
    if (process.platform !== 'linux') this.skip();
    stack = await startLiveStack(times);
    await stack.daemon('node-1').start();
    await stack.daemon('node-2').start();
  });
  after(async () => {
    await stack?.stop();
    removeScratchFolders();
  });

  const text = ({ out, err }: Answer): string => out + err;
  const look = () => stack.rotation.find().catch(() => null);
  const untilPhase = (phase: string): Promise<true> =>
    eventually(`the phase ${phase}`, async () => (await look())?.status?.phase === phase, patienceMs);

  it('C16 a start with a wrong id, with wrong input or of a wrong type ends with what was wrong, and harms nothing', async () => {
    const refusals: [string[], RegExp][] = [
      [
        ['workflow', 'execute', ...rotation, '--workflow-id', 'my-rotation'],
        /rotateCommandRoot runs under the workflow id rotate-command-root only, not my-rotation/,
      ],
      [[...executeArgs, '--input', '{"actor":7,"why":"x"}'], /rotateCommandRoot.*actor must be a text.*why/s],
      [[...executeArgs, '--input', '"yearly"'], /rotateCommandRoot.*"?yearly"?|rotateCommandRoot.*(text|string)/s],
      [[...executeArgs, ...binary, '--input-meta', 'encoding=who/knows'], /rotateCommandRoot/],
    ];
    for (const [args, message] of refusals) {
      const answer = await stack.temporal(...args);
      assert.notEqual(answer.code, 0, text(answer));
      assert.match(text(answer), message);
    }
    const { state } = (await look()) ?? {};
    assert.notEqual(state, 'running');
  });

  it('ROT-001 starts with no input by the line of the runbook, and shows itself: summary, phase attributes, current details', async () => {
    stack.daemon('node-2').signal('SIGSTOP');
    const started = await stack.temporal(...startArgs, ...target);
    assert.equal(started.code, 0, text(started));
    await untilPhase('waiting-fleet');
    const behind = await eventually(
      'the details say who is behind',
      async () => {
        const metadata = await stack.temporal('workflow', 'metadata', ...target);
        return /node-2/.test(metadata.out) && metadata.out;
      },
      patienceMs,
    );
    assert.match(behind, /waiting-fleet/);
    assert.match(behind, /better-compute rotation exclude/);
    const described = await stack.temporal('workflow', 'describe', ...target);
    assert.equal(described.code, 0, text(described));
    // Its summary a workflow gets from whoever starts it; the API and `better-compute` give one.
    const { workflowId } = await stack.api.runCommands({ kind: 'inventory.refresh', nodes: ['node-1'], payload: {}, actor: 'test' });
    const command = await stack.temporal('workflow', 'describe', '--workflow-id', workflowId);
    assert.match(command.out, /Run one command on one or many nodes/);
    for (const shown of [/BcPhase/, /waiting-fleet/, /BcWaitingOn/, /node-2/]) assert.match(described.out, shown);
  });

  it('C16 a second start is refused by every way in', async () => {
    const { runId } = await stack.client.workflow.getHandle('rotate-command-root').describe();
    // The CLI asks for a start or for what runs already, and is given the latter.
    const again = await stack.temporal(...startArgs, ...target);
    assert.equal(again.code, 0, text(again));
    assert.match(again.out, new RegExp(`RunId +${runId}`));
    await assert.rejects(
      stack.client.workflow.start('rotateCommandRoot', { workflowId: 'rotate-command-root', taskQueue: 'bc-control', args: [] }),
      WorkflowExecutionAlreadyStartedError,
    );
    const cli = await stack.betterCompute('rotation', 'start', '--reason', 'twice');
    assert.equal(cli.code, 4, text(cli));
    assert.match(cli.err, /^error: .*(is running|already)/m);
    assert.match(cli.err, /^hint: /m);
  });

  it('H-08 bad updates are refused with what, which value and what to do; no trace is left in the history', async () => {
    const events = async (): Promise<string[]> => {
      const history = await stack.client.workflow.getHandle('rotate-command-root').fetchHistory();
      return (history.events ?? []).flatMap((event) => (event.workflowExecutionUpdateAcceptedEventAttributes ? ['accepted'] : []));
    };
    const huge = JSON.stringify({ phase: 'fleet', actor: 'x', reason: 'y'.repeat(100_000) });
    const refusals: [string, string[], RegExp][] = [
      ['force', [], /force/],
      ['force', ['--input', 'null'], /force.*null/s],
      ['force', ['--input', '7'], /force.*(7|number)/s],
      ['force', ['--input', '[]'], /force.*list/s],
      ['force', ['--input', '{"phase":"fleet"}'], /actor.*reason/s],
      [
        'force',
        ['--input', '{"phase":"flet","actor":"x","reason":"y"}'],
        /phase must be one of processes, fleet, signers, confirm, got flet/,
      ],
      ['force', ['--input', '{"phase":"fleet","actor":"x","reason":"y","node":"z"}'], /node/],
      ['force', ['--input', '{"phase":"drop","actor":"x","reason":"y"}'], /pki rotate-command-root --stage drop --force/],
      ['force', ['--input', huge], /reason/],
      ['force', [...binary, '--input-meta', 'encoding=who/knows'], /INVALID_INPUT/],
      ['exclude', ['--input', '{"node":{"$ne":null},"actor":"x","reason":"y"}'], /node/],
      ['abort', ['--input', '{"actor":"","reason":"y"}'], /actor/],
      ['noSuchUpdate', ['--input', '{}'], /noSuchUpdate/],
    ];
    for (const [name, input, message] of refusals) {
      const answer = await stack.temporal('workflow', 'update', 'execute', ...target, '--name', name, ...input);
      assert.notEqual(answer.code, 0, `${name} ${input.join(' ').slice(0, 100)}: ${text(answer)}`);
      assert.match(text(answer), message);
      assert.ok(text(answer).length < 5_000, `${name} answers with ${text(answer).length} characters`);
    }
    const unknown = await stack.temporal(
      'workflow',
      'update',
      'execute',
      ...target,
      '--name',
      'exclude',
      '--input',
      '{"node":"node-9","actor":"x","reason":"y"}',
    );
    assert.notEqual(unknown.code, 0);
    assert.match(text(unknown), /no node node-9 is known|no node is called node-9/);
    // Only what was well-formed was accepted, and then refused by what it found.
    assert.deepEqual(await events(), ['accepted']);
    assert.equal((await look())?.status?.phase, 'waiting-fleet');
  });

  it('bad signals of every shape are ignored, and the workflow lives', async () => {
    const inputs = [
      [],
      ['--input', 'null'],
      ['--input', '"\\u0000"'],
      ['--input', JSON.stringify({ actor: 'x'.repeat(100_000) })],
      [...binary, '--input-meta', 'encoding=binary/plain'],
      [...binary, '--input-meta', 'encoding=binary/encrypted'],
    ];
    for (const name of ['forceSignal', 'excludeSignal', 'abortSignal', 'pause', 'noSuchSignal']) {
      for (const input of inputs) {
        const sent = await stack.temporal('workflow', 'signal', ...target, '--name', name, ...input);
        assert.equal(sent.code, 0, text(sent));
      }
    }
    const { status, state } = await eventually('an answer', async () => (await look()) ?? undefined, patienceMs);
    assert.equal(state, 'running');
    assert.equal(status?.phase, 'waiting-fleet');
    assert.deepEqual([status?.paused, status?.blocked, status?.overrides], [null, null, []]);
  });

  it('the same workflow takes a good update, and ends', async () => {
    const input = JSON.stringify({ node: 'node-2', actor: 'ann', reason: 'its disk is full' });
    const good = await stack.temporal('workflow', 'update', 'execute', ...target, '--name', 'exclude', '--input', input);
    assert.equal(good.code, 0, text(good));
    await untilPhase('waiting-drop');
    stack.daemon('node-2').signal('SIGCONT');
    const end = await eventually(
      'the end of the rotation',
      async () => {
        const run = await look();
        return run !== null && run.state !== 'running' && run;
      },
      patienceMs,
    );
    assert.equal(end.state, 'completed', end.failure ?? '');
    assert.equal(end.result?.overrides, 1);
  });

  it('a command that names what does not exist ends with why, instead of waiting', async () => {
    const nobody = await stack.betterCompute('commands', 'run', 'inventory.refresh', 'node-9', '--reason', 'test');
    assert.notEqual(nobody.code, 0);
    assert.match(nobody.err, /node-9/);
    const unit = await stack.betterCompute(
      'commands',
      'run',
      'service.restart',
      'node-1',
      '--payload',
      '{"unitt":"x"}',
      '--reason',
      'test',
    );
    assert.notEqual(unit.code, 0);
    assert.match(unit.err, /unitt/);
  });

  it('every process refuses an environment it cannot run with: two lines, the name, the value when it is no secret, an exit code', async () => {
    const keys = { BETTER_COMPUTE_SECRET: stack.secret(), BETTER_COMPUTE_PKI: join(stack.home, 'pki.json') };
    const refusals: [string, NodeJS.ProcessEnv, number, RegExp][] = [
      ['gateway/main', { BETTER_COMPUTE_GATEWAY_PORT: 'many' }, 3, /BETTER_COMPUTE_GATEWAY_PORT/],
      ['api/main', { BETTER_COMPUTE_TRUST_VERSION: '-1' }, 3, /BETTER_COMPUTE_TRUST_VERSION/],
      ['workers/control', { BETTER_COMPUTE_CODEC_KEY: 'short' }, 3, /BETTER_COMPUTE_CODEC_KEY/],
      ['workers/signing', { BETTER_COMPUTE_SECRT: 'x'.repeat(40) }, 3, /BETTER_COMPUTE_SECRT.*did you mean BETTER_COMPUTE_SECRET/],
      ['workers/signing', { ...keys, BETTER_COMPUTE_DEMONSTRATION_ONLY_ROTATION_TIMES: '1,2,3' }, 3, /yes-for-demonstrations-only/],
    ];
    const needed = {
      BETTER_COMPUTE_DATABASE_URL: stack.address('database'),
      BETTER_COMPUTE_HOME: stack.home,
      TEMPORAL_ADDRESS: stack.address('temporal'),
    };
    for (const [entry, env, code, message] of refusals) {
      const end = await runProcess(entry, { ...needed, ...env });
      assert.equal(end.code, code, `${entry} ${Object.keys(env).join(' ')}: ${end.err}`);
      assert.match(end.err, /^error: /m, entry);
      assert.match(end.err, /^hint: /m, entry);
      assert.match(end.err, message, entry);
      assert.ok(!end.err.includes('x'.repeat(40)), 'a value that may be a secret is not shown');
    }
  });
});

function runProcess(entry: string, env: NodeJS.ProcessEnv): Promise<{ code: number | null; err: string }> {
  const basics = { PATH: process.env['PATH'] ?? '', HOME: process.env['HOME'] ?? '', BETTER_COMPUTE_EXIT_WITH_PARENT: '1' };
  const child = spawn(process.execPath, ['scripts/run.mjs', entry], {
    cwd: projectRoot,
    env: { ...basics, ...env },
    stdio: ['pipe', 'ignore', 'pipe'],
  });
  let err = '';
  child.stderr.on('data', (data: Buffer) => void (err += data.toString()));
  return new Promise((resolve) => child.on('close', (code) => resolve({ code, err })));
}
