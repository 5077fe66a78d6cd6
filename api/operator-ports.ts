/** The operator API's ports over the database, the key bundle and Temporal. */

import { ControlError } from '../domain/errors.ts';
import type { Database } from '../drizzle/client.ts';
import type { PkiBundle } from '../pki/bundle/index.ts';
import { encodeJoinBundle } from '../pki/enroll/index.ts';
import { spkiPin } from '../pki/x509/index.ts';
import type { Log } from '../runtime/log.ts';
import { readSetLag } from '../services/approver-lag.ts';
import { decideJoin, listJoinRequests } from '../services/join/approvals.ts';
import { listUntoldBoots } from '../services/metal/boot-told.ts';
import * as reads from '../services/operator-reads.ts';
import { listFailedSections } from '../services/section-faults.ts';
import { getSshCertificate, listSshCertificates } from '../services/ssh-certificates.ts';
import { listOpenBatches, listWaitingCommands } from '../services/stuck.ts';
import { createJoinToken } from '../services/tokens.ts';
import type { WorkloadSettings } from '../services/workload-keys.ts';
import * as workloadKeys from '../services/workload-keys.ts';
import { createOperatorBatches, createOperatorTenants } from './batch-ports.ts';
import type { BatchWorkflows } from './batch-workflows.ts';
import type { MetalWorkflows } from './metal-workflows.ts';
import { createOperatorEnrolments } from './operator-enrolments.ts';
import { createOperatorMachines } from './operator-machines.ts';
import { createOperatorSecrets } from './operator-secrets.ts';
import { createOperatorTunnels } from './operator-tunnels.ts';
import type { OperatorPorts, OperatorWorkflows, OperatorWorkload, TokenRequest } from './ports.ts';

export interface OperatorPortsOptions {
  readonly db: Database;
  readonly bundle: () => PkiBundle;
  readonly workflows: OperatorWorkflows;
  readonly batchWorkflows: BatchWorkflows;
  readonly metalWorkflows: MetalWorkflows;
  readonly log: Pick<Log, 'warn'>;
  /** What daemons are told to dial; undefined: tokens come without the join string. */
  readonly gateway: { readonly url: string | undefined; readonly name: string | undefined };
  readonly workload: WorkloadSettings | null;
  /** BETTER_COMPUTE_TICKET_ISSUER; null: there are no tunnels. */
  readonly ticketIssuer: string | null;
  /** BETTER_COMPUTE_SECRET; null: this deployment keeps no secrets of its own. */
  readonly secret: string | null;
  now(): number;
}

export function createOperatorPorts(options: OperatorPortsOptions): OperatorPorts {
  const { db, bundle, workflows, gateway, workload, ticketIssuer, secret, now } = options;
  return {
    now,
    workflows,
    workload: workloadPort(db, workload),
    batches: createOperatorBatches({
      db,
      now,
      log: options.log,
      workflows: options.batchWorkflows,
      trustDomain: () => bundle().trustDomain,
    }),
    tenants: createOperatorTenants({ db, now }),
    secrets: createOperatorSecrets({ db, secret, now }),
    machines: createOperatorMachines({ db, bundle, workflows: options.metalWorkflows, now }),
    enrolments: createOperatorEnrolments({ db, workflows, trustDomain: () => bundle().trustDomain, now }),
    tunnels: createOperatorTunnels({ db, bundle, gateway, ticketIssuer, now }),
    auditKey: () => auditKeyOf(bundle()),
    reads: {
      listNodes: (page) => reads.listNodes(db, { ...page, now: now() }),
      getNode: (nodeId) => reads.getNode(db, nodeId, now()),
      getCommands: (id, { limit, principal: { tenants } }) => reads.getCommands(db, id, { limit, tenants }),
      listWaitingCommands: (page) => listWaitingCommands(db, { ...page, now: now() }),
      listOpenBatches: (limit) => listOpenBatches(db, limit),
      listAbsentNodes: (limit) => reads.listAbsentNodes(db, { now: now(), limit }),
      listFailedSections: (limit) => listFailedSections(db, { now: now(), limit }),
      listUntoldBoots: (limit) => listUntoldBoots(db, { now: now(), limit }),
      readSetLag: () => readSetLag(db),
      getTrust: () => reads.getTrust(db, now()),
      listAudit: (page) => reads.listAudit(db, page),
      listSshCertificates: (page) => listSshCertificates(db, page),
      getSshCertificate: (serial) => getSshCertificate(db, serial),
      listRotations: (limit) => reads.listRotations(db, limit),
      getEvidence: (rotationId) => reads.getEvidence(db, rotationId),
    },
    joins: {
      list: (page) => listJoinRequests(db, page),
      decide: (decision) => decideJoin(db, { ...decision, now: now() }),
    },
    tokens: tokensPort(options),
  };
}

const tokensPort = ({ db, bundle, gateway, now }: OperatorPortsOptions): OperatorPorts['tokens'] => ({
  async create(request: TokenRequest) {
    const { trustDomain, joinEncryption, servingCa, joinSigning } = bundle();
    const { nodeId, ...rest } = request;
    const created = await createJoinToken({
      db,
      trustDomain,
      joinEncryption: joinEncryption.spki,
      now: now(),
      ...rest,
      ...(nodeId === null ? {} : { nodeId }),
    });
    if (gateway.url === undefined) return { ...created, join: null };
    const join = encodeJoinBundle({
      gateway: gateway.url,
      ...(gateway.name === undefined ? {} : { serverName: gateway.name }),
      servingCaPin: spkiPin(servingCa.certificate.spki),
      joinKey: joinSigning.spki,
      trustDomain,
      token: created.token,
    });
    return { ...created, join };
  },
});

function workloadPort(db: Database, settings: WorkloadSettings | null): OperatorWorkload {
  const configured = (): WorkloadSettings => {
    if (settings !== null) return settings;
    throw new ControlError(
      'UNSUPPORTED',
      'this deployment issues no workload tokens: BETTER_COMPUTE_WORKLOAD_ISSUER is not set for the api',
      {
        details: { reason: 'no-workload-issuer' },
      },
    );
  };
  return {
    listKeys: async () => ({ issuer: configured().issuer, keys: await workloadKeys.listWorkloadKeys(db, configured()) }),
    addKey: async (order) => workloadKeys.addWorkloadKey(db, configured(), order),
    promoteKey: async (order) => workloadKeys.promoteWorkloadKey(db, configured(), order),
    retireKey: async (order) => workloadKeys.retireWorkloadKey(db, configured(), order),
  };
}

function auditKeyOf({ auditSigning }: PkiBundle): Uint8Array {
  if (auditSigning !== undefined) return auditSigning.spki;
  throw new ControlError('INVALID_STATE', 'the key bundle has no audit key', { details: { reason: 'no-audit-key' } });
}
