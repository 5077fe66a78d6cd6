/**
 * Signers that live outside of the bundle: a PKCS #11 token, or a program of the operator's that reaches a key service (KEY-039).
 *
 * Purpose: the command-signing root, the root CA and the audit key need not lie in a file. The bundle then has their public half
 * and a reference; everything that only verifies, shows or publishes works as ever, and what signs asks the signer.
 *
 * Invariants
 *   - A KeyService gives public keys and signatures. No call, line or error of it can carry a private key.
 *   - What was signed is verified under the public half of the bundle before anybody sees it.
 *   - Every question has a deadline. What comes later is thrown away.
 *   - A reference names a key, never a library, a program or a PIN.
 *   - A refused login is not repeated: tokens lock after a few.
 *
 * Threats it answers: a signer that is slow, down, broken or exchanged; a bundle that tries to choose what a host executes.
 *
 * What it does not do: start processes or load libraries (runtime/signers/), decide who may sign what (the signer's own policy),
 * or protect against a signer that signs for others too.
 */
export { type Deadline, type StartTimer, withDeadline } from './deadline.ts';
export {
  createExternalSigners,
  type ExternalKey,
  type ExternalSigners,
  type ExternalSignersOptions,
  type KeyService,
} from './external-signers.ts';
export {
  encodeAnswer,
  encodeRequest,
  maxAnswerBytes,
  maxInputBytes,
  oneLine,
  parseAnswer,
  parseRequest,
  refusalError,
  refusals,
  type SignerAnswer,
  type SignerRefusal,
  type SignerRequest,
  type SignerTask,
} from './protocol.ts';
export {
  formatSignerReference,
  type ProgramKeyReference,
  parseSignerReference,
  type SignerReference,
  successorReference,
  type TokenKeyReference,
} from './reference.ts';
