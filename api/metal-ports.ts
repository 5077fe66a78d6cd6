/** What the routes and pages of machines need: reads by tenant, changes by hand, runs that are started and told what was decided. */
import type { z } from 'zod';
import type { MachineState } from '../domain/metal/life-cycle.ts';
import type { RunKind } from '../domain/metal/run-ends.ts';
import type { SiteOverview } from '../services/metal/types.ts';
import type { MachineView, RunDetail, RunSummary } from '../services/metal/view-types.ts';
import type * as schemas from './metal-schemas.ts';
import type { Steering } from './metal-workflows.ts';
import type { Started } from './ports.ts';
import type { Principal } from './principal.ts';

type Answer<S extends z.ZodType> = z.input<S>;

export interface MachineOrder {
  readonly actor: string;
  readonly reason: string;
  readonly profile?: Readonly<Record<string, unknown>> | undefined;
  readonly step?: string | undefined;
}

export interface MachineCount {
  readonly siteId: string;
  readonly state: MachineState;
  readonly machines: number;
}

/** Whose machines: those of the caller's tenants. Of any other: NOT_FOUND. */
export interface OperatorMachines {
  list(
    principal: Principal,
    page: { after: string; limit: number; state?: MachineState | undefined; siteId?: string | undefined },
  ): Promise<MachineView[]>;
  counts(principal: Principal): Promise<readonly MachineCount[]>;
  get(principal: Principal, id: string): Promise<Answer<typeof schemas.machineDetail>>;
  runs(
    principal: Principal,
    page: { machineId?: string | undefined; state?: RunSummary['state'] | undefined; limit: number },
  ): Promise<RunSummary[]>;
  run(principal: Principal, id: string): Promise<RunDetail>;
  evidence(principal: Principal, runId: string): Promise<Answer<typeof schemas.runEvidence>>;
  /** null: every site. */
  sites(principal: Principal, ids: readonly string[] | null): Promise<SiteOverview[]>;
  site(principal: Principal, id: string): Promise<SiteOverview>;
  judgeProfile(text: string): Answer<typeof schemas.judgedProfile>;
  /** @throws INVALID_INPUT with every problem; CONFLICT; INVALID_STATE (tombstone) */
  add(principal: Principal, order: { readonly machine: z.output<typeof schemas.newMachine>; readonly actor: string }): Promise<Added>;
  /** All of them, or none. @throws INVALID_INPUT with every problem, by line and field */
  import(principal: Principal, order: Omit<z.output<typeof schemas.importMachines>, 'actor'> & { readonly actor: string }): Promise<Added>;
  begin(principal: Principal, id: string, order: MachineOrder & { readonly kind: RunKind }): Promise<Started>;
  reimage(principal: Principal, order: z.output<typeof schemas.reimageOrder> & { readonly actor: string }): Promise<Started>;
  steer(principal: Principal, id: string, order: MachineOrder & { readonly what: Steering }): Promise<Answer<typeof schemas.steered>>;
  change(
    principal: Principal,
    id: string,
    order: MachineOrder & { readonly what: 'release' | 'forget' | 'readmit' },
  ): Promise<Answer<typeof schemas.changedMachine>>;
}

type Added = Answer<typeof schemas.addedMachines>;
