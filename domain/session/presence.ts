/** What "connected" means, in one place (ROT-025): a session on a gateway, not ended, seen within the last 2 minutes. */
import { minute } from '../time.ts';

export const connectedWithinMs = 2 * minute;

export interface SessionFact {
  readonly endedAt: number | null;
  readonly lastSeenAt: number;
}

export const isConnected = (session: SessionFact, now: number): boolean =>
  session.endedAt === null && now - session.lastSeenAt <= connectedWithinMs;
