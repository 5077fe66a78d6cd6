/**
 * What our rotation costs above a bare Temporal loop with as many activities: state, handlers, search attributes, details,
 * gates. Activity bodies do nothing on both sides. Blocks alternate (A B B A …), and the figure is the median of the ratios of
 * neighbouring blocks: absolute times swing with the machine, ratios do not.
 */
import type { Client } from '@temporalio/client';
import { taskQueues, workflowIds } from '../../temporal.config.ts';
import { loadWorkflowBundle } from '../../workers/bundle.ts';
import { controlWorkerSettings, signingWorkerSettings } from '../../workers/worker-settings.ts';
import { startTestTemporal, type TestTemporal } from '../harness/temporal.ts';
import { type RunningWorkers, running } from '../workflows/rotation-rig.ts';

const pairs = 9;
const runsInBlock = 6;
const goal = 1.1;

const root = '0'.repeat(64);
const opened = { kind: 'open', trustVersion: 2 };
const signed = { commands: 0, specs: 0 };

/** What the real ones answer when nothing has to be waited for. */
const controlAnswers = { awaitFleet: opened, step: opened };
const signingAnswers = {
  planCommandRoot: { rotationId: 'rotate-command-root/01a228a4-2607-7364-a2d9-1f2a9b256146', oldRoot: root, newRoot: null, abort: null },
  addCommandRoot: { oldRoot: root, newRoot: root },
  awaitProcesses: opened,
  switchCommandRoot: null,
  signAgain: { ...signed, dropOpensAt: 0 },
  dropCommandRoot: signed,
  recordOutcome: null,
  step: opened,
};

const answering = (answers: Readonly<Record<string, unknown>>): Record<string, () => Promise<unknown>> =>
  Object.fromEntries(Object.entries(answers).map(([name, value]) => [name, async () => value]));

async function runWorkers(temporal: TestTemporal): Promise<RunningWorkers> {
  const workflowsPath = new URL('./fixtures/orchestration-workflows.ts', import.meta.url).pathname;
  const workflowBundle = await loadWorkflowBundle({ workflowsPath });
  return running([
    await temporal.createWorker({
      ...controlWorkerSettings,
      taskQueue: taskQueues.control,
      workflowBundle,
      activities: answering(controlAnswers),
    }),
    await temporal.createWorker({
      ...signingWorkerSettings,
      taskQueue: taskQueues.signing,
      workflowBundle: undefined as never,
      activities: answering(signingAnswers),
    }),
  ]);
}

async function block(client: Client, type: 'rotateCommandRoot' | 'bareLoop'): Promise<number> {
  const begin = performance.now();
  for (let run = 0; run < runsInBlock; run += 1) {
    await client.workflow.execute(type, { workflowId: workflowIds.rotateCommandRoot, taskQueue: taskQueues.control, args: [] });
  }
  return (performance.now() - begin) / runsInBlock;
}

const median = (values: readonly number[]): number => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
const round = (value: number): number => Math.round(value * 1_000) / 1_000;

export async function figure(): Promise<{ figure: string; ratio: number; goal: number; holds: boolean; detail: unknown }> {
  const temporal = await startTestTemporal();
  const workers = await runWorkers(temporal);
  try {
    await block(temporal.client, 'bareLoop');
    await block(temporal.client, 'rotateCommandRoot');
    const ratios: number[] = [];
    const times = { ours: [] as number[], bare: [] as number[] };
    for (let pair = 0; pair < pairs; pair += 1) {
      const oursFirst = pair % 2 === 1;
      const first = await block(temporal.client, oursFirst ? 'rotateCommandRoot' : 'bareLoop');
      const second = await block(temporal.client, oursFirst ? 'bareLoop' : 'rotateCommandRoot');
      const [ours, bare] = oursFirst ? [first, second] : [second, first];
      times.ours.push(ours);
      times.bare.push(bare);
      ratios.push(ours / bare);
    }
    const ratio = round(median(ratios));
    const detail = {
      pairs,
      runsInBlock,
      activities: 11,
      least: round(Math.min(...ratios)),
      most: round(Math.max(...ratios)),
      msOurs: round(median(times.ours)),
      msBare: round(median(times.bare)),
    };
    return { figure: 'orchestration', ratio, goal, holds: ratio <= goal, detail };
  } finally {
    await workers.stop();
    await temporal.stop();
  }
}
