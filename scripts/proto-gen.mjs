/** Generates proto/gen from the .proto files; with --check only says whether what is checked in is what comes out. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { runScript, SetupError } from './lib/failure.mjs';
import { runCommand } from './lib/run-command.mjs';
import { filesUnder, projectRoot } from './lib/sources.mjs';

const generated = join(projectRoot, 'proto', 'gen');

await runScript(async () => {
  if (!process.argv.includes('--check')) return generate(projectRoot);
  const scratch = mkdtempSync(join(tmpdir(), 'proto-gen-'));
  try {
    await generate(scratch);
    const differing = differences(join(scratch, 'proto', 'gen'), generated);
    if (differing.length > 0)
      throw new SetupError(
        `generated files are not those of the .proto files: ${differing.join(', ')}`,
        'npm run proto, then commit proto/gen',
        { exit: 1 },
      );
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
});

/** buf runs the plug-in from node_modules and writes proto/gen under `into`. */
async function generate(into) {
  const env = { ...process.env, PATH: `${join(projectRoot, 'node_modules', '.bin')}:${process.env.PATH ?? ''}` };
  const buf = join(projectRoot, 'node_modules', '@bufbuild', 'buf', 'bin', 'buf');
  const done = await runCommand(
    process.execPath,
    [buf, 'generate', projectRoot, '--template', join(projectRoot, 'buf.gen.yaml'), '--output', into],
    { cwd: projectRoot, env },
  );
  if (done.code !== 0) throw new SetupError(`buf generate failed (exit code ${done.code})`, done.err.trim() || done.out.trim());
}

function differences(made, kept) {
  const names = (folder) => filesUnder(folder).map((path) => relative(folder, path));
  const same = (name) => {
    try {
      return readFileSync(join(made, name)).equals(readFileSync(join(kept, name)));
    } catch {
      return false;
    }
  };
  return [...new Set([...names(made), ...names(kept)])].filter((name) => !same(name));
}
