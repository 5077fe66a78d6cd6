/**
 * The way back of a run that does not reach its end: a command that was not begun is taken back, then what each one that may have begun asks
 * for is done, in order and each by itself: one that fails is written down and keeps nothing else from being done. What is left of
 * the machine is then judged from facts; giving up cuts it short, but for one thing: a boot server that was told to let the machine start
 * its disk is told to hold it (M6).
 */
import { CancellationScope, isCancellation, patched, proxyActivities } from '@temporalio/workflow';
import type { MetalControlActivities } from '../../activities/metal-control.ts';
import { type Undo, undos } from '../../domain/metal/acts.ts';
import { cleanUps } from '../../domain/metal/boot-answers.ts';
import { minute } from '../../domain/time.ts';
import { onControl } from '../shared/activity-options.ts';
import { look, type StepOutcome, sendAll, sendOnce } from './commands.ts';
import { enterPhase, interruptible, type Line } from './line.ts';
import { StepScope } from './state.ts';
import { actionsOf } from './table.ts';

const { takeBackAct, changeMachine } = proxyActivities<MetalControlActivities>(onControl);

/** For one thing that is taken back: its agents are there or they are not. */
const undoWithinMs = 30 * minute;

/** Behind a word that ends the run where it stands, nothing is waited for longer. */
const holdWithinMs = minute;

const saying: Readonly<Record<Undo, string>> = Object.freeze({
  'close-boots': 'closing the boot entries of the run',
  'power-off': 'the machine to be off',
  'clean-up': 'the boot server to let go of the machine',
});

export async function goBack(line: Line): Promise<void> {
  const { run } = line;
  run.goingBack = true;
  const givenUp = (): boolean => run.stopping?.as === 'give-up';
  enterPhase(line, 'going-back', { waitingOn: ['site agent'] });
  await takeBackUnbegun(line);
  for (const undo of undos) {
    if (!run.undo.includes(undo) || givenUp()) continue;
    const now = Date.now();
    run.scope = new StepScope({ step: null, name: undo, saying: saying[undo], now, deadline: now + undoWithinMs });
    run.note(undo, 'started', { now });
    enterPhase(line, 'going-back');
    const outcome = await undone(line, undo);
    if (outcome === null) run.note(undo, 'skipped', { detail: 'given up', by: run.stopping?.actor ?? 'control-plane', now: Date.now() });
    else run.note(undo, outcome.ok ? 'done' : 'failed', { detail: outcome.detail, now: Date.now() });
  }
  if (run.letGo && givenUp() && patched('held-behind-give-up')) await holdBoot(line);
}

async function holdBoot(line: Line): Promise<void> {
  const { run } = line;
  const name = 'hold-boot';
  const now = Date.now();
  run.scope = new StepScope({ step: null, name, saying: 'the boot server to hold the machine', now, deadline: now + holdWithinMs });
  run.note(name, 'started', { now });
  enterPhase(line, 'going-back');
  const outcome = await sendOnce(line, { act: 'clean-up', ordinal: cleanUps.takesBack });
  run.note(name, outcome.ok ? 'done' : 'failed', {
    detail: outcome.ok ? '' : `the boot server may still let it start its disk: ${outcome.detail}`,
    now: Date.now(),
  });
}

async function takeBackUnbegun({ run }: Line): Promise<void> {
  if (run.inFlight === null) return;
  const { act, n } = run.inFlight;
  const { state } = await takeBackAct.executeWithOptions({ summary: `${act}, where it was not begun` }, [{ runId: run.runId, act, n }]);
  if (state === 'unsent' || state === 'cancelled') run.begun.delete(act);
  run.inFlight = null;
}

/** null: given up in the middle of it. */
async function undone(line: Line, undo: Undo): Promise<StepOutcome | null> {
  try {
    return await interruptible(line, () => doUndo(line, undo));
  } catch (error) {
    if (isCancellation(error) && CancellationScope.current().consideredCancelled) throw error;
    return { ok: false, reason: 'refused', detail: error instanceof Error ? error.message.slice(0, 300) : 'it failed' };
  }
}

async function doUndo(line: Line, undo: Undo): Promise<StepOutcome> {
  const { run } = line;
  switch (undo) {
    case 'close-boots': {
      const { detail } = await changeMachine({ runId: run.runId, change: 'close-boots', records: run.takeUnwritten() });
      return { ok: true, detail };
    }
    case 'power-off': {
      const sent = await sendAll(line, actionsOf(run, 'off'));
      if (!sent.ok) return sent;
      const seen = await look(line, 'off', minute);
      return seen.kind === 'reached' ? { ok: true, detail: seen.detail } : { ok: false, reason: 'power-not-off', detail: seen.detail };
    }
    case 'clean-up':
      return sendAll(line, [{ act: 'clean-up', ordinal: cleanUps.takesBack }]);
  }
}
