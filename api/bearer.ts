/** The operator's bearer: one token, compared in constant time. What it looks like is the state folder's business. */
import { createHash, timingSafeEqual } from 'node:crypto';
import { ControlError } from '../domain/errors.ts';

const digest = (text: string): Buffer => createHash('sha256').update(text).digest();

/**
 * Checks an Authorization header against the token.
 *
 * @throws UNAUTHENTICATED with reason no-credential or bad-credential
 */
export function assertBearer(header: string | undefined, token: string): void {
  const given = /^Bearer +(\S+)$/i.exec(header ?? '')?.[1];
  if (given === undefined) {
    throw new ControlError('UNAUTHENTICATED', 'the request carries no bearer token (Authorization: Bearer …)', {
      details: { reason: 'no-credential' },
    });
  }
  if (!timingSafeEqual(digest(given), digest(token))) {
    throw new ControlError('UNAUTHENTICATED', 'the bearer token is not the operator token of this deployment', {
      details: { reason: 'bad-credential' },
    });
  }
}
