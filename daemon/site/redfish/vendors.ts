/** What controllers of a maker need done otherwise: the one place where a maker's name decides anything. */
import { fieldOf, type Json, textOf } from './resource.ts';

export interface VendorQuirks {
  /** Keeps connections between reads; some choke on them. */
  readonly keepConnections: boolean;
  /** Between two writes. A burst of them makes small controllers fall silent (M14). */
  readonly writeSpacingMs: number;
  /** A one-time override to the disk after an installation does harm: the firmware's own order is right (M31). */
  readonly overrideAfterDeploy: boolean;
  /** What a virtual CD is called among the boot targets. */
  readonly mediaTarget: 'Cd' | 'UsbCd';
  /** InsertMedia takes Image alone; other parameters are refused. */
  readonly imageOnly: boolean;
  /** A change of mode and of target in one request is refused: the mode is left out where it holds already. */
  readonly modeApart: boolean;
  /** The machine's number of the maker's stands in SKU. */
  readonly serialInSku: boolean;
}

const usual: VendorQuirks = Object.freeze({
  keepConnections: true,
  writeSpacingMs: 500,
  overrideAfterDeploy: true,
  mediaTarget: 'Cd',
  imageOnly: true,
  modeApart: false,
  serialInSku: false,
});

const table: Readonly<Record<string, Partial<VendorQuirks>>> = Object.freeze({
  dell: { modeApart: true, serialInSku: true },
  lenovo: { overrideAfterDeploy: false },
  supermicro: { mediaTarget: 'UsbCd', keepConnections: false },
  ami: { keepConnections: false, writeSpacingMs: 1000 },
});

export const quirksOf = (vendor: string): VendorQuirks =>
  Object.freeze({ ...usual, ...(Object.hasOwn(table, vendor) ? table[vendor] : undefined) });

/** Lower case, the first word: "Dell Inc." and "DELL" are one. Empty where the service root does not say. */
export function vendorOf(root: Json): string {
  const oem = fieldOf(root, 'Oem');
  const named = textOf(root, 'Vendor') || Object.keys((oem as Json | undefined) ?? {})[0] || '';
  return (/^[a-z0-9-]+/.exec(named.toLowerCase())?.[0] ?? '').slice(0, 40);
}
