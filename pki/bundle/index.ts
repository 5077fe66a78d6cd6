/**
 * The key bundle of a deployment: one JSON document with certificates and public keys in the clear and the private halves
 * sealed (KEY-001 to KEY-049).
 *
 * Invariants
 *   - No key does two jobs; every private half belongs to its public half; nothing in the file is ignored.
 *   - A bundle sealed in the current form loads only with every public field as it was sealed.
 *   - A change is a compare-and-swap on the stored revision, raises the generation by one and is sealed in the current form.
 *   - An offline root's private half never enters the bundle; a dropped command root's private half leaves it.
 *
 * Threats it answers: a writer of the file without the secret (seal over the public half); a reader of the file without
 * the secret (AES-256-GCM); two operators on two copies (compare-and-swap); a relabelled or stripped seal (former and plain
 * bundles are "unauthenticated" and load only when allowed by name).
 *
 * What it does not do: read files or databases (BundleStore is a port), read clocks or the environment, notice that an older
 * bundle of the same deployment was put back (services/freshness.ts), or protect against whoever holds the secret.
 */

export { createCommandRoot, withCommandRoots } from './command-roots.ts';
export {
  type CreateBundleOptions,
  createBundle,
  createBundleWithOfflineRoot,
  type ExternalKeys,
  newSigningKey,
  type OfflineRootBundle,
} from './create.ts';
export { bundleDigest, documentOf, type EncodeBundleOptions, encodeBundle } from './encode.ts';
export { withExternalSigners } from './external.ts';
export { foundingKeyNames, type KeyForm, type KeyName, type KeyRow, keyNames, keyTable } from './keys.ts';
export { type Authentication, authenticateBundle, type OpenBundleOptions, openBundle } from './open.ts';
export { type BundlePins, type CertificateFacts, type CommandRootPins, commandRootPins, describePins } from './pins.ts';
export { readPublicBundle } from './public.ts';
export {
  caRetirementFacts,
  longestLeafMs,
  type RenewableCa,
  type RenewCaInput,
  type RetireCaInput,
  renewableCas,
  renewCa,
  retireCaCertificate,
} from './renew-ca.ts';
export {
  type AbortInput,
  type AcknowledgementFacts,
  abortCommandRotation,
  addCommandRoot,
  addTrustRoot,
  type BundleStep,
  dropCommandRoot,
  removeTrustRoot,
  switchCommandRoot,
  trustVersionAcknowledged,
} from './rotation.ts';
export { addSandboxSshCa, sandboxAuthorityOf } from './sandbox-ca.ts';
export { assertSealingSecret, minSecretLength } from './seal.ts';
export { type BundleChange, type BundleStore, nextGeneration, type StoredBundle, type UpdatedBundle, updateBundle } from './store.ts';
export { addExecTicketKey, promoteExecTicketKey, retireExecTicketKey, ticketRetireAfterMs, withdrawExecTicketKey } from './ticket-key.ts';
export type * from './types.ts';
