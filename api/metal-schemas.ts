/** The messages of the routes for machines, their runs, sites and profiles. Their meaning is judged by the services. */
import { z } from 'zod';
import { commandStates } from '../domain/commands/states.ts';
import { machineStates } from '../domain/metal/life-cycle.ts';
import { command, limited, nodeId, reason } from './schemas.ts';

const instant = z.number().describe('Unix milliseconds');
const text = (most: number) => z.string().max(most);
const name = text(255).min(1);
/** What only the holder of the operator token may say in a field: an identity provider says it in the token. */
const actor = name.max(128).optional();

const runKind = z.enum(['provision', 'retire', 'inspect', 'rotate-bmc']);
const runState = z.enum(['open', 'done', 'failed', 'cancelled']);
const remains = z.enum(['untouched', 'clean', 'dirty']);

const openRun = z.object({
  id: z.string(),
  kind: runKind,
  startedAt: instant,
  step: z.string().describe('empty before the first'),
  attempt: z.int(),
  stepSince: instant,
});

export const machine = z.object({
  id: z.string(),
  tenantId: z.string(),
  siteId: z.string(),
  rack: z.string(),
  state: z.enum(machineStates),
  stateSince: instant,
  stateReason: z.string(),
  manufacturer: z.string(),
  model: z.string(),
  memoryBytes: z.number(),
  processors: z.int(),
  profileName: z.string().describe('what is on it'),
  power: z.string(),
  powerAt: instant.nullable(),
  inspectedAt: instant.nullable(),
  createdAt: instant,
  createdBy: z.string(),
  bmc: z.string().describe('host and port of its controller'),
  connected: z.boolean(),
  lastSeenAt: instant.nullable(),
  run: openRun.nullable().describe('the open run, with the step it is at'),
});

export const machinePage = z.strictObject({
  after: text(255).default(''),
  limit: limited.shape.limit,
  state: z.enum(machineStates).optional(),
  site: text(255).optional(),
});
export const machines = z.object({ machines: z.array(machine), next: z.string().nullable() });
export const machineCounts = z.object({
  counts: z.array(z.object({ siteId: z.string(), state: z.enum(machineStates), machines: z.int() })).readonly(),
});

const runSummary = z.object({
  id: z.string(),
  machineId: z.string(),
  kind: runKind,
  workflowId: z.string(),
  state: runState,
  remains: remains.nullable().describe('what a run left that did not end as it was meant to'),
  endReason: z.string(),
  actor: z.string(),
  reason: z.string(),
  batchId: z.string().nullable(),
  startedAt: instant,
  endedAt: instant.nullable(),
  endedBy: z.string(),
});

const { progress } = command.shape;

export const machineDetail = machine.extend({
  systemId: z.string(),
  pinSha256: z.string().nullable().describe('of the controller’s key; null before the first contact'),
  credentialRef: z.string(),
  identities: z.array(z.object({ source: z.string(), value: z.string(), origin: z.string(), lastSeenAt: instant })).readonly(),
  shared: z
    .array(z.object({ value: z.string(), others: z.array(z.string()).readonly(), hidden: z.int() }))
    .readonly()
    .describe('values that other machines have too; hidden: how many of them the caller does not see'),
  disks: z
    .array(
      z.object({
        name: z.string(),
        serial: z.string(),
        wwn: z.string(),
        model: z.string(),
        sizeBytes: z.number(),
        transport: z.string(),
        origin: z.string(),
        seenAt: instant,
      }),
    )
    .readonly(),
  runs: z.array(runSummary).readonly().describe('the newest first'),
  working: z
    .array(z.object({ commandId: z.string(), kind: z.string(), progress: progress.unwrap() }))
    .readonly()
    .describe('commands that say how far they are'),
  live: z
    .object({
      phase: z.string(),
      step: z.string(),
      attempt: z.int(),
      deadline: instant.nullable(),
      waitsFor: z.string(),
      last: z.object({ commandId: z.string(), state: z.string(), message: z.string(), at: instant }).nullable(),
      next: z.string(),
    })
    .nullable()
    .describe('what the open run says itself; null without one, or while no worker answers'),
});

