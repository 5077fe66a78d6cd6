/** What the owner of a machine lets tunnels lead to: nothing, unless config.json says so. */
import { BlockList, isIP } from 'node:net';
import { z } from 'zod';
import { findTunnelOperation, type TunnelOperationName, tunnelOperationNames } from '../../domain/tunnels/operations.ts';

const networkForm = /^([0-9a-f:.]+)\/(\d{1,3})$/i;

/** null for what is no network: an address and the length of its prefix. */
function parseNetwork(text: string): { address: string; prefix: number; type: 'ipv4' | 'ipv6' } | null {
  const [, address = '', digits] = networkForm.exec(text) ?? [];
  const version = isIP(address);
  const prefix = Number(digits);
  if (version === 0 || prefix > (version === 4 ? 32 : 128)) return null;
  return { address, prefix, type: version === 4 ? 'ipv4' : 'ipv6' };
}

export const tunnelSection = z
  .strictObject({
    /** Operations of tickets that this machine takes. */
    operations: z.array(z.enum(tunnelOperationNames)).default([]),
    /** Of the machine's own sshd, on loopback. */
    sshPort: z.number().int().min(1).max(65_535).default(22),
    /** Networks that its instances are in, such as 10.20.0.0/16: a ticket leads nowhere else. */
    instanceNetworks: z.array(z.string().refine((text) => parseNetwork(text) !== null, 'is no network such as 10.20.0.0/16')).default([]),
  })
  .refine(
    ({ operations, instanceNetworks }) => instanceNetworks.length > 0 || !operations.some(leadsToInstance),
    'instanceNetworks must name where instances are, for the operations that lead to them',
  );

export type TunnelConfig = Readonly<z.infer<typeof tunnelSection>>;

const leadsToInstance = (name: TunnelOperationName): boolean => findTunnelOperation(name)?.leadsTo === 'instance';

/** What Hello says of it (TUN-012). */
export const tunnelCapabilities = ({ operations }: TunnelConfig): string[] =>
  [...new Set(operations.map((name) => findTunnelOperation(name)?.capability ?? ''))].sort();

/** Whether the owner of the machine says that instances are there. */
export function isInstanceAddress({ instanceNetworks }: TunnelConfig, address: string): boolean {
  const version = isIP(address);
  if (version === 0) return false;
  const networks = new BlockList();
  for (const text of instanceNetworks) {
    const network = parseNetwork(text);
    if (network !== null) networks.addSubnet(network.address, network.prefix, network.type);
  }
  return networks.check(address, version === 4 ? 'ipv4' : 'ipv6');
}
