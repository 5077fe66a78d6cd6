/**
 * The routes and pages of machines over the database and the workflows. Whose a machine is, is asked first, in the words in which one that
 * is not there is answered; what a person changes is judged and recorded by the services.
 */
import { ControlError } from '../domain/errors.ts';
import { profileCommandKinds } from '../domain/metal/profile.ts';
import { stepsOf } from '../domain/metal/steps.ts';
import type { Database } from '../drizzle/client.ts';
import type { PkiBundle } from '../pki/bundle/index.ts';
import { assertOwnNodes } from '../services/batches/index.ts';
import { finishRun } from '../services/metal/finish-run.ts';
import { importMachines } from '../services/metal/import.ts';
import { readInventory } from '../services/metal/inventory-text.ts';
import { countMachines, getMachine, listMachines } from '../services/metal/machine-views.ts';
import { addMachine, deleteMachine, liftTombstone, overrideMachine, type SignedChange } from '../services/metal/machines.ts';
import { assertProfile, readProfileText } from '../services/metal/profile-text.ts';
import { evidenceOf, getRun, listRuns } from '../services/metal/run-views.ts';
import { siteOverview } from '../services/metal/sites.ts';
import type { MachineDetail } from '../services/metal/view-types.ts';
import { defaultTenant } from '../services/tenants.ts';
import type { OperatorMachines } from './metal-ports.ts';
import { isGone, type MetalWorkflows } from './metal-workflows.ts';
import { assertTenantOf, type Principal } from './principal.ts';

export interface OperatorMachinesOptions {
  readonly db: Database;
  readonly bundle: () => PkiBundle;
  readonly workflows: MetalWorkflows;
  now(): number;
}

export const createOperatorMachines = (options: OperatorMachinesOptions): OperatorMachines => ({
  ...readsOf(options),
  ...runsOf(options),
  ...changesOf(options),
});

/** @throws NOT_FOUND, also for another tenant's */
const ownOf =
  ({ db, now }: OperatorMachinesOptions) =>
  ({ tenants }: Principal, id: string): Promise<MachineDetail> =>
    getMachine(db, id, { tenants, now: now() });

type Reads = Pick<OperatorMachines, 'list' | 'counts' | 'get' | 'runs' | 'run' | 'evidence' | 'sites' | 'site' | 'judgeProfile'>;

function readsOf(options: OperatorMachinesOptions): Reads {
  const { db, bundle, workflows, now } = options;
  const own = ownOf(options);
  return {
    list: ({ tenants }, page) => listMachines(db, { ...page, tenants, now: now() }),
    counts: ({ tenants }) => countMachines(db, tenants),
    async get(principal, id) {
      const machine = await own(principal, id);
      const workflowId = machine.runs.find((run) => run.id === machine.run?.id)?.workflowId;
      return { ...machine, live: workflowId === undefined ? null : await workflows.status(workflowId) };
    },
    runs: ({ tenants }, page) => listRuns(db, { ...page, tenants }),
    run: ({ tenants }, id) => getRun(db, id, tenants),
    async evidence({ tenants }, id) {
      const { machineId } = await getRun(db, id, tenants);
      const { trustDomain, rootCa } = bundle();
      const documents = await evidenceOf(db, id);
      return {
        runId: id,
        machineId,
        trustDomain,
        anchors: rootCa.certificates.map(({ der }) => base64(der)),
        documents: documents.map(({ kind, commandId, body, signature }) => ({
          kind,
          commandId,
          document: base64(body),
          signature: base64(signature),
        })),
      };
    },
    sites: ({ tenants }, sites) => siteOverview(db, { sites, tenants, now: now() }),
    async site({ tenants }, id) {
      const [found] = await siteOverview(db, { sites: [id], tenants, now: now() });
      if (found !== undefined) return found;
      throw new ControlError('NOT_FOUND', `no site is called ${id}`, { details: { reason: 'unknown-site', siteId: id } });
    },
    judgeProfile(text) {
      const { profile, problems } = readProfileText(text);
      return { name: profile?.name ?? null, problems, kinds: profile === null ? [] : profileCommandKinds(profile, stepsOf.provision) };
    },
  };
}

