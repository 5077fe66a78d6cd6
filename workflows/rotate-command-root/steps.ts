/**
 * How a rotation takes a step: hold while paused, run it so that an abort cuts it short, keep the workflow alive when it is
 * refused for good. After the first effect a refusal never ends the workflow: half a rotation without its workflow is what nobody
 * would watch. It holds instead, says why, and goes on when an operator has repaired the cause (`resume`) or aborts.
 */
import { CancellationScope, condition, isCancellation, log, setCurrentDetails, sleep } from '@temporalio/workflow';
import type { GateReport } from '../../activities/rotation-gates.ts';
import { showPhase } from '../shared/attributes.ts';
import { findRefusal, toFailure } from '../shared/failures.ts';
import { describe } from './details.ts';
import type { Gate, Phase } from './messages.ts';
import type { RotationState } from './state.ts';

/** Thrown out of a step when an abort has been recorded; never leaves the workflow. */
export class AbortRequested extends Error {
  override readonly name = 'AbortRequested';
}

interface Shown {
  readonly waitingOn?: readonly string[];
  readonly deadlineMs?: number;
}

/**
 * Phases that take a moment and follow a wait: the attributes keep showing the wait they end, which is where they would be
 * looked for if they took longer. Each attribute is an event; the status and the details name every phase.
 */
const passing: ReadonlySet<Phase> = new Set(['resigning', 'dropping', 'recording']);

export class Steps {
  readonly state: RotationState;
  #scope: CancellationScope | null = null;
  #goingBack = false;

  constructor(state: RotationState) {
    this.state = state;
  }

  enter(phase: Phase, shown: Shown = {}): void {
    this.state.enter(phase, Date.now());
    if (!passing.has(phase)) showPhase({ phase, ...shown });
    this.show();
  }

  /** Costs no event: the text is read by the metadata query. */
  show(): void {
    setCurrentDetails(describe(this.state.status()));
  }

  /** Runs `call` until it succeeds. `mayFail`: nothing has happened yet, so a refusal ends the workflow. */
  async take<T>(call: () => Promise<T>, options: { mayFail?: boolean } = {}): Promise<T> {
    for (;;) {
      await this.#hold();
      try {
        return await this.#interruptible(call);
      } catch (error) {
        const refusal = findRefusal(error);
        if (refusal === undefined || error instanceof AbortRequested) throw error;
        if (options.mayFail) throw toFailure(error);
        log.error('a step was refused: holding for an operator', { phase: this.state.phase, ...refusal });
        this.state.blocked = refusal;
        showPhase({ phase: this.state.phase, waitingOn: ['operator'] });
        this.show();
      }
    }
  }

  /**
   * Waits for a gate. The activity does the waiting, without history; a few times in a run it comes back to say who is
   * behind, and then waits on.
   */
  async pass(gate: Gate, call: (patienceMs: number | null) => Promise<GateReport>): Promise<number> {
    let shown = false;
    for (;;) {
      const report = await this.take(() => call(this.state.nextPatience(gate)));
      if (report.kind === 'open') return report.trustVersion;
      this.state.behind = { ...report, names: report.behind };
      if (!shown) showPhase({ phase: this.state.phase, waitingOn: report.behind, behind: report.count });
      shown = true;
      this.show();
    }
  }

  async until(instantMs: number, summary: string): Promise<void> {
    await this.#hold();
    const leftMs = instantMs - Date.now();
    if (leftMs > 0) await this.#interruptible(() => sleep(leftMs, { summary }));
  }

  /** Called by the abort's handler, once it is recorded. */
  interrupt(): void {
    if (this.#abortPending) this.#scope?.cancel();
  }

  /** From here steps belong to the way back; the abort that caused it does not cut them. */
  turnBack(): void {
    this.#goingBack = true;
  }

  get #abortPending(): boolean {
    return this.state.aborting !== null && !this.#goingBack && !this.state.dropped;
  }

  async #hold(): Promise<void> {
    if (this.state.held) await condition(() => !this.state.held || this.#abortPending);
    if (this.#abortPending) throw new AbortRequested();
  }

  async #interruptible<T>(call: () => Promise<T>): Promise<T> {
    const scope = new CancellationScope();
    this.#scope = scope;
    try {
      return await scope.run(call);
    } catch (error) {
      if (isCancellation(error) && this.#abortPending) throw new AbortRequested();
      throw error;
    } finally {
      this.#scope = null;
    }
  }
}
