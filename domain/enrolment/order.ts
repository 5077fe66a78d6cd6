/**
 * What an operator orders when a machine is enrolled over SSH: whom to dial and as whom, by which credential. The credential is named, never
 * given: `file://<name>` is a file in the folder that the hosts worker alone can read.
 */
export type EnrolmentKind = 'enrol' | 'reenrol';

/** How a machine is reached. */
export interface HostAccess {
  /** A name or an address; an IPv6 address without brackets. */
  readonly address: string;
  readonly port: number;
  readonly login: string;
  /** The login takes root's place with `sudo -n`. */
  readonly becomeRoot: boolean;
}

export const sshPort = 22;

const label = '[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?';
const hostName = new RegExp(`^(?=.{1,253}$)${label}(\\.${label})*\\.?$`);
const ipv6 = /^(?=.{2,45}$)[0-9a-f:]*:[0-9a-f:]*(\.\d{1,3}){0,3}(%[A-Za-z0-9._-]{1,15})?$/i;
const loginForm = /^[a-z_][a-z0-9_.-]{0,31}$/i;
const credentialForm = /^file:\/\/([A-Za-z0-9][A-Za-z0-9._-]{0,127})$/;

/** The file's name; undefined for a text that is no such reference. */
export const hostCredentialFile = (reference: string): string | undefined => credentialForm.exec(reference)?.[1];

/** Every problem of it, each with the field's name. */
export function accessProblems({ address, port, login }: HostAccess): string[] {
  return [
    ...(hostName.test(address) || ipv6.test(address)
      ? []
      : [`address ${shown(address)} is neither a host name nor an IP address (no scheme, no port, no brackets)`]),
    ...(Number.isInteger(port) && port >= 1 && port <= 65_535 ? [] : [`port ${port} is not within 1 to 65535`]),
    ...(loginForm.test(login) ? [] : [`login ${shown(login)} is not the name of a login`]),
  ];
}

export function credentialProblem(reference: string): string | undefined {
  if (hostCredentialFile(reference) !== undefined) return undefined;
  if (/^(secret|vault|env):\/\//.test(reference))
    return `credential ${shown(reference)} is of the api; the worker that speaks SSH has a folder of its own: file://<name>`;
  if (reference.includes('PRIVATE KEY') || reference.includes('\n'))
    return 'credential must name a file (file://<name>), not be what is in it';
  return `credential ${shown(reference)} is not file://<name>`;
}

const shown = (text: string): string => JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}…` : text);
