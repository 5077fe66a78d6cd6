/**
 * A site with machines in memory, at the ports of the runs' activities: what the database, the site agents, the boot server and the
 * machines would be. The workflows and the activities above it are the real ones.
 */
import { createHash } from 'node:crypto';
import { fromBinary } from '@bufbuild/protobuf';
import { AnySchema, anyUnpack } from '@bufbuild/protobuf/wkt';
import type { BatchFacts } from '../../activities/batch-ports.ts';
import type { EnqueueItem } from '../../activities/command-ports.ts';
import { plannedOwnSteps } from '../../activities/metal-own-steps.ts';
import type {
  CommandAnswer,
  FinishRunInput,
  MetalControlPorts,
  MetalKeysPort,
  MetalRunsPort,
  MetalSigningPorts,
  PlannedRun,
  PlanRunInput,
  RunFacts,
  RunMessage,
  StepRecord,
} from '../../activities/metal-ports.ts';
import { isFinished } from '../../domain/commands/states.ts';
import { ControlError } from '../../domain/errors.ts';
import { type MachineState, moveMachine } from '../../domain/metal/life-cycle.ts';
import { powerPlan } from '../../domain/metal/plan.ts';
import type { Profile } from '../../domain/metal/profile.ts';
import { claimOf, type DestructiveFact, endMove, type Remains, remainsOf } from '../../domain/metal/run-ends.ts';
import { runSteps } from '../../domain/metal/steps.ts';
import { protocolRegistry, site } from '../../proto/index.ts';
import { factsOf, type Machine, type Run, resultOf } from './metal-rows.ts';

interface Stored extends CommandAnswer {
  readonly id: string;
  readonly payload: Uint8Array;
  readonly batchId: string | undefined;
  state: CommandAnswer['state'];
  error: string;
  result: Uint8Array | null;
}

export type Reply = { readonly state?: CommandAnswer['state']; readonly error?: string; readonly result?: Uint8Array | null } | 'hold';

export class MetalWorld implements MetalControlPorts, MetalSigningPorts {
  readonly machines = new Map<string, Machine>();
  readonly runsById = new Map<string, Run>();
  readonly stored = new Map<string, Stored>();
  readonly waits = new Map<string, { workflowId: string; runId: string; activityId: string }>();
  readonly steps: StepRecord[] = [];
  readonly messages: RunMessage[] = [];
  readonly watched: string[] = [];
  readonly ended: FinishRunInput[] = [];
  readonly identitiesEnded: string[] = [];
  readonly adopted: string[] = [];
  readonly closedBoots: string[] = [];
  readonly cancelledBatches: string[] = [];
  /** As they came into the queue. */
  readonly enqueued: EnqueueItem[] = [];
  /** Acts and numbers of commands, each time one has its effect. */
  readonly effects: string[] = [];
  readonly siteAgents = [{ nodeId: 'agent-a', connected: true }];
  readonly seen = new Map<string, number>();
  /** Of the run's batch; held: approvers are asked. */
  approval: { held: boolean; state: BatchFacts['state'] } = { held: false, state: 'approved' };
  approvalOf: (machineId: string) => MetalWorld['approval'] = () => this.approval;
  scriptsServed = 0;
  /** How a command ends, by act; default: as it should. */
  readonly reply = new Map<string, (n: number, item: EnqueueItem) => Reply>();
  /** Whether a network boot of a machine brings its ramdisk; asked with the number of the boot. */
  netboots: (boot: number, machineId: string) => boolean = () => true;
  /** Whether the system joins behind the jump, and behind a boot from the disk. */
  systemJoins: (by: 'kexec' | 'disk', machineId: string) => boolean = () => true;
  before: (call: string, machineId: string) => void = () => {};
  now = Date.now;

  constructor(machines: readonly string[] = ['m1'], state: MachineState = 'available') {
    for (const id of machines)
      this.machines.set(id, { state, stateReason: '', power: 'off', role: 'node', generation: 1, connected: false });
  }

