/** The operator API as the CLI calls it. What the API refuses arrives as the same error it was there. */
import type { z } from 'zod';
import type * as batchSchemas from '../api/batch-schemas.ts';
import type * as enrolmentSchemas from '../api/enrolment-schemas.ts';
import { fromProblem } from '../api/problem.ts';
import type * as schemas from '../api/schemas.ts';
import type * as secretSchemas from '../api/secret-schemas.ts';
import type * as tunnelSchemas from '../api/tunnel-schemas.ts';
import { ControlError } from '../domain/errors.ts';
import type { Settings } from './settings.ts';

type Out<S extends z.ZodType> = z.output<S>;
export type NodeAnswer = Out<typeof schemas.node>;
export type CommandAnswer = Out<typeof schemas.command>;
export type StuckAnswer = Out<typeof schemas.stuck>['stuck'][number];
export type EnrolmentAnswer = Out<typeof enrolmentSchemas.enrolment>;
export type JoinAnswer = Out<typeof schemas.join>;
export type SecretAnswer = Out<typeof secretSchemas.secrets>['secrets'][number];
export type TunnelRequest = z.input<typeof tunnelSchemas.openTunnel>;
export type Started = Out<typeof schemas.started>;

export interface OperatorClient {
  listNodes(query: { after: string; limit: number; state?: string | undefined }): Promise<Out<typeof schemas.nodes>>;
  getNode(id: string): Promise<NodeAnswer>;
  revokeNode(id: string, body: { actor: string; reason: string }): Promise<Started>;
  deleteNode(id: string, body: { actor: string; reason: string }): Promise<Started>;
  setNodeCredential(id: string, body: z.input<typeof schemas.credentialRequest>): Promise<Started>;
  listSshCertificates(query: { node?: string; limit: number }): Promise<Out<typeof schemas.sshCertificates>['certificates']>;
  revokeSshCertificate(serial: string, body: { actor: string; reason: string }): Promise<Started>;
  createTenant(body: { id: string; actor: string }): Promise<{ id: string }>;
  listTenants(): Promise<Out<typeof batchSchemas.tenants>['tenants']>;
  deleteTenant(id: string, body: { actor: string }): Promise<Out<typeof batchSchemas.deletedTenant>>;
  /** null: those that were decided too. */
  /** One that is ordered, or with `dryRun` what would be. */
  orderEnrolment(body: z.input<typeof enrolmentSchemas.enrolmentOrder>): Promise<Out<typeof enrolmentSchemas.enrolmentAnswer>>;
  listEnrolments(query: { node?: string; open?: 'true'; limit: number }): Promise<EnrolmentAnswer[]>;
  getEnrolment(enrolmentId: string): Promise<EnrolmentAnswer>;
  cancelEnrolment(enrolmentId: string, body: z.input<typeof enrolmentSchemas.enrolmentEnd>): Promise<EnrolmentAnswer>;
  listJoins(state: JoinAnswer['state'] | null): Promise<JoinAnswer[]>;
  decideJoin(joinId: string, what: 'approve' | 'refuse', body: z.input<typeof schemas.joinDecision>): Promise<JoinAnswer>;
  setSecret(body: z.input<typeof secretSchemas.setSecret>): Promise<Out<typeof secretSchemas.setSecretAnswer>>;
  listSecrets(query: { prefix: string; after: string; limit: number }): Promise<Out<typeof secretSchemas.secrets>>;
  deleteSecret(body: z.input<typeof secretSchemas.deleteSecret>): Promise<Out<typeof secretSchemas.deletedSecret>>;
  openTunnel(body: TunnelRequest): Promise<Out<typeof tunnelSchemas.openedTunnel>>;
  execSandbox(instanceId: string, body: z.input<typeof tunnelSchemas.execSandbox>): Promise<Out<typeof tunnelSchemas.sandboxLogin>>;
  createToken(body: z.input<typeof schemas.tokenRequest>): Promise<Out<typeof schemas.createdToken>>;
  runCommands(body: z.input<typeof schemas.commandsRequest>): Promise<Started>;
  rebootNodes(body: z.input<typeof schemas.rebootRequest>): Promise<Started>;
  getCommands(id: string): Promise<CommandAnswer[]>;
  listStuck(): Promise<StuckAnswer[]>;
  getTrust(): Promise<Out<typeof schemas.trust>>;
  listRotations(limit: number): Promise<Out<typeof schemas.rotations>['rotations']>;
  getEvidence(rotationId: string): Promise<Out<typeof schemas.evidence>>;
}

const answerWithinMs = 30_000;

/** One call to the api. @throws what it refuses; UNAVAILABLE */
export type ApiCall = <T>(method: 'GET' | 'POST', path: string, body?: unknown) => Promise<T>;

