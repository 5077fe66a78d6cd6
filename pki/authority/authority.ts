/** The authorities of a bundle as issuing objects: each issues its own kinds of certificate and nothing else (KEY-008). */
import type { Authority, PkiBundle } from '../bundle/index.ts';
import {
  type AgentRole,
  type Certificate,
  type CertificateAuthority,
  issueLeaf,
  type LeafProfileName,
  type SpiffeIdentity,
} from '../x509/index.ts';

export interface IssuedCertificate {
  readonly certificate: Certificate;
  /** DER, leaf first, then the issuing authority; the root is not included (CLI-025). */
  readonly chain: readonly Uint8Array[];
}

interface IssueOptions {
  /** The key that is certified. */
  readonly spki: Uint8Array;
  readonly now: number;
  /** Asked for; the authority clamps it to its profile and to its own end (KEY-012). */
  readonly lifetimeMs?: number;
  readonly serial?: string;
}

export interface IssueNodeOptions extends IssueOptions {
  readonly identity: SpiffeIdentity;
  readonly role: AgentRole;
  /** `urn:bc:` statements, copied behind the SPIFFE id (ID-007). */
  readonly statements?: readonly string[];
}

export interface IssueServerOptions extends IssueOptions {
  readonly dns?: readonly string[];
  readonly ips?: readonly string[];
}

export interface IssueInternalOptions extends IssueServerOptions {
  readonly commonName?: string;
  readonly role?: 'internal' | 'gateway' | 'worker-tls';
}

/**
 * Each issues or throws CA_EXPIRED (under ten minutes left, H-13), INVALID_STATE (no private key at hand) or INVALID_INPUT (a
 * name or statement the profile does not allow).
 */
export interface Authorities {
  issueNode(options: IssueNodeOptions): Promise<IssuedCertificate>;
  issueGateway(options: IssueServerOptions): Promise<IssuedCertificate>;
  issueInternal(options: IssueInternalOptions): Promise<IssuedCertificate>;
}

const agentProfiles: Readonly<Record<AgentRole, LeafProfileName>> = Object.freeze({
  node: 'node',
  site: 'site',
  ramdisk: 'ramdisk',
  'node-tenant': 'nodeTenant',
});

/** An authority of a bundle in the form that issues. @throws INVALID_STATE when its private key is not in the bundle */
export const certificateAuthorityOf = (authority: Authority): CertificateAuthority => ({
  certificate: authority.certificate.der,
  signer: authority.signer(),
});

/** The issuing half of a bundle. */
export function createAuthorities({ nodeCa, servingCa, internalCa }: Pick<PkiBundle, 'nodeCa' | 'servingCa' | 'internalCa'>): Authorities {
  return Object.freeze({
    issueNode: async ({ statements = [], role, ...rest }: IssueNodeOptions) =>
      withChain(
        nodeCa,
        await issueLeaf({ ...rest, ca: certificateAuthorityOf(nodeCa), profile: agentProfiles[role], sans: { uris: statements } }),
      ),
    issueGateway: async ({ dns = [], ips = [], ...rest }: IssueServerOptions) =>
      withChain(servingCa, await issueLeaf({ ...rest, ca: certificateAuthorityOf(servingCa), profile: 'gateway', sans: { dns, ips } })),
    issueInternal: async ({ dns = [], ips = [], ...rest }: IssueInternalOptions) =>
      withChain(internalCa, await issueLeaf({ ...rest, ca: certificateAuthorityOf(internalCa), profile: 'internal', sans: { dns, ips } })),
  });
}

const withChain = (authority: Authority, certificate: Certificate): IssuedCertificate => ({
  certificate,
  chain: [certificate.der, authority.certificate.der],
});
