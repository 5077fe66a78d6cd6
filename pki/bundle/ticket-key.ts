/**
 * The exchange of the exec ticket key, in three steps like that of every key that others verify by (EXEC-007, EXEC-008): add publishes
 * the next key, promote lets it sign and keeps the one before listed, retire forgets that one. All of it is in the bundle, so that
 * every process of the deployment lists the same keys and signs with the same one.
 *
 * The private half of a former key is gone with its promotion. Whether every node has the next key in its spec is the caller's gate.
 */
import { ControlError } from '../../domain/errors.ts';
import { minute, showInstant } from '../../domain/time.ts';
import { newSigningKey } from './create.ts';
import { createSigningKey } from './load-keys.ts';
import type { BundleStep } from './rotation.ts';
import type { ExecTicketTimes, PkiBundle, SigningKey } from './types.ts';

/** The life of a ticket, and as much again for clocks that differ. */
export const ticketRetireAfterMs = 2 * minute;

const noTimes: ExecTicketTimes = Object.freeze({ nextAddedAt: null, formerStoppedAt: null });

const refuse = (reason: string, message: string, details: object = {}): never => {
  throw new ControlError('INVALID_STATE', message, { details: { reason, ...details } });
};

/**
 * Publishes a key that does not sign yet. One that waits already is kept; a bundle without a ticket key gets its first, which signs.
 */
export function addExecTicketKey(bundle: PkiBundle, { now }: { readonly now: number }): BundleStep {
  if (bundle.execTicketKeyNext !== undefined) return { bundle, changed: false };
  if (bundle.execTicketKey === undefined) return changed({ ...bundle, execTicketKey: newSigningKey('execTicketKey') });
  const execTicketTimes = { ...(bundle.execTicketTimes ?? noTimes), nextAddedAt: now };
  return changed({ ...bundle, execTicketKeyNext: newSigningKey('execTicketKeyNext'), execTicketTimes });
}

/** Signs with the next key. @throws INVALID_STATE: no-next-key; former-listed while the last exchange is not retired */
export function promoteExecTicketKey(bundle: PkiBundle, { now }: { readonly now: number }): BundleStep {
  const { execTicketKey: before, execTicketKeyNext: next, ...rest } = bundle;
  if (next === undefined || before === undefined) return refuse('no-next-key', 'there is no next exec ticket key: add one first');
  if (bundle.execTicketKeyFormer !== undefined)
    return refuse('former-listed', 'the exec ticket key of the last exchange is still listed: retire it first');
  const execTicketKey: SigningKey = { ...next };
  const execTicketKeyFormer = createSigningKey({ name: 'execTicketKeyFormer', spki: before.spki });
  return changed({ ...rest, execTicketKey, execTicketKeyFormer, execTicketTimes: { nextAddedAt: null, formerStoppedAt: now } });
}

/** Takes the next key out before it has signed anything; at any time, for nothing depends on it. */
export function withdrawExecTicketKey(bundle: PkiBundle): BundleStep {
  const { execTicketKeyNext: next, execTicketTimes: times, ...rest } = bundle;
  if (next === undefined) return { bundle, changed: false };
  const formerStoppedAt = times?.formerStoppedAt ?? null;
  return changed({ ...rest, ...(formerStoppedAt === null ? {} : { execTicketTimes: { nextAddedAt: null, formerStoppedAt } }) });
}

/** Lists the former key no more. @throws INVALID_STATE: retire-too-early, with the instant at which it opens */
export function retireExecTicketKey(bundle: PkiBundle, { now }: { readonly now: number }): BundleStep {
  const { execTicketKeyFormer: former, execTicketTimes: times = noTimes, ...rest } = bundle;
  if (former === undefined) return { bundle, changed: false };
  const opensAt = (times.formerStoppedAt ?? Number.POSITIVE_INFINITY) + ticketRetireAfterMs;
  if (now < opensAt)
    return refuse(
      'retire-too-early',
      `not retiring the former exec ticket key before ${showInstant(opensAt)}: a ticket it signed may be valid`,
      { opensAt },
    );
  const { nextAddedAt } = times;
  return changed({ ...rest, ...(nextAddedAt === null ? {} : { execTicketTimes: { nextAddedAt, formerStoppedAt: null } }) });
}

const changed = (bundle: PkiBundle): BundleStep => ({ bundle: Object.freeze(bundle), changed: true });
