/**
 * How a disk is erased: the methods, what each needs of the drive, and what a sample that is read back afterwards must show.
 *
 * Rules
 *   - What a drive can do is read first; a method it does not offer is never tried (M51).
 *   - Best first: cryptographic erase, user-data erase, the security feature set, secure discard, and what always works: overwriting.
 *   - `nvme format` without a secure erase setting (SES 0) and a plain discard promise nothing about the data: they are no methods (M50).
 *   - A tool's success is believed only together with samples (judgeSample).
 */
import { ControlError } from '../errors.ts';

/** What was read of one drive before anything is done to it. */
export interface EraseCapabilities {
  /** FNA bit 2: a format may destroy the key. */
  readonly nvmeCryptoErase: boolean;
  /** OACS bit 1: the drive takes a format. */
  readonly nvmeFormat: boolean;
  /** The security feature set is there, and neither frozen nor locked. */
  readonly ataSecureErase: boolean;
  readonly ataEnhancedErase: boolean;
  /** The kernel takes a secure discard for it. */
  readonly secureDiscard: boolean;
}

export const noEraseCapabilities: EraseCapabilities = Object.freeze({
  nvmeCryptoErase: false,
  nvmeFormat: false,
  ataSecureErase: false,
  ataEnhancedErase: false,
  secureDiscard: false,
});

export interface EraseMethodSpec {
  readonly isOffered: (can: EraseCapabilities) => boolean;
  /** Over the whole disk, by this program. */
  readonly passes: number;
  /** What a range must hold afterwards. `changed`: anything but what was there. */
  readonly leaves: 'zero' | 'changed';
  readonly summary: string;
}

/** Best first. */
export const eraseMethods = Object.freeze({
  'nvme-format-ses2': {
    isOffered: (can) => can.nvmeFormat && can.nvmeCryptoErase,
    passes: 0,
    leaves: 'changed',
    summary: 'the NVMe drive destroys its key',
  },
  'nvme-format-ses1': {
    isOffered: (can) => can.nvmeFormat,
    passes: 0,
    leaves: 'changed',
    summary: 'the NVMe drive erases its user data',
  },
  'ata-secure-erase-enhanced': {
    isOffered: (can) => can.ataSecureErase && can.ataEnhancedErase,
    passes: 0,
    leaves: 'changed',
    summary: 'the ATA drive erases itself, reallocated sectors too',
  },
  'ata-secure-erase': {
    isOffered: (can) => can.ataSecureErase,
    passes: 0,
    leaves: 'changed',
    summary: 'the ATA drive erases itself',
  },
  'blkdiscard-secure': {
    isOffered: (can) => can.secureDiscard,
    passes: 0,
    leaves: 'changed',
    summary: 'the drive discards every block and its copies',
  },
  'overwrite-random-zero': {
    isOffered: () => true,
    passes: 2,
    leaves: 'zero',
    summary: 'written over with random data, then with zeros',
  },
} as const satisfies Record<string, EraseMethodSpec>);

export type EraseMethod = keyof typeof eraseMethods;

export const isEraseMethod = (name: string): name is EraseMethod => Object.hasOwn(eraseMethods, name);

/**
 * The methods to try on one drive, in order.
 *
 * @param allowed those the command allows, best first; empty: all, in the table's order
 * @throws INVALID_INPUT for a name that is no method; UNSUPPORTED when the drive offers none of those that are allowed
 */
export function eraseLadder(can: EraseCapabilities, allowed: readonly string[]): readonly EraseMethod[] {
  const unknown = allowed.filter((name) => !isEraseMethod(name));
  if (unknown.length > 0)
    throw new ControlError(
      'INVALID_INPUT',
      `no way to erase a disk: ${unknown.join(', ')} (there are ${Object.keys(eraseMethods).join(', ')})`,
      {
        details: { reason: 'erase-method' },
      },
    );
  const wanted = allowed.length === 0 ? (Object.keys(eraseMethods) as EraseMethod[]) : allowed.filter(isEraseMethod);
  const ladder = wanted.filter((name) => eraseMethods[name].isOffered(can));
  if (ladder.length > 0) return ladder;
  throw new ControlError('UNSUPPORTED', `the drive offers none of the ways that are allowed: ${allowed.join(', ')}`, {
    details: { reason: 'no-erase-method' },
  });
}

/** One range of a disk, before and after. */
export interface SampledBytes {
  /** undefined: it could not be read. */
  readonly before: Uint8Array | undefined;
  readonly after: Uint8Array | undefined;
}

/**
 * Whether a range proves that the method erased it. A range that held nothing but zeros before proves nothing when it still does:
 * the caller plants a mark there first.
 */
export function judgeSample(method: EraseMethod, { before, after }: SampledBytes): boolean {
  if (after === undefined) return false;
  const isZero = isAllZero(after);
  if (before === undefined) return isZero;
  if (isSame(before, after)) return false;
  return eraseMethods[method].leaves === 'zero' ? isZero : true;
}

const isSame = (a: Uint8Array, b: Uint8Array): boolean => a.length === b.length && a.every((byte, at) => byte === b[at]);

export const isAllZero = (bytes: Uint8Array): boolean => bytes.every((byte) => byte === 0);
