/**
 * The seal of a bundle's private half.
 *
 *   key        = HKDF-SHA256(secret, salt from the file, info)         (KEY-016)
 *   ciphertext = AES-256-GCM(key, payload, AAD = trust domain)         (KEY-015, KEY-017)
 *   payload    = the private keys, and SHA-256 over the public half    (KEY-018)
 *
 * What it rules out: whoever can write the file but lacks the secret cannot add a root, pin a version or swap a certificate
 * (KEY-019, KEY-020), because the digest inside no longer matches. The former form lacks the digest; it has its own info
 * text, so a seal of one form never opens as the other and nobody can relabel a current bundle to escape the check.
 *
 * What it does not do: hide the public half; protect a plaintext bundle; stop an older bundle of the same deployment from
 * being put back (services/freshness.ts does, by generation).
 */
import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import { ControlError } from '../../domain/errors.ts';
import { hkdfSha256 } from '../jose/index.ts';
import { canonicalJson, parseBase64 } from './canonical.ts';
import { invalidBundle, restoreIt } from './problems.ts';
import type { SealForm } from './types.ts';

/** Sealing with less is refused wherever a bundle is sealed; opening takes what the bundle was sealed with (A-PKI-06). */
export const minSecretLength = 32;

const algorithm = 'HKDF-SHA256+AES-256-GCM';
const saltBytes = 32;
const ivBytes = 12;
/** Stated to node on both sides: without it, a tag cut to 4 bytes would be accepted. */
const tagBytes = 16;

type SealedForm = Exclude<SealForm, 'plaintext'>;

const forms: Readonly<Record<SealedForm, { readonly info: string; readonly fields: readonly string[] }>> = Object.freeze({
  current: { info: 'better-compute-pki seal v2: private keys and digest of the public half', fields: ['privateKeys', 'publicSha256'] },
  former: { info: 'better-compute-pki seal v1: private keys', fields: ['privateKeys'] },
});

export interface SealDocument {
  readonly form: SealedForm;
  readonly algorithm: typeof algorithm;
  readonly salt: string;
  readonly iv: string;
  readonly ciphertext: string;
  readonly tag: string;
}

export interface SealedPayload {
  /** Name → base64 PKCS#8. */
  readonly privateKeys: Readonly<Record<string, string>>;
  /** null in the former form. */
  readonly publicSha256: string | null;
}

export interface SealOptions {
  readonly secret: string;
  readonly trustDomain: string;
  readonly random?: (bytes: number) => Uint8Array;
}

/** @throws MISSING_ENV when the secret is absent or shorter than 32 characters (CLI-038) */
export function assertSealingSecret(secret: string | undefined): asserts secret is string {
  if (secret !== undefined && secret.length >= minSecretLength) return;
  const found = secret === undefined || secret === '' ? 'is not set' : `has ${secret.length} characters`;
  throw new ControlError(
    'MISSING_ENV',
    `BETTER_COMPUTE_SECRET ${found}: sealing the key bundle takes at least ${minSecretLength} characters`,
    {
      details: { reason: 'secret-too-short', hint: 'set it, for example: export BETTER_COMPUTE_SECRET=$(openssl rand -base64 48)' },
    },
  );
}

/** Seals in the current form. @throws MISSING_ENV for a secret under 32 characters */
export function sealPayload(payload: { privateKeys: Record<string, string>; publicSha256: string }, options: SealOptions): SealDocument {
  assertSealingSecret(options.secret);
  return encrypt('current', payload, options);
}

function encrypt(form: SealedForm, payload: object, { secret, trustDomain, random = randomBytes }: SealOptions): SealDocument {
  const salt = random(saltBytes);
  const iv = random(ivBytes);
  const cipher = createCipheriv('aes-256-gcm', sealingKey(secret, salt, form), iv, { authTagLength: tagBytes });
  cipher.setAAD(Buffer.from(trustDomain, 'utf8'));
  const ciphertext = Buffer.concat([cipher.update(canonicalJson(payload as never), 'utf8'), cipher.final()]);
  return { form, algorithm, salt: base64(salt), iv: base64(iv), ciphertext: base64(ciphertext), tag: base64(cipher.getAuthTag()) };
}

