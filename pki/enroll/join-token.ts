/**
 * Join tokens: what an operator hands to a machine so that it may join once (JOIN-024). Sealed to the join encryption key, so
 * only JoinService reads one; whoever sees it can use it until it is used up or expires, and nothing more.
 *
 *   token = "bcj1." base64url( ephemeral point (65) || iv (12) || ciphertext || tag (16) )
 *   key   = HKDF-SHA256(ECDH(ephemeral, recipient), salt = ephemeral point || recipient point, info)
 *   AAD   = trust domain
 *
 * Opening one proves nothing about who made it: anybody can seal to a public key. Authority is the secret inside, which the
 * tokens table knows by its hash.
 */
import { generateKeyPairSync, type KeyObject, randomBytes } from 'node:crypto';
import { ControlError } from '../../domain/errors.ts';
import { agree, gcmSizes, hkdfSha256, openGcm, pointOf, sealGcm, spkiOfPoint } from '../jose/index.ts';
import { spkiOf } from '../x509/index.ts';

export interface JoinTokenClaims {
  readonly tokenId: string;
  /** 32 bytes; the control plane stores their SHA-256 only. */
  readonly secret: Uint8Array;
  readonly siteId: string;
  readonly role: string;
  /** Binds the token to one node. */
  readonly nodeId?: string;
  /** Unix milliseconds. */
  readonly expiresAt: number;
}

const prefix = 'bcj1.';
const info = 'bettercompute.v1/join-token';
const pointBytes = 65;
const ivBytes = gcmSizes.iv;
const tagBytes = gcmSizes.tag;
export const joinSecretBytes = 32;
const maxTokenLength = 4096;

/**
 * @param publicKey SPKI of the join encryption key
 * @throws INVALID_INPUT when a claim is empty or the secret is not 32 bytes
 */
export function sealJoinToken(publicKey: Uint8Array, claims: JoinTokenClaims, { trustDomain }: { trustDomain: string }): string {
  const payload = encodeClaims(claims);
  const recipient = pointOf(publicKey);
  const ephemeral = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const point = pointOf(spkiOf(ephemeral.publicKey));
  const key = sealingKey({ secret: agree(ephemeral.privateKey, publicKey), salt: Buffer.concat([point, recipient]) });
  const iv = randomBytes(ivBytes);
  const { ciphertext, tag } = sealGcm({ key, iv, aad: Buffer.from(trustDomain, 'utf8') }, payload);
  return prefix + Buffer.concat([point, iv, ciphertext, tag]).toString('base64url');
}

/**
 * @throws MALFORMED when the text is no token; UNAUTHENTICATED (`join-token`) when it was sealed to another key or for
 *   another trust domain, or was changed
 */
export function openJoinToken(privateKey: KeyObject, text: string, { trustDomain }: { trustDomain: string }): JoinTokenClaims {
  const sealed = parseToken(text);
  const point = sealed.subarray(0, pointBytes);
  const iv = sealed.subarray(pointBytes, pointBytes + ivBytes);
  const ciphertext = sealed.subarray(pointBytes + ivBytes, -tagBytes);
  const salt = Buffer.concat([point, pointOf(spkiOf(privateKey))]);
  const key = sealingKey({ secret: agree(privateKey, spkiOfEphemeral(point)), salt });
  let payload: Buffer;
  try {
    payload = openGcm({ key, iv, aad: Buffer.from(trustDomain, 'utf8'), ciphertext, tag: sealed.subarray(-tagBytes) });
  } catch (cause) {
    throw new ControlError('UNAUTHENTICATED', 'the join token was not made for this deployment, or was changed', {
      cause,
      details: { reason: 'join-token' },
    });
  }
  return decodeClaims(payload);
}

function spkiOfEphemeral(point: Uint8Array): Uint8Array {
  try {
    return spkiOfPoint(point, 'ephemeral');
  } catch (cause) {
    throw malformed('its ephemeral key is not on P-256', cause);
  }
}

const sealingKey = ({ secret, salt }: { secret: Uint8Array; salt: Uint8Array }): Buffer =>
  hkdfSha256({ ikm: secret, salt, info, size: 32 });

function parseToken(text: string): Buffer {
  if (text.length > maxTokenLength || !text.startsWith(prefix))
    throw malformed(`it must start with ${prefix} and have at most ${maxTokenLength} characters`);
  const encoded = text.slice(prefix.length);
  const sealed = Buffer.from(encoded, 'base64url');
  // A blank or a padding sign that decoding would skip makes a second text for one token.
  if (sealed.toString('base64url') !== encoded) throw malformed('it is not base64url');
  if (sealed.length <= pointBytes + ivBytes + tagBytes) throw malformed('it is too short');
  return sealed;
}

function encodeClaims({ tokenId, secret, siteId, role, nodeId, expiresAt }: JoinTokenClaims): Buffer {
  if (secret.length !== joinSecretBytes)
    throw new ControlError('INVALID_INPUT', `a join token's secret has ${secret.length} bytes, not ${joinSecretBytes}`, {
      details: { reason: 'join-secret' },
    });
  const claims = {
    tokenId,
    secret: Buffer.from(secret).toString('base64url'),
    siteId,
    role,
    ...(nodeId === undefined ? {} : { nodeId }),
    expiresAt,
  };
  const payload = Buffer.from(JSON.stringify(claims), 'utf8');
  decodeClaims(payload);
  return payload;
}

function decodeClaims(payload: Buffer): JoinTokenClaims {
  const claims = parseObject(payload);
  const { tokenId, secret, siteId, role, nodeId, expiresAt, ...unknown } = claims;
  const bytes = Buffer.from(String(secret), 'base64url');
  const texts = [tokenId, siteId, role, ...(nodeId === undefined ? [] : [nodeId])];
  const good =
    texts.every((value) => typeof value === 'string' && value !== '') &&
    bytes.length === joinSecretBytes &&
    bytes.toString('base64url') === secret &&
    Number.isSafeInteger(expiresAt) &&
    Object.keys(unknown).length === 0;
  if (!good) throw malformed('what it holds are not the claims of a join token');
  return {
    tokenId: tokenId as string,
    secret: new Uint8Array(bytes),
    siteId: siteId as string,
    role: role as string,
    ...(nodeId === undefined ? {} : { nodeId: nodeId as string }),
    expiresAt: expiresAt as number,
  };
}

function parseObject(payload: Buffer): Record<'tokenId' | 'secret' | 'siteId' | 'role' | 'nodeId' | 'expiresAt', unknown> {
  try {
    const value: unknown = JSON.parse(payload.toString('utf8'));
    if (typeof value === 'object' && value !== null) return value as ReturnType<typeof parseObject>;
  } catch {
    // Falls through to the one refusal.
  }
  throw malformed('what it holds is not JSON');
}

const malformed = (what: string, cause?: unknown): ControlError =>
  new ControlError('MALFORMED', `the join token is not one: ${what}`, {
    details: { reason: 'join-token' },
    ...(cause === undefined ? {} : { cause }),
  });
