/**
 * The scripts that iPXE is handed. Each ends in asking again: a server that is away, a file that does not come whole or a kernel that
 * does not start leave the machine waiting, and never at its disk. Only the answer `local` leaves to the firmware's next choice.
 *
 * What is put into a script was judged by a form before (an address, a name, the kernel's line): iPXE expands `${…}` anywhere and joins
 * commands by `||` and `&&`.
 */
import type { BootAnswer } from './answers.ts';
import type { BootArtefact } from './artefacts.ts';

const waitSeconds = 15;

export interface ScriptOptions {
  /** http://host:port */
  readonly baseUrl: string;
  readonly macAddress: string;
  /** For the answer ramdisk. */
  readonly cmdline?: string;
}

export const scriptPath = (macAddress: string): string => `/ipxe/${macAddress}`;
export const artefactPath = ({ name, sha256 }: BootArtefact): string => `/artefacts/${name}?sha256=${sha256}`;

/** What the answer is in iPXE's words. */
export function scriptFor(answer: BootAnswer, options: ScriptOptions): string {
  switch (answer.kind) {
    case 'ramdisk':
      return ramdisk(answer, options);
    case 'hold':
      return script([`echo Better Compute: wait, ${answer.why}`, ...askAgain(options)]);
    case 'local':
      return script([
        `echo Better Compute: boot the local disk, ${answer.why}`,
        // UEFI goes to its next boot option; BIOS of some makers starts over, so the first disk is named.
        // oxlint-disable-next-line no-template-curly-in-string
        'iseq ${platform} pcbios && sanboot --no-describe --drive 0x80 || exit 0',
      ]);
  }
}

function ramdisk({ entry }: BootAnswer & { kind: 'ramdisk' }, options: ScriptOptions): string {
  const { baseUrl, cmdline = '' } = options;
  return script([
    `echo Better Compute: run ${entry.runId}, boot entry ${entry.entryId}`,
    'imgfree',
    // By these names, whatever the files are called: the kernel finds its initramfs by name under UEFI.
    `kernel --name kernel ${baseUrl}${artefactPath(entry.kernel)} initrd=initramfs ${cmdline} || goto again`,
    `initrd --name initramfs ${baseUrl}${artefactPath(entry.initramfs)} || goto again`,
    'boot || goto again',
    ':again',
    'imgfree ||',
    ...askAgain(options),
  ]);
}

const askAgain = ({ baseUrl, macAddress }: ScriptOptions): string[] => [
  ':wait',
  `sleep ${waitSeconds}`,
  `chain --replace --autofree ${baseUrl}${scriptPath(macAddress)} || goto wait`,
];

/** For iPXE that was told no address of its own: it puts in the one that it asks with. */
export const firstScript = (baseUrl: string): string =>
  script([
    ':wait',
    // oxlint-disable-next-line no-template-curly-in-string
    `chain --replace --autofree ${baseUrl}/ipxe/\${netX/mac:hexhyp} || goto next`,
    ':next',
    `sleep ${waitSeconds}`,
    'goto wait',
  ]);

const script = (lines: readonly string[]): string => `#!ipxe\n${lines.join('\n')}\n`;
