/**
 * The activities that bring boot servers to what the state of their machines demands, where no run does. The one that looks holds no key and
 * may ask whether a run's workflow is there; the one that sends decides again from the database, and believes of its input only which machines
 * and which states of them were looked at.
 */

import { quickTries } from '../domain/metal/boot-told.ts';
import { minute } from '../domain/time.ts';
import type { BootOrder, BootTelling } from '../services/metal/boot-told.ts';
import type { CommandSigningPorts } from './command-ports.ts';
import { isRefusal, translated } from './failures.ts';
import type { Clock } from './rotation-ports.ts';

export interface JudgedMachine {
  readonly machineId: string;
  /** Of the state that was judged. */
  readonly generation: number;
}

export interface BootsCompared {
  readonly tell: readonly JudgedMachine[];
  /** Boot servers that have a command on its way, whose agent is away, and that were told in vain too often. */
  readonly underWay: number;
  readonly away: number;
  readonly failing: number;
}

export interface BootControlPorts {
  readonly boots: { look(input: { readonly limit: number }): Promise<readonly BootTelling[]> };
  readonly workflows: { isRunning(workflowId: string): Promise<boolean> };
}

export interface BootSigningPorts extends Clock {
  readonly boots: { orders(judged: readonly JudgedMachine[]): Promise<readonly BootOrder[]> };
  readonly queue: CommandSigningPorts['queue'];
}

export interface BootControlActivities {
  compareBoots(): Promise<BootsCompared>;
  [name: string]: (...args: never[]) => Promise<unknown>;
}

export interface BootSigningActivities {
  tellBoots(input: { readonly machines: readonly JudgedMachine[] }): Promise<{ readonly sent: number; readonly refused: number }>;
  [name: string]: (...args: never[]) => Promise<unknown>;
}

/** Looked at in one run of the schedule; of more, others at the next. */
const machinesPerRun = 1_000;
/** Told in one run: a site's agent has its other work. */
const toldPerRun = 50;
/** From the send to the last moment at which a command may start: a connected agent takes it at once. */
const startWithinMs = 5 * minute;

export function createBootControlActivities({ boots, workflows }: BootControlPorts): BootControlActivities {
  return translated<BootControlActivities>({
    async compareBoots() {
      const found = await boots.look({ limit: machinesPerRun });
      const of = (kind: BootTelling['telling']['kind']): BootTelling[] => found.filter(({ telling }) => telling.kind === kind);
      const tell = new Map<string, JudgedMachine>();
      const alive = new Map<string, boolean>();
      const isAlive = async (workflowId: string): Promise<boolean> => {
        const known = alive.get(workflowId) ?? (await workflows.isRunning(workflowId));
        alive.set(workflowId, known);
        return known;
      };
      for (const { machineId, generation, runWorkflowId } of of('tell')) {
        if (tell.size >= toldPerRun) break;
        // A run whose workflow lives tells its boot servers itself.
        if (tell.has(machineId) || (runWorkflowId !== null && (await isAlive(runWorkflowId)))) continue;
        tell.set(machineId, { machineId, generation });
      }
      const failing = found.filter(({ telling }) => 'failed' in telling && telling.failed >= quickTries).length;
      return { tell: [...tell.values()], underWay: of('under-way').length, away: of('away').length, failing };
    },
  });
}

export function createBootSigningActivities({ boots, queue, now }: BootSigningPorts): BootSigningActivities {
  return translated<BootSigningActivities>({
    async tellBoots({ machines }) {
      let [sent, refused] = [0, 0];
      for (const order of await boots.orders(machines.slice(0, toldPerRun))) {
        try {
          await queue.enqueue([{ ...order, deadline: now() + startWithinMs, requestedBy: 'control-plane' }]);
          sent += 1;
        } catch (error) {
          // An agent that has just been taken away; the next look knows.
          if (!isRefusal(error)) throw error;
          refused += 1;
        }
      }
      return { sent, refused };
    },
  });
}
