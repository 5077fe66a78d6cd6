/**
 * Workload identity: OIDC tokens by which an instance proves who it is to anybody who trusts the issuer (WID).
 *
 * Invariants
 *   - The issuer's keys are its own: not part of the key bundle, used for nothing else (WID-002).
 *   - A token that is handed out verifies, for its whole life, at every verifier that obeys the cache rule (WID-017).
 *   - `sub` is made from ids that cannot hold its separators, and no extra claim takes the place of one of ours.
 *   - Private keys leave through exportKeys only.
 *
 * Threat model: whoever asks for a token may choose instance, audience and the one-time key; what he may have is the broker's to decide
 * (services/workload-broker.ts). The gateway sees boxes. Relying parties see published keys and nothing else.
 *
 * Not done here: who may have which token, rate limits, storage, serving.
 */
export { type ClaimValue, isWorkloadId, type WorkloadTokenOrder, workloadSubject } from './claims.ts';
export { type DiscoveryDocument, documentHeaders } from './documents.ts';
export {
  createWorkloadTokenRequest,
  isTokenAudience,
  openWorkloadTokenRequest,
  openWorkloadTokenResponse,
  type PendingWorkloadToken,
  refuseWorkloadTokenRequest,
  sealWorkloadTokenResponse,
  type WorkloadQuestion,
} from './exchange.ts';
export { createWorkloadIssuer, type WorkloadIssuer, type WorkloadIssuerOptions, type WorkloadToken } from './issuer.ts';
export { discoveryPath, jwksPath, parseIssuerUrl } from './issuer-url.ts';
export type { StoredWorkloadKey } from './keys.ts';
export { openWorkloadKeys, sealWorkloadKeys, type WorkloadSeal } from './sealed-keys.ts';
