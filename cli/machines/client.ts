/** The part of the operator API that knows machines. What the API refuses arrives as the same error it was there. */
import type { z } from 'zod';
import type * as schemas from '../../api/metal-schemas.ts';
import type { Started } from '../api-client.ts';
import { type ApiCall, createApiCall, toQuery } from '../api-client.ts';
import type { Settings } from '../settings.ts';

type Out<S extends z.ZodType> = z.output<S>;
export type MachineAnswer = Out<typeof schemas.machine>;
export type MachineDetailAnswer = Out<typeof schemas.machineDetail>;
export type RunAnswer = Out<typeof schemas.run>;
export type SiteAnswer = Out<typeof schemas.site>;
export type Steered = Out<typeof schemas.steered>;
export type RunEvidenceAnswer = Out<typeof schemas.runEvidence>;
export type NewMachineBody = z.input<typeof schemas.newMachine>;

interface Words {
  readonly actor: string;
  readonly reason: string;
}

export interface MachineClient {
  list(query: {
    after: string;
    limit: number;
    state?: string | undefined;
    site?: string | undefined;
  }): Promise<Out<typeof schemas.machines>>;
  get(id: string): Promise<MachineDetailAnswer>;
  run(id: string): Promise<RunAnswer>;
  evidence(runId: string): Promise<RunEvidenceAnswer>;
  add(body: { machine: NewMachineBody; actor: string }): Promise<Out<typeof schemas.addedMachines>>;
  import(body: z.input<typeof schemas.importMachines>): Promise<Out<typeof schemas.addedMachines>>;
  begin(id: string, kind: 'inspect' | 'retire' | 'rotate-bmc', words: Words): Promise<Started>;
  provision(id: string, order: Words & { profile: Readonly<Record<string, unknown>> }): Promise<Started>;
  steer(id: string, what: 'cancel' | 'give-up' | 'override', words: Words & { step?: string }): Promise<Steered>;
  change(id: string, what: 'release' | 'forget' | 'readmit', words: Words): Promise<Out<typeof schemas.changedMachine>>;
  reimage(order: z.input<typeof schemas.reimageOrder>): Promise<Started>;
  sites(): Promise<SiteAnswer[]>;
  site(id: string): Promise<SiteAnswer>;
}

export function createMachineClient(settings: Pick<Settings, 'apiUrl' | 'bearer'>): MachineClient {
  const call: ApiCall = createApiCall(settings);
  const at = (id: string): string => `/v1/machines/${encodeURIComponent(id)}`;
  const run = (id: string): string => `/v1/runs/${encodeURIComponent(id)}`;
  return {
    list: (query) => call('GET', `/v1/machines?${toQuery(query)}`),
    get: (id) => call('GET', at(id)),
    run: (id) => call('GET', run(id)),
    evidence: (id) => call('GET', `${run(id)}/evidence`),
    add: (body) => call('POST', '/v1/machines', body),
    import: (body) => call('POST', '/v1/machines/import', body),
    begin: (id, kind, words) => call('POST', `${at(id)}/${kind}`, words),
    provision: (id, order) => call('POST', `${at(id)}/provision`, order),
    steer: (id, what, words) => call('POST', `${at(id)}/${what}`, words),
    change: (id, what, words) => call('POST', `${at(id)}/${what}`, words),
    reimage: (order) => call('POST', '/v1/fleet/reimage', order),
    sites: async () => (await call<{ sites: SiteAnswer[] }>('GET', '/v1/sites')).sites,
    site: (id) => call('GET', `/v1/sites/${encodeURIComponent(id)}`),
  };
}
