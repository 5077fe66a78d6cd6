/**
 * An approver recomputes the root of a batch of 50,000 operations from what the api lists, page by page: CPU of its process against bare
 * hashing of the same tree, and its peak of memory. The api, its database and its tokens are the real ones.
 */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { createCommandBatch } from '../../services/batches/index.ts';
import { operatorToken, startBatchApi } from '../api/batch-api.ts';
import { createApprover, quorumOfApprovers } from '../harness/approvers.ts';
import { trustDomain, withFleet } from './database-load.ts';
import type { Figure } from './main.ts';
import { rebootsOfAll } from './scope-leaves.ts';
import type { Turns } from './turns.ts';

const limit = 3;
const limitMiB = 256;
const ending = import.meta.url.endsWith('.ts') ? 'ts' : 'js';
const child = fileURLToPath(new URL(`./batch-approver-child.${ending}`, import.meta.url));

export async function figure(): Promise<Figure> {
  const leaves = rebootsOfAll();
  return withFleet({ nodes: leaves.length, connections: 4 }, async (db) => {
    const quorum = quorumOfApprovers({ approvers: [createApprover(), createApprover()] });
    const { batchId } = await db.transaction((tx) =>
      createCommandBatch(
        tx,
        {
          tenantId: 'default',
          reason: 'bench',
          createdBy: 'bench',
          scope: leaves,
        },
        { now: Date.now(), quorum, trustDomain },
      ),
    );
    const api = await startBatchApi(db);
    try {
      const { peakMiB, startMiB } = (await approve(api.url, batchId, 'memory')) as { peakMiB: number; startMiB: number };
      const turns = (await approve(api.url, batchId, 'cpu')) as Turns;
      return {
        figure: 'batch-approver',
        ratio: turns.timeRatio,
        goal: `≤ ${limit}, ≤ ${limitMiB} MiB`,
        holds: turns.timeRatio <= limit && peakMiB <= limitMiB,
        detail: { leaves: leaves.length, peakMiB, startMiB, ...turns },
      };
    } finally {
      await api.close();
    }
  });
}

async function approve(url: string, batchId: string, mode: 'memory' | 'cpu'): Promise<unknown> {
  const loader = ending === 'ts' ? ['--import=tsx'] : [];
  const { stdout } = await promisify(execFile)(process.execPath, [...loader, child, url, operatorToken, batchId, mode]);
  return JSON.parse(stdout);
}
