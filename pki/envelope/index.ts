/**
 * Signed envelopes: bodies that a relay must not alter, the worker keys that sign them and the check that a machine makes.
 *
 * Invariants: the signature covers the received bytes, never a re-encoding (ENV-002); raw 64 bytes only (ENV-003); the purpose
 * is part of the input, so a signature for one never counts for another (ENV-009); a signer is a worker certificate under a
 * held root, at most a day old, or it is nobody.
 *
 * Threats it answers: a gateway that forges, alters, re-addresses or replays under another purpose; a node or gateway
 * certificate used to sign commands; a worker key that outlived its day; an authority whose name was copied.
 *
 * What it does not do: decide whether a command may run (the daemon does), remember what ran, or revoke worker keys: their
 * life is a day, and dropping the root ends them all.
 */
export { openDaemonRelease, type SignedRelease, signDaemonRelease } from './daemon-release.ts';
export {
  type DesiredStateInput,
  desiredStateBodyFromJson,
  desiredStateFromStored,
  encodeDesiredStateBody,
  nodeSpecFromJson,
  parseSignature,
  type StoredDesiredState,
  storedDesiredState,
  type VerifiedDesiredState,
  type VerifyDesiredStateOptions,
  verifyDesiredState,
} from './desired-state.ts';
export { type SignedParts, signatureBytes, signEnvelope, type VerifyEnvelopeOptions, verifyEnvelope } from './envelope.ts';
export { maxWorkerLifetimeMs, type VerifiedSigner, type VerifyIntentOptions, verifyIntent } from './verify-intent.ts';
export {
  type CreateWorkerKeyOptions,
  createWorkerKey,
  type IntentPurpose,
  signCommand,
  signDesiredState,
  type WorkerKey,
} from './worker-key.ts';
