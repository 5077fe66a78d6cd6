/**
 * Whether a published program of bcd may take the place of the running one (KIND-009, SKEW-016, SKEW-017). The signature was checked
 * before: these are the rules about what it says.
 */
import { ControlError } from '../errors.ts';

export interface Release {
  /** MAJOR.MINOR.PATCH. */
  readonly version: string;
  /** SHA-256 of the program's file, 64 lower-case hex digits. */
  readonly sha256: string;
  /** Size of the program's file. */
  readonly bytes: number;
  /** node's platform-architecture, or `any`. */
  readonly platform: string;
}

export interface RunningProgram {
  readonly version: string;
  readonly sha256: string;
  readonly platform: string;
}

/** What a program of bcd may weigh: a bundle is a few megabytes, one with its own runtime a hundred. */
export const programMaxBytes = 512 * 1024 * 1024;

const versionForm = /^(0|[1-9]\d{0,5})\.(0|[1-9]\d{0,5})\.(0|[1-9]\d{0,5})$/;
const platformForm = /^(any|[a-z0-9]{2,16}-[a-z0-9]{2,16})$/;

export const isVersion = (text: string): boolean => versionForm.test(text);
export const isPlatform = (text: string): boolean => platformForm.test(text);

/** Below 0 when `a` is the older one. Both are versions. */
export function compareVersions(a: string, b: string): number {
  const [left, right] = [a, b].map((text) => text.split('.').map(Number));
  for (const part of [0, 1, 2]) {
    const difference = (left?.[part] ?? 0) - (right?.[part] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}

/** The first thing that is wrong with what a release says; null when nothing is. */
export function releaseProblem({ version, sha256, bytes, platform }: Release): string | null {
  if (!isVersion(version)) return 'version must be MAJOR.MINOR.PATCH';
  if (!/^[0-9a-f]{64}$/.test(sha256)) return 'sha256 must have 32 bytes';
  if (!Number.isSafeInteger(bytes) || bytes < 1 || bytes > programMaxBytes) return `bytes must be 1 to ${programMaxBytes}`;
  if (!isPlatform(platform)) return 'platform must be "any" or like linux-x64';
  return null;
}

/**
 * `same`: it runs already. Never back: whoever may send commands must not be able to bring an old fault back, so an older program
 * is put in place by hand.
 *
 * @throws INVALID_STATE `downgrade` or `other-program`; UNSUPPORTED `platform`
 */
export function assertMayReplace(release: Release, running: RunningProgram): 'newer' | 'same' {
  if (release.platform !== 'any' && release.platform !== running.platform)
    throw new ControlError(
      'UNSUPPORTED',
      `release ${release.version} is for ${release.platform}, and this machine is ${running.platform}`,
      {
        details: { reason: 'platform' },
      },
    );
  const order = compareVersions(release.version, running.version);
  if (order > 0) return 'newer';
  if (order === 0 && release.sha256 === running.sha256) return 'same';
  throw new ControlError(
    'INVALID_STATE',
    order === 0
      ? `this machine runs another program that calls itself ${running.version} too: publish it under a higher version`
      : `release ${release.version} is older than the running ${running.version}: an older program is put in place by hand`,
    { details: { reason: order === 0 ? 'other-program' : 'downgrade' } },
  );
}
