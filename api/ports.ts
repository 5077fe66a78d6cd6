/** What the operator API needs from the rest: reads, tokens, workflows. The composition root fits them; tests fit fakes. */

import type { z } from 'zod';
import type { EnrolmentKind } from '../domain/enrolment/order.ts';
import type { SpecCredentialName } from '../domain/secrets/spec-credentials.ts';
import type { Enrolment } from '../services/enrolments/index.ts';
import type { JoinDecision, JoinRequestView } from '../services/join/approvals.ts';
import type { UntoldBoots } from '../services/metal/boot-told.ts';
import type { AbsentNode, AuditView, CommandView, NodeView, RotationView, TrustView } from '../services/operator-reads.ts';
import type { FailedSection } from '../services/section-faults.ts';
import type { SshCertificateView } from '../services/ssh-certificates.ts';
import type { OpenBatch, WaitingCommand } from '../services/stuck.ts';
import type { WorkloadKeyOrder, WorkloadKeyStep, WorkloadKeyView } from '../services/workload-keys.ts';
import type { OperatorBatches, OperatorTenants } from './batch-ports.ts';
import type { OperatorMachines } from './metal-ports.ts';
import type { OperatorEnrolments } from './operator-enrolments.ts';
import type { OperatorSecrets } from './operator-secrets.ts';
import type { OperatorTunnels } from './operator-tunnels.ts';
import type { Principal } from './principal.ts';
import type * as schemas from './schemas.ts';
import type { SetLagView, StuckItem } from './stuck.ts';

export interface OperatorReads {
  listNodes(page: { after: string; limit: number; state?: string | undefined }): Promise<NodeView[]>;
  getNode(nodeId: string): Promise<NodeView>;
  /** Of the tenants that the caller acts for; those of others are not there. */
  getCommands(id: string, options: { limit: number; principal: Principal }): Promise<CommandView[]>;
  listWaitingCommands(page: { olderThanMs: number; limit: number }): Promise<WaitingCommand[]>;
  /** Batches that still need a workflow. */
  listOpenBatches(limit: number): Promise<OpenBatch[]>;
  listAbsentNodes(limit: number): Promise<AbsentNode[]>;
  listFailedSections(limit: number): Promise<FailedSection[]>;
  /** Site agents whose boot servers cannot be told what became of machines. */
  listUntoldBoots(limit: number): Promise<UntoldBoots[]>;
  /** Which nodes enforce another approver set than the published one. */
  readSetLag(): Promise<SetLagView | null>;
  getTrust(): Promise<TrustView>;
  listAudit(page: { after: number; limit: number; subject?: string | undefined }): Promise<AuditView[]>;
  listSshCertificates(page: { nodeId: string | null; limit: number }): Promise<SshCertificateView[]>;
  /** @throws NOT_FOUND, INVALID_INPUT */
  getSshCertificate(serial: string): Promise<SshCertificateView>;
  listRotations(limit: number): Promise<RotationView[]>;
  getEvidence(rotationId: string): Promise<{ document: Uint8Array; signature: Uint8Array }[]>;
}

/** Joins that wait for an operator's word. */
export interface OperatorJoins {
  list(page: { readonly state: JoinRequestView['state'] | null; readonly limit: number }): Promise<JoinRequestView[]>;
  /** @throws NOT_FOUND; INVALID_STATE when it was decided before */
  decide(decision: Omit<JoinDecision, 'now'>): Promise<JoinRequestView>;
}

export interface TokenRequest {
  readonly siteId: string;
  readonly role: 'node' | 'site';
  readonly nodeId: string | null;
  readonly lifetimeMs: number;
  readonly actor: string;
  /** Whose machine it will be. */
  readonly tenantId: string;
}

export interface CreatedToken {
  readonly tokenId: string;
  /** Sealed token, for `bcd join --token`. */
  readonly token: string;
  /** Everything a machine needs to join, in one string; null when no gateway address is configured. */
  readonly join: string | null;
  readonly expiresAt: number;
}

export interface Started {
  readonly workflowId: string;
  readonly runId: string;
}

export interface OperatorWorkflows {
  /** @throws INVALID_STATE when one of that id runs already */
  startRevoke(input: { nodeId: string; actor: string; reason: string; retire?: boolean }): Promise<Started>;
  /** @throws INVALID_STATE when one for that serial runs already */
  startSshRevoke(input: { serial: string; actor: string; reason: string }): Promise<Started>;
  /** @throws INVALID_STATE when this one of that node is being set already */
  startSetCredential(input: {
    nodeId: string;
    name: SpecCredentialName;
    ref: string | null;
    actor: string;
    reason: string;
  }): Promise<Started>;
  /** @throws INVALID_STATE when the node is being enrolled already */
  startEnrolment(input: { kind: EnrolmentKind; nodeId: string; enrolmentId: string }): Promise<Started>;
  /** Nothing, where none runs, or that of another enrolment of the node. */
  cancelEnrolment(input: { nodeId: string; enrolmentId: string }): Promise<void>;
  startCommands(input: CommandsRequest & { unique: string }): Promise<Started>;
  startReboots(input: RebootRequest & { unique: string }): Promise<Started>;
  /** Workflows that wait or are in trouble, as far as Temporal knows. */
  listStuck(): Promise<StuckItem[]>;
  /** Of these batches, the ones that no workflow watches. */
  listUnwatched(batches: readonly OpenBatch[]): Promise<StuckItem[]>;
  /** Of these enrolments over SSH, which are open, the ones that no workflow carries out. */
  listUnwatchedEnrolments(enrolments: readonly Enrolment[]): Promise<StuckItem[]>;
}

export interface CommandsRequest {
  readonly nodes: readonly string[] | 'all';
  readonly kind: string;
  readonly payload: Readonly<Record<string, unknown>>;
  readonly deadlineMs?: number | undefined;
  readonly actor: string;
  readonly reason?: string | undefined;
  /** The batch they belong to: held until it is approved. */
  readonly batchId?: string | undefined;
}

export type RebootRequest = Omit<z.output<typeof schemas.rebootRequest>, 'idempotencyKey'>;

/** The keys of the workload issuer. @throws UNSUPPORTED (no-workload-issuer) where none is configured */
export interface OperatorWorkload {
  listKeys(): Promise<{ readonly issuer: string; readonly keys: readonly WorkloadKeyView[] }>;
  addKey(order: { readonly actor: string }): Promise<WorkloadKeyStep>;
  promoteKey(order: WorkloadKeyOrder): Promise<WorkloadKeyStep>;
  retireKey(order: WorkloadKeyOrder): Promise<WorkloadKeyStep>;
}

export interface OperatorPorts {
  readonly reads: OperatorReads;
  readonly tokens: { create(request: TokenRequest): Promise<CreatedToken> };
  readonly joins: OperatorJoins;
  readonly workflows: OperatorWorkflows;
  readonly workload: OperatorWorkload;
  readonly batches: OperatorBatches;
  readonly tenants: OperatorTenants;
  readonly secrets: OperatorSecrets;
  readonly machines: OperatorMachines;
  readonly enrolments: OperatorEnrolments;
  readonly tunnels: OperatorTunnels;
  /** Public half of the audit key (SPKI, DER). */
  auditKey(): Uint8Array;
  now(): number;
}
