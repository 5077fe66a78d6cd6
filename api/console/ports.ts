/** What the console reads. Its router knows no database and no identity provider. */
import type { z } from 'zod';
import type { MachineState } from '../../domain/metal/life-cycle.ts';
import type * as metal from '../metal-schemas.ts';

export type MachineRow = z.output<typeof metal.machine>;
export type MachineOnPage = z.output<typeof metal.machineDetail>;
export type RunOnPage = z.output<typeof metal.run>;
export type FleetCount = z.output<typeof metal.machineCounts>['counts'][number];

/** A batch as the pages show it. */
export interface BatchOnPage {
  readonly id: string;
  readonly tenantId: string;
  readonly state: string;
  readonly reason: string;
  /** Lower-case hex. */
  readonly root: string;
  readonly size: number;
  readonly required: number;
  readonly notAfterMs: number;
  readonly trustDomain: string;
  readonly createdBy: string;
  readonly createdAt: number;
  /** The sentence on an agent's proposal (BAT-055); null for a person's. */
  readonly proposedBy: string | null;
  readonly approvals: readonly { readonly kid: string; readonly at: number }[];
  /** Commands in it. */
  readonly members: number;
  /** In words; null: all at once. */
  readonly waves: string | null;
  readonly progress: { readonly held: number; readonly states: Readonly<Record<string, number>> };
}

export type BatchSummary = Pick<BatchOnPage, 'id' | 'state' | 'reason' | 'size' | 'required' | 'notAfterMs' | 'proposedBy' | 'approvals'>;

/** What a batch would touch. */
export interface BatchOverview {
  /** Distinct machines. */
  readonly machines: number;
  readonly scope: readonly {
    readonly kind: string;
    readonly site: string;
    readonly leaves: number;
    readonly payloads: number;
    readonly unbound: number;
  }[];
  /** `of`: active machines of the site. */
  readonly sites: readonly { readonly site: string; readonly machines: number; readonly of: number }[];
}

export interface ConsoleReader {
  /** Shown at the top of each page. */
  readonly name: string;
  /** Newest first, of the tenants that the reader may see. */
  listBatches(limit: number): Promise<readonly BatchSummary[]>;
  /** @throws NOT_FOUND for a batch that is not there, or not the reader's to see */
  getBatch(id: string): Promise<{ readonly batch: BatchOnPage; readonly overview: BatchOverview }>;
  /** In order of id, of the tenants that the reader may see. @throws PERMISSION_DENIED */
  listMachines(page: { readonly state: MachineState | null; readonly limit: number }): Promise<{
    readonly machines: readonly MachineRow[];
    readonly counts: readonly FleetCount[];
  }>;
  /** With the run that is named, else the newest. @throws NOT_FOUND, PERMISSION_DENIED */
  getMachine(id: string, runId: string | null): Promise<{ readonly machine: MachineOnPage; readonly run: RunOnPage | null }>;
}

export interface ConsolePorts {
  now(): number;
  /** Who a bearer is. @throws UNAUTHENTICATED */
  authenticate(bearer: string): Promise<ConsoleReader>;
}
