/** Writes docs/cli.md from the command tree; `--check` writes nothing and fails when the page is old. */
import { readFileSync, writeFileSync } from 'node:fs';
import { cliPage } from '../cli/docs.ts';

const path = new URL('../docs/cli.md', import.meta.url);
const page = await cliPage();
if (!process.argv.includes('--check')) writeFileSync(path, page);
else if (readFileSync(path, 'utf8') !== page) {
  process.stderr.write('error: docs/cli.md does not follow from the command tree\nhint: npx tsx scripts/cli-docs.ts\n');
  process.exitCode = 1;
}
