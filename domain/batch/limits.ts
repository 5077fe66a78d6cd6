/**
 * What a batch may be: every bound of a batch in one place, for the api, the services, the daemon and the approver's own tool.
 */
import { codePointName, findUnseen } from '../text/unseen.ts';
import { day, hour, second } from '../time.ts';

/** Operations of one batch (BAT-005, BAT-043). */
export const maxLeaves = 50_000;

/** Bytes of one leaf's payload (QUO-017). */
export const maxLeafPayload = 65_536;

/** Bytes of all payloads of one batch (QUO-018). */
export const maxBatchPayloads = 8 * 2 ** 20;

/** Leaves of one page of a scope (BATCLI-003); a page ends earlier at maxBatchPayloads (A-PKI-32). */
export const maxPageLeaves = 5_000;

/** Code points of the reason that approvers read (BAT-041). */
export const maxReasonLength = 500;

/** From creation to the end of the window: of a request (BAT-044), and of a batch that a module of the server makes (A-PKI-28). */
export const batchWindow = Object.freeze({ minMs: 60 * second, maxMs: 72 * hour, defaultMs: day, moduleMaxMs: 720 * hour });

/**
 * What is wrong with a reason, or null. It is one person's word to another, read in a terminal before a key is used: of the characters
 * that a screen does not show, a line feed is the only one in it.
 */
export function judgeReason(reason: string): { readonly reason: string; readonly message: string } | null {
  if (reason.trim() === '')
    return { reason: 'empty-reason', message: 'the reason is empty: say what approvers are asked to allow, and why' };
  const length = Array.from(reason).length;
  if (length > maxReasonLength) {
    return { reason: 'reason-too-long', message: `the reason has ${length} characters, at most ${maxReasonLength} are allowed` };
  }
  const found = findUnseen(reason);
  if (found === null) return null;
  return {
    reason: 'deceptive-reason',
    message: `the reason holds ${codePointName(found.character)} at position ${found.index}: a terminal would not show it`,
  };
}
