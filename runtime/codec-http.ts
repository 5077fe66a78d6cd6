/**
 * The codec endpoint beside the api: `POST /codec/encode` and `/codec/decode` with `{payloads: […]}` as proto JSON, for the
 * Temporal UI (`--ui-codec-endpoint`) and CLI (`--codec-endpoint`). It decrypts for whoever asks: the api puts its bearer check
 * before it.
 */
import type { Payload, PayloadCodec } from '@temporalio/common';
import { type JSONPayload, JSONToPayload, payloadToJSON } from '@temporalio/common/lib/proto-utils.js';
import { ControlError } from '../domain/errors.ts';

export type CodecDirection = 'encode' | 'decode';

export interface CodecHandlers {
  /** @throws ControlError INVALID_INPUT when the body is not payloads; a body without any is answered with none */
  handle(direction: CodecDirection, body: unknown): Promise<{ payloads: unknown[] }>;
}

/** More in one request than the UI or CLI ever send. */
const maxPayloads = 1_000;

export function createCodecHandlers(codec: PayloadCodec): CodecHandlers {
  return {
    async handle(direction, body) {
      const payloads = readPayloads(body);
      const result = direction === 'encode' ? await codec.encode(payloads) : await codec.decode(payloads);
      return { payloads: result.map((payload) => payloadToJSON(payload)) };
    },
  };
}

function readPayloads(body: unknown): Payload[] {
  if (body === undefined || body === null) return [];
  if (typeof body !== 'object' || Array.isArray(body)) throw refuse('expected {"payloads": […]}');
  const list = (body as Record<string, unknown>)['payloads'] ?? [];
  if (!Array.isArray(list)) throw refuse('payloads is not a list');
  if (list.length > maxPayloads) throw refuse(`${list.length} payloads, at most ${maxPayloads}`);
  return list.map(readPayload);
}

function readPayload(item: unknown, at: number): Payload {
  try {
    return JSONToPayload(item as JSONPayload);
  } catch (cause) {
    throw refuse(`payload ${at} is not proto JSON`, cause);
  }
}

const refuse = (message: string, cause?: unknown): ControlError =>
  new ControlError('INVALID_INPUT', `codec request: ${message}`, {
    details: { reason: 'bad-payloads' },
    ...(cause === undefined ? {} : { cause }),
  });
