/** Everything that is done with batches; types.ts says what holds. */
export { type ApprovalInput, recordApproval } from './approve.ts';
export { cancelBatch, closeBatch, type EndedBatch, type ExpiredBatches, expireBatches, openBatches } from './close.ts';
export { type CreateBatchContext, type CreateBatchRequest, createCommandBatch } from './create.ts';
export { assertMayRun } from './may-run.ts';
export { readOverview, type ScopeOverview } from './overview.ts';
export { batchProgress, labelsAhead, listBatches, progressByLabel, readBatch, readScopePage } from './read.ts';
export { type ReleaseContext, type ReleaseRequest, releaseRange } from './release.ts';
export type {
  BatchProgress,
  BatchView,
  CreatedBatch,
  LabelProgress,
  LeafInput,
  RecordedApproval,
  ReleasedRange,
  ScopePage,
  ScopePageLeaf,
} from './types.ts';
