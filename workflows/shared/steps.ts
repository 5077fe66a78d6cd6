/**
 * How a rotation takes a step: hold while paused, run it so that an abort cuts it short, keep the workflow alive when it is
 * refused. After the first effect a refusal never ends the workflow: half a rotation without its workflow is what nobody
 * would watch. It holds instead as phase `blocked`, says why, and goes on when an operator sends `resume` or aborts; where the
 * cause is a bundle or a database that is older than the deployment (H-07), it goes on by itself once that is repaired.
 */
import { CancellationScope, condition, isCancellation, log, proxyActivities, sleep } from '@temporalio/workflow';
import type { GateReport } from '../../activities/rotation-gates.ts';
import type { RotationSigningActivities } from '../../activities/rotation-signing.ts';
import { onSigning } from './activity-options.ts';
import { type PhaseAttributes, showPhase } from './attributes.ts';
import { findRefusal, type Refusal, toFailure } from './failures.ts';
import { showDetails } from './inbox.ts';
import type { Blocked } from './lifecycle-messages.ts';
import type { LifecycleState } from './lifecycle-state.ts';

const { awaitFreshness } = proxyActivities<RotationSigningActivities>({
  ...onSigning,
  summary: 'until the key bundle and the database are the newest again',
});

/** Refusals whose end an activity can see. */
const repairs: ReadonlyMap<string, Blocked['waitsFor']> = new Map([
  ['bundle-replaced', 'key bundle'],
  ['bundle-forked', 'key bundle'],
  ['database-behind-fleet', 'database'],
]);

/** Refusals of a first step whose remedy is a person's work elsewhere, after which the step finds it done. */
const doneByHand: ReadonlySet<string> = new Set(['key-offline']);

/** Thrown out of a step when an abort has been recorded; never leaves the workflow. */
export class AbortRequested extends Error {
  override readonly name = 'AbortRequested';
}

interface Shown {
  readonly waitingOn?: readonly string[];
  readonly deadlineMs?: number;
}

export interface StepsOptions<Phase extends string> {
  /** The text of the current details. */
  readonly describe: () => string;
  /**
   * Phases that take a moment and follow a wait: the attributes keep showing the wait they end, which is where they would be
   * looked for if they took longer. Each attribute is an event; the status and the details name every phase.
   */
  readonly passing: ReadonlySet<Phase>;
  /** false: a hold shows itself under the name of its phase, and waits for an operator only (histories from before). */
  readonly holdsAsBlocked: () => boolean;
}

export class Steps<Phase extends string, Gate extends string, State extends LifecycleState<Phase, Gate>> {
  readonly state: State;
  readonly #options: StepsOptions<Phase>;
  #scope: CancellationScope | null = null;
  #goingBack = false;
  /** What the attributes say, or will say again after a hold. */
  #attributes: PhaseAttributes | null = null;
  #shownBlocked = false;

  constructor(state: State, options: StepsOptions<Phase>) {
    this.state = state;
    this.#options = options;
  }

  enter(phase: Phase, shown: Shown = {}): void {
    this.state.enter(phase, Date.now());
    if (!this.#options.passing.has(phase)) this.#showPhase({ phase, ...shown });
    this.show();
  }

  /** Costs no event: the text is read by the metadata query. */
  show(): void {
    showDetails(this.#options.describe());
  }

  /** Runs `call` until it succeeds. `mayFail`: nothing has happened yet, so a refusal that nothing will lift ends the workflow. */
  async take<T>(call: () => Promise<T>, options: { mayFail?: boolean } = {}): Promise<T> {
    for (;;) {
      await this.#hold();
      try {
        return await this.#interruptible(call);
      } catch (error) {
        const refusal = findRefusal(error);
        if (refusal === undefined || error instanceof AbortRequested) throw error;
        const asBlocked = this.#options.holdsAsBlocked();
        const waitsFor = (asBlocked ? repairs.get(refusal.reason) : undefined) ?? 'operator';
        if (options.mayFail && waitsFor === 'operator' && !doneByHand.has(refusal.reason)) throw toFailure(error);
        this.#block(refusal, { waitsFor, asBlocked });
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
      if (!shown) this.#showPhase({ phase: this.state.phase, waitingOn: report.behind, behind: report.count });
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
    return this.state.aborting !== null && !this.#goingBack && !this.state.beyondReturn;
  }

  #showPhase(attributes: PhaseAttributes): void {
    this.#attributes = attributes;
    this.#shownBlocked = false;
    showPhase(attributes);
  }

  #block({ code, message, reason }: Refusal, hold: { waitsFor: Blocked['waitsFor']; asBlocked: boolean }): void {
    const { phase } = this.state;
    log.error('a step was refused: holding', { phase, code, reason, message, waitsFor: hold.waitsFor });
    this.state.blocked = { code, message, waitsFor: hold.waitsFor };
    showPhase({ phase: hold.asBlocked ? 'blocked' : phase, waitingOn: [hold.waitsFor] });
    this.#shownBlocked = hold.asBlocked;
    this.show();
  }

  async #hold(): Promise<void> {
    if (this.state.blocked !== null && this.state.blocked.waitsFor !== 'operator') await this.#untilRepaired();
    if (this.state.held) await condition(() => !this.state.held || this.#abortPending);
    if (this.#abortPending) throw new AbortRequested();
    if (!this.#shownBlocked || this.#attributes === null) return;
    this.#showPhase(this.#attributes);
    this.show();
  }

  /** The activity does the waiting, without history; `resume` and an abort end it. */
  async #untilRepaired(): Promise<void> {
    const { state } = this;
    const waiting = new CancellationScope();
    const repaired = waiting.run(() => awaitFreshness({ rotationId: state.rotationId, atLeastMs: state.leastHoldMs }));
    const lifted = condition(() => state.blocked === null || this.#abortPending);
    try {
      await Promise.race([repaired.then(() => state.repaired()), lifted]);
    } catch (error) {
      const refusal = findRefusal(error);
      if (refusal === undefined) throw error;
      this.#block(refusal, { waitsFor: 'operator', asBlocked: true });
    } finally {
      waiting.cancel();
      await repaired.catch(() => undefined);
    }
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
