/**
 * What a tunnel may lead to: the words that a ticket can name, and nothing beside them (TUN-013). Who asks for a tunnel and the machine
 * that opens it read the same table. Where a machine has the last word, it is its owner's: config.json names the operations that it takes.
 */
import { ControlError } from '../errors.ts';

export interface TunnelOperation {
  /** `machine`: the sshd of the machine itself. `instance`: an instance that runs on it, by the address that the ticket names. */
  readonly leadsTo: 'machine' | 'instance';
  /** What a node advertises that takes it (TUN-012). */
  readonly capability: string;
  /** Of the instance; null: the ticket names any. */
  readonly port: number | null;
  readonly summary: string;
}

const rows = {
  'node.ssh': { leadsTo: 'machine', capability: 'tunnel.node-ssh', port: null, summary: 'the sshd of the machine' },
  'instance.ssh': { leadsTo: 'instance', capability: 'tunnel.instance-dial', port: 22, summary: 'the sshd of an instance on the machine' },
  'instance.tcp': {
    leadsTo: 'instance',
    capability: 'tunnel.instance-dial',
    port: null,
    summary: 'a TCP port of an instance on the machine',
  },
} as const satisfies Record<string, TunnelOperation>;

export type TunnelOperationName = keyof typeof rows;

export const tunnelOperations: Readonly<Record<TunnelOperationName, TunnelOperation>> = Object.freeze(rows);

export const tunnelOperationNames = Object.freeze(Object.keys(rows) as TunnelOperationName[]);

/** undefined for a word that is not in the table. */
export const findTunnelOperation = (name: string): TunnelOperation | undefined =>
  Object.hasOwn(tunnelOperations, name) ? tunnelOperations[name as TunnelOperationName] : undefined;

/** Where in the network an instance is, as a ticket's `dst` says it: `i-1@10.0.0.5:22`, `i-1@[fd00::5]:22`. */
export interface TunnelDestination {
  readonly instanceId: string;
  /** An IP address, never a name: nobody's resolver decides where a tunnel leads. */
  readonly address: string;
  readonly port: number;
}

const form = /^([A-Za-z0-9][A-Za-z0-9._-]{0,127})@(?:(\d{1,3}(?:\.\d{1,3}){3})|\[([0-9a-f:]{2,39})\]):([1-9]\d{0,4})$/;

export const encodeTunnelDestination = ({ instanceId, address, port }: TunnelDestination): string =>
  `${instanceId}@${address.includes(':') ? `[${address}]` : address}:${port}`;

/** null for what is none. That an address is one, its dialler judges. */
export function parseTunnelDestination(text: string): TunnelDestination | null {
  const [, instanceId, v4, v6, digits] = form.exec(text) ?? [];
  const port = Number(digits);
  if (instanceId === undefined || port > 65_535) return null;
  return { instanceId, address: (v4 ?? v6) as string, port };
}

const denied = (reason: string, message: string): ControlError => new ControlError('PERMISSION_DENIED', message, { details: { reason } });

/**
 * What a verified ticket leads to.
 *
 * @throws PERMISSION_DENIED: tunnel-operation for a word that is not in the table, tunnel-destination when the destination is not one of
 *   that operation
 */
export function destinationOf({ op, dst }: { readonly op: string; readonly dst?: string }): TunnelDestination | null {
  const operation = findTunnelOperation(op);
  if (operation === undefined) throw denied('tunnel-operation', `no tunnel is for ${op}`);
  const destination = dst === undefined ? null : parseTunnelDestination(dst);
  const isWhole = operation.leadsTo === 'machine' ? dst === undefined : destination !== null;
  if (!isWhole || (operation.port !== null && destination?.port !== operation.port))
    throw denied('tunnel-destination', `a ticket for ${op} cannot lead to ${dst ?? 'nowhere'}`);
  return destination;
}
