/** How a session over a WebSocket says why it ends: the reason of a close frame with code 4000 + the gRPC status. */

export interface CloseReason {
  /** As in x-bc-reason. */
  readonly reason: string;
  readonly pushbackMs: number | null;
  readonly message: string;
}

/** First code of the range that private protocols use (RFC 6455, 7.4.2). */
export const refusedCloseCode = 4_000;

export const encodeCloseReason = ({ reason, pushbackMs, message }: CloseReason): string => `${reason} ${pushbackMs ?? '-'} ${message}`;

/** null for what is not of this form. */
export function parseCloseReason(text: string): CloseReason | null {
  const [, reason, pushback, message = ''] = /^([a-z][a-z0-9-]{0,63}) (-|\d{1,9})(?: (.*))?$/su.exec(text) ?? [];
  if (reason === undefined || pushback === undefined) return null;
  return { reason, pushbackMs: pushback === '-' ? null : Number(pushback), message };
}
