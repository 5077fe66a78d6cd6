/** The control plane's side of the gateway port, over the key bundle that this process runs now. */
import type { Database } from '../drizzle/client.ts';
import type { PkiBundle } from '../pki/bundle/types.ts';
import type { AllocationBindingCheck } from './capacity/binding-check.ts';
import { recordEvent } from './capacity/events.ts';
import type { GatewayServices } from './gateway-port.ts';
import { joinNode } from './join/join.ts';
import { quarantineSuspect } from './join/quarantine.ts';
import type { JoinPolicy, TpmTrust } from './join/types.ts';
import { type JoinCrypto, pkiJoinCrypto } from './join-crypto.ts';
import type { ServiceLog } from './log.ts';
import { renewCertificate } from './renew.ts';
import { brokerSecret } from './secrets/broker.ts';
import type { ResolveSecret } from './secrets/providers.ts';
import { brokerWorkloadToken, type WorkloadIssuerSource } from './workload-broker.ts';

/** The keys, asked for at every request, so that a new bundle counts at once: a bundle, or what pkiJoinCrypto made of one. */
type Keys = { readonly bundle: () => PkiBundle; readonly crypto?: never } | { readonly crypto: () => JoinCrypto; readonly bundle?: never };

export type GatewayServicesOptions = Keys & {
  readonly db: Database;
  /** null or absent: this deployment issues no workload tokens. */
  readonly workload?: WorkloadIssuerSource | null;
  /** null or absent: this deployment hands out no secrets. */
  readonly secrets?: ResolveSecret | null;
  /** null or absent: nodes' words about allocations are not taken (SIGN-013). */
  readonly attestedBindings?: AllocationBindingCheck | null;
  /** Whom to make wait (JOIN-013); default: nobody. */
  readonly joinPolicy?: JoinPolicy;
  /** null or absent: nobody joins by a TPM. */
  readonly tpm?: TpmTrust | null;
  readonly log: ServiceLog;
  readonly now: () => number;
};

/** Made once for each bundle: keys are looked up at every request, and change with the bundle. */
const cryptoOf = (bundle: () => PkiBundle): (() => JoinCrypto) => {
  const made = new WeakMap<PkiBundle, JoinCrypto>();
  return () => {
    const keys = bundle();
    const { trustDomain, nodeCa, joinSigning, joinEncryption } = keys;
    const known =
      made.get(keys) ?? pkiJoinCrypto({ trustDomain, nodeCa, signingKey: joinSigning, encryptionKey: joinEncryption.privateKey });
    made.set(keys, known);
    return known;
  };
};

export function createGatewayServices({
  db,
  workload = null,
  secrets = null,
  attestedBindings = null,
  joinPolicy,
  tpm = null,
  log,
  now,
  ...keys
}: GatewayServicesOptions): GatewayServices {
  const crypto = keys.crypto ?? cryptoOf(keys.bundle);
  return {
    join(request) {
      return joinNode(request, {
        db,
        log,
        now: now(),
        quarantine: quarantineSuspect,
        ...crypto(),
        ...(joinPolicy === undefined ? {} : { policy: joinPolicy }),
        ...(tpm === null ? {} : { tpm }),
      });
    },
    renew(request, peer) {
      const { trustDomain, nodeCa, anchors } = crypto();
      return renewCertificate(request, peer, { db, log, now: now(), trustDomain, nodeCa, anchors });
    },
    workloadToken(request, peer) {
      const { trustDomain, nodeCa, anchors } = crypto();
      return brokerWorkloadToken(request, peer, { db, log, trustDomain, nodeCa: nodeCa.spki, anchors, issuer: workload });
    },
    ...(secrets === null
      ? {}
      : {
          secret: (request, peer) => {
            const { trustDomain, nodeCa, anchors, joinSigner } = crypto();
            const options = { db, log, trustDomain, nodeCa: nodeCa.spki, anchors, joinKey: joinSigner.spki, resolve: secrets };
            return brokerSecret(request, peer, options);
          },
        }),
    ...(attestedBindings === null
      ? {}
      : {
          event: (request, peer) => {
            const { trustDomain, nodeCa, anchors } = crypto();
            return recordEvent(request, peer, { db, log, trustDomain, nodeCa: nodeCa.spki, anchors, attestedBindings });
          },
        }),
  };
}
