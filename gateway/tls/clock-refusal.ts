/**
 * A certificate that is not valid yet is a clock that is off: ours, the peer's or the authority's. It is neither expired nor
 * broken, and no new join cures it, so it has a refusal of its own: one that the daemon answers by dialling again, where
 * "expired" makes it stop and ask for a person.
 */
import { type ControlError, isControlError } from '../../domain/errors.ts';
import { showInstant } from '../../domain/time.ts';
import { refusal } from '../grpc/refusals.ts';

/** @returns what `verifyPeer` threw, or in its place the refusal for a certificate of the future */
export function withClockTold(error: unknown, now: number): unknown {
  return isNotYetValid(error)
    ? refusal('client-certificate-not-yet-valid', {
        message: `the client certificate begins to be valid later than now, which is ${showInstant(now)} by this gateway's clock`,
        cause: error,
      })
    : error;
}

const isNotYetValid = (error: unknown): error is ControlError =>
  isControlError(error) && isControlError(error.cause) && error.cause.details['reason'] === 'not-yet-valid';
