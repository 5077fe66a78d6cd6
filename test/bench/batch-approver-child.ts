/**
 * The approver of the figure batch-approver, as a process of its own: what it costs is its alone, and the api's is not in it. Says on one line
 * what it found, and ends.
 */
import { createBatchClient } from '../../cli/batch/client.ts';
import { proveScope } from '../../cli/batch/review.ts';
import { bareHashing, rebootsOfAll } from './scope-leaves.ts';
import { inTurns } from './turns.ts';

const [apiUrl = '', bearer = '', batchId = '', mode = ''] = process.argv.slice(2);
const client = createBatchClient({ apiUrl: () => apiUrl, bearer: () => bearer });

/** Batch, pages, root: throws where the leaves that are listed are not the ones to be signed. */
const ours = async (): Promise<void> => {
  const { batch, leaves } = await client.collect(batchId);
  proveScope(batch, leaves);
};

if (mode === 'memory') {
  const before = process.memoryUsage.rss();
  await ours();
  const mib = (bytes: number): number => Math.round(bytes / 2 ** 20);
  process.stdout.write(`${JSON.stringify({ peakMiB: mib(process.resourceUsage().maxRSS * 1_024), startMiB: mib(before) })}\n`);
} else {
  const bare = bareHashing(batchId, rebootsOfAll());
  process.stdout.write(`${JSON.stringify(await inTurns({ ours, bare, perRound: 1, rounds: 7, warmUps: 2 }))}\n`);
}
