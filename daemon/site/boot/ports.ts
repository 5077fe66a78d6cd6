/** What the parts of the boot server share. */
import type { AgentLog } from '../../agent/log.ts';
import type { SecretPort } from '../../secrets/port.ts';
import type { StoredIdentity } from '../../state/identity.ts';
import type { BootConfig } from '../config.ts';
import type { ArtefactFolder } from './artefacts.ts';
import type { BootStore } from './store.ts';

/** The node that the boot server speaks for. */
export interface SiteAgent {
  /** As it is now: a renewal replaces it. */
  readonly stored: () => StoredIdentity;
  readonly secrets: SecretPort;
  /** Server time. */
  readonly now: () => number;
  /** For `bcd status`. */
  readonly refused: (reason: string, detail: string) => void;
}

export interface BootPorts {
  readonly config: BootConfig;
  readonly store: BootStore;
  readonly artefacts: ArtefactFolder;
  /** http://host:port */
  readonly baseUrl: () => string;
  /** null while there is none: no identity, no session. */
  readonly agent: () => SiteAgent | null;
  /** Server time, as well as it is known. */
  readonly now: () => number;
  readonly log: AgentLog;
}
