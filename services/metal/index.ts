/** Everything that is done with machines and their runs; types.ts says what holds. What operators look at: machine-views.ts, run-views.ts. */
export { closeBoots, createBootEntry, endRunIdentity } from './boot-entries.ts';
export { recordEvidence } from './evidence.ts';
export { finishRun } from './finish-run.ts';
export { importMachines } from './import.ts';
export { readInventory } from './inventory-text.ts';
export { addMachine, deleteMachine, liftTombstone, overrideMachine } from './machines.ts';
export { quarantineMachine } from './moves.ts';
export { observeMachine, readRunFacts, standingOfRun } from './observe.ts';
export { planRun } from './plan-run.ts';
export { assertProfile, parseProfileText, readProfileText } from './profile-text.ts';
export { recordDisks, recordInventory, recordPower } from './record-reports.ts';
export { placesOf } from './rows.ts';
export { createRunBatch, leavesOfRun, recordRunMessage, recordSteps } from './run-records.ts';
export { encodePlannedPayload, metalBatchScope } from './scope.ts';
export { agentsOfSite, siteOverview } from './sites.ts';
