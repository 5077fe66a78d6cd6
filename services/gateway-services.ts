/** The control plane's side of the gateway port, over the key bundle that this process runs now. */
import type { Database } from '../drizzle/client.ts';
import type { PkiBundle } from '../pki/bundle/types.ts';
import type { GatewayServices } from './gateway-port.ts';
import { joinNode } from './join.ts';
import type { ServiceLog } from './log.ts';
import type { NodeAuthority } from './node-certs.ts';
import { renewCertificate } from './renew.ts';

export interface GatewayServicesOptions {
  readonly db: Database;
  /** Asked at every request: a new bundle counts at once. */
  readonly bundle: () => PkiBundle;
  readonly log: ServiceLog;
  readonly now: () => number;
}

const authorityOf = ({ nodeCa }: PkiBundle): NodeAuthority => ({
  certificate: nodeCa.certificate.der,
  spki: nodeCa.spki,
  signer: nodeCa.signer(),
});

export function createGatewayServices({ db, bundle, log, now }: GatewayServicesOptions): GatewayServices {
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
  };
}