const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64');

const sealingKey = (secret: string, salt: Uint8Array, form: SealedForm): Buffer =>
  hkdfSha256({ ikm: Buffer.from(secret, 'utf8'), salt, info: forms[form].info, size: 32 });

/** @throws INVALID_CONFIG (seal) when `value` is not a seal */
export function parseSeal(value: unknown): SealDocument {
  const fields = ['algorithm', 'ciphertext', 'form', 'iv', 'salt', 'tag'];
  if (typeof value !== 'object' || value === null || Object.keys(value).sort().join() !== fields.join())
    throw badSeal('its seal lacks a field, or has one too many');
  const seal = value as SealDocument;
  if ((seal.algorithm as string) !== algorithm) throw badSeal(`its seal must have algorithm ${algorithm}`);
  if (seal.form !== 'current' && seal.form !== 'former') throw badSeal('its seal must have form current or former');
  const sizes = { salt: saltBytes, iv: ivBytes, tag: tagBytes } as const;
  for (const name of ['salt', 'iv', 'tag'] as const) {
    if (parseBase64(seal[name])?.length !== sizes[name]) throw badSeal(`its seal's ${name} must be ${sizes[name]} bytes of base64`);
  }
  if (parseBase64(seal.ciphertext) === null) throw badSeal("its seal's ciphertext must be base64");
  return seal;
}

const badSeal = (what: string, cause?: unknown): ControlError =>
  invalidBundle(`the key bundle is not valid (${what}): ${restoreIt}`, { reason: 'seal' }, cause);

/** @throws INVALID_CONFIG (seal) when the secret is another one, or a byte of the seal or the trust domain changed */
export function unseal(seal: SealDocument, { secret, trustDomain }: { secret: string; trustDomain: string }): SealedPayload {
  const bytes = (text: string): Uint8Array => parseBase64(text) ?? new Uint8Array();
  const decipher = createDecipheriv('aes-256-gcm', sealingKey(secret, bytes(seal.salt), seal.form), bytes(seal.iv), {
    authTagLength: tagBytes,
  });
  decipher.setAAD(Buffer.from(trustDomain, 'utf8'));
  decipher.setAuthTag(bytes(seal.tag));
  let payload: unknown;
  try {
    payload = JSON.parse(Buffer.concat([decipher.update(bytes(seal.ciphertext)), decipher.final()]).toString('utf8'));
  } catch (cause) {
    throw invalidBundle(
      `the key bundle does not open: BETTER_COMPUTE_SECRET is not the one it was sealed with, or the file was changed (${restoreIt})`,
      { reason: 'seal' },
      cause,
    );
  }
  return parsePayload(payload, seal.form);
}

function parsePayload(value: unknown, form: SealedForm): SealedPayload {
  const payload = value as { privateKeys?: unknown; publicSha256?: unknown } | null;
  const names = typeof payload === 'object' && payload !== null ? Object.keys(payload).sort() : [];
  if (names.join() !== forms[form].fields.join()) throw badSeal('what its seal holds is not of its form');
  const keys = payload?.privateKeys;
  if (typeof keys !== 'object' || keys === null || !Object.values(keys).every((key) => typeof key === 'string'))
    throw badSeal('what its seal holds are not keys');
  return {
    privateKeys: keys as Record<string, string>,
    publicSha256: typeof payload?.publicSha256 === 'string' ? payload.publicSha256 : null,
  };
}

/** The former form, for fixtures and for the tests of its refusal; nothing in the product writes it. */
export const sealPayloadFormer = (payload: { privateKeys: Record<string, string> }, options: SealOptions): SealDocument =>
  encrypt('former', payload, options);
