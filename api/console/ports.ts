/** What the console reads. Its router knows no database and no identity provider. */

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
}

export interface ConsolePorts {
  now(): number;
  /** Who a bearer is. @throws UNAUTHENTICATED */
  authenticate(bearer: string): Promise<ConsoleReader>;
}
