export interface RunningPostgres {
  /** With the password of the application's role: a secret. */
  readonly url: string;
  readonly port: number;
  readonly pid: number;
  /** Resolves with an exit code when the server has ended, asked or not. */
  readonly exited: Promise<number>;
  stop(): Promise<void>;
}

export interface PostgresOptions {
  /** State folder. */
  readonly home: string;
  /** 0 (default): a free one. */
  readonly port?: number;
  /** File of the server's log; default <home>/logs/postgres.log. */
  readonly log?: string;
  /** What sets the port, for the message when it is taken. */
  readonly setBy?: string;
  readonly settings?: Readonly<Record<string, string>>;
}

export function startPostgres(options: PostgresOptions): Promise<RunningPostgres>;
