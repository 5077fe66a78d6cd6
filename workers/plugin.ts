/**
 * What every Temporal client and worker of this system shares, so that they cannot differ: the payload codec on the outside,
 * and (in the workflow bundle) the tolerant converter on the inside. Failure messages stay readable: operators see in
 * `describe` who is waited for, and no message carries a secret.
 */
import type { DataConverter } from '@temporalio/common';
import { createPayloadCodec, parseCodecKey } from './codec.ts';

export interface SharedOptions {
  readonly dataConverter: DataConverter;
}

/** @param codecKey base64 of 32 bytes; undefined: payloads stay plain, for who chose so. @throws INVALID_CONFIG */
export function sharedTemporalOptions(codecKey: string | undefined): SharedOptions {
  return { dataConverter: codecKey === undefined ? {} : { payloadCodecs: [createPayloadCodec(parseCodecKey(codecKey))] } };
}
