/** What is true of every command, and of the page that describes them. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { type Command, CommanderError } from 'commander';
import { cliPage, helpOf } from '../../cli/docs.ts';
import { QuietExit, toExit } from '../../cli/exit.ts';
import { createProgram, runCli } from '../../cli/program.ts';
import { ControlError, errorTable } from '../../domain/errors.ts';
import { createTestIo } from './support.ts';

const leaves = (command: Command, path: string[] = []): { path: string; command: Command }[] => {
  const here = [...path, command.name()];
  const children = command.commands.filter((child) => child.name() !== 'help');
  return children.length === 0 ? [{ path: here.slice(1).join(' '), command }] : children.flatMap((child) => leaves(child, here));
};

describe('the command tree', () => {
  it('has every command an operator was promised', async () => {
    const paths = leaves(await createProgram(createTestIo())).map(({ path }) => path);
    const verbs = ['start', 'status', 'watch', 'pause', 'resume', 'force', 'exclude', 'abort', 'evidence', 'verify'].map(
      (verb) => `rotation ${verb}`,
    );
    const fleet = [
      'nodes list',
      'nodes show',
      'nodes reboot',
      'nodes set-credential',
      'nodes revoke',
      'tokens create',
      'commands run',
      'commands show',
      'stuck',
      'doctor',
      'completion',
    ];
    const pki = ['init', 'show', 'reseal', 'issue-gateway', 'rotate-command-root', 'trust-version'].map((verb) => `pki ${verb}`);
    for (const path of ['start', ...verbs, ...fleet, ...pki]) {
      assert.ok(paths.includes(path), `${path} is missing`);
    }
  });

  it('describes each command, with examples that begin with a program of ours', async () => {
    for (const { path, command } of leaves(await createProgram(createTestIo()))) {
      const help = helpOf(command);
      assert.notEqual(command.description(), '', path);
      const examples = help.split('\nExamples:\n')[1] ?? '';
      assert.match(examples, new RegExp(`better-compute ${path}`), `${path} has no example of itself`);
    }
  });

  it('asks for a reason wherever it changes what others rely on', async () => {
    const mandatory = leaves(await createProgram(createTestIo())).filter(({ command }) =>
      command.options.some((option) => option.long === '--reason' && option.mandatory),
    );
    assert.deepEqual(
      mandatory.map(({ path }) => path),
      [
        'rotation pause',
        'rotation force',
        'rotation exclude',
        'rotation abort',
        'nodes reboot',
        'nodes enrol',
        'nodes reenrol',
        'nodes set-credential',
        'nodes revoke',
        'nodes delete',
        'enrolments cancel',
        'joins approve',
        'joins refuse',
        'machine inspect',
        'machine provision',
        'machine retire',
        'machine rotate-bmc',
        'machine cancel',
        'machine override',
        'machine give-up',
        'machine forget',
        'machine readmit',
        'fleet reimage',
        'batch sign-override',
        'batch create',
        'batch cancel',
        'daemon upgrade',
        'ssh revoke',
      ],
    );
  });

  it('docs/cli.md follows from it', async () => {
    assert.equal(readFileSync(new URL('../../docs/cli.md', import.meta.url), 'utf8'), await cliPage(), 'run npx tsx scripts/cli-docs.ts');
  });
});

describe('how a run ends', () => {
  const run = async (...argv: string[]): Promise<{ code: number; stdout: string; stderr: string }> => {
    const io = createTestIo({ env: { BETTER_COMPUTE_HOME: '/nonexistent' } });
    return { code: await runCli(argv, io), stdout: io.stdout(), stderr: io.stderr() };
  };

  it('refuses an unknown flag with the nearest', async () => {
    assert.deepEqual(await run('nodes', 'list', '--sate', 'active'), {
      code: 2,
      stdout: '',
      stderr: "error: unknown option '--sate'\nhint: did you mean --state?\n",
    });
  });

  it('refuses an unknown command with the nearest', async () => {
    assert.deepEqual(await run('rotate'), {
      code: 2,
      stdout: '',
      stderr: "error: unknown command 'rotate'\nhint: did you mean rotation?\n",
    });
    assert.deepEqual(await run('nodes', 'lst'), {
      code: 2,
      stdout: '',
      stderr: "error: unknown command 'lst'\nhint: did you mean list?\n",
    });
  });

  it('takes --json anywhere, and says an error to a machine and to a person', async () => {
    for (const argv of [
      ['--json', 'nodes', 'list'],
      ['nodes', '--json', 'list'],
      ['nodes', 'list', '--json'],
    ]) {
      const { code, stdout, stderr } = await run(...argv);
      const { error } = JSON.parse(stdout) as { error: Record<string, unknown> };
      assert.deepEqual([code, error['code'], error['exitCode'], error['details']], [8, 'UNAVAILABLE', 8, { reason: 'no-api' }], stderr);
      assert.equal(stderr, `error: ${String(error['message'])}\nhint: ${String(error['hint'])}\n`);
    }
  });

  it('does not take --json from behind --', async () => {
    assert.equal((await run('nodes', 'show', '--', '--json')).stdout, '');
  });

  it('shows a group’s help when its verb is missing, and fails', async () => {
    const { code, stdout, stderr } = await run('rotation');
    assert.deepEqual([code, stdout], [2, '']);
    assert.match(stderr, /^Usage: better-compute rotation/);
  });

  it('shows help and version as data', async () => {
    const help = await run('rotation', 'start', '--help');
    assert.deepEqual([help.code, help.stderr], [0, '']);
    assert.match(help.stdout, /\$ better-compute rotation start --reason "yearly"/);
    assert.deepEqual(await run('--version'), { code: 0, stdout: '0.1.0\n', stderr: '' });
  });

  it('follows the error table for every code', () => {
    for (const [code, { exit, hint }] of Object.entries(errorTable)) {
      const ended = toExit(new ControlError(code as keyof typeof errorTable, 'it did not work', { details: { reason: 'test' } }));
      assert.deepEqual([ended.exitCode, ended.lines], [exit, ['error: it did not work', `hint: ${hint}`]]);
    }
  });

  it('takes a hint of the error itself before the table’s', () => {
    const ended = toExit(new ControlError('NOT_FOUND', 'no such thing', { details: { reason: 'x', hint: 'look there' } }));
    assert.deepEqual([ended.lines[1], ended.json?.error.details], ['hint: look there', { reason: 'x' }]);
  });

  it('says of a fault of ours that it is one, and of a quiet end nothing', () => {
    assert.deepEqual(toExit(new TypeError('x is not a function')).lines, [
      'error: x is not a function',
      `hint: ${errorTable.INTERNAL.hint}`,
    ]);
    assert.deepEqual(toExit('thrown text').exitCode, 70);
    assert.deepEqual(toExit(new QuietExit(1)), { exitCode: 1, lines: [], json: null });
    assert.deepEqual(toExit(new CommanderError(0, 'commander.helpDisplayed', '')), { exitCode: 0, lines: [], json: null });
  });
});
