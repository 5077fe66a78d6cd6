/**
 * The power plan of a run: every power action and every boot setting it may send, numbered, before it sends the first. Each is one leaf of
 * the batch, bound to its bytes (docs/adr/0007): an approval of four power actions is not an approval of a fifth (MT1).
 */
import type { Profile } from './profile.ts';
import type { RunKind } from './run-ends.ts';

export type PowerVerb = 'on' | 'off-hard' | 'off-soft' | 'cycle';
export type BootPlace = 'network' | 'http' | 'disk';

/** What an action is for: the step that needs it asks by this name. */
export type ActionPurpose = 'network-boot' | 'network-boot-again' | 'disk-boot' | 'off';

export type PlannedAction =
  | { readonly kind: 'bmc.power'; readonly ordinal: number; readonly purpose: ActionPurpose; readonly action: PowerVerb }
  | { readonly kind: 'bmc.boot'; readonly ordinal: number; readonly purpose: ActionPurpose; readonly target: BootPlace };

type Row = { readonly purpose: ActionPurpose } & ({ readonly power: PowerVerb | 'first-cycle' } | { readonly boot: 'network' | 'disk' });

const networkBoot: readonly Row[] = [
  { purpose: 'network-boot', boot: 'network' },
  { purpose: 'network-boot', power: 'first-cycle' },
  // The one bounded re-boot: then the run has failed, and says so.
  { purpose: 'network-boot-again', boot: 'network' },
  { purpose: 'network-boot-again', power: 'cycle' },
];
const off: Row = { purpose: 'off', power: 'off-hard' };

const rows: Readonly<Record<RunKind, readonly Row[]>> = Object.freeze({
  provision: [...networkBoot, { purpose: 'disk-boot', boot: 'disk' }, { purpose: 'disk-boot', power: 'cycle' }, off],
  retire: [...networkBoot, off],
  inspect: [],
  'rotate-bmc': [],
});

/** What the first power action is: with an operating system on it, the machine is asked first where the profile says so (M32). */
const firstCycle = (graceful: boolean): readonly PowerVerb[] => (graceful ? ['off-soft', 'on'] : ['cycle']);

/** The actions of a run, in the order in which they may be needed; ordinals count from 1 for each kind. */
export function powerPlan(
  kind: RunKind,
  { graceful = false, httpUrl }: Partial<Pick<Profile['boot'], 'graceful' | 'httpUrl'>> = {},
): PlannedAction[] {
  const counts = { 'bmc.power': 0, 'bmc.boot': 0 };
  const actions: PlannedAction[] = [];
  for (const row of rows[kind]) {
    const { purpose } = row;
    if ('boot' in row) {
      const target = row.boot === 'network' && httpUrl !== undefined ? 'http' : row.boot;
      counts['bmc.boot'] += 1;
      actions.push({ kind: 'bmc.boot', ordinal: counts['bmc.boot'], purpose, target });
      continue;
    }
    for (const action of row.power === 'first-cycle' ? firstCycle(graceful) : [row.power]) {
      counts['bmc.power'] += 1;
      actions.push({ kind: 'bmc.power', ordinal: counts['bmc.power'], purpose, action });
    }
  }
  return actions;
}

/** Those for one purpose, in their order. */
export const actionsFor = (plan: readonly PlannedAction[], purpose: ActionPurpose): PlannedAction[] =>
  plan.filter((action) => action.purpose === purpose);
