/**
 * Writes the histories that the replay test reads: `npx tsx test/histories/record.ts [scenario …]`. Run it for a new scenario;
 * an existing file is only replaced when the release that wrote it is gone.
 */
import { existsSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { historyToJSON } from '@temporalio/common/lib/proto-utils.js';
import { startTestTemporal } from '../harness/temporal.ts';
import { runScenario, scenarios } from './scenarios.ts';

const asked = process.argv.slice(2);
const fileOf = (name: string): string => fileURLToPath(new URL(`./${name}.json`, import.meta.url));
const names = asked.length > 0 ? asked : Object.keys(scenarios).filter((name) => !existsSync(fileOf(name)));
/** Stack traces name the machine they were made on. */
const root = fileURLToPath(new URL('../../', import.meta.url));
const withoutPaths = (json: string): string =>
  json.replaceAll(`file://${root}`, '').replaceAll(root, '').replaceAll(/(file:\/\/)?\/[^ "()]*\/node_modules\//g, 'node_modules/');
const temporal = await startTestTemporal();
for (const name of names) {
  const handle = await runScenario(temporal, name);
  const history = JSON.parse(withoutPaths(historyToJSON(await handle.fetchHistory()))) as { events: unknown[] };
  writeFileSync(fileOf(name), `${JSON.stringify(history, null, 1)}\n`);
  process.stderr.write(`${name}: ${history.events.length} events\n`);
}
await temporal.stop();
