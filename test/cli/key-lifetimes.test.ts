/** DOC-015: the runbook of lifetimes says what the code does. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createProgram } from '../../cli/program.ts';
import { day, hour } from '../../domain/time.ts';
import { keyNames, keyTable } from '../../pki/bundle/index.ts';
import { caProfiles, leafProfiles } from '../../pki/x509/index.ts';
import { createTestIo } from './support.ts';

const runbook = readFileSync(new URL('../../docs/runbooks/keys-and-their-ends.md', import.meta.url), 'utf8');
const rows = runbook
  .split('\n')
  .filter((line) => /^\| (?!key )/.test(line))
  .map((line) =>
    line
      .split('|')
      .map((cell) => cell.trim())
      .slice(1, 5),
  );
const rowOf = (what: string): string[] => rows.find(([key = '']) => key.includes(what)) ?? assert.fail(`no row for ${what}`);

describe('the runbook of keys and their ends', () => {
  it('DOC-015 has a row for every key of the bundle, and what is not in it', () => {
    for (const name of keyNames.filter((key) => !keyTable[key].passing)) assert.ok(rowOf(`\`${name}\``).length === 4, name);
    for (const what of [
      'gateway certificate',
      'node certificate',
      'worker key',
      'command root',
      'workload issuer',
      'BETTER_COMPUTE_SECRET',
    ])
      rowOf(what);
  });

  it('DOC-015 says the lifetimes that the authorities enforce', () => {
    const years = (ms: number): string => `${ms / (365 * day)} y`;
    const lifetimes: readonly [string, string][] = [
      ...(['rootCa', 'nodeCa', 'servingCa', 'internalCa'] as const).map((name): [string, string] => [
        `\`${name}\``,
        years(caProfiles[name].maxLifetimeMs),
      ]),
      ['command root', years(caProfiles.commandRoot.maxLifetimeMs)],
      ['gateway certificate', `${leafProfiles.gateway.defaultLifetimeMs / day} d (${leafProfiles.gateway.maxLifetimeMs / day} d at most)`],
      ['internal certificates', `${leafProfiles.internal.maxLifetimeMs / day} d`],
      ['node certificate', `${leafProfiles.node.maxLifetimeMs / hour} h (ramdisk ${leafProfiles.ramdisk.maxLifetimeMs / hour} h)`],
      ['worker key', `${leafProfiles.worker.maxLifetimeMs / hour} h`],
    ];
    for (const [what, lasts] of lifetimes) assert.ok(rowOf(what)[1]?.startsWith(lasts), `${what} lasts ${lasts}, not ${rowOf(what)[1]}`);
  });

  it('DOC-015 names only commands that exist', async () => {
    const program = await createProgram(createTestIo());
    for (const [, group = '', verb = ''] of runbook.matchAll(/`(?:better-compute )?(pki|rotation) ([a-z-]+)/g)) {
      const verbs = program.commands.find((command) => command.name() === group)?.commands.map((command) => command.name());
      assert.ok(verbs?.includes(verb), `${group} ${verb}`);
    }
  });
});
