/** Everything that is done with machines and their runs; types.ts says what holds. */
export { closeBoots, createBootEntry, endRunIdentity, entryIdOf, findBootEntry, tokenRefOf } from './boot-entries.ts';
export { type RecordedEvidence, recordEvidence } from './evidence.ts';
export { finishRun } from './finish-run.ts';
export { type Imported, importMachines } from './import.ts';
export { type InventoryFormat, maxInventory, readInventory } from './inventory-text.ts';
export { addMachine, credentialRefOf, deleteMachine, liftTombstone, overrideMachine, type SignedChange } from './machines.ts';
export { quarantineMachine } from './moves.ts';
export { observeMachine, readRunFacts, type Standing, standingOfRun } from './observe.ts';
export { planRun, runIdOf } from './plan-run.ts';
export { assertProfile, parseProfileText, readProfileText } from './profile-text.ts';
export { type RecordedReport, recordDisks, recordInventory, recordPower } from './record-reports.ts';
export { getMachine, placesOf } from './rows.ts';
export { assertStepSends, createRunBatch, leavesOfRun, type RunMessage, recordRunMessage, recordStep } from './run-records.ts';
export { encodePlannedPayload, metalBatchScope, type PlannedTarget } from './scope.ts';
export { agentsOfSite, chooseAgent, siteOverview } from './sites.ts';
export { showProblems } from './yaml-text.ts';
