/** The keys that JoinService works with, as a deployment's options name them (KEY-031). */

import type { KeyObject } from 'node:crypto';
import type { Authority, SigningKey } from '../pki/bundle/types.ts';
import type { Signer } from '../pki/x509/index.ts';
import type { NodeAuthority } from './node-certs.ts';

export interface JoinCrypto {
  readonly trustDomain: string;
  /** Certifies agents; names the rows of node_certs that count (A-PKI-12). */
  readonly nodeCa: NodeAuthority;
  /** Every certificate of the node CA, the present one first: what agents' chains may lead to (KEY-030). */
  readonly anchors: readonly Uint8Array[];
  readonly joinSigner: Signer;
  readonly joinEncryption: { readonly privateKey: KeyObject };
}

export interface PkiJoinCryptoOptions {
  readonly trustDomain: string;
  readonly nodeCa: Authority;
  /** bundle.joinSigning: signs join answers. */
  readonly signingKey: Pick<SigningKey, 'signer'>;
  /** bundle.joinEncryption.privateKey: opens join tokens. */
  readonly encryptionKey: KeyObject;
}

/** @throws INVALID_STATE when the node CA's or the join signing key's private half is not at hand */
export const pkiJoinCrypto = ({ trustDomain, nodeCa, signingKey, encryptionKey }: PkiJoinCryptoOptions): JoinCrypto =>
  Object.freeze({
    trustDomain,
    nodeCa: { certificate: nodeCa.certificate.der, spki: nodeCa.spki, signer: nodeCa.signer() },
    anchors: nodeCa.certificates.map(({ der }) => der),
    joinSigner: signingKey.signer(),
    joinEncryption: { privateKey: encryptionKey },
  });
