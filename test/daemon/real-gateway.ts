/** The gateway's own code for daemons of a deployment, over real TLS; only its database is in memory. */
import { toBinary } from '@bufbuild/protobuf';
import { createGateway, type Gateway, type GatewayOptions } from '../../gateway/gateway.ts';
import { createSystemScheduler, type Scheduler } from '../../gateway/scheduler.ts';
import { encodePem } from '../../pki/x509/index.ts';
import { SignatureSchema } from '../../proto/index.ts';
import type { MemoryStore } from '../gateway/memory-store.ts';
import { type CommandInit, commandOf, signedTrust, type TestDeployment, type TrustInit } from '../harness/deployment.ts';

export interface RealGateway {
  readonly gateway: Gateway;
  readonly url: string;
  readonly port: number;
  stop(): Promise<void>;
}

export async function startRealGateway(
  { serving, bundle, trustDomain }: TestDeployment,
  { port: wanted = 0, ...options }: Partial<GatewayOptions> & { readonly store: MemoryStore; readonly port?: number },
): Promise<RealGateway> {
  const gateway = createGateway({
    tls: { ...serving, ca: encodePem('CERTIFICATE', bundle.nodeCa.certificate.der) },
    trustDomain,
    gatewayId: 'gw-1',
    services: { join: async (request) => request, renew: async (request) => request },
    ...options,
  });
  const { port } = await gateway.listen({ host: '127.0.0.1', port: wanted });
  return { gateway, port, url: `https://127.0.0.1:${port}`, stop: () => gateway.close() };
}

export async function publishTrust(deployment: TestDeployment, store: MemoryStore, init: TrustInit): Promise<void> {
  const { body, signature } = await signedTrust(deployment, init);
  if (signature === undefined) throw new Error('signedTrust signs');
  store.trust = { version: init.version, body, signature: toBinary(SignatureSchema, signature) };
}

/** A command in the node's log, signed as the signing worker does. */
export async function enqueueSigned(
  deployment: TestDeployment,
  store: MemoryStore,
  { nodeId, ...init }: CommandInit & { readonly id: string; readonly nodeId: string },
): Promise<string> {
  const { body, signature } = await commandOf(deployment, { ...init, nodeId });
  if (signature === undefined) throw new Error('commandOf signs');
  const queued = store.enqueue(nodeId, { id: init.id });
  const deadline = init.expiresAtMs ?? queued.deadline;
  Object.assign(queued, { body, deadline, signature: toBinary(SignatureSchema, signature) });
  return queued.id;
}

/** A gateway's host whose clock is off; `set` puts it right. */
export function clockOffBy(offMs: number): Scheduler & { set(offMs: number): void } {
  const system = createSystemScheduler();
  let off = offMs;
  return { ...system, now: () => system.now() + off, set: (to) => void (off = to) };
}
