/**
 * When the certificate of an authority is renewed, and when the earlier one may go (KEY-011, CLI-049 to CLI-055).
 *
 * A renewal has the shape of a command-root rotation (stages.ts, gates.ts): the new certificate is put beside the old one, both are
 * trusted, every process takes the bundle up, and after an overlap the old one leaves. It lacks one step: key and subject stay,
 * so nothing has to switch. Whatever the old certificate vouched for, the new one does.
 *
 * Why the old one stays for a while all the same
 *   - a verifier whose clock is behind takes the new one for one of the future, and needs the old one until then;
 *   - chains that carry the old one are still presented by whoever got a certificate before the renewal;
 *   - a process that went back to its last bundle must find what it was given.
 *
 * A renewal is named by the serial of the certificate it replaces, so a repeated step changes nothing and two operators cannot
 * renew twice by accident. Pure: no keys, no clock, no storage.
 */
import { ControlError } from '../errors.ts';
import { showInstant } from '../time.ts';
import { about, type RotationTimes, type Verdict } from './gates.ts';

/** One certificate of an authority. The list it stands in has the present one first, then earlier ones. */
export interface CaCertificateEntry {
  readonly serial: string;
  readonly notBefore: number;
  readonly notAfter: number;
}

/** `due`: the named certificate is the present one. `renewed`: it stands behind a newer one. `gone`: the bundle does not have it. */
export type CaRenewalStage = 'due' | 'renewed' | 'gone';

export function caRenewalStage(certificates: readonly CaCertificateEntry[], serial: string): CaRenewalStage {
  const at = certificates.findIndex((certificate) => certificate.serial === serial);
  return at === -1 ? 'gone' : at === 0 ? 'due' : 'renewed';
}

/** More than these at once are a mistake: every one of them is tried by whoever verifies a chain. */
export const maxCaCertificates = 8;

/** What decides when an earlier certificate may go. */
export interface CaRetirementFacts {
  readonly renewedAt: number;
  /** End of the earlier certificate. */
  readonly oldNotAfter: number;
  /** End of the last leaf that was issued before the renewal, from the records; else the longest one that could exist. */
  readonly lastLeafNotAfter: number;
}

/**
 * The earliest retirement: the overlap after the renewal, and after the last leaf that came with the old certificate has ended;
 * never later than the old certificate's own end, from when on it serves nobody.
 */
export function retirementOpensAt({ renewedAt, oldNotAfter, lastLeafNotAfter }: CaRetirementFacts, times: RotationTimes): number {
  return Math.min(oldNotAfter, Math.max(renewedAt + times.overlapMs, lastLeafNotAfter + times.dropMarginMs));
}

export function judgeCaRetirement(facts: CaRetirementFacts & { readonly now: number }, times: RotationTimes): Verdict {
  const opensAt = retirementOpensAt(facts, times);
  if (facts.now >= opensAt) return { kind: 'open' };
  return {
    kind: 'closed',
    reason: 'retire-too-early',
    message: `the earlier certificate can leave from ${showInstant(opensAt)} (in ${about(opensAt - facts.now)})`,
    behind: [],
  };
}

/**
 * @param certificates as they are, the present one first
 * @param serial the certificate that is to be replaced
 * @returns false when that renewal was made already
 * @throws INVALID_STATE when the certificate is not there any more
 */
export function isRenewalDue(certificates: readonly CaCertificateEntry[], serial: string): boolean {
  const stage = caRenewalStage(certificates, serial);
  if (stage !== 'gone') return stage === 'due';
  throw new ControlError('INVALID_STATE', `certificate ${serial} is no longer in the key bundle: another renewal has replaced it`, {
    details: { reason: 'renewed-since', serial },
  });
}

/** @throws INVALID_STATE when no further certificate may stand beside these */
export function assertRoomForCertificate(certificates: readonly CaCertificateEntry[]): void {
  if (certificates.length < maxCaCertificates) return;
  throw new ControlError('INVALID_STATE', `the authority has ${certificates.length} certificates already, the most that may overlap`, {
    details: { reason: 'too-many-certificates', hint: 'wait until earlier ones may leave; pki show counts them' },
  });
}

/**
 * Takes an earlier certificate out.
 *
 * @param opensAt from retirementOpensAt
 * @param forcedReason not empty: an operator answers for cutting the overlap short
 * @returns null when it is out already
 * @throws INVALID_STATE for the present certificate, and before `opensAt` without a reason
 */
export function retireCertificate<T extends CaCertificateEntry>(
  certificates: readonly T[],
  input: { serial: string; now: number; opensAt: number; forcedReason: string },
): readonly T[] | null {
  const stage = caRenewalStage(certificates, input.serial);
  if (stage === 'gone') return null;
  if (stage === 'due') {
    throw new ControlError('INVALID_STATE', `certificate ${input.serial} is the present one: renew it before it can leave`, {
      details: { reason: 'out-of-order' },
    });
  }
  if (input.now < input.opensAt && input.forcedReason === '') {
    throw new ControlError('INVALID_STATE', `certificate ${input.serial} cannot leave before ${showInstant(input.opensAt)}`, {
      details: { reason: 'retire-too-early', opensAt: input.opensAt },
    });
  }
  return certificates.filter(({ serial }) => serial !== input.serial);
}
