/** How a handler comes by a secret that its command names (SEC-001): it asks by reference, when it needs it, and keeps it in memory alone. */
import { splitCommandId } from '../../domain/secrets/binding.ts';

/** What entitles this machine to the secret. */
export interface SecretBinding {
  /** A command's id up to its last slash; `host:<unit or section>` for what the desired state names. */
  readonly workflowId: string;
  /** Behind the last slash; empty for discovery tokens, the field's name for what the desired state names. */
  readonly stepId: string;
  /** Of the instance whose secret it is; workflow and step are empty then. */
  readonly allocationId?: string;
}

export interface SecretPort {
  /**
   * The secret's bytes, by one question of its own. It may take 10 seconds (SEC-018).
   *
   * @throws NOT_FOUND, PERMISSION_DENIED or UNAVAILABLE by the broker's word, which is details.reason and in the message (SEC-016);
   *   UNAVAILABLE (`no-answer`, `not-connected`) when none comes in time; CANCELLED when `signal` is aborted
   */
  read(ref: string, binding: SecretBinding, signal: AbortSignal): Promise<Uint8Array>;
}

/** The binding of what a command names: its own id, in two (SEC-006). */
export const bindingOf = (commandId: string): SecretBinding => splitCommandId(commandId);