export const runPage = z.strictObject({ machine: text(255).optional(), state: runState.optional(), limit: limited.shape.limit });
export const runs = z.object({ runs: z.array(runSummary) });
export const run = runSummary.extend({
  siteId: z.string(),
  bmc: z.string(),
  steps: z
    .array(
      z.object({
        step: z.string(),
        attempt: z.int(),
        state: z.enum(['started', 'done', 'failed', 'skipped']),
        detail: z.string(),
        actor: z.string(),
        startedAt: instant,
        endedAt: instant.nullable(),
      }),
    )
    .readonly(),
  commands: z
    .array(
      z.object({
        id: z.string(),
        nodeId: z.string(),
        kind: z.string(),
        state: z.enum(Object.keys(commandStates) as [keyof typeof commandStates]),
        createdAt: instant,
        finishedAt: instant.nullable(),
        answer: z.string().describe('what the machine or its controller said; empty for a success'),
        progress,
      }),
    )
    .readonly(),
  evidence: z
    .array(
      z.object({ id: z.string(), kind: z.enum(['erase', 'deploy']), commandId: z.string(), complete: z.boolean(), finishedAt: instant }),
    )
    .readonly(),
});

/** One machine as a person gives it. */
export const newMachine = z.strictObject({
  id: text(255),
  siteId: text(255),
  rack: text(255).optional(),
  bmcAddress: text(512),
  bmcSystemId: text(255).optional(),
  credentialRef: text(512).optional(),
  bmcPinSha256: text(128).optional(),
  serial: text(255).optional(),
  uuid: text(255).optional(),
  macAddresses: z.array(text(64)).max(64).optional(),
  tenantId: text(128).optional(),
});
export const addMachine = z.strictObject({ machine: newMachine, actor });
export const importMachines = z.strictObject({
  text: text(8 * 2 ** 20).describe('the inventory, as it stands in the file'),
  format: z.enum(['csv', 'yaml']),
  dryRun: z.boolean().default(false).describe('judge everything, store nothing'),
  actor,
});
export const addedMachines = z.object({ added: z.array(z.string()).readonly(), dryRun: z.boolean() });

const document = z.record(z.string(), z.unknown());
export const runOrder = z.strictObject({ actor, reason });
export const provisionOrder = runOrder.extend({ profile: document });
export const overrideWords = runOrder.extend({
  step: name.max(40).describe('the step that was checked: the one that waits'),
});
export const steered = z.object({
  told: z.enum(['answered', 'waits', 'ended']).describe('the run has answered; the words wait for a worker; nothing ran any more'),
  phase: z.string(),
  step: z.string(),
  waitsFor: z.string(),
  next: z.string(),
  end: z.string().nullable(),
  remains: z.string().nullable(),
});
export const changedMachine = z.object({
  id: z.string(),
  state: z.enum(machineStates),
  tombstone: z.boolean().describe('its hardware is kept out until the tombstone is lifted'),
});

export const reimageOrder = z.strictObject({
  run: name.max(40),
  machines: z.array(nodeId).min(1, 'names no machine').max(20_000, 'names more than 20000 machines'),
  profile: document,
  limits: z.strictObject({ total: z.int().optional(), perRack: z.int().optional(), perSite: z.int().optional() }).optional(),
  stop: z.strictObject({ maxFailures: z.int().optional(), maxFailurePercent: z.int().optional() }).optional(),
  actor,
  reason,
});

export const runEvidence = z.object({
  runId: z.string(),
  machineId: z.string(),
  trustDomain: z.string(),
  /** Certificates (DER, base64) that the ramdisks' certificates lead to. */
  anchors: z.array(z.string()),
  documents: z.array(z.object({ kind: z.enum(['erase', 'deploy']), commandId: z.string(), document: z.string(), signature: z.string() })),
});

const site = z.object({
  siteId: z.string(),
  agents: z.array(z.object({ nodeId: z.string(), connected: z.boolean(), lastSeenAt: instant.nullable() })).readonly(),
  states: z.partialRecord(z.enum(machineStates), z.int()),
  racks: z.array(z.object({ rack: z.string(), machines: z.int() })).readonly(),
  openRuns: z.int(),
});
export const sites = z.object({ sites: z.array(site) });
export { site };

export const profileText = z.strictObject({ text: text(1_048_576) });
export const judgedProfile = z.object({
  name: z.string().nullable().describe('null for one that cannot be used'),
  problems: z.array(z.object({ line: z.int(), field: z.string(), message: z.string() })).readonly(),
  kinds: z.array(z.string()).describe('of the commands that a run of it sends'),
});
