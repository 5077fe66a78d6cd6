export interface RunningTemporal {
  /** host:port of the front end. */
  readonly address: string;
  readonly uiUrl: string;
  readonly metricsAddress: string;
  readonly pid: number;
  /** Resolves with an exit code when the server has ended, asked or not. */
  readonly exited: Promise<number>;
  stop(): Promise<void>;
}

export interface TemporalOptions {
  /** State folder. */
  readonly home: string;
  /** 0 (default): a free one. */
  readonly port?: number;
  readonly uiPort?: number;
  /** Name → Temporal type. */
  readonly searchAttributes?: Readonly<Record<string, string>>;
  /** Where the UI has payloads decoded. */
  readonly codecEndpoint?: string;
  readonly log?: string;
  readonly setBy?: { readonly port: string; readonly uiPort: string };
  /** The Temporal CLI; found or fetched when not given. */
  readonly binary?: string;
  /** Further dynamic configuration, as name=value. */
  readonly settings?: readonly string[];
}

export function startTemporal(options: TemporalOptions): Promise<RunningTemporal>;

export interface FindTemporalOptions {
  readonly env?: NodeJS.ProcessEnv;
  /** false: only look, fetch nothing. */
  readonly fetch?: boolean;
  readonly say?: (line: string) => void;
}

/** Where fetched engines are kept: shared by the checkouts of one user. */
export function cacheFolder(env?: NodeJS.ProcessEnv): string;

/** Path of the Temporal CLI. */
export function findTemporal(options?: FindTemporalOptions): Promise<string>;