export const createApiCall =
  (settings: Pick<Settings, 'apiUrl' | 'bearer'>): ApiCall =>
  async <T>(method: 'GET' | 'POST', path: string, body?: unknown): Promise<T> => {
    const url = new URL(path, settings.apiUrl());
    const headers = { authorization: `Bearer ${settings.bearer()}`, ...(body === undefined ? {} : { 'content-type': 'application/json' }) };
    const response = await reach(url, { method, headers, ...(body === undefined ? {} : { body: JSON.stringify(body) }) });
    const answer: unknown = await response.json().catch(() => null);
    if (response.ok && typeof answer === 'object' && answer !== null) return answer as T;
    throw (
      fromProblem(answer) ??
      new ControlError('UNAVAILABLE', `${url.origin} answered ${response.status} and is no operator API`, {
        details: { reason: 'not-our-api' },
      })
    );
  };

export function createOperatorClient(settings: Pick<Settings, 'apiUrl' | 'bearer'>): OperatorClient {
  const call = createApiCall(settings);
  const id = encodeURIComponent;
  return {
    listNodes: (query) => call('GET', `/v1/nodes?${toQuery(query)}`),
    getNode: (nodeId) => call('GET', `/v1/nodes/${id(nodeId)}`),
    revokeNode: (nodeId, body) => call('POST', `/v1/nodes/${id(nodeId)}/revoke`, body),
    deleteNode: (nodeId, body) => call('POST', `/v1/nodes/${id(nodeId)}/delete`, body),
    setNodeCredential: (nodeId, body) => call('POST', `/v1/nodes/${id(nodeId)}/credentials`, body),
    listSshCertificates: async (query) =>
      (await call<Out<typeof schemas.sshCertificates>>('GET', `/v1/ssh-certificates?${toQuery(query)}`)).certificates,
    revokeSshCertificate: (serial, body) => call('POST', `/v1/ssh-certificates/${id(serial)}/revoke`, body),
    createTenant: (body) => call('POST', '/v1/tenants', body),
    listTenants: async () => (await call<Out<typeof batchSchemas.tenants>>('GET', '/v1/tenants')).tenants,
    deleteTenant: (tenantId, body) => call('POST', `/v1/tenants/${id(tenantId)}/delete`, body),
    orderEnrolment: (body) => call('POST', '/v1/enrolments', body),
    listEnrolments: async (query) => (await call<{ enrolments: EnrolmentAnswer[] }>('GET', `/v1/enrolments?${toQuery(query)}`)).enrolments,
    getEnrolment: (enrolmentId) => call('GET', `/v1/enrolments/${id(enrolmentId)}`),
    cancelEnrolment: (enrolmentId, body) => call('POST', `/v1/enrolments/${id(enrolmentId)}/cancel`, body),
    listJoins: async (state) =>
      (await call<{ joins: JoinAnswer[] }>('GET', `/v1/joins?${toQuery({ limit: 1_000, ...(state === null ? {} : { state }) })}`)).joins,
    decideJoin: (joinId, what, body) => call('POST', `/v1/joins/${id(joinId)}/${what}`, body),
    setSecret: (body) => call('POST', '/v1/secrets', body),
    listSecrets: (query) => call('GET', `/v1/secrets?${toQuery(query)}`),
    deleteSecret: (body) => call('POST', '/v1/secrets/delete', body),
    openTunnel: (body) => call('POST', '/v1/tunnels', body),
    execSandbox: (instanceId, body) => call('POST', `/v1/sandboxes/${id(instanceId)}/exec`, body),
    createToken: (body) => call('POST', '/v1/tokens', body),
    runCommands: (body) => call('POST', '/v1/commands', body),
    rebootNodes: (body) => call('POST', '/v1/reboots', body),
    getCommands: async (commandId) => (await call<{ commands: CommandAnswer[] }>('GET', `/v1/commands/${id(commandId)}`)).commands,
    listStuck: async () => (await call<{ stuck: StuckAnswer[] }>('GET', '/v1/stuck')).stuck,
    getTrust: () => call('GET', '/v1/trust'),
    listRotations: async (limit) => (await call<Out<typeof schemas.rotations>>('GET', `/v1/rotations?limit=${limit}`)).rotations,
    getEvidence: (rotationId) => call('GET', `/v1/rotations/${id(rotationId)}/evidence`),
  };
}

export async function reach(url: URL, init: RequestInit): Promise<Response> {
  try {
    return await fetch(url, { ...init, redirect: 'error', signal: AbortSignal.timeout(answerWithinMs) });
  } catch (cause) {
    throw new ControlError('UNAVAILABLE', `the operator API at ${url.origin} does not answer`, {
      details: { reason: 'api-unreachable', hint: 'is the stack up? better-compute doctor says what is down' },
      cause,
    });
  }
}

export const toQuery = (values: Readonly<Record<string, string | number | undefined>>): string =>
  new URLSearchParams(
    Object.entries(values).flatMap(([name, value]) =>
      value === undefined || value === '' ? [] : [[name, String(value)] as [string, string]],
    ),
  ).toString();