function runsOf(options: OperatorMachinesOptions): Pick<OperatorMachines, 'begin' | 'reimage' | 'steer'> {
  const { db, workflows, now } = options;
  const own = ownOf(options);
  return {
    async begin(principal, id, { kind, actor, reason, profile }) {
      await own(principal, id);
      const order = { machineId: id, actor, reason };
      // A profile that cannot be used would only fail later, out of the caller's sight.
      return workflows.start(kind, profile === undefined ? order : { ...order, profile: { ...assertProfile(profile, kind) } });
    },
    async reimage({ tenants }, { limits, stop, profile, ...order }) {
      await assertOwnNodes(db, { nodes: order.machines, tenants });
      const bounds = { ...(limits === undefined ? {} : { limits: given(limits) }), ...(stop === undefined ? {} : { stop: given(stop) }) };
      return workflows.startReimage({ ...order, profile: { ...assertProfile(profile, 'provision') }, ...bounds });
    },
    async steer(principal, id, { what, actor, reason, step }) {
      const machine = await own(principal, id);
      const run = machine.runs.find((one) => one.id === machine.run?.id);
      if (run === undefined) throw nothingRuns(id);
      try {
        const said = { actor, reason, ...(step === undefined ? {} : { step }) };
        const status = await workflows.steer(run.workflowId, what, said);
        if (status === null)
          return { told: 'waits', phase: '', step: machine.run?.step ?? '', waitsFor: '', next: '', end: null, remains: null };
        return { told: 'answered', ...status };
      } catch (error) {
        // Its workflow was taken away: the run is ended here, by what the database knows (M58).
        if (what !== 'give-up' || !isGone(error)) throw error;
        const ended = await finishRun(db, { runId: run.id, end: 'failed', reason: `workflow-gone: ${reason}`, actor, now: now() });
        return { told: 'ended', phase: 'done', step: '', waitsFor: '', next: '', end: ended.end, remains: ended.remains };
      }
    },
  };
}

function changesOf(options: OperatorMachinesOptions): Pick<OperatorMachines, 'add' | 'import' | 'change'> {
  const { db, now } = options;
  const own = ownOf(options);
  return {
    async add(principal, { machine, actor }) {
      assertTenantOf(principal, machine.tenantId ?? defaultTenant);
      await addMachine(db, given(machine), { actor, now: now() });
      return { added: [machine.id], dryRun: false };
    },
    async import(principal, order) {
      // What cannot be read is refused below, with its lines; here only whose the machines would be.
      for (const { machine } of readInventory(order.text, order.format).entries)
        assertTenantOf(principal, machine.tenantId ?? defaultTenant);
      return importMachines(db, { ...order, now: now() });
    },
    async change(principal, id, { what, actor, reason }) {
      await own(principal, id);
      const tombstone = await changes[what](db, { machineId: id, actor, reason, now: now() });
      return { id, state: (await own(principal, id)).state, tombstone };
    },
  };
}

/** @returns whether a tombstone stands after it */
const changes: Readonly<Record<'release' | 'forget' | 'readmit', (db: Database, change: SignedChange) => Promise<boolean>>> = Object.freeze(
  {
    release: async (db, change) => {
      await overrideMachine(db, change);
      return false;
    },
    forget: async (db, change) => (await deleteMachine(db, change)).tombstone,
    readmit: async (db, change) => {
      await liftTombstone(db, change);
      return false;
    },
  },
);

const nothingRuns = (machineId: string): ControlError =>
  new ControlError('NOT_FOUND', `nothing runs on ${machineId}`, {
    details: { reason: 'no-run', machineId, hint: `better-compute machine show ${machineId}` },
  });

const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64');

/** Without the fields that are not there: absent and undefined are one. */
const given = <T extends object>(values: T): { [K in keyof T]: Exclude<T[K], undefined> } =>
  Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as { [K in keyof T]: Exclude<T[K], undefined> };
