/** The checks of the gate that keep the protocol as daemons in the field know it, tried on a copy that breaks it. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { appendFileSync, cpSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { projectRoot } from '../harness/imports.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';

describe('the frozen protocol', function () {
  this.timeout(60_000);
  after(removeScratchFolders);

  function copy(): string {
    const folder = scratchFolder();
    for (const name of ['proto', 'scripts', 'buf.yaml', 'buf.gen.yaml', 'package.json'])
      cpSync(join(projectRoot, name), join(folder, name), { recursive: true });
    symlinkSync(join(projectRoot, 'node_modules'), join(folder, 'node_modules'));
    return folder;
  }

  const run = (folder: string, script: string, ...args: string[]): { code: number | null; out: string } => {
    const { status, stdout, stderr } = spawnSync(process.execPath, [join(folder, script), ...args], { cwd: folder, encoding: 'utf8' });
    return { code: status, out: stdout + stderr };
  };
  const breaking = (folder: string) => run(folder, 'node_modules/@bufbuild/buf/bin/buf', 'breaking', '--against', 'proto/baseline.binpb');
  const change = (folder: string, from: RegExp, to: string): void => {
    const path = join(folder, 'proto/bettercompute/agent/v1/session.proto');
    const before = readFileSync(path, 'utf8');
    assert.match(before, from);
    writeFileSync(path, before.replace(from, to));
  };

  it('SKEW-034 SKEW-035 takes a field that is added, and none that is removed, renumbered or of another type', () => {
    const added = copy();
    change(added, /(uint64 journal_seq = 8;)/, '$1\n  string added = 90;');
    assert.deepEqual(breaking(added), { code: 0, out: '' });
    const cases: [title: RegExp, from: RegExp, to: string][] = [
      [/deleted field "8"/i, /.*uint64 journal_seq = 8;.*\n/, ''],
      [/deleted field "8"/i, /journal_seq = 8/, 'journal_seq = 91'],
      [/changed type/i, /uint64 journal_seq = 8/, 'string journal_seq = 8'],
    ];
    for (const [title, from, to] of cases) {
      const broken = copy();
      change(broken, from, to);
      const { code, out } = breaking(broken);
      assert.notEqual(code, 0);
      assert.match(out.replaceAll(/[Pp]reviously present field "8"[^\n]*was deleted/g, 'deleted field "8"'), title);
    }
    const gate = readFileSync(join(projectRoot, 'scripts/check.mjs'), 'utf8');
    assert.match(gate, /'breaking', '--against', 'proto\/baseline.binpb'/, 'the gate runs it');
    assert.match(readFileSync(join(projectRoot, 'buf.yaml'), 'utf8'), /breaking:\n {2}use: \[FILE\]/);
  });

  it('TRN-023 TRN-024 TRN-032 generated code that was changed by hand, or is missing a change, fails the check by name', () => {
    const folder = copy();
    assert.deepEqual(run(folder, 'scripts/proto-gen.mjs', '--check').code, 0);
    appendFileSync(join(folder, 'proto/gen/bettercompute/agent/v1/session_pb.js'), '// by hand\n');
    const { code, out } = run(folder, 'scripts/proto-gen.mjs', '--check');
    assert.equal(code, 1);
    assert.match(out, /^error: generated files are not those of the .proto files: bettercompute\/agent\/v1\/session_pb.js$/m);
    assert.match(out, /^hint: npm run proto, then commit proto\/gen$/m);
  });
});
