/**
 * Tells the control plane which allocations hold their part of this machine, again and again until it has taken each (SIGN-014). A reservation
 * may be made after its instance runs, and the control plane be away: whatever a refusal says, the next round says it once more.
 */
import { isControlError } from '../../domain/errors.ts';
import { second } from '../../domain/time.ts';
import type { AgentLog } from '../agent/log.ts';
import type { InstanceRuntime } from '../imds/runtime.ts';
import { pause } from '../pause.ts';
import { reasonOf } from '../reason.ts';
import type { BoundAllocation } from './client.ts';

const everyMs = 10 * second;

export interface ReporterPorts {
  readonly runtime: Pick<InstanceRuntime, 'listRunning'>;
  readonly report: (bound: BoundAllocation, signal: AbortSignal) => Promise<void>;
  readonly log: AgentLog;
}

const keyOf = ({ reservationId, allocationId }: BoundAllocation): string => `${reservationId} ${allocationId}`;

/** One round after another; what is taken already is not said again while it runs. */
export class BindingReporter {
  readonly #ports: ReporterPorts;
  readonly #taken = new Set<string>();
  readonly #refused = new Map<string, string>();

  constructor(ports: ReporterPorts) {
    this.#ports = ports;
  }

  /** Never throws. */
  async round(signal: AbortSignal): Promise<void> {
    const bound = await this.#bound();
    if (bound === null) return;
    const keys = new Set(bound.map(keyOf));
    for (const key of this.#taken) if (!keys.has(key)) this.#taken.delete(key);
    for (const key of this.#refused.keys()) if (!keys.has(key)) this.#refused.delete(key);
    for (const one of bound) if (!signal.aborted && !this.#taken.has(keyOf(one))) await this.#say(one, signal);
  }

  async #bound(): Promise<readonly BoundAllocation[] | null> {
    try {
      const running = await this.#ports.runtime.listRunning();
      return running.flatMap(({ instanceId, reservationId }) =>
        reservationId === null ? [] : [{ reservationId, allocationId: instanceId }],
      );
    } catch (err) {
      this.#ports.log.warn({ err }, 'the instances of this machine cannot be read: nothing is said of their allocations');
      return null;
    }
  }

  async #say(bound: BoundAllocation, signal: AbortSignal): Promise<void> {
    const { log, report } = this.#ports;
    const key = keyOf(bound);
    try {
      await report(bound, signal);
      this.#taken.add(key);
      this.#refused.delete(key);
      log.info({ ...bound }, 'the control plane knows that the allocation is bound');
    } catch (err) {
      const reason = isControlError(err) ? reasonOf(err) : 'fault';
      // Once for each reason, not once a round.
      if (!signal.aborted && this.#refused.get(key) !== reason)
        log.warn({ ...bound, reason, err }, 'the control plane did not take a bound allocation yet');
      this.#refused.set(key, reason);
    }
  }
}

export function startBindingReporter(ports: ReporterPorts): { stop(): Promise<void> } {
  const reporter = new BindingReporter(ports);
  const stopped = new AbortController();
  const done = (async () => {
    while (!stopped.signal.aborted) {
      await reporter.round(stopped.signal);
      await pause(everyMs, stopped.signal);
    }
  })();
  return {
    async stop() {
      stopped.abort();
      await done;
    },
  };
}
