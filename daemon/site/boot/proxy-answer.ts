/**
 * Whom the proxy answers, and with what: pure.
 *
 *   a packet that a relay passed on             silence: it is not of this network, and whom it names as relay is anybody's word
 *   a client that is not PXE                    silence
 *   a request for an address                    silence: the site's own server answers
 *   a machine that nothing is known of          silence
 *   a machine that may boot its disk            silence
 *   any other                                   iPXE: its script; firmware: the loader for what it is
 *
 * Invariant: who is told by its script to start the ramdisk or to wait is answered here, for a machine under maintenance that gets no
 * answer goes to its disk (M6). Without a loader for its architecture there is nothing to answer with; the caller says so.
 */
import type { BootConfig } from '../config.ts';
import { type Asked, answerFor, situationOf } from './answers.ts';
import { type DhcpRequest, noAddress, pxeClass } from './dhcp-packets.ts';

/** Where it came in: by broadcast from a client without an address, or to the port of boot servers. */
export type ProxyDoor = 'dhcp' | 'boot-server';

export type ProxyAnswer =
  | { readonly kind: 'silence'; readonly why: string }
  | { readonly kind: 'no-loader'; readonly architecture: number }
  | { readonly kind: 'file'; readonly file: string };

type Loader = keyof BootConfig['loaders'];

/** RFC 4578 and its errata, and IANA's list since: 7 and 9 are the same machine, by firmware of different years. */
const loaderByArchitecture: Readonly<Record<number, Loader>> = Object.freeze({ 0: 'bios', 7: 'efiX64', 9: 'efiX64', 11: 'efiArm64' });

export interface ProxyFacts {
  readonly loaders: BootConfig['loaders'];
  /** Dotted; ours. */
  readonly server: string;
  readonly scriptUrl: string;
}

/** What the network has for this machine: true for who must not be left to its disk. */
export const isWantedOnNetwork = (asked: Asked, now: number): boolean =>
  situationOf(asked, now) !== 'unknown' && answerFor(asked, now).kind !== 'local';

/** Whether it is for a proxy at all; null: it is. Before anything is looked up. */
export function whyNotOurs(request: DhcpRequest, { door, server }: { door: ProxyDoor; server: string }): string | null {
  const { kind, relayAddress, vendorClass, serverId } = request;
  if (relayAddress !== noAddress) return 'a relay passed it on';
  if (vendorClass !== pxeClass && !vendorClass.startsWith(`${pxeClass}:`)) return 'it is no PXE client';
  if (serverId !== null && serverId !== server) return 'it is for another server';
  if (door === 'boot-server') return kind === 'request' ? null : 'a boot server is asked by DHCPREQUEST';
  // Without our name it asks for an address, or for its own once more: an answer without one would take it away.
  return kind === 'discover' || serverId !== null ? null : 'it asks for an address';
}

export function proxyAnswer(request: DhcpRequest, { loaders, scriptUrl }: Omit<ProxyFacts, 'server'>): ProxyAnswer {
  if (request.userClasses.includes('iPXE')) return { kind: 'file', file: scriptUrl };
  const [architecture] = request.architectures;
  if (architecture === undefined) return { kind: 'silence', why: 'it does not say what it is (option 93)' };
  const loader = loaderByArchitecture[architecture];
  const file = loader === undefined ? undefined : loaders[loader];
  return file === undefined ? { kind: 'no-loader', architecture } : { kind: 'file', file };
}
