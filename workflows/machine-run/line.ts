/** The main line of a run: its state, the wait that a message may end, and how both are shown. */
import { CancellationScope, isCancellation } from '@temporalio/workflow';
import { showPhase } from '../shared/attributes.ts';
import { showDetails } from '../shared/inbox.ts';
import type { RunPhase } from '../shared/machine-messages.ts';
import { describeRun } from './details.ts';
import type { MachineRun } from './state.ts';
import type { StoryStep } from './table.ts';

export interface Line {
  readonly run: MachineRun;
  waiting: CancellationScope | null;
  /** What the attributes say; each change of them is an event. */
  shownPhase: RunPhase | null;
}

/** The run ends here, and goes back: a person said so, or a step failed for good. */
export class RunStopped extends Error {
  override readonly name = 'RunStopped';
  readonly reason: string;

  constructor(reason: string, detail: string) {
    super(detail);
    this.reason = reason;
  }
}

export const show = ({ run }: Line): void => showDetails(describeRun(run.status()));

/** Phases of a moment: looked for where they take longer, the attributes still name the wait that they follow. */
const passing: ReadonlySet<RunPhase> = new Set(['planning', 'finishing']);

export function enterPhase(line: Line, phase: RunPhase, shown: { waitingOn?: readonly string[]; deadlineMs?: number | null } = {}): void {
  line.run.enter(phase, line.run.scope);
  if (phase !== line.shownPhase && !passing.has(phase)) {
    showPhase({ phase, ...shown });
    line.shownPhase = phase;
  }
  show(line);
}

export function enterStep(line: Line, step: StoryStep): void {
  const { run } = line;
  run.begin(step, Date.now());
  enterPhase(line, step.phase, { waitingOn: step.waitsFor(run), deadlineMs: run.scope.deadline });
}

/** `null`: a message ended the wait. A cancellation from outside passes through. */
export async function interruptible<T>(line: Line, call: () => Promise<T>): Promise<T | null> {
  const scope = new CancellationScope();
  line.waiting = scope;
  try {
    return await scope.run(call);
  } catch (error) {
    if (isCancellation(error) && scope.consideredCancelled && !CancellationScope.current().consideredCancelled) return null;
    throw error;
  } finally {
    line.waiting = null;
  }
}
