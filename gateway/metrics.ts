/** What a gateway counts; the composition root binds it to the process's registry, tests read it as it is. */
export interface GatewayMetrics {
  /** A stream or call that was refused, by its x-bc-reason. */
  refused(reason: string): void;
  sessionOpened(): void;
  sessionEnded(reason: string): void;
  connectionCut(why: string): void;
  trustRefused(): void;
  /** From the commit of a revocation, as its row says, to the end of the session. */
  revokedAfterMs(ms: number): void;
  pokeHeard(): void;
  listenLost(): void;
  databaseFailed(what: string): void;
}

const nothing = (): void => undefined;

export const noMetrics: GatewayMetrics = Object.freeze({
  refused: nothing,
  sessionOpened: nothing,
  sessionEnded: nothing,
  connectionCut: nothing,
  trustRefused: nothing,
  revokedAfterMs: nothing,
  pokeHeard: nothing,
  listenLost: nothing,
  databaseFailed: nothing,
});
