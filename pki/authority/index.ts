/**
 * The certificate authorities of a deployment, issuing.
 *
 * Invariants: an authority issues only its own profiles (the node CA agents, the serving CA gateways, the internal CA
 * processes); lifetimes are clamped by the authority whatever a caller asks; nothing outlives its issuer.
 *
 * What it does not do: decide who may have a certificate, reserve serials or record them (services/).
 */
export {
  type Authorities,
  certificateAuthorityOf,
  createAuthorities,
  type IssuedCertificate,
  type IssueInternalOptions,
  type IssueNodeOptions,
  type IssueServerOptions,
} from './authority.ts';
