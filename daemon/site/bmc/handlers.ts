/**
 * The handlers of a site agent for management controllers, one for each of their kinds (KIND-002).
 *
 * Invariants: an account is never locked (credential-broker.ts) · one operation at a time on a controller (bmc-queue.ts) · no
 * secret leaves this process but to the controller whose key is pinned · a request with an effect is sent once, and what became of it is
 * observed.
 *
 * Threat model: the controller may lie, be broken or be taken over: it can make its own machine's provisioning fail and no other's, learn
 * its own account's password, and nothing else. A stolen approval of one action is none of another (the control plane's part).
 */
import { createBmcAccess } from './access.ts';
import { bootHandler } from './boot.ts';
import { inventoryHandler } from './inventory.ts';
import type { BmcHandlers, BmcPorts } from './ports.ts';
import { powerHandler } from './power.ts';
import { rotateHandler } from './rotate.ts';

export function createBmcHandlers(ports: BmcPorts): BmcHandlers {
  const access = createBmcAccess(ports);
  return Object.freeze({
    'bmc.power': powerHandler(access),
    'bmc.boot': bootHandler(access),
    'bmc.rotate': rotateHandler(access),
    'bmc.inventory': inventoryHandler(access),
  });
}
