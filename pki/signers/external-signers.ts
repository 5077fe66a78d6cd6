/** Keys outside of the bundle as Signers: asked with a deadline, and believed only after their signature was verified. */
import { ControlError } from '../../domain/errors.ts';
import { parseP256Spki, type Signer, verifyRawSignature } from '../x509/index.ts';
import { type Deadline, withDeadline } from './deadline.ts';
import { maxInputBytes } from './protocol.ts';
import { formatSignerReference, parseSignerReference, type SignerReference } from './reference.ts';

/** Who holds keys: a token, a program. It gives signatures and public keys, and knows no way to give a private key. */
export interface KeyService {
  /** @returns SubjectPublicKeyInfo. @throws NOT_FOUND (signer-key-missing) */
  publicKey(key: string, signal: AbortSignal): Promise<Uint8Array>;
  /** The key of that name, made when there is none yet. @returns SubjectPublicKeyInfo */
  createKey(key: string, signal: AbortSignal): Promise<Uint8Array>;
  /** @returns raw r‖s over SHA-256 of the input */
  sign(request: { readonly key: string; readonly input: Uint8Array }, signal: AbortSignal): Promise<Uint8Array>;
}

/** A key that is kept elsewhere, with the text that the bundle keeps of it. */
export interface ExternalKey {
  readonly reference: string;
  readonly signer: Signer;
}

export interface ExternalSigners {
  /** The signer of a key whose public half the bundle has. Nothing is asked yet. @throws INVALID_INPUT (signer-reference) */
  signerOf(reference: string, spki: Uint8Array): Signer;
  /** Asks for a key that is there. @throws NOT_FOUND (signer-key-missing), and what signers throw */
  find(reference: string): Promise<ExternalKey>;
  /** As find, and makes the key when it is missing: asked again, it answers the same key. @throws UNSUPPORTED where keys are made by hand */
  create(reference: string): Promise<ExternalKey>;
}

export interface ExternalSignersOptions {
  readonly services: Readonly<Record<SignerReference['kind'], KeyService>>;
  readonly deadline: Deadline;
}

function assertInput(name: string, input: Uint8Array): void {
  if (input.length <= maxInputBytes) return;
  throw new ControlError('INVALID_INPUT', `${name} is asked to sign ${input.length} bytes, at most ${maxInputBytes}`, {
    details: { reason: 'signer-input' },
  });
}

/**
 * Every signer it gives answers a signature that was verified under its public key, or throws: INVALID_INPUT (signer-input) for more
 * than 64 MiB, UNAVAILABLE (signer-deadline) when
 * it is slow, BAD_SIGNATURE (signer-wrong) when what it answers is not its key's signature over these bytes, and what its service
 * throws when it is down or refuses. So nothing that was not truly signed gets into a certificate, an envelope or the audit trail.
 */
export function createExternalSigners({ services, deadline }: ExternalSignersOptions): ExternalSigners {
  const placeOf = (text: string): { name: string; key: string; service: KeyService } => {
    const reference = parseSignerReference(text);
    const name = formatSignerReference(reference);
    return { name, key: reference.kind === 'external' ? reference.key : name, service: services[reference.kind] };
  };
  const signerOf = (reference: string, spki: Uint8Array): Signer => {
    const { name, key, service } = placeOf(reference);
    return Object.freeze({
      spki,
      sign: async (input: Uint8Array) => {
        assertInput(name, input);
        const asked = Uint8Array.from(input);
        // Copies both ways: a service that writes into what it was given, or goes on writing into what it gave, changes nothing here.
        const request = { key, input: Uint8Array.from(asked) };
        const signature = Uint8Array.from(await withDeadline(name, deadline, (signal) => service.sign(request, signal)));
        if (verifyRawSignature({ spki, input: asked, signature })) return signature;
        throw new ControlError('BAD_SIGNATURE', `${name} answered a signature that is not its key's`, {
          details: {
            reason: 'signer-wrong',
            hint: 'the reference names another key than the bundle holds the public half of, or the signer is broken',
          },
        });
      },
    });
  };
  const keyOf = (reference: string, spki: Uint8Array): ExternalKey => {
    const { name } = placeOf(reference);
    return { reference: name, signer: signerOf(name, parseP256Spki(spki)) };
  };
  return {
    signerOf,
    find: async (reference) => {
      const { name, key, service } = placeOf(reference);
      return keyOf(name, await withDeadline(name, deadline, (signal) => service.publicKey(key, signal)));
    },
    create: async (reference) => {
      const { name, key, service } = placeOf(reference);
      return keyOf(name, await withDeadline(name, deadline, (signal) => service.createKey(key, signal)));
    },
  };
}
