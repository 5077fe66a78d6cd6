/** What the site in memory is made of: the rows of a run and of a machine, a profile, the answers where all is well. */
import { create, type DescMessage, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import type { BootEntry, FinishRunInput, PlannedRun, PlanRunInput, RunFacts } from '../../activities/metal-ports.ts';
import type { MachineState } from '../../domain/metal/life-cycle.ts';
import type { Profile } from '../../domain/metal/profile.ts';
import type { Remains } from '../../domain/metal/run-ends.ts';
import {
  DeployImageResultSchema,
  DiagDcgmReportSchema,
  DiagDisksReportSchema,
  DiskWipeResultSchema,
  driver,
  NodeRebootResultSchema,
  ServiceRestartResultSchema,
  site,
} from '../../proto/index.ts';

export interface Run {
  readonly plan: PlannedRun;
  readonly input: PlanRunInput;
  readonly before: MachineState;
  batchId: string | null;
  entry: BootEntry | null;
  wiped: boolean;
  deployed: boolean;
  end: FinishRunInput['end'] | null;
  remains: Remains | null;
}

export interface Machine {
  state: MachineState;
  stateReason: string;
  power: 'on' | 'off' | 'changing' | 'unknown';
  role: string;
  generation: number;
  connected: boolean;
}

const packed = <D extends DescMessage>(schema: D, init: MessageInitShape<D>): Uint8Array => toBinary(schema, create(schema, init));

export const testProfile = (over: Partial<Profile> = {}): Profile => ({
  name: 'test',
  description: '',
  boot: {
    kernel: { name: 'vmlinuz', sha256: 'aa'.repeat(32) },
    initramfs: { name: 'initramfs.gz', sha256: 'bb'.repeat(32) },
    kernelArgs: '',
    graceful: false,
    bootTimeMs: 3_000,
    discoveryWindowMs: 3_600_000,
  },
  diagnose: {},
  wipe: { keep: [], methods: [], samples: 0 },
  deploy: {
    image: { url: 'http://images/x.raw', sha256: 'cc'.repeat(32), bytes: 0, format: 'raw', compression: 'none' },
    disk: {},
    pick: 'only',
    growPartition: 0,
    userDataRef: '',
    metaData: {},
    networkConfig: '',
  },
  start: { by: 'kexec', joinWithinMs: 3_000, kernelArgs: '' },
  steps: [],
  ...over,
});

/** What a machine or a controller answers where all is well. */
export function resultOf(
  kind: string,
  { payload, machine, scriptsServed }: { payload: Record<string, unknown>; machine: Machine; scriptsServed: number },
): Uint8Array {
  const observedAtMs = BigInt(Date.now());
  const off = payload['action'] === site.PowerAction.OFF_HARD;
  const results: Record<string, () => Uint8Array> = {
    'bmc.power': () => packed(site.BmcPowerResultSchema, { state: off ? site.PowerState.OFF : site.PowerState.ON, observedAtMs }),
    'bmc.inventory': () => packed(site.BmcInventoryReportSchema, { serial: 'S1' }),
    'boot.cleanUp': () => packed(site.BootCleanUpResultSchema, { removed: 1, scriptsServed, lastSeenAtMs: observedAtMs }),
    'diag.disks': () => packed(DiagDisksReportSchema, { disks: [{ name: 'sda', serial: 'D1' }] }),
    'diag.dcgm': () => packed(DiagDcgmReportSchema, { ran: true }),
    'driver.invoke': () => packed(driver.DriverInvokeResultSchema, { output: Buffer.from('ok') }),
    'site.httpProxy': () => packed(site.SiteHttpProxyResultSchema, { status: 200 }),
    'service.restart': () => packed(ServiceRestartResultSchema, { activeState: 'active' }),
    'node.reboot': () => packed(NodeRebootResultSchema, { bootIdBefore: 'a', bootIdAfter: 'b' }),
    'disk.wipe': () => packed(DiskWipeResultSchema, { evidence: { body: new TextEncoder().encode(`erase ${machine.generation}`) } }),
    'deploy.image': () => packed(DeployImageResultSchema, { evidence: { body: new TextEncoder().encode('deploy') } }),
  };
  return results[kind]?.() ?? new Uint8Array(0);
}

export function factsOf(runId: string, { run, machine }: { run: Run; machine: Machine }): RunFacts {
  const { plan, input, batchId, entry, end, remains } = run;
  const summary = {
    id: runId,
    machineId: plan.machineId,
    kind: plan.kind,
    workflowId: input.workflowId,
    state: end ?? 'open',
    remains,
    endReason: '',
    profileName: '',
    batchId,
    actor: input.actor,
    reason: input.reason,
    startedAt: 0,
    endedAt: null,
    endedBy: '',
  } as const;
  return {
    run: summary,
    isOpen: end === null,
    machine: {
      id: plan.machineId,
      siteId: 's1',
      rack: 'r1',
      tenantId: 'default',
      state: machine.state,
      stateSince: 0,
      stateReason: machine.stateReason,
      generation: machine.generation,
      manufacturer: '',
      model: '',
      memoryBytes: 0,
      processors: 0,
      profileName: '',
      power: machine.power,
      powerAt: null,
      inspectedAt: null,
      createdAt: 0,
      createdBy: '',
      bmc: {
        address: '10.0.0.1',
        systemId: '',
        credentialRef: `secret://bmc/${plan.machineId}`,
        pinSha256: 'dd'.repeat(32),
        profile: {},
      },
      run: summary,
    },
    profile: input.profile as unknown as Profile | null,
    actions: plan.actions,
    macAddresses: ['00:11:22:33:44:55'],
    disks: [
      {
        key: 'D1',
        name: 'sda',
        serial: 'D1',
        wwn: '',
        model: 'X',
        sizeBytes: 1_000,
        transport: 'sata',
        rotational: false,
        origin: 'ramdisk',
        seenAt: 0,
      },
    ],
    bootEntry: entry,
    node: {
      state: 'active',
      role: machine.role,
      generation: machine.generation,
      connectedRole: machine.connected ? machine.role : null,
      certificateRole: machine.generation === 1 ? null : machine.role,
      certifiedAt: null,
    },
  };
}
