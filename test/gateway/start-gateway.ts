/** A gateway on a free port with real TLS, for one `describe`. */
import { createGateway, type Gateway, type GatewayOptions } from '../../gateway/gateway.ts';
import type { GatewayServices } from '../../gateway/services.ts';
import { createAuthorities, hostLeaf, nodeCaPem, type TestAuthorities, type TestLeaf, trustDomain } from '../harness/agent.ts';
import { MemoryStore } from './memory-store.ts';

export interface RunningGateway {
  readonly gateway: Gateway;
  readonly port: number;
  readonly store: MemoryStore;
  readonly authorities: TestAuthorities;
  readonly serving: TestLeaf;
}

export const noServices: GatewayServices = {
  join: async (request) => request,
  renew: async (request) => request,
};

export async function startGateway(
  over: Partial<GatewayOptions> & { store?: MemoryStore; authorities?: TestAuthorities } = {},
): Promise<RunningGateway> {
  const authorities = over.authorities ?? (await createAuthorities());
  const serving = await hostLeaf(authorities, 'gateway');
  const store = over.store ?? new MemoryStore();
  const gateway = createGateway({
    tls: { key: serving.keyPem, cert: serving.chainPem, ca: nodeCaPem(authorities) },
    trustDomain,
    gatewayId: 'gw-1',
    services: noServices,
    ...over,
    store,
  });
  const { port } = await gateway.listen({ host: '127.0.0.1', port: 0 });
  return { gateway, port, store, authorities, serving };
}
