/** Where everything is, and how the next rotation is started in each of the three ways. */
import { relative } from 'node:path';
import { findTemporal } from '../../scripts/engines/temporal.mjs';
import { taskQueues, workflowIds } from '../../temporal.config.ts';
import { staticSummary } from '../../workflows/rotate-command-root/messages.ts';
import type { Stack } from './stack.ts';

export async function welcome({ addresses, home }: Stack, env: NodeJS.ProcessEnv): Promise<string> {
  const temporal = await findTemporal({ env, fetch: false }).catch(() => 'temporal');
  const id = workflowIds.rotateCommandRoot;
  const profile = `TEMPORAL_CONFIG_FILE=${relative('.', home.temporalProfile)}`;
  const rows: [string, string][] = [
    ['Temporal UI', addresses['temporalUi'] ?? 'where its operator put it'],
    ['Temporal', addresses['temporal'] ?? ''],
    ['operator API', `${addresses['api']} (bearer in ${relative('.', home.operatorToken)}; description at /openapi.json)`],
    ['gateway', addresses['gateway'] ?? ''],
    [
      'metrics',
      ['apiMetrics', 'gatewayMetrics', 'controlMetrics', 'signingMetrics'].map((name) => `http://${addresses[name]}/metrics`).join(' '),
    ],
    ['state, logs', `${relative('.', home.root)}, ${relative('.', home.logs)}`],
  ];
  return [
    '',
    ...rows.map(([name, value]) => `  ${name.padEnd(14)}${value}`),
    '',
    'the next rotation, in any of these ways:',
    `  npx better-compute rotation start --reason "because I can"`,
    `  ${profile} ${temporal} workflow start --type rotateCommandRoot --task-queue ${taskQueues.control} --workflow-id ${id} --static-summary "${staticSummary}"`,
    `  in the UI: Start Workflow, id ${id}, task queue ${taskQueues.control}, type rotateCommandRoot, no input`,
    'and watch it:',
    '  npx better-compute rotation watch',
    `  ${profile} ${temporal} workflow describe --workflow-id ${id}`,
    `  ${profile} ${temporal} workflow metadata --workflow-id ${id}`,
    '',
  ].join('\n');
}
