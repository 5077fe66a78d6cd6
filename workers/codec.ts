/**
 * The payload codec: what workflows and activities say to each other is encrypted before it reaches the Temporal server.
 *
 *   payload = { encoding: binary/encrypted, bc-cipher: A256GCM/1 } · nonce (12) ‖ ciphertext ‖ tag (16)
 *   plaintext = the whole original payload (proto bytes), so its own encoding is hidden too
 *
 * Invariants: every other encoding passes through, because operators send plain JSON from the UI and the CLI; decoding never throws: what
 * cannot be opened becomes a payload of encoding binary/undecodable, which the workflow's converter turns into a value that
 * every handler refuses. A thrown decode would fail the workflow task for ever.
 *
 * Threat model: whoever reads the server or its database. Not: whoever can write to the namespace (signatures are the
 * authority there), and not the names, ids and search attributes, which are never encrypted. No secret value enters a payload
 * in the first place.
 */
import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import { METADATA_ENCODING_KEY, type Payload, type PayloadCodec } from '@temporalio/common';
import proto from '@temporalio/proto';
import { ControlError } from '../domain/errors.ts';

const PayloadMessage = proto.temporal.api.common.v1.Payload;
const text = new TextEncoder();
const encryptedEncoding = 'binary/encrypted';
const undecodableEncoding = 'binary/undecodable';
const cipherKey = 'bc-cipher';
const cipherName = 'A256GCM/1';
const nonceBytes = 12;
const tagBytes = 16;
/** Binds a ciphertext to its use: it opens nowhere else. */
const associated = text.encode(`better-compute temporal payload ${cipherName}`);

/** @throws ControlError INVALID_CONFIG unless the text is base64 of exactly 32 bytes */
export function parseCodecKey(base64: string): Uint8Array {
  const key = Buffer.from(base64, 'base64');
  if (key.length === 32 && key.toString('base64') === base64) return key;
  throw new ControlError('INVALID_CONFIG', 'BETTER_COMPUTE_CODEC_KEY is not base64 of 32 bytes', { details: { reason: 'codec-key' } });
}

/** @param random a source of nonces; tests give their own */
export function createPayloadCodec(key: Uint8Array, random: (size: number) => Uint8Array = randomBytes): PayloadCodec {
  return {
    encode: async (payloads) => payloads.map((payload) => encrypt(key, random(nonceBytes), payload)),
    decode: async (payloads) => payloads.map((payload) => (encodingOf(payload) === encryptedEncoding ? decrypt(key, payload) : payload)),
  };
}

function encrypt(key: Uint8Array, nonce: Uint8Array, payload: Payload): Payload {
  const cipher = createCipheriv('aes-256-gcm', key, nonce, { authTagLength: tagBytes });
  cipher.setAAD(associated);
  const sealed = Buffer.concat([nonce, cipher.update(PayloadMessage.encode(payload).finish()), cipher.final(), cipher.getAuthTag()]);
  return { metadata: { [METADATA_ENCODING_KEY]: text.encode(encryptedEncoding), [cipherKey]: text.encode(cipherName) }, data: sealed };
}

function decrypt(key: Uint8Array, payload: Payload): Payload {
  try {
    const cipher = textOf(payload.metadata?.[cipherKey]);
    if (cipher !== cipherName) return undecodable(`cipher ${cipher.slice(0, 40)} is not known`);
    const data = payload.data ?? new Uint8Array(0);
    if (data.length < nonceBytes + tagBytes) return undecodable('too short');
    const decipher = createDecipheriv('aes-256-gcm', key, data.subarray(0, nonceBytes), { authTagLength: tagBytes });
    decipher.setAAD(associated);
    decipher.setAuthTag(data.subarray(data.length - tagBytes));
    const opened = Buffer.concat([decipher.update(data.subarray(nonceBytes, data.length - tagBytes)), decipher.final()]);
    const { metadata, data: inner } = PayloadMessage.decode(opened);
    return { metadata: { ...metadata }, data: inner };
  } catch {
    return undecodable('not encrypted with this key');
  }
}

const undecodable = (why: string): Payload => ({
  metadata: { [METADATA_ENCODING_KEY]: text.encode(undecodableEncoding), why: text.encode(why) },
  data: new Uint8Array(0),
});

const encodingOf = (payload: Payload): string => textOf(payload.metadata?.[METADATA_ENCODING_KEY]);
const textOf = (bytes: Uint8Array | null | undefined): string => (bytes ? new TextDecoder().decode(bytes) : '');
