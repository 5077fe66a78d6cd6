/**
 * How this system uses Temporal: namespace, task queues, workflow ids, search attributes. Constants only; the connection
 * itself comes from the environment or a temporal.toml profile (runtime/temporal.ts).
 *
 * A task queue is a trust boundary: a worker polls one queue and can do only what its keys allow.
 */
export const defaultNamespace = 'default';

export const taskQueues = Object.freeze({
  /** Workflows and database activities; its worker holds nothing secret. */
  control: 'bc-control',
  /** Everything that signs: command-signing, CA and audit keys. */
  signing: 'bc-signing',
  /** `node.root` commands only, under a root-worker certificate. */
  rootSigning: 'bc-root-signing',
  /** SSH to machines that are enrolled, by credentials that its worker alone can read. */
  hosts: 'bc-hosts',
} as const);

export type TaskQueue = (typeof taskQueues)[keyof typeof taskQueues];

/** Ids are fixed and readable; a second start of the same id is refused. */
export const workflowIds = Object.freeze({
  rotateCommandRoot: 'rotate-command-root',
  renewCa: (ca: string): string => `renew-ca/${ca}`,
  rotateGatewayCertificate: 'rotate-gateway-certificate',
  rotateTicketKey: 'rotate-ticket-key',
  rotateWorkloadKey: 'rotate-workload-key',
  revokeSshCertificate: (serial: string): string => `ssh/${serial}/revoke`,
  revokeIdentity: (nodeId: string): string => `node/${nodeId}/revoke`,
  setNodeCredential: (nodeId: string, name: string): string => `node/${nodeId}/credential/${name}`,
  runCommand: (unique: string): string => `command/${unique}`,
  rebootNodes: (unique: string): string => `reboot/${unique}`,
  approveBatch: (batchId: string): string => `batch/${batchId}`,
  rotateApproverSet: 'rotate-approver-set',
  /** One run of a kind at a time on a machine: its name is that of the workflow's type in short. */
  machineRun: (machineId: string, kind: 'provision' | 'retire' | 'inspect' | 'rotate-bmc'): string => `machine/${machineId}/${kind}`,
  /** A machine is enrolled by one workflow at a time, for the first time or again. */
  enrolment: (nodeId: string): string => `node/${nodeId}/identity`,
  reimageFleet: (run: string): string => `fleet/${run}/reimage`,
} as const);

export const scheduleIds = Object.freeze({
  resign: 'bc-resign',
  reconcileCommands: 'bc-reconcile-commands',
  checkpointAudit: 'bc-checkpoint-audit',
  reconcileBatches: 'bc-reconcile-batches',
  reconcileBoots: 'bc-reconcile-boots',
} as const);

/** Name → Temporal type; the setup registers them, and workers refuse to start where one is missing. */
export const searchAttributes = Object.freeze({
  BcSummary: 'Keyword',
  BcPhase: 'Keyword',
  BcWaitingOn: 'KeywordList',
  BcDeadline: 'Datetime',
  BcBehind: 'Int',
} as const);
