/** The control plane's side of the gateway port, over the key bundle that this process runs now. */
import type { Database } from '../drizzle/client.ts';
import type { PkiBundle } from '../pki/bundle/types.ts';
import type { GatewayServices } from './gateway-port.ts';
import { joinNode } from './join.ts';
import type { ServiceLog } from './log.ts';
import type { NodeAuthority } from './node-certs.ts';
import { renewCertificate } from './renew.ts';
import { brokerWorkloadToken } from './workload-broker.ts';
import type { WorkloadSettings } from './workload-keys.ts';

export interface GatewayServicesOptions {
  readonly db: Database;
  /** Asked at every request: a new bundle counts at once. */
  readonly bundle: () => PkiBundle;
  /** null or absent: this deployment issues no workload tokens. */
  readonly workload?: WorkloadSettings | null;
  readonly log: ServiceLog;
  readonly now: () => number;
}

const authorityOf = ({ nodeCa }: PkiBundle): NodeAuthority => ({
  certificate: nodeCa.certificate.der,
  spki: nodeCa.spki,
  signer: nodeCa.signer(),
});

export function createGatewayServices({ db, bundle, workload = null, log, now }: GatewayServicesOptions): GatewayServices {
  return {
    join(request) {
      const keys = bundle();
      return joinNode(request, {
        db,
        log,
        now: now(),
        trustDomain: keys.trustDomain,
        nodeCa: authorityOf(keys),
        joinSigner: keys.joinSigning.signer(),
        joinEncryption: keys.joinEncryption,
      });
    },
    renew(request, peer) {
      const keys = bundle();
      const anchors = keys.nodeCa.certificates.map((certificate) => certificate.der);
      return renewCertificate(request, peer, { db, log, now: now(), trustDomain: keys.trustDomain, nodeCa: authorityOf(keys), anchors });
    },
    workloadToken(request, peer) {
      const { trustDomain, nodeCa } = bundle();
      const anchors = nodeCa.certificates.map((certificate) => certificate.der);
      return brokerWorkloadToken(request, peer, { db, log, now: now(), trustDomain, nodeCa: nodeCa.spki, anchors, settings: workload });
    },
  };
}