  /** Nothing is heard: looks are by the clock. */
  words: MetalControlPorts['words'] = { listen: () => null };
  readonly watch = async (batchId: string): Promise<void> => void this.watched.push(batchId);
  readonly sites: MetalControlPorts['sites'] = {
    agents: async () => this.siteAgents,
    lastSeen: async (nodeId) => this.seen.get(nodeId) ?? Date.now(),
  };
  readonly answers: MetalControlPorts['answers'] = {
    find: async (id) => {
      const found = this.stored.get(id);
      return found === undefined ? undefined : { ...found };
    },
  };
  readonly commands: MetalSigningPorts['commands'] = {
    cancel: async (id) => {
      const found = this.stored.get(id);
      if (found !== undefined && !isFinished(found.state)) Object.assign(found, { state: 'cancelled', error: 'taken back' });
    },
    find: async (id) => this.stored.get(id),
    registerWait: async ({ commandId, workflowId, runId, activityId }) => {
      const found = this.stored.get(commandId);
      if (found === undefined) return 'unknown';
      this.waits.set(commandId, { workflowId, runId, activityId });
      return isFinished(found.state) ? 'finished' : 'waiting';
    },
  };
  readonly queue: MetalSigningPorts['queue'] = {
    enqueue: async (items) => {
      for (const item of items) {
        const [machineId] = this.#ofCommand(item.id);
        this.before(`send ${actOfId(item.id)}`, machineId);
        if (!this.stored.has(item.id)) this.#take(item);
        this.before(`sent ${actOfId(item.id)}`, machineId);
      }
      return { enqueued: items.length, existing: 0 };
    },
  };

  /** Ids of commands, by act and attempt. */
  get sent(): string[] {
    return [...this.stored.keys()].map((id) => id.slice(id.lastIndexOf('/') + 1));
  }

  /** The decision of a batch of a run. */
  decision(batchId: string): BatchFacts['state'] {
    return this.approvalOf(this.#run(batchId.slice(2)).plan.machineId).state;
  }

  machine(id = 'm1'): Machine {
    const found = this.machines.get(id);
    if (found === undefined) throw new ControlError('NOT_FOUND', `no machine is called ${id}`);
    return found;
  }

  /** A machine's command that was left open comes to its end. */
  finish(suffix: string, reply: Exclude<Reply, 'hold'> = {}): Stored {
    const found = [...this.stored.values()].find(({ id }) => id.endsWith(suffix));
    if (found === undefined) throw new Error(`no command ends in ${suffix}`);
    Object.assign(found, { state: 'done', ...reply });
    if (found.state === 'done') this.#effect(found);
    return found;
  }

  #take(item: EnqueueItem): void {
    this.enqueued.push(item);
    const act = actOfId(item.id);
    const command: Stored = {
      id: item.id,
      nodeId: item.nodeId,
      kind: item.kind,
      createdAt: Date.now(),
      state: 'open',
      errorCode: '',
      error: '',
      result: null,
      payload: item.payload,
      batchId: item.batchId,
    };
    this.stored.set(item.id, command);
    const reply = this.reply.get(act)?.(Number(item.id.split('.').at(-1)), item) ?? {};
    if (reply === 'hold') return;
    Object.assign(command, { state: 'done', ...reply });
    if (command.state === 'done') this.#effect(command);
  }

