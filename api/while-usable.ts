/**
 * H-07: nothing is issued from an old bundle, or over a restored database. Workload tokens and secrets neither, although their keys are
 * not of the bundle: a database of before knows machines that were revoked since, instances and commands that ended, and keys that were
 * retired.
 */
import type { GatewayServices } from '../services/gateway-port.ts';
import type { KeyKeeper } from './key-keeper.ts';

type Broker = NonNullable<GatewayServices['secret']>;

/** The same services, which throw what `assertUsable` throws before they do anything. */
export const whileUsable = (keys: Pick<KeyKeeper, 'assertUsable'>, services: GatewayServices): GatewayServices => {
  const { workloadToken, secret, event } = services;
  const guarded =
    (broker: Broker): Broker =>
    async (request, peer) => {
      keys.assertUsable();
      return broker(request, peer);
    };
  return {
    join: async (request) => {
      keys.assertUsable();
      return services.join(request);
    },
    renew: guarded(services.renew.bind(services)),
    ...(workloadToken === undefined ? {} : { workloadToken: guarded(workloadToken.bind(services)) }),
    ...(secret === undefined ? {} : { secret: guarded(secret.bind(services)) }),
    ...(event === undefined ? {} : { event: guarded(event.bind(services)) }),
  };
};
