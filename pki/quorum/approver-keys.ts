/**
 * The keys of an approver set, ready to verify with. A key stands under the id it hashes to, in its one canonical form; an entry that
 * claims another id, or whose bytes are no such key, counts for nobody (DMN-007, H-09).
 */
import type { QuorumFields } from '../trust/content.ts';
import { kidOf, parseP256Spki } from '../x509/spki.ts';

export type ApproverKeys = ReadonlyMap<string, Uint8Array | 'bad-kid'>;

const known = new WeakMap<object, ApproverKeys>();

/** By key id. Kept for as long as the list of keys is, and only for lists that nobody can change. */
export function approverKeysOf({ approverKeys }: Pick<QuorumFields, 'approverKeys'>): ApproverKeys {
  const kept = known.get(approverKeys);
  if (kept !== undefined) return kept;
  const keys: ApproverKeys = new Map(approverKeys.map(({ kid, spki }) => [kid, usableKey(kid, spki)]));
  if (isUnchangeable(approverKeys)) known.set(approverKeys, keys);
  return keys;
}

const isUnchangeable = (keys: QuorumFields['approverKeys']): boolean => Object.isFrozen(keys) && keys.every(Object.isFrozen);

function usableKey(kid: string, spki: Uint8Array): Uint8Array | 'bad-kid' {
  try {
    const key = parseP256Spki(spki);
    return kidOf(key) === kid ? key : 'bad-kid';
  } catch {
    return 'bad-kid';
  }
}
