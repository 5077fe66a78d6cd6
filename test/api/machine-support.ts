/** Machines that live in memory, behind the ports of the api: what its pages, its routes and the commands are tested on. */
import type { OperatorMachines } from '../../api/metal-ports.ts';
import type { Principal } from '../../api/principal.ts';
import { ControlError } from '../../domain/errors.ts';
import { profileCommandKinds } from '../../domain/metal/profile.ts';
import { stepsOf } from '../../domain/metal/steps.ts';
import { readInventory } from '../../services/metal/inventory-text.ts';
import { readProfileText } from '../../services/metal/profile-text.ts';
import type { SiteOverview } from '../../services/metal/types.ts';
import type { RunDetail } from '../../services/metal/view-types.ts';

export const now = Date.UTC(2030, 0, 1, 12);

export type ShownMachine = Awaited<ReturnType<OperatorMachines['get']>>;
type Evidence = Awaited<ReturnType<OperatorMachines['evidence']>>;

export const aMachine = (id: string, over: Partial<ShownMachine> = {}): ShownMachine => ({
  id,
  tenantId: 'default',
  siteId: 'hel-1',
  rack: 'r7',
  state: 'available',
  stateSince: now - 3_600_000,
  stateReason: '',
  manufacturer: 'Dell Inc.',
  model: 'PowerEdge R750',
  memoryBytes: 549_755_813_888,
  processors: 64,
  profileName: '',
  power: 'off',
  powerAt: now - 60_000,
  inspectedAt: now - 86_400_000,
  createdAt: now - 172_800_000,
  createdBy: 'ann',
  bmc: '10.7.0.17',
  connected: false,
  lastSeenAt: null,
  run: null,
  systemId: 'System.Embedded.1',
  pinSha256: 'ab'.repeat(32),
  credentialRef: `secret://bmc/${id}`,
  identities: [{ source: 'redfish-system-serial', value: '8XK2P', origin: 'controller', lastSeenAt: now - 86_400_000 }],
  shared: [],
  disks: [
    {
      name: 'nvme0n1',
      serial: 'S6CKNT0W',
      wwn: 'eui.36434b3052b00001',
      model: 'PM1733',
      sizeBytes: 1_920_383_410_176,
      transport: 'nvme',
      origin: 'ramdisk',
      seenAt: now - 60_000,
    },
  ],
  runs: [],
  working: [],
  live: null,
  ...over,
});

export const aMetalRun = (id: string, over: Partial<RunDetail> = {}): RunDetail => ({
  id,
  machineId: 'gpu-0117',
  kind: 'provision',
  workflowId: 'machine/gpu-0117/provision',
  state: 'open',
  remains: null,
  endReason: '',
  actor: 'ann',
  reason: 'new tenant',
  batchId: 'b-7f3a',
  startedAt: now - 600_000,
  endedAt: null,
  endedBy: '',
  siteId: 'hel-1',
  bmc: '10.7.0.17',
  steps: [
    {
      step: 'approve',
      attempt: 1,
      state: 'done',
      detail: '2 of 2 approvals',
      actor: 'workflow',
      startedAt: now - 600_000,
      endedAt: now - 480_000,
    },
    {
      step: 'boot',
      attempt: 1,
      state: 'failed',
      detail: 'the controller did not answer',
      actor: 'workflow',
      startedAt: now - 480_000,
      endedAt: now - 420_000,
    },
    { step: 'boot', attempt: 2, state: 'done', detail: '', actor: 'workflow', startedAt: now - 420_000, endedAt: now - 300_000 },
    { step: 'wipe', attempt: 1, state: 'started', detail: '', actor: 'workflow', startedAt: now - 240_000, endedAt: null },
  ],
  commands: [
    {
      id: 'machine/gpu-0117/provision/r/boot.1',
      nodeId: 'agent-1',
      kind: 'bmc.power',
      state: 'failed',
      createdAt: now - 480_000,
      finishedAt: now - 430_000,
      answer: 'UNAVAILABLE: the controller at 10.7.0.17 does not answer',
    },
    {
      id: 'machine/gpu-0117/provision/r/wipe.1',
      nodeId: 'gpu-0117',
      kind: 'disk.wipe',
      state: 'acked',
      createdAt: now - 240_000,
      finishedAt: null,
      answer: '',
      progress: aProgress(),
    },
  ],
  evidence: [],
  ...over,
});

export const aProgress = () => ({
  done: 480_000_000_000,
  total: 1_920_383_410_176,
  note: 'overwriting nvme0n1',
  at: now - 1_000,
  firstDone: 0,
  firstAt: now - 241_000,
});

