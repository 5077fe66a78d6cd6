/** What a tool of others must answer so that the same tests can be put to each of them (verification.ts). */

import type { Use } from './issued.ts';
import type { ChainShape } from './shapes.ts';

export interface JudgedChain {
  readonly leaf: Uint8Array;
  readonly intermediates: readonly Uint8Array[];
  readonly anchors: readonly Uint8Array[];
  /** Empty: for no use in particular. */
  readonly uses: readonly Use[];
  readonly serverName?: string;
}

/** Why it refused; null when it accepted. */
export type Verdict = string | null;

export interface Judge {
  /** Verdicts in order. A use that the tool cannot check is not checked. */
  verify(chains: readonly JudgedChain[]): Promise<Verdict[]>;
  /** Whether the request is signed by its key: null, or why it refused. */
  verifyRequests(requests: readonly Uint8Array[]): Promise<Verdict[]>;
  /** Makes chains, root first, and for each a request by the key of its last certificate. */
  make(chains: readonly ChainShape[]): Promise<MadeChain[]>;
  /** False for what the tool does not make. */
  makes(chain: ChainShape): boolean;
}

export interface MadeChain {
  readonly chain: readonly Uint8Array[];
  readonly request: Uint8Array;
}
