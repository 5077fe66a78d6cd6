/** Observed power on the wire. */
import { site } from '../../../proto/index.ts';
import type { ObservedPower } from '../redfish/system.ts';

export const wireStates: Readonly<Record<ObservedPower, site.PowerState>> = Object.freeze({
  on: site.PowerState.ON,
  off: site.PowerState.OFF,
  changing: site.PowerState.CHANGING,
  unknown: site.PowerState.UNKNOWN,
});
