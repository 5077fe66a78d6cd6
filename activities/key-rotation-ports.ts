/** What the exchange of a key needs from the outside: the key itself, who runs which, records. */

import type { Verdict } from '../domain/rotation/gates.ts';
import type { ExchangedKey, KeyStanding, RenewedCa } from '../domain/rotation/key-exchanges.ts';
import type { SignedEvidence } from '../pki/audit/evidence.ts';
import type { KeyProcess, KeyStageFacts } from '../pki/audit/key-evidence.ts';
import type { PublishedQuorumPort } from '../services/override-approval.ts';
import type { Clock, OverrideWriterPort, RotationReadsPort } from './rotation-ports.ts';

export interface KeyView {
  readonly trustDomain: string;
  /** The bundle in which it was read. */
  readonly bundle: { readonly digest: string; readonly generation: number };
  /** At most one waits, at most one signs. */
  readonly keys: readonly KeyStanding[];
}

/**
 * One kind of key behind the same steps. Each is a compare-and-swap where the key lives and names the keys it means, so a
 * repeated call changes nothing and answers how it stands.
 */
export interface ExchangedKeyPort {
  read(): Promise<KeyView>;
  /** Puts the next one beside `from`; changes nothing when one waits, or when `from` signs no more. `refuse` is asked in every attempt. */
  add(input: { from: string | null; refuse: () => Promise<void> }): Promise<KeyView>;
  /** Lets `to` sign. Of keys that need no promotion, never called. */
  promote(input: { to: string }): Promise<KeyView>;
  /** Takes `from` out; changes nothing when it is out. Also of one that never signed. */
  retire(input: { from: string }): Promise<KeyView>;
  /** Every live process that counts, with what it runs, and whether all of them run what `view` says. */
  processes(view: KeyView): Promise<{ readonly verdict: Verdict; readonly processes: readonly KeyProcess[] }>;
}

export interface KeyEvidencePort {
  /** In the order of the stages. */
  read(rotationId: string): Promise<readonly SignedEvidence[]>;
  /** The newest rotation of this workflow that has added a key and is not confirmed. */
  unfinished(workflowId: string): Promise<string | null>;
  write(facts: KeyStageFacts): Promise<void>;
}

export interface KeyRotationPorts extends Clock {
  /** @throws INVALID_CONFIG for a key that this deployment does not have */
  key(key: ExchangedKey, subject: RenewedCa | ''): ExchangedKeyPort;
  /** The clock that steps are dated by. */
  readonly clock: () => Promise<number>;
  readonly reads: RotationReadsPort;
  readonly evidence: KeyEvidencePort;
}

export interface KeyRotationControlPorts {
  readonly quorum: PublishedQuorumPort;
  readonly overrides: Pick<OverrideWriterPort, 'recordOverride'>;
}
