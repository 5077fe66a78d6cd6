/**
 * A run on a machine that waits, in the words of the run itself: which controller, which step, what was answered last, what to type next. Pure.
 * What a workflow answers is read like any foreign text: a field that is not what it should be is left out.
 */
import type { StuckItem } from './stuck.ts';

/** As `status` answers it, unread. */
export type SaidStatus = Readonly<Record<string, unknown>>;

const text = (value: unknown): string => (typeof value === 'string' ? value : '');

/** The item as it is for every other workflow; for a run on a machine with all that it says. */
export function stuckRun(item: StuckItem, said: SaidStatus | null): StuckItem {
  if (said === null || text(said['machineId']) === '') return item;
  const [bmc, step, waitsFor, next] = [text(said['bmc']), text(said['step']), text(said['waitsFor']), text(said['next'])];
  const { attempt } = said;
  const times = typeof attempt === 'number' && attempt > 1 ? ` (attempt ${attempt})` : '';
  const parts = [
    `${bmc === '' ? '' : `controller ${bmc}: `}${step === '' ? text(said['phase']) : step}${times}`,
    ...(waitsFor === '' ? [item.waitsFor] : [`waits for ${waitsFor}`]),
    ...lastAnswer(said['last']),
  ];
  return { ...item, waitsFor: parts.filter((part) => part !== '').join('; '), help: next === '' ? item.help : next };
}

function lastAnswer(last: unknown): string[] {
  if (typeof last !== 'object' || last === null) return [];
  const { state, message } = last as SaidStatus;
  if (text(state) === '') return [];
  return [`last answer ${text(state)}${text(message) === '' ? '' : `: ${text(message)}`}`];
}
