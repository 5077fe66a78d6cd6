/** How a controller showed its machine, on the wire: the words that an observation is compared in later, by whoever looks then. */
import type { MessageInitShape } from '@bufbuild/protobuf';
import { anyUnpack } from '@bufbuild/protobuf/wkt';
import { type EarlierAttempt, site } from '../../../proto/index.ts';
import type { Observation, ObservedPower } from '../redfish/system.ts';
import { wireStates } from './power-states.ts';

export const sightOf = ({ power, lastReset, bootProgress }: Observation): MessageInitShape<typeof site.SystemSightSchema> => ({
  power: wireStates[power],
  lastReset,
  bootProgress,
});

const powersByState = new Map<site.PowerState, ObservedPower>(
  Object.entries(wireStates).map(([power, state]) => [state, power as ObservedPower]),
);

/** How the machine was before the first of its commands; null where nobody told, or told it in a message that is none of ours. */
export function seenBefore({ seen }: EarlierAttempt): Observation | null {
  const sight = seen === undefined ? undefined : unpacked(seen);
  if (sight === undefined) return null;
  const { power, lastReset, bootProgress } = sight;
  return { power: powersByState.get(power) ?? 'unknown', lastReset, bootProgress };
}

function unpacked(seen: NonNullable<EarlierAttempt['seen']>): site.SystemSight | undefined {
  try {
    return anyUnpack(seen, site.SystemSightSchema);
  } catch {
    return undefined;
  }
}
