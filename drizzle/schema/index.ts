/**
 * The tables as drizzle's typed builder sees them. The migrations are the truth; a test compares these with a migrated
 * database, column by column, so that neither changes alone. Constraints, indexes and fill factors live in the migrations only.
 */
export { auditCheckpoints, auditCounter, auditEvents } from './audit.ts';
export { approverSetChanges, commandBatchApprovals, commandBatches, commandBatchMembers, commandBatchScope, tenants } from './batches.ts';
export { reservations } from './capacity.ts';
export { commandProgress, commandWaits, completionOutbox, nodeCommands, nodeQueue, nodeResults } from './commands.ts';
export { enrolments } from './enrolments.ts';
export { joinRequests, joinTokens, renewReplays, tpmChallenges } from './join.ts';
export {
  bootEntries,
  machineBmcs,
  machineDisks,
  machineIdentities,
  machines,
  machineTombstones,
  metalEvidence,
  metalRunSteps,
  metalRuns,
} from './machines.ts';
export { nodeCerts, nodes, revocationCounter, sites } from './nodes.ts';
export { bundleFreshness, controlProcesses, pkiBundle, workerCerts } from './processes.ts';
export { rotationEvidence, rotationOverrides } from './rotations.ts';
export { secrets } from './secrets.ts';
export { nodePresence, nodeSessions } from './sessions.ts';
export { sshCertificates } from './ssh.ts';
export { trustBundleHistory, trustBundleState } from './trust.ts';
export { workloadInstances, workloadIssuers } from './workload.ts';
