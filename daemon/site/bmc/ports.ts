/** What the handlers for management controllers are given by the composition of a site agent. */
import type { KindHandler } from '../../kinds/handler.ts';
import type { SecretPort } from '../../secrets/port.ts';
import type { RefusalStore } from './credential-broker.ts';

export interface BmcConfig {
  /** Addresses that are spoken to over plain HTTP: emulators of a test bench. Nothing else is, whatever a command says. */
  readonly insecureHttp: readonly string[];
}

export interface BmcPorts {
  readonly secrets: SecretPort;
  readonly config: BmcConfig;
  /** Server time, Unix milliseconds. */
  readonly now: () => number;
  /** Waits, or throws what the signal was aborted with. */
  readonly sleep?: (ms: number, signal: AbortSignal) => Promise<void>;
  /** Refused logins, durable: a daemon that restarts must not start counting again. In memory without. */
  readonly refusals?: RefusalStore;
}

export type BmcKind = 'bmc.power' | 'bmc.boot' | 'bmc.rotate' | 'bmc.inventory';

/** `createBmcHandlers` of handlers.ts. */
export type BmcHandlers = Readonly<Record<BmcKind, KindHandler>>;