/** A machine in the middle of its wipe, with its run. */
export function aWipedMachine(): { machine: ShownMachine; run: RunDetail } {
  const run = aMetalRun('0c4f5a6b7d8e');
  const machine = aMachine('gpu-0117', {
    state: 'provisioning',
    stateSince: now - 600_000,
    power: 'on',
    run: { id: run.id, kind: 'provision', startedAt: run.startedAt, step: 'wipe', attempt: 1, stepSince: now - 240_000 },
    runs: [run],
    working: [{ commandId: 'machine/gpu-0117/provision/r/wipe.1', kind: 'disk.wipe', progress: aProgress() }],
    live: {
      phase: 'wiping',
      step: 'wipe',
      attempt: 1,
      deadline: now + 3_600_000,
      waitsFor: 'gpu-0117 to finish disk.wipe',
      last: { commandId: 'x', state: 'done', message: '', at: now - 250_000 },
      next: 'better-compute machine show gpu-0117 --watch',
    },
  });
  return { machine, run };
}

export interface FakeMachines {
  machines: ShownMachine[];
  runs: RunDetail[];
  sites: SiteOverview[];
  evidence: Evidence[];
  /** What was asked for, in order: the name of the call and what was given. */
  readonly asked: [string, unknown][];
  /** Thrown by the next change or word. */
  refuses: ControlError | null;
  steered: Awaited<ReturnType<OperatorMachines['steer']>>;
}

export const createFakeMachines = (): FakeMachines => ({
  machines: [],
  runs: [],
  sites: [],
  evidence: [],
  asked: [],
  refuses: null,
  steered: { told: 'answered', phase: 'going-back', step: 'wipe', waitsFor: 'the wipe to end', next: '', end: null, remains: null },
});

const orNotFound = <T>(value: T | undefined, message: string): T => {
  if (value === undefined) throw new ControlError('NOT_FOUND', message, { details: { reason: 'unknown' } });
  return value;
};

export function machinePortsOf(fake: FakeMachines): OperatorMachines {
  const ask = (name: string, given: unknown): void => {
    if (fake.refuses !== null) throw fake.refuses;
    fake.asked.push([name, given]);
  };
  const sees = ({ tenants }: Principal, { tenantId }: { tenantId: string }): boolean => tenants === 'all' || tenants.includes(tenantId);
  const own = (principal: Principal, id: string): ShownMachine =>
    orNotFound(
      fake.machines.find((machine) => machine.id === id && sees(principal, machine)),
      `no machine is called ${id}`,
    );
  const counts: OperatorMachines['counts'] = async () => {
    const keys = [...new Set(fake.machines.map(({ siteId, state }) => `${siteId} ${state}`))];
    return keys.map((key) => {
      const here = fake.machines.filter(({ siteId, state }) => `${siteId} ${state}` === key);
      return { siteId: here[0]?.siteId ?? '', state: here[0]?.state ?? 'registered', machines: here.length };
    });
  };
  return {
    list: async (principal, { after, limit, state, siteId }) =>
      fake.machines
        .filter((machine) => sees(principal, machine) && machine.id > after)
        .filter((machine) => (state === undefined || machine.state === state) && (siteId === undefined || machine.siteId === siteId))
        .slice(0, limit),
    counts,
    get: async (principal, id) => own(principal, id),
    runs: async () => fake.runs,
    run: async (_principal, id) =>
      orNotFound(
        fake.runs.find((run) => run.id === id),
        `no run is called ${id}`,
      ),
    evidence: async (_principal, id) =>
      fake.evidence.find(({ runId }) => runId === id) ?? { runId: id, machineId: '', trustDomain: '', anchors: [], documents: [] },
    sites: async () => fake.sites,
    site: async (_principal, id) =>
      orNotFound(
        fake.sites.find(({ siteId }) => siteId === id),
        `no site is called ${id}`,
      ),
    judgeProfile: (text) => {
      const { profile, problems } = readProfileText(text);
      return { name: profile?.name ?? null, problems, kinds: profile === null ? [] : profileCommandKinds(profile, stepsOf.provision) };
    },
    async add(_principal, order) {
      ask('add', order);
      return { added: [order.machine.id], dryRun: false };
    },
    async import(_principal, order) {
      ask('import', order);
      return { added: readInventory(order.text, order.format).entries.map(({ machine }) => machine.id), dryRun: order.dryRun };
    },
    async begin(principal, id, order) {
      own(principal, id);
      ask('begin', { id, ...order });
      return { workflowId: `machine/${id}/${order.kind}`, runId: 'run-9' };
    },
    async reimage(_principal, order) {
      ask('reimage', order);
      return { workflowId: `fleet/${order.run}/reimage`, runId: 'run-8' };
    },
    async steer(principal, id, order) {
      own(principal, id);
      ask('steer', { id, ...order });
      return fake.steered;
    },
    async change(principal, id, order) {
      const { state } = own(principal, id);
      ask('change', { id, ...order });
      return {
        id,
        state: order.what === 'forget' ? 'deleted' : order.what === 'release' ? 'available' : state,
        tombstone: order.what === 'forget',
      };
    },
  };
}
