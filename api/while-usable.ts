/**
 * H-07: nothing is issued from an old bundle, or over a restored database. Workload tokens neither, although their keys are not of the
 * bundle: a database of before knows machines that were revoked since, instances that ended, and keys that were retired.
 */
import type { GatewayServices } from '../services/gateway-port.ts';
import type { KeyKeeper } from './key-keeper.ts';

/** The same services, which throw what `assertUsable` throws before they do anything. */
export const whileUsable = (keys: Pick<KeyKeeper, 'assertUsable'>, services: GatewayServices): GatewayServices => {
  const { workloadToken } = services;
  return {
    join: async (request) => {
      keys.assertUsable();
      return services.join(request);
    },
    renew: async (request, peer) => {
      keys.assertUsable();
      return services.renew(request, peer);
    },
    ...(workloadToken === undefined
      ? {}
      : {
          workloadToken: async (request, peer) => {
            keys.assertUsable();
            return workloadToken(request, peer);
          },
        }),
  };
};
