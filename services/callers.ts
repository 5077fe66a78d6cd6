/** Who asks for a way in, and the trail of those who may not have it (EXEC-005): what is allowed stands there with what was given out. */
import { randomUUID } from 'node:crypto';
import { isControlError } from '../domain/errors.ts';
import type { Database } from '../drizzle/client.ts';
import { databaseNow } from '../drizzle/queries/clock.ts';
import { recordAudit } from './audit.ts';

export interface Caller {
  /** Stands in tickets and certificates. */
  readonly name: string;
  /** Stands in the trail. */
  readonly actor: string;
  readonly session: CallerSession;
  /** @throws PERMISSION_DENIED when the caller may not have this of what is this tenant's */
  assertMay(tenantId: string): void;
}

/** What a caller showed to be let in: nothing that is given out for it outlives it. */
export interface CallerSession {
  /** The same for the same credential; says nothing of it. */
  readonly id: string;
  /** Unix milliseconds; null: it has no end of its own. */
  readonly endsAt: number | null;
}

export interface Asked {
  readonly caller: Caller;
  readonly tenantId: string;
  /** Of what is asked for. */
  readonly subject: string;
  /** The word of the trail when it is denied. */
  readonly action: 'tunnels.denied' | 'sandboxes.denied';
  readonly details: Readonly<Record<string, string>>;
}

/** @throws PERMISSION_DENIED, when the trail says so */
export async function assertAllowed(db: Database, { caller, tenantId, subject, action, details }: Asked): Promise<void> {
  try {
    caller.assertMay(tenantId);
  } catch (error) {
    const reason = isControlError(error) ? ((error.details['reason'] as string | undefined) ?? error.code) : 'fault';
    const event = { key: `${action}/${randomUUID()}`, actor: caller.actor, action, subject, tenant: tenantId };
    await recordAudit(db, { ...event, details: { ...details, reason } }, await databaseNow(db));
    throw error;
  }
}
