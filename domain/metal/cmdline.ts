/**
 * What a boot server tells the ramdisk, on the kernel's command line: who it is to become, for which run and boot, whom it may
 * believe, and the token that it proves to the boot server once. One pair of functions for both sides.
 *
 * Invariants: each name stands once; a value is printable ASCII without spaces, quotes and what a boot loader expands; what
 * parses was complete. Anything else on the line belongs to the kernel and is left alone.
 *
 * Threat: the token is a secret of one boot. Whoever reads /proc/cmdline of the ramdisk is root there already; whoever reads the
 * network the script crossed could use it before the machine does, and the second use is then seen (M68).
 */
import { ControlError } from '../errors.ts';

export interface BootCmdline {
  /** Of the boot server: http://host:port, without a path. */
  readonly site: string;
  /** The boot entry. */
  readonly entryId: string;
  /** Base64url of the discovery token. */
  readonly token: string;
  /** Hex of the 16 bytes that tell this boot from every other. */
  readonly bootNonce: string;
  /** Who the machine is to be. */
  readonly nodeId: string;
  readonly runId: string;
  /** Of the gateway: https://host:port. */
  readonly gatewayUrl: string;
  /** Base64url of a file of pins (`encodePinsFile`). */
  readonly pins: string;
  /** The address of the interface that asked for the boot; lower case, with colons. */
  readonly macAddress: string;
}

/** The kernel of x86 cuts the line here (COMMAND_LINE_SIZE), without a word. */
export const maxCmdlineLength = 2_047;

interface Field {
  readonly name: string;
  readonly form: RegExp;
  readonly what: string;
}

/** What the boot server adds; the order is that of the line. */
const fields: Readonly<Record<keyof BootCmdline, Field>> = Object.freeze({
  site: { name: 'bc.site', form: /^https?:\/\/(?:[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):\d{1,5}$/, what: 'http://host:port' },
  entryId: { name: 'bc.entry', form: /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/, what: 'the id of a boot entry' },
  token: { name: 'bc.token', form: /^[A-Za-z0-9_-]{22,344}$/, what: 'base64url of 16 to 256 bytes' },
  bootNonce: { name: 'bc.nonce', form: /^[0-9a-f]{32}$/, what: '32 lower-case hex digits' },
  nodeId: { name: 'bc.node', form: /^[A-Za-z0-9._-]{1,63}$/, what: 'the id of a node' },
  runId: { name: 'bc.run', form: /^[0-9a-f]{12}$/, what: '12 lower-case hex digits' },
  gatewayUrl: {
    name: 'bc.gateway',
    form: /^https:\/\/(?:[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::\d{1,5})?\/?$/,
    what: 'an https URL',
  },
  pins: { name: 'bc.pins', form: /^[A-Za-z0-9_-]{1,1400}$/, what: 'base64url of a file of pins' },
  macAddress: { name: 'bc.mac', form: /^[0-9a-f]{2}(?::[0-9a-f]{2}){5}$/, what: 'a MAC address in lower case with colons' },
});

const keys = Object.keys(fields) as readonly (keyof BootCmdline)[];

/** Of what others add to the line: nothing that a boot loader expands, joins lines by, or ends a command with. */
const otherWord = /^[A-Za-z0-9._,:;=/@+%-]{1,256}$/;

/**
 * What is wrong with arguments that a command wants on the line beside ours; null when nothing is. A name of ours among them
 * would stand beside the real one, and the first or the last would win.
 */
export function problemOfKernelArgs(text: string): string | null {
  const words = wordsOf(text);
  const wrong = words.find((word) => !otherWord.test(word));
  if (wrong !== undefined) return `"${printable(wrong)}" holds a character that a boot loader may take for its own`;
  const ours = words.find((word) => word.startsWith('bc.'));
  return ours === undefined ? null : `"${printable(ours)}" is for the boot server to say`;
}

/** @throws INVALID_INPUT naming every value that has not its form, and when the line would be cut by a kernel */
export function encodeBootCmdline(values: BootCmdline, kernelArgs = ''): string {
  const problems = keys.flatMap((key) => problemOf(key, values[key]));
  const problem = problemOfKernelArgs(kernelArgs);
  if (problem !== null) problems.push(`kernel arguments: ${problem}`);
  const line = [...keys.map((key) => `${fields[key].name}=${values[key]}`), ...wordsOf(kernelArgs)].join(' ');
  if (line.length > maxCmdlineLength) problems.push(`the line has ${line.length} characters, and a kernel reads ${maxCmdlineLength}`);
  if (problems.length === 0) return line;
  throw new ControlError('INVALID_INPUT', `no command line for the ramdisk: ${problems.join('; ')}`, {
    details: { reason: 'cmdline', problems },
  });
}

/**
 * Reads what the boot server said, from /proc/cmdline or a file.
 *
 * @throws INVALID_INPUT naming everything that is missing, stands twice or has not its form
 */
export function parseBootCmdline(text: string): BootCmdline {
  const words = wordsOf(text.slice(0, 64 * 1024));
  const problems: string[] = [];
  const values = Object.fromEntries(
    keys.map((key) => {
      const prefix = `${fields[key].name}=`;
      const found = words.filter((word) => word.startsWith(prefix)).map((word) => word.slice(prefix.length));
      const [value = ''] = found;
      if (found.length === 0) problems.push(`${fields[key].name} is missing`);
      else if (found.length > 1) problems.push(`${fields[key].name} stands ${found.length} times`);
      else problems.push(...problemOf(key, value));
      return [key, value];
    }),
  );
  // The record has each key of the table, by construction.
  if (problems.length === 0) return Object.freeze(values) as unknown as BootCmdline;
  throw new ControlError('INVALID_INPUT', `the kernel's command line is not that of a boot server: ${problems.join('; ')}`, {
    details: { reason: 'cmdline', problems, hint: 'a ramdisk starts through a boot server; look at /proc/cmdline' },
  });
}

function problemOf(key: keyof BootCmdline, value: string): string[] {
  const { name, form, what } = fields[key];
  // Never the token itself.
  return form.test(value) ? [] : [`${name} must be ${what}${key === 'token' ? '' : `, not "${printable(value)}"`}`];
}

const wordsOf = (text: string): string[] => text.split(/\s+/).filter((word) => word !== '');

const printable = (text: string): string => text.replace(/[^\x20-\x7e]/g, '?').slice(0, 80);