  #effect(command: Stored): void {
    const [machineId, run] = this.#ofCommand(command.id);
    const machine = this.machine(machineId);
    this.effects.push(`${machineId} ${command.id.slice(command.id.lastIndexOf('/') + 1)}`);
    const payload = anyUnpack(fromBinary(AnySchema, command.payload), protocolRegistry) as unknown as Record<string, unknown>;
    command.result ??= resultOf(command.kind, { payload, machine, scriptsServed: this.scriptsServed });
    if (command.kind === 'bmc.power' && payload['action'] === site.PowerAction.CYCLE) this.#boot(machine, run, Number(payload['ordinal']));
    if (command.kind === 'bmc.power' && payload['action'] === site.PowerAction.OFF_HARD)
      Object.assign(machine, { power: 'off', connected: false });
    if (command.kind === 'boot.kexec' && this.systemJoins('kexec', machineId)) join(machine, 'node');
  }

  #boot(machine: Machine, run: Run, ordinal: number): void {
    Object.assign(machine, { power: 'on', connected: false });
    const purpose = run.plan.actions.find((action) => action.kind === 'bmc.power' && action.ordinal === ordinal)?.purpose;
    if (purpose === 'disk-boot') {
      if (this.systemJoins('disk', run.plan.machineId)) join(machine, 'node');
      return;
    }
    const { entry } = run;
    if (entry === null || !this.netboots(entry.attempt, run.plan.machineId)) return;
    run.entry = { ...entry, usedAt: Date.now() };
    join(machine, 'ramdisk');
  }

  #ofCommand(id: string): [string, Run] {
    const runId = id.split('/').at(-2) ?? '';
    const run = this.#run(runId);
    return [run.plan.machineId, run];
  }

  #run(runId: string): Run {
    const run = this.runsById.get(runId);
    if (run === undefined) throw new ControlError('NOT_FOUND', `there is no run ${runId}`);
    return run;
  }

  /** As services/metal/finish-run.ts decides. */
  #remains(runId: string): Remains {
    const run = this.#run(runId);
    const destructive = [...this.stored.values()].filter(
      ({ id, kind }) =>
        id.includes(`/${runId}/`) &&
        (['disk.wipe', 'deploy.image', 'boot.kexec'].includes(kind) || (kind === 'driver.invoke' && !actOfId(id).startsWith('ask-'))),
    );
    return remainsOf(
      destructive.map(
        ({ kind, state }, order): DestructiveFact => ({
          kind: kind as DestructiveFact['kind'],
          order,
          neverBegan: ['cancelled', 'rejected', 'expired'].includes(state),
          proven: kind === 'disk.wipe' && run.wiped,
        }),
      ),
    );
  }

  readonly keys: MetalKeysPort = {
    openBootEntry: async ({ runId, attempt, expiresAt }) => {
      const run = this.#run(runId);
      if (run.entry?.attempt !== attempt)
        run.entry = {
          entryId: `${runId}-${attempt}`,
          runId,
          attempt,
          bootNonce: createHash('sha256').update(`${runId}${attempt}`).digest('hex').slice(0, 32),
          tokenRef: `secret://run/${runId}/boot/${runId}-${attempt}`,
          expiresAt,
          usedAt: null,
          closed: false,
        };
      return run.entry;
    },
    openProvisionedJoin: async (runId) => ({ joinRef: `secret://run/${runId}/join` }),
    recordEvidence: async ({ runId, kind }) => {
      const run = this.#run(runId);
      if (kind === 'erase') run.wiped = true;
      else run.deployed = true;
      return { complete: true, summary: `${kind} proven` };
    },
    storeNextCredential: async (runId) => ({ nextRef: `secret://bmc/${this.#run(runId).plan.machineId}/next` }),
    adoptCredential: async (runId) => void this.adopted.push(runId),
  };

  readonly runs: MetalRunsPort = {
    plan: async (input) => this.#plan(input),
    read: async (runId) => this.#facts(runId),
    standing: async (runId) => ({ remains: this.#remains(runId), deployed: this.#run(runId).deployed }),
    createBatch: async (runId) => {
      const run = this.#run(runId);
      if (run.plan.kind === 'inspect') return null;
      run.batchId = `b-${runId}`;
      return { batchId: run.batchId, held: this.approvalOf(run.plan.machineId).held, notAfter: Date.now() + 86_400_000 };
    },
    record: async (rows) => {
      this.steps.push(...rows);
    },
    closeBoots: async (runId) => {
      this.closedBoots.push(runId);
      const run = this.#run(runId);
      if (run.entry !== null) run.entry = { ...run.entry, closed: true };
    },
    recordInventory: async () => ({ summary: 'read' }),
    recordDisks: async () => ({ summary: '1 disk' }),
    recordPower: async ({ runId, state }) => {
      this.machine(this.#run(runId).plan.machineId).power = state;
    },
    endIdentity: async ({ runId }) => {
      this.before('end-identity', this.#run(runId).plan.machineId);
      this.identitiesEnded.push(runId);
      return { summary: 'ended' };
    },
    finish: async (input) => this.#finish(input),
    recordMessage: async (message) => void this.messages.push(message),
    places: async (ids) => ids.map((machineId) => ({ machineId, rack: `r${Number(machineId.slice(1)) % 4}`, siteId: 's1' })),
  };

  quarantine(machineId: string, reason: string): void {
    Object.assign(this.machine(machineId), { state: 'quarantined', stateReason: reason, connected: false });
  }

  #plan(input: PlanRunInput): PlannedRun {
    this.before('plan', input.machineId);
    const runId = createHash('sha256').update(input.workflowRunId).digest('hex').slice(0, 12);
    const existing = this.runsById.get(runId);
    if (existing !== undefined) return existing.plan;
    const machine = this.machine(input.machineId);
    const open = [...this.runsById.values()].find(({ plan, end }) => plan.machineId === input.machineId && end === null);
    if (open !== undefined)
      throw new ControlError('CONFLICT', `machine ${input.machineId} is in run ${open.plan.runId}`, {
        details: { reason: 'machine-busy' },
      });
    const profile = input.profile as unknown as Profile | null;
    const move = claimOf[input.kind];
    const to = move === null ? machine.state : moveMachine(move, machine.state);
    if (to === null)
      throw new ControlError('INVALID_STATE', `machine ${input.machineId} is ${machine.state}`, { details: { reason: 'machine-state' } });
    const { machineId, kind } = input;
    const ownSteps = plannedOwnSteps(kind, profile);
    const plan: PlannedRun = {
      runId,
      machineId,
      kind,
      siteId: 's1',
      rack: 'r1',
      bmc: '10.0.0.1',
      steps: runSteps(kind, profile).map(({ name, deadlineMs }) => ({ name, deadlineMs: deadlineMs(profile) })),
      actions: powerPlan(kind, profile?.boot ?? {}),
      ...(ownSteps.length === 0 ? {} : { ownSteps }),
      startBy: profile?.start.by ?? null,
      diagnosesGpus: profile?.diagnose.dcgm !== undefined,
      bootTimeMs: profile?.boot.bootTimeMs ?? 600_000,
      joinWithinMs: profile?.start.joinWithinMs ?? 600_000,
    };
    const before = machine.state;
    machine.state = to;
    this.runsById.set(runId, { plan, input, before, batchId: null, entry: null, wiped: false, deployed: false, end: null, remains: null });
    return plan;
  }

  #finish(input: FinishRunInput): { end: FinishRunInput['end']; remains: Remains | null; machineState: string } {
    const run = this.#run(input.runId);
    this.before('finish', run.plan.machineId);
    const machine = this.machine(run.plan.machineId);
    if (run.end === null) {
      this.ended.push(input);
      run.end = input.end;
      run.remains = input.end === 'done' ? null : this.#remains(input.runId);
      const move = endMove({ kind: run.plan.kind, end: input.end, remains: run.remains, moved: claimOf[run.plan.kind] !== null });
      machine.state = (move === null ? null : moveMachine(move, machine.state, run.before)) ?? machine.state;
    }
    return { end: run.end, remains: run.remains, machineState: machine.state };
  }

  #facts(runId: string): RunFacts {
    const run = this.#run(runId);
    return factsOf(runId, { run, machine: this.machine(run.plan.machineId) });
  }
}

function join(machine: Machine, role: string): void {
  machine.role = role;
  machine.generation += 1;
  machine.connected = true;
}

const actOfId = (id: string): string => id.slice(id.lastIndexOf('/') + 1).split('.')[0] as string;
