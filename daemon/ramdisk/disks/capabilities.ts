/** What a drive says it can do to erase itself, out of what its tool prints. What is not said is not there. */
import { z } from 'zod';
import { type EraseCapabilities, noEraseCapabilities } from '../../../domain/metal/erase.ts';

const idController = z.looseObject({ fna: z.number().int().default(0), oacs: z.number().int().default(0) });

/** Of `nvme id-ctrl --output-format=json`: OACS bit 1 takes a format, FNA bit 2 destroys the key (NVMe base specification, figure 275). */
export function capabilitiesOfNvme(stdout: string): EraseCapabilities {
  let json: unknown;
  try {
    json = JSON.parse(stdout);
  } catch {
    return noEraseCapabilities;
  }
  const parsed = idController.safeParse(json);
  if (!parsed.success) return noEraseCapabilities;
  const { fna, oacs } = parsed.data;
  return { ...noEraseCapabilities, nvmeFormat: (oacs & 0b10) !== 0, nvmeCryptoErase: (fna & 0b100) !== 0 };
}

/** Of `hdparm -I`: the section "Security". A frozen or locked drive takes no erase until it was without power. */
export function capabilitiesOfHdparm(stdout: string): EraseCapabilities {
  const section = /^Security:\s*\n((?:[ \t]+.*\n?)*)/m.exec(stdout)?.[1] ?? '';
  const lines = section.split('\n').map((line) => line.trim().replace(/\s+/g, ' '));
  const says = (line: string): boolean => lines.includes(line);
  const ataSecureErase = says('supported') && says('not frozen') && says('not locked');
  return { ...noEraseCapabilities, ataSecureErase, ataEnhancedErase: ataSecureErase && says('supported: enhanced erase') };
}
