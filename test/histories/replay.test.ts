/** The workflows of today read every history that was ever kept; and the guard notices when they would not. */
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { DeterminismViolationError } from '@temporalio/workflow';
import { Worker } from '@temporalio/worker';
import { loadWorkflowBundle } from '../../workers/bundle.ts';
import { installRuntime } from '../harness/temporal.ts';
import { scenarios } from './scenarios.ts';

const folder = fileURLToPath(new URL('.', import.meta.url));
const files = readdirSync(folder).filter((name) => name.endsWith('.json')).sort();
const read = (file: string): unknown => JSON.parse(readFileSync(join(folder, file), 'utf8'));

interface Started {
  readonly events: readonly { workflowExecutionStartedEventAttributes?: { workflowId?: string } }[];
}
const workflowIdOf = (history: unknown): string => (history as Started).events[0]?.workflowExecutionStartedEventAttributes?.workflowId ?? '';

describe('replay', function () {
  this.timeout(60_000);
  before(installRuntime);

  it('every scenario has its file and every file its scenario', () => {
    assert.deepEqual(files, Object.keys(scenarios).map((name) => `${name}.json`).sort());
  });

  for (const file of files) {
    it(`reads ${file}`, async () => {
      const history = read(file);
      await Worker.runReplayHistory({ workflowBundle: await loadWorkflowBundle() }, history, workflowIdOf(history));
    });
  }

  it('H-18 no kept rotation has more than 120 events, whatever was done to it', () => {
    for (const file of files.filter((name) => /^(rotation|key)-/.test(name))) {
      const { events } = read(file) as Started;
      assert.ok(events.length <= 120, `${file}: ${events.length}`);
    }
  });

  it('no kept run on a machine has more than 150 events, but those that had more to do: second chances, steps of their profile', () => {
    for (const file of files.filter((name) => name.startsWith('machine-'))) {
      const { events } = read(file) as Started;
      assert.ok(events.length <= (/second-chance|with-steps/.test(file) ? 200 : 150), `${file}: ${events.length}`);
    }
  });

  it('two steps that are swapped are noticed', async () => {
    const cacheFolder = mkdtempSync(join(tmpdir(), 'bc-bundle-'));
    const workflowsPath = join(folder, 'fixtures/swapped.ts');
    const workflowBundle = await loadWorkflowBundle({ cacheFolder, workflowsPath });
    for (const file of ['rotation-a-day.json', 'machine-provisioned.json']) {
      const history = read(file);
      await assert.rejects(Worker.runReplayHistory({ workflowBundle }, history, workflowIdOf(history)), DeterminismViolationError, file);
    }
    rmSync(cacheFolder, { recursive: true });
  });
});
