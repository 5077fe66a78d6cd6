/** One machine that is enrolled, in memory: its order, what lies prepared on it, the identity that serves. Faults come by script, before or after a step. */
import { createHash } from 'node:crypto';
import type { Client, WorkflowHandle } from '@temporalio/client';
import { createEnrolmentControlActivities } from '../../activities/enrolments-control.ts';
import type { EnrolmentsPort, HostsPort } from '../../activities/host-ports.ts';
import { createHostActivities } from '../../activities/hosts.ts';
import type { EnrolmentKind } from '../../domain/enrolment/order.ts';
import { completesWithinMs, enrolmentMoves } from '../../domain/enrolment/states.ts';
import { ControlError } from '../../domain/errors.ts';
import type { Enrolment } from '../../services/enrolments/index.ts';
import { taskQueues, workflowIds } from '../../temporal.config.ts';
import { type EnrolNodeResult, type EnrolNodeStatus, enrolmentTypes } from '../../workflows/enrol-node/messages.ts';
import { activitiesAlone, type TestTemporal } from '../harness/temporal.ts';
import { type RunningWorkers, running } from './rotation-rig.ts';

export type HostStep = keyof HostsPort;

export const enrolmentId = `enr-${'0a'.repeat(12)}`;

export class EnrolmentWorld {
  /** Steps on the machine, and moves of the order, in their order. */
  readonly told: string[] = [];
  /** Of the identity that serves; null: none. */
  generation: number | null;
  prepared = false;
  armed = false;
  /** Whether bcd, once started, comes with its new key. */
  completes = true;
  connects = true;
  before: (step: HostStep | 'end', n: number) => void = () => undefined;
  /** What is lost on the way back: the step has had its effect. */
  after: (step: HostStep, n: number) => void = () => undefined;
  order: Enrolment;
  readonly #counts = new Map<string, number>();

  constructor(kind: EnrolmentKind, nodeId = 'web-7') {
    const baseGeneration = kind === 'enrol' ? null : 3;
    this.generation = baseGeneration;
    this.order = {
      id: enrolmentId,
      nodeId,
      siteId: 'eu-1',
      role: 'node',
      tenantId: 'default',
      kind,
      baseGeneration,
      address: '10.0.0.7',
      port: 22,
      login: 'root',
      becomeRoot: false,
      hostKey: `SHA256:${'A'.repeat(43)}`,
      credential: 'file://web',
      state: 'open',
      deadline: null,
      createdBy: 'ann',
      reason: 'a test',
      createdAt: 0,
      endedAt: null,
      endReason: '',
    };
  }

  async #step<T>(name: HostStep, effect: () => T): Promise<T> {
    const n = (this.#counts.get(name) ?? 0) + 1;
    this.#counts.set(name, n);
    this.before(name, n);
    this.told.push(name);
    const answer = effect();
    this.after(name, n);
    return answer;
  }

  #move(what: keyof typeof enrolmentMoves): boolean {
    const { from, to } = enrolmentMoves[what];
    if (!from.includes(this.order.state)) return false;
    this.order = { ...this.order, state: to };
    this.told.push(to);
    return true;
  }

  readonly hosts: HostsPort = {
    reach: () => this.#step('reach', () => ({ system: 'Linux x86_64', version: '0.1.0' })),
    install: () => this.#step('install', () => ({ program: 'present' as const })),
    prepare: () =>
      this.#step('prepare', () => {
        this.prepared = true;
        const generation = this.generation === null ? null : String(this.generation);
        return { csrSha256: createHash('sha256').update('csr').digest('hex'), generation };
      }),
    mint: () =>
      this.#step('mint', () => {
        const deadlineMs = Date.now() + completesWithinMs;
        if (this.#move('mint')) this.order = { ...this.order, deadline: deadlineMs };
        return { deadlineMs, clockOffMs: 0 };
      }),
    start: () =>
      this.#step('start', () => {
        this.armed = true;
      }),
    tidy: () =>
      this.#step('tidy', () => {
        this.prepared = false;
        this.armed = false;
        return { detail: 'what was prepared on the machine is removed' };
      }),
  };

  readonly enrolments: EnrolmentsPort = {
    get: async () => this.order,
    progress: async () => {
      if (this.armed && this.completes && this.#move('complete')) this.generation = (this.generation ?? 0) + 1;
      const { state, deadline } = this.order;
      return { state, deadline, generation: this.generation, connected: this.connects, now: this.now() };
    },
    end: async ({ as }) => {
      this.before('end', 1);
      this.#move(as);
      return this.order.state;
    },
  };

  now = (): number => Date.now();
}

export async function runEnrolmentWorkers(
  temporal: TestTemporal,
  world: EnrolmentWorld,
  { activitiesOnly = false }: { readonly activitiesOnly?: boolean } = {},
): Promise<RunningWorkers> {
  const control = await temporal.createWorker({
    taskQueue: taskQueues.control,
    activities: createEnrolmentControlActivities(world),
    ...(activitiesOnly ? activitiesAlone : {}),
  });
  const hosts = await temporal.createWorker({ taskQueue: taskQueues.hosts, activities: createHostActivities(world), ...activitiesAlone });
  return running([control, hosts]);
}

export type EnrolmentHandle = WorkflowHandle<() => Promise<EnrolNodeResult>>;

export const startEnrolment = (
  client: Client,
  kind: EnrolmentKind,
  input: unknown = { nodeId: 'web-7', enrolmentId },
): Promise<EnrolmentHandle> =>
  client.workflow.start(enrolmentTypes[kind].type, {
    workflowId: workflowIds.enrolment('web-7'),
    taskQueue: taskQueues.control,
    args: [input],
  });

export async function untilEnrolment(handle: EnrolmentHandle, holds: (status: EnrolNodeStatus) => boolean): Promise<EnrolNodeStatus> {
  for (;;) {
    const status = await handle.query<EnrolNodeStatus>('status').catch(() => undefined);
    if (status !== undefined && holds(status)) return status;
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
}

/** What a machine answers that will not do better by being asked again. */
export const unfit = (message = 'the machine cannot be enrolled: it has no node'): ControlError =>
  new ControlError('INVALID_STATE', message, { details: { reason: 'machine-unfit' } });
