/**
 * Which disk is meant (M46, M47): by what a disk says of itself, all given fields at once, and exactly one of the machine. No match is
 * an error and never "any disk"; several are one, too. The kernel's names are no part of it.
 */
import { ControlError } from '../errors.ts';

/** What a selector compares. */
export interface SelectableDisk {
  readonly name: string;
  readonly serial: string;
  readonly wwn: string;
  readonly model: string;
  readonly sizeBytes: number;
}

/** An empty field is not compared. */
export interface DiskWanted {
  readonly serial: string;
  readonly wwn: string;
  readonly model: string;
  /** 0: not compared. */
  readonly sizeBytes: bigint;
}

/** @throws INVALID_INPUT for a selector without a field; NOT_FOUND for no match; INVALID_STATE for several */
export function selectDisk<D extends SelectableDisk>(disks: readonly D[], wanted: DiskWanted): D {
  const said = showSelector(wanted);
  if (said === '')
    throw new ControlError('INVALID_INPUT', 'a disk must be named by serial, WWN, size or model: this selector has none of them', {
      details: { reason: 'empty-selector' },
    });
  const found = disks.filter((disk) => isMatch(disk, wanted));
  const [only] = found;
  if (only !== undefined && found.length === 1) return only;
  const there = `this machine has ${disks.map(showDisk).join('; ') || 'no disks'}`;
  if (only === undefined) throw new ControlError('NOT_FOUND', `no disk has ${said}: ${there}`, { details: { reason: 'no-such-disk' } });
  throw new ControlError('INVALID_STATE', `${found.length} disks have ${said}, it must be exactly one: ${found.map(showDisk).join('; ')}`, {
    details: { reason: 'ambiguous-disk' },
  });
}

function isMatch(disk: SelectableDisk, { serial, wwn, model, sizeBytes }: DiskWanted): boolean {
  return (
    (serial === '' || disk.serial === serial.trim()) &&
    (wwn === '' || disk.wwn === wwn.trim().toLowerCase()) &&
    (model === '' || disk.model === model.trim()) &&
    (sizeBytes === 0n || BigInt(disk.sizeBytes) === sizeBytes)
  );
}

export interface WipePlan<D> {
  readonly targets: readonly D[];
  readonly kept: readonly D[];
}

/**
 * What a wipe covers: the named disks; without names every disk that is not on the keep-list (M53). Each entry of the keep-list must
 * match exactly one disk, so that a mistyped one does not end in its erasure.
 *
 * @throws what selectDisk throws; INVALID_INPUT when a disk is named twice or is both to erase and to keep; NOT_FOUND when nothing is left
 */
export function planWipe<D extends SelectableDisk>(
  disks: readonly D[],
  { targets, keep }: { targets: readonly DiskWanted[]; keep: readonly DiskWanted[] },
): WipePlan<D> {
  const kept = keep.map((one) => selectDisk(disks, one));
  const named = targets.map((one) => selectDisk(disks, one));
  const chosen = targets.length === 0 ? disks.filter((disk) => !kept.includes(disk)) : named;
  const twice = chosen.find((disk, at) => chosen.indexOf(disk) !== at);
  if (twice !== undefined) throw contradiction(`${showDisk(twice)} is named twice`);
  const both = chosen.find((disk) => kept.includes(disk));
  if (both !== undefined) throw contradiction(`${showDisk(both)} is both to be erased and to be kept`);
  if (chosen.length === 0) throw new ControlError('NOT_FOUND', 'there is no disk to erase', { details: { reason: 'no-such-disk' } });
  return { targets: chosen, kept };
}

const contradiction = (message: string): ControlError =>
  new ControlError('INVALID_INPUT', message, { details: { reason: 'contradicting-selectors' } });

function showSelector({ serial, wwn, model, sizeBytes }: DiskWanted): string {
  const parts = [
    serial.trim() === '' ? [] : [`serial "${serial.trim()}"`],
    wwn.trim() === '' ? [] : [`WWN "${wwn.trim()}"`],
    sizeBytes === 0n ? [] : [`${sizeBytes} bytes`],
    model.trim() === '' ? [] : [`model "${model.trim()}"`],
  ];
  return parts.flat().join(' and ');
}

/** One disk in a message. */
export const showDisk = ({ name, serial, wwn, sizeBytes, model }: SelectableDisk): string =>
  `${name} (serial ${serial || 'none'}, WWN ${wwn || 'none'}, ${sizeBytes} bytes, model ${model || 'none'})`;
