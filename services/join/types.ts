/** The words of the join: what a request brings, what an attestor makes of it, what is granted. Types only. */
import type { NodeRole } from '../../domain/commands/kinds.ts';
import type { Database, Executor } from '../../drizzle/client.ts';
import type { NodeFacts } from '../../drizzle/queries/nodes.ts';
import type { DecryptionKey } from '../../pki/bundle/types.ts';
import type { EndorsementRoots } from '../../pki/tpm/index.ts';
import type { CertificateRequest, Signer } from '../../pki/x509/index.ts';
import type { HardwareClaims, JoinRequest } from '../../proto/index.ts';
import type { ServiceLog } from '../log.ts';
import type { NodeAuthority } from '../node-certs.ts';
import type { TokenRole } from '../tokens.ts';

/** Every attestor there will be, with the release that brings it (JOIN-011). */
export type AttestorName = 'join-token' | 'x509pop' | 'provisioned' | 'discovery' | 'cloud-iid' | 'tpm' | 'enrolment';

export interface JoinServiceOptions {
  readonly db: Database;
  readonly trustDomain: string;
  readonly nodeCa: NodeAuthority;
  /** Every certificate of the node CA: what the chains of machines that speak for others may lead to. */
  readonly anchors: readonly Uint8Array[];
  readonly joinSigner: Signer;
  readonly joinEncryption: Pick<DecryptionKey, 'privateKey'>;
  /** Default: nobody is made to wait. */
  readonly policy?: JoinPolicy;
  /** Whose TPMs are of this fleet. Absent: attestor tpm is not offered. */
  readonly tpm?: TpmTrust;
  /** Takes a machine out of use, in the transaction that found out why. */
  readonly quarantine: QuarantineMachine;
  readonly log: ServiceLog;
  readonly now: number;
  readonly random?: (bytes: number) => Uint8Array;
}

/** A TPM that the operator listed, and what the machine with it is. */
export interface TpmEnrolment {
  /** Lower-case hex SHA-256 of the endorsement key's SPKI. */
  readonly ekSha256: string;
  readonly siteId: string;
  readonly role: TokenRole;
  readonly tenantId: string;
  /** null: named after its endorsement key. */
  readonly nodeId: string | null;
}

export interface TpmTrust {
  /** As the inventory stands now. */
  find(ekSha256: string): Promise<TpmEnrolment | undefined>;
  /** Where set, an endorsement key also needs a certificate that leads to one of them. */
  readonly roots: EndorsementRoots | null;
}

export interface Suspicion {
  readonly nodeId: string;
  readonly reason: string;
  readonly actor: string;
  readonly now: number;
}

export type QuarantineMachine = (tx: Executor, suspicion: Suspicion) => Promise<void>;

/** A join request in good form. */
export interface Asked {
  readonly request: JoinRequest;
  readonly csr: CertificateRequest;
}

/** What a deployment's policy is told of a machine whose evidence holds. */
export interface JoinFacts {
  readonly attestor: AttestorName;
  readonly role: NodeRole;
  /** null: one that will be made. */
  readonly nodeId: string | null;
  readonly siteId: string;
  /** SHA-256 of its request, hex: a machine that is told to wait asks again with the same one. */
  readonly csrSha256: string;
  readonly hardware: HardwareClaims | undefined;
  readonly now: number;
}

export type JoinVerdict =
  | { readonly kind: 'admitted' }
  /** Not yet: the same request again after this long, or with the answer to the challenge (JOIN-013). */
  | { readonly kind: 'deferred'; readonly retryAfterSeconds: number; readonly challenge?: Uint8Array };

export type JoinPolicy = (facts: JoinFacts) => JoinVerdict | Promise<JoinVerdict>;

/** The evidence was used, and stands for one node. */
export interface Claim {
  readonly node: Pick<NodeFacts, 'siteId' | 'role'> & { readonly id: string; readonly generation: number };
  /** This machine asked before, and is answered again. */
  readonly repeated: boolean;
  /** `urn:bc:` statements about the key, for its certificate. */
  readonly statements: readonly string[];
}

/** Evidence that holds so far, and what is asked back before it counts (JOIN-013): the same request again, with the answer. */
export interface Challenged {
  readonly challenge: Uint8Array;
}

/** Evidence that holds, and how it is used up. */
export interface Judged {
  /** For the policy, before anything is used up. */
  readonly facts: Pick<JoinFacts, 'nodeId' | 'siteId'>;
  /** Uses the evidence for this node, in one transaction with what it changes. @throws PERMISSION_DENIED when it was used before */
  claim(tx: Executor): Promise<Claim>;
  /** Locks what every join with this evidence locks, so that the second finds the certificate of the first. */
  lock(tx: Executor): Promise<void>;
  /** After a claim that was refused, in a transaction of its own: what must not be undone with it. */
  readonly onRefused?: (tx: Executor, error: unknown) => Promise<void>;
}

/** Who vouches for a machine (JOIN-010). */
export interface Attestor {
  /** The roles it admits. */
  readonly roles: readonly NodeRole[];
  /** @throws MALFORMED, UNAUTHENTICATED, BAD_SIGNATURE, CERTIFICATE_EXPIRED or PERMISSION_DENIED for evidence that does not hold */
  judge(asked: Asked, options: JoinServiceOptions): Judged | Promise<Judged | Challenged>;
}
