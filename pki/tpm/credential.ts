/**
 * TPM2_MakeCredential in software (TPM library specification, part 1, sections 11.4.10 and 24): a secret that only the TPM with this
 * endorsement key gives away, and only while it holds the object of this name. Whoever answers with the secret has shown both.
 *
 *   seed     = random, RSA-OAEP to the endorsement key with label IDENTITY; or KDFe of an ECDH with it
 *   identity = AES-128-CFB(KDFa(seed, STORAGE, name), TPM2B(secret))
 *   hmac     = HMAC-SHA-256(KDFa(seed, INTEGRITY), identity || name)
 */
import {
  constants,
  createCipheriv,
  createHash,
  createHmac,
  diffieHellman,
  generateKeyPairSync,
  publicEncrypt,
  randomBytes,
} from 'node:crypto';
import { ControlError } from '../../domain/errors.ts';
import { pointOf } from '../jose/index.ts';
import { spkiOf } from '../x509/index.ts';
import type { TpmPublic } from './public-area.ts';
import { sized, u32 } from './wire.ts';

export interface TpmCredential {
  /** TPM2B_ID_OBJECT. */
  readonly blob: Uint8Array;
  /** TPM2B_ENCRYPTED_SECRET. */
  readonly encryptedSecret: Uint8Array;
}

/** At most the digest of the endorsement key's name algorithm. */
export const credentialSecretBytes = 32;

const seedBytes = 32;

const label = (text: string): Buffer => Buffer.from(`${text}\0`, 'ascii');

interface KdfaOptions {
  readonly key: Uint8Array;
  readonly use: 'STORAGE' | 'INTEGRITY';
  readonly context: Uint8Array;
  readonly bits: 128 | 256;
}

/** One block of KDFa (part 1, section 11.4.10.2) with SHA-256: at most 256 bits are needed here. */
const kdfa = ({ key, use, context, bits }: KdfaOptions): Buffer =>
  createHmac('sha256', key)
    .update(Buffer.concat([u32(1), label(use), context, u32(bits)]))
    .digest()
    .subarray(0, bits / 8);

/** One block of KDFe (section 11.4.10.3) with SHA-256. */
const kdfe = (shared: Uint8Array, use: string, parties: readonly Uint8Array[]): Buffer =>
  createHash('sha256')
    .update(Buffer.concat([u32(1), shared, label(use), ...parties]))
    .digest();

interface Seed {
  readonly seed: Uint8Array;
  readonly encrypted: Uint8Array;
}

function seedForRsa({ key }: TpmPublic): Seed {
  const seed = randomBytes(seedBytes);
  const padding = constants.RSA_PKCS1_OAEP_PADDING;
  return { seed, encrypted: publicEncrypt({ key, padding, oaepHash: 'sha256', oaepLabel: label('IDENTITY') }, seed) };
}

function seedForEcc({ key, spki }: TpmPublic): Seed {
  const ephemeral = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const coordinates = (of: Uint8Array): [Uint8Array, Uint8Array] => [of.subarray(1, 33), of.subarray(33)];
  const [x, y] = coordinates(pointOf(spkiOf(ephemeral.publicKey)));
  const [ekX] = coordinates(pointOf(spki));
  const shared = diffieHellman({ privateKey: ephemeral.privateKey, publicKey: key });
  return { seed: kdfe(shared, 'IDENTITY', [x, ekX]), encrypted: Buffer.concat([sized(x), sized(y)]) };
}

/**
 * @param ek an endorsement key that assertEndorsementKey let pass
 * @param name of the object that has to be in the same TPM
 * @throws INVALID_INPUT for a secret of more than 32 bytes, or none
 */
export function makeCredential(ek: TpmPublic, name: Uint8Array, secret: Uint8Array): TpmCredential {
  if (secret.length === 0 || secret.length > credentialSecretBytes)
    throw new ControlError('INVALID_INPUT', `a credential holds 1 to ${credentialSecretBytes} bytes, not ${secret.length}`, {
      details: { reason: 'tpm-secret' },
    });
  const { seed, encrypted } = ek.type === 'rsa' ? seedForRsa(ek) : seedForEcc(ek);
  const cipher = createCipheriv('aes-128-cfb', kdfa({ key: seed, use: 'STORAGE', context: name, bits: 128 }), Buffer.alloc(16));
  const identity = Buffer.concat([cipher.update(sized(secret)), cipher.final()]);
  const integrity = createHmac('sha256', kdfa({ key: seed, use: 'INTEGRITY', context: Buffer.alloc(0), bits: 256 }))
    .update(identity)
    .update(name)
    .digest();
  return { blob: sized(Buffer.concat([sized(integrity), identity])), encryptedSecret: sized(encrypted) };
}
