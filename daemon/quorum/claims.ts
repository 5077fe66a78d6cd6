/**
 * What an accepted destructive command has used up on this machine: a leaf of an approved batch, or one of the few places for
 * commands outside of batches.
 *
 * A claim is written twice. First inside the journal's record of the command, in the one write that accepts it, so that there is no
 * moment at which the command is accepted and its leaf is free, or the leaf is used and the command is lost. Then in a file of its
 * own, which remembers it when the journal has forgotten the command: an approval may outlive the commands under it by days. What
 * a crash between the two leaves out of the file is put back from the journal at the next start.
 */
export type QuorumClaim =
  | {
      readonly kind: 'leaf';
      /** Lower-case hex of the leaf that the proof matched; the batch id is inside (DMN-013). */
      readonly leaf: string;
      /** When the approval ends, in server time. */
      readonly notAfterMs: number;
    }
  /** atMs: by the machine's own clock (DMN-028). */
  | { readonly kind: 'slot'; readonly atMs: number };

/**
 * Who used it. The digest belongs to it: a control plane that issues a used command anew, under the same id and with new times,
 * makes another command, also when the journal has long forgotten the first.
 */
export interface ClaimHolder {
  readonly commandId: string;
  /** Lower-case hex of SHA-256 over the signed body. */
  readonly digest: string;
}

export const isSameHolder = (a: ClaimHolder, b: ClaimHolder): boolean => a.commandId === b.commandId && a.digest === b.digest;
