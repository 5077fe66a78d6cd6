/** Messages of tunnels, sandboxes and instances. */
import { z } from 'zod';
import { type TunnelOperationName, tunnelOperationNames } from '../domain/tunnels/operations.ts';
import { actor, digits, nodeId } from './schemas.ts';

const instanceId = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/, 'an instance id is 1 to 128 letters, digits, ".", "_" and "-"');
const instant = z.number().describe('Unix milliseconds');
const address = z.union([z.ipv4(), z.ipv6()], 'must be an IP address');

export const openTunnel = z.strictObject({
  operation: z.enum(tunnelOperationNames as [TunnelOperationName, ...TunnelOperationName[]]),
  nodeId: nodeId.optional(),
  instanceId: instanceId.optional(),
  port: z.int().min(1).max(65_535).optional(),
  actor: actor.optional(),
});
export const openedTunnel = z.object({
  ticket: z.string().describe('the first frame of Connect at the gateway; good once, for a minute'),
  expiresAt: instant,
  nodeId: z.string(),
  gateway: z.object({ url: z.string(), name: z.string().nullable(), servingCaPin: z.string() }),
});

export const execSandbox = z.strictObject({
  account: z.string().regex(/^[A-Za-z_][A-Za-z0-9._-]{0,31}$/, 'is no account name'),
  publicKey: z.string().max(4_096),
  ttlSeconds: z.int().min(60).max(900).default(900),
  actor: actor.optional(),
});
export const sandboxLogin = z.object({
  certificate: z.string(),
  serial: z.string(),
  validBefore: instant,
  principal: z.string(),
  host: z.string().describe('HostKeyAlias of ssh'),
  knownHosts: z.string().describe('the only line of UserKnownHostsFile'),
});

export const placeInstance = z.strictObject({
  instanceId,
  tenantId: z.string().min(1).max(63),
  nodeId,
  address: address.optional(),
  sandbox: z.strictObject({ endsAt: instant, capturedOn: instanceId.optional() }).optional(),
});
export const endInstance = z.strictObject({ nodeId });
export const endedInstance = z.object({ ended: z.boolean() });
export const placedInstance = z.object({
  id: z.string(),
  tenantId: z.string(),
  nodeId: z.string(),
  address: z.string().nullable(),
  sandboxEndsAt: instant.nullable(),
  capturedOn: z.string().nullable(),
});
export const instancePage = z.strictObject({ after: z.string().max(128).default(''), limit: digits(1_000, 100) });
export const instances = z.object({ instances: z.array(placedInstance) });
