/**
 * What to send for a power action, and when it is done: decided here from what was observed, done in power.ts. Unknown is a state of its
 * own; nothing here takes it for off.
 */
import { minute, second } from '../../../domain/time.ts';
import { site } from '../../../proto/index.ts';
import type { Observation, ObservedPower } from '../redfish/system.ts';

export type PowerVerb = 'on' | 'off-hard' | 'off-soft' | 'cycle' | 'restart-soft';

/** Numbers of the wire → verbs; undefined for what is none. */
export const powerVerbs: Readonly<Partial<Record<site.PowerAction, PowerVerb>>> = Object.freeze({
  [site.PowerAction.ON]: 'on',
  [site.PowerAction.OFF_HARD]: 'off-hard',
  [site.PowerAction.OFF_SOFT]: 'off-soft',
  [site.PowerAction.CYCLE]: 'cycle',
  [site.PowerAction.RESTART_SOFT]: 'restart-soft',
});

/** on, off: it was observed. moved: the machine was reset, by its reset time, its boot progress, or by having been seen off. */
export type Done = 'on' | 'off' | 'moved';

export interface Send {
  readonly kind: 'send';
  readonly resetType: string;
  readonly done: Done;
  /** What comes when it is done. */
  readonly next: PowerVerb | null;
  /** What comes when it was not seen to be done in time. */
  readonly otherwise: PowerVerb | null;
  readonly waitMs: number;
}

export type PowerStep =
  | { readonly kind: 'already' }
  /** On its way to somewhere: look again. */
  | { readonly kind: 'wait' }
  | Send
  | { readonly kind: 'unsupported'; readonly wanted: readonly string[] };

interface Option extends Omit<Send, 'kind' | 'resetType'> {
  readonly types: readonly string[];
}

const option = (types: readonly string[], done: Done, more: Partial<Pick<Send, 'next' | 'otherwise' | 'waitMs'>> = {}): Option => ({
  types,
  done,
  next: more.next ?? null,
  otherwise: more.otherwise ?? null,
  waitMs: more.waitMs ?? 2 * minute,
});

const turnOn = [option(['On', 'ForceOn'], 'on')];
const turnOff = [option(['ForceOff'], 'off')];
/** Some take longer than a minute to come back (M23). */
const reset = [option(['PowerCycle', 'ForceRestart'], 'moved'), option(['ForceOff'], 'off', { next: 'on', waitMs: minute })];

/** Verb → observed power → what is tried, the best first; 'already': nothing is to be done. */
const table: Readonly<Record<PowerVerb, Readonly<Record<'on' | 'off' | 'unknown', readonly Option[] | 'already'>>>> = Object.freeze({
  on: { on: 'already', off: turnOn, unknown: turnOn },
  'off-hard': { on: turnOff, off: 'already', unknown: turnOff },
  // The operating system has two and a half minutes; within the time of the kind there must be some left to turn it off.
  'off-soft': {
    on: [option(['GracefulShutdown'], 'off', { otherwise: 'off-hard', waitMs: 150 * second }), ...turnOff],
    off: 'already',
    unknown: [option(['GracefulShutdown'], 'off', { otherwise: 'off-hard', waitMs: 150 * second }), ...turnOff],
  },
  // A machine that is off has nothing to interrupt (M17).
  cycle: { on: reset, off: turnOn, unknown: reset },
  'restart-soft': { on: [option(['GracefulRestart'], 'moved')], off: turnOn, unknown: [option(['GracefulRestart'], 'moved')] },
});

/** @param takes whether the controller takes a reset type, as far as it says */
export function planPower(verb: PowerVerb, power: ObservedPower, takes: (resetType: string) => boolean): PowerStep {
  if (power === 'changing') return { kind: 'wait' };
  const row = table[verb][power];
  if (row === 'already') return { kind: 'already' };
  for (const { types, ...rest } of row) {
    const resetType = types.find(takes);
    if (resetType !== undefined) return { kind: 'send', resetType, ...rest };
  }
  return { kind: 'unsupported', wanted: row.flatMap(({ types }) => types) };
}

/** Whether the machine was reset between two looks: a controller that keeps no time of it may still show a boot that goes on. */
export const wasReset = (before: Observation, after: Observation): boolean =>
  (after.lastReset !== '' && after.lastReset !== before.lastReset) ||
  (after.bootProgress !== '' && after.bootProgress !== before.bootProgress);

/** Whether `wasReset` can ever say yes. */
export const showsResets = ({ lastReset, bootProgress }: Observation): boolean => lastReset !== '' || bootProgress !== '';

/** Edges happen once, levels hold: repeating the request for a level that holds does nothing. */
const isEdge = (verb: PowerVerb): boolean => verb === 'cycle' || verb === 'restart-soft';

export type TakenUp =
  /** It happened. */
  | 'done'
  /** It goes on as if it began: nothing was done that would be done twice. */
  | 'go-on'
  /** It was turned off in the middle: turned on, it is complete. */
  | 'turn-on'
  /** Not seen yet: look for a while, then go on. */
  | 'watch'
  | 'unproven';

/**
 * What became of an action whose agent died between its start and its end (M38). @param before noted before anything was sent
 */
export function judgeTakenUp(verb: PowerVerb, before: Observation, after: Observation): TakenUp {
  if (!isEdge(verb)) return 'go-on';
  if (before.power === 'off') return after.power === 'on' ? 'done' : 'go-on';
  if (after.power === 'off') return 'turn-on';
  if (wasReset(before, after)) return 'done';
  return showsResets(before) && showsResets(after) ? 'watch' : 'unproven';
}

/**
 * What became of an action that an earlier command asked for, whoever had it (MT2). Told by the controller's own word of its last reset,
 * which is another one after each: neither by how long ago that was, nor by how far a boot has come, which moves without a reset.
 * @param seen before that command was sent; null where nobody told
 */
export function judgeEarlier(verb: PowerVerb, seen: Observation | null, now: Observation): TakenUp {
  // A machine that is off is turned on: whatever was begun is complete with it.
  if (!isEdge(verb) || now.power === 'off') return 'go-on';
  if (seen?.power === 'off' && now.power === 'on') return 'done';
  if (seen === null || seen.lastReset === '' || now.lastReset === '') return 'unproven';
  return seen.lastReset === now.lastReset ? 'watch' : 'done';
}
