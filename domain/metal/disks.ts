/**
 * Which disk of a machine a profile means. The answer names a disk by what stays (WWN, serial), never by what the kernel calls it in one
 * boot; none or several that match is a refusal, never a guess (M46, M47).
 */
import type { DiskPick, DiskRule } from './profile.ts';

export interface SeenDisk {
  readonly name: string;
  readonly serial: string;
  readonly wwn: string;
  readonly model: string;
  readonly sizeBytes: number;
  readonly transport: string;
  readonly rotational: boolean;
  readonly removable: boolean;
}

/** The fields of a DiskSelector; every one that is not empty must match. */
export interface DiskChoice {
  readonly serial: string;
  readonly wwn: string;
  readonly sizeBytes: number;
  readonly model: string;
}

export type ChosenDisk =
  | { readonly ok: true; readonly choice: DiskChoice; readonly disk: SeenDisk }
  | { readonly ok: false; readonly reason: 'no-disk' | 'several-disks' | 'nameless-disk'; readonly message: string };

const tests: readonly ((disk: SeenDisk, rule: DiskRule) => boolean)[] = [
  ({ serial }, rule) => rule.serial === undefined || serial === rule.serial.trim(),
  ({ wwn }, rule) => rule.wwn === undefined || wwn === rule.wwn.trim().toLowerCase(),
  ({ model }, rule) => rule.model === undefined || model === rule.model.trim(),
  ({ transport }, rule) => rule.transport === undefined || transport === rule.transport,
  ({ rotational }, rule) => rule.rotational === undefined || rotational === rule.rotational,
  ({ sizeBytes }, { minBytes = 0, maxBytes = Infinity }) => sizeBytes >= minBytes && sizeBytes <= maxBytes,
];

/** A disk that can be pulled is meant only by its serial or WWN. */
const isMeant = (disk: SeenDisk, rule: DiskRule): boolean =>
  tests.every((test) => test(disk, rule)) && (!disk.removable || rule.serial !== undefined || rule.wwn !== undefined);

export const disksOfRule = (disks: readonly SeenDisk[], rule: DiskRule): SeenDisk[] => disks.filter((disk) => isMeant(disk, rule));

const shown = ({ serial, wwn, model, sizeBytes }: SeenDisk): string => `${serial || wwn || 'no serial'} (${model}, ${sizeBytes} bytes)`;

/** The one disk that a rule means. */
export function chooseDisk(disks: readonly SeenDisk[], rule: DiskRule, pick: DiskPick): ChosenDisk {
  const found = disksOfRule(disks, rule);
  if (found.length === 0)
    return {
      ok: false,
      reason: 'no-disk',
      message: `none of the ${disks.length} disks matches: ${disks.map(shown).join(', ') || 'there is none'}`,
    };
  const [disk, rival] = found.length === 1 ? found : firstOf(found, pick);
  if (disk === undefined || rival !== undefined)
    return { ok: false, reason: 'several-disks', message: `${found.length} disks match: ${found.map(shown).join(', ')}` };
  return nameOf(disk, disks);
}

/** The first by the rule of the pick, and the one that equals it. */
function firstOf(found: readonly SeenDisk[], pick: DiskPick): readonly SeenDisk[] {
  if (pick === 'only') return found;
  const keyOf = (disk: SeenDisk): number | string => (pick === 'smallest' ? disk.sizeBytes : disk.serial || disk.wwn || '\uffff');
  const least = found.map(keyOf).reduce((a, b) => (b < a ? b : a));
  return found.filter((disk) => keyOf(disk) === least);
}

/** By WWN and serial both where it has both: two disks with one serial are told apart, or the selector refuses (M59). */
function nameOf(disk: SeenDisk, disks: readonly SeenDisk[]): ChosenDisk {
  const { serial, wwn, sizeBytes, model } = disk;
  const choice = { serial, wwn, sizeBytes, model };
  const same = disks.filter(
    (other) => other.serial === serial && other.wwn === wwn && other.sizeBytes === sizeBytes && other.model === model,
  );
  if (same.length === 1 && (serial !== '' || wwn !== '')) return { ok: true, choice, disk };
  return {
    ok: false,
    reason: 'nameless-disk',
    message: `nothing tells the disk ${shown(disk)} from others: it has no serial or WWN of its own`,
  };
}
