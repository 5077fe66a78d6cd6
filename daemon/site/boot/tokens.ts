/** Discovery tokens: asked for by reference (SEC-023), kept in memory alone, and only while the entry could still be served. */
import { createHash } from 'node:crypto';
import { ControlError } from '../../../domain/errors.ts';
import { second } from '../../../domain/time.ts';
import { tokenBytes } from './assert-request.ts';
import type { BootEntry } from './machine-record.ts';
import type { SiteAgent } from './ports.ts';

/** A broker may take 10 s (SEC-018), and iPXE waits for no answer much longer. */
const readWithinMs = 12 * second;
const keptAtMost = 4_096;

export interface Tokens {
  /** Asks the broker, and keeps what it says. The binding is the boot entry's workflow: the step is empty. */
  read(entry: Pick<BootEntry, 'entryId' | 'tokenRef' | 'workflowId'>, signal: AbortSignal): Promise<Uint8Array>;
  /** Kept, or asked for after a restart; the one that the entry was made with. @throws INVALID_STATE (`token-differs`) */
  of(entry: BootEntry): Promise<Uint8Array>;
}

export function createTokens(agent: () => SiteAgent | null): Tokens {
  const kept = new Map<string, Uint8Array>();
  const asked = new Map<string, Promise<Uint8Array>>();
  const read: Tokens['read'] = async ({ entryId, tokenRef, workflowId }, signal) => {
    const { secrets } = getAgent(agent);
    const token = await secrets.read(tokenRef, { workflowId, stepId: '' }, signal);
    if (token.length < tokenBytes.min || token.length > tokenBytes.max)
      throw new ControlError('INVALID_STATE', `the discovery token has ${token.length} bytes, not ${tokenBytes.min} to ${tokenBytes.max}`, {
        details: { reason: 'token-length' },
      });
    const [oldest] = kept.keys();
    if (kept.size >= keptAtMost && oldest !== undefined) kept.delete(oldest);
    kept.set(entryId, token);
    return token;
  };
  return {
    read,
    async of(entry) {
      const known = kept.get(entry.entryId);
      if (known !== undefined && tokenDigest(known) === entry.tokenSha256) return known;
      // A machine that asks ten times at once is one question.
      const question =
        asked.get(entry.entryId) ?? read(entry, AbortSignal.timeout(readWithinMs)).finally(() => asked.delete(entry.entryId));
      asked.set(entry.entryId, question);
      const token = await question;
      if (tokenDigest(token) === entry.tokenSha256) return token;
      throw new ControlError('INVALID_STATE', `the discovery token of boot entry ${entry.entryId} is another one now`, {
        details: { reason: 'token-differs' },
      });
    },
  };
}

export const tokenDigest = (token: Uint8Array): string => createHash('sha256').update(token).digest('hex');

/** @throws UNAVAILABLE (`no-agent`) */
export function getAgent(agent: () => SiteAgent | null): SiteAgent {
  const now = agent();
  if (now !== null) return now;
  throw new ControlError('UNAVAILABLE', 'the site agent has no identity that it could act for at this moment', {
    details: { reason: 'no-agent' },
  });
}
