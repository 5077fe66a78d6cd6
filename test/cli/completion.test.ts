/** Completion: the scripts load in their shells and answer what the tree says. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { bashScript, fishScript, zshScript } from '../../cli/completion/scripts.ts';
import { type CompletionNode, completionTree } from '../../cli/completion/tree.ts';
import { createProgram } from '../../cli/program.ts';
import { createTestIo } from './support.ts';

describe('completion', () => {
  let tree: CompletionNode;
  before(async () => {
    tree = completionTree(await createProgram(createTestIo()));
  });

  /** Runs the script in a real bash and asks it what comes next. */
  const bash = (...words: string[]): string[] => {
    const list = ['better-compute', ...words].map((word) => `'${word.replaceAll("'", `'\\''`)}'`).join(' ');
    const program = `${bashScript(tree)}\nCOMP_WORDS=(${list}); COMP_CWORD=${words.length}; _better_compute; printf '%s\\n' "\${COMPREPLY[@]}"`;
    const { stdout, stderr, status } = spawnSync('bash', ['--norc', '-c', program], { encoding: 'utf8' });
    assert.deepEqual([status, stderr], [0, '']);
    return stdout
      .split('\n')
      .filter((word) => word !== '')
      .sort();
  };

  const asked: readonly [string[], string[]][] = [
    [['ro'], ['rotation']],
    [['rotation', 'f'], ['force']],
    [['rotation', 'force', '--p'], ['--phase']],
    [
      ['rotation', 'force', '--phase', ''],
      ['confirm', 'fleet', 'processes', 'signers'],
    ],
    [['rotation', 'force', '--reason', 'not a command', '--y'], ['--yes']],
    [['nodes', 'list', '--state', 'q'], ['quarantined']],
    [
      ['--json', 'nodes', 're'],
      ['reboot', 'reenrol', 'revoke'],
    ],
    [['commands', 'run', 'inv'], ['inventory.refresh']],
    [['completion', 'z'], ['zsh']],
    [['nodes', 'list', '--js'], ['--json']],
  ];
  for (const [words, answers] of asked) {
    it(`bash: ${words.join(' ')}…`, () => assert.deepEqual(bash(...words), answers));
  }

  it('names every command in every shell', () => {
    for (const script of [bashScript(tree), zshScript(tree), fishScript(tree)]) {
      for (const name of ['rotation', 'exclude', 'tokens', 'stuck', 'issue-gateway', '--demonstration'.slice(2)])
        assert.ok(script.includes(name), name);
    }
  });

  for (const [shell, script, argv] of [
    ['zsh', zshScript, ['-n', '/dev/stdin']],
    ['fish', fishScript, ['--no-execute', '/dev/stdin']],
  ] as const) {
    it(`${shell} takes its script (skipped where ${shell} is absent)`, function () {
      if (spawnSync(shell, ['--version']).error !== undefined) return this.skip();
      const { status, stderr } = spawnSync(shell, argv, { input: script(tree), encoding: 'utf8' });
      assert.deepEqual([status, stderr], [0, '']);
    });
  }
});
