/**
 * The exchanges of keys, one workflow type each, so that lists and searches tell them apart. None needs input: the key is the type,
 * and the authority of a renewal stands in its id. They run longer than a release: AUTO_UPGRADE, so every change of the order of
 * steps goes behind `patched()` and is proven by the replay of test/histories.
 */
import type { StartMessage } from '../shared/lifecycle-messages.ts';
import { versioned } from '../shared/versioning.ts';
import type { KeyRotationResult } from './messages.ts';
import { exchangeKey } from './story.ts';

export async function renewCa(input?: StartMessage): Promise<KeyRotationResult> {
  return exchangeKey('ca', input);
}
versioned('AUTO_UPGRADE', renewCa);

export async function rotateGatewayCertificate(input?: StartMessage): Promise<KeyRotationResult> {
  return exchangeKey('gateway', input);
}
versioned('AUTO_UPGRADE', rotateGatewayCertificate);

export async function rotateTicketKey(input?: StartMessage): Promise<KeyRotationResult> {
  return exchangeKey('ticket', input);
}
versioned('AUTO_UPGRADE', rotateTicketKey);

export async function rotateWorkloadKey(input?: StartMessage): Promise<KeyRotationResult> {
  return exchangeKey('workload', input);
}
versioned('AUTO_UPGRADE', rotateWorkloadKey);
