/** Everything that is done with batches; types.ts says what holds. */
export { recordApproval } from './approve.ts';
export { cancelBatch, closeBatch, expireBatches, openBatches } from './close.ts';
export { type CreateBatchContext, type CreateBatchRequest, createCommandBatch } from './create.ts';
export { assertMayRun, assertOwnNodes } from './may-run.ts';
export { readOverview, type ScopeOverview } from './overview.ts';
export { batchProgress, labelsAhead, listBatches, progressByLabel, readBatch, readScopePage } from './read.ts';
export { releaseRange } from './release.ts';
export type {
  BatchView,
  CreatedBatch,
  LeafInput,
  ScopePageLeaf,
} from './types.ts';
