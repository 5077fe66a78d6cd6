/** The bytes that a worker key signs for a command, from what was asked and what only the moment of signing knows. */
import { create } from '@bufbuild/protobuf';
import type { Any } from '@bufbuild/protobuf/wkt';
import { CommandBodySchema, encodeMessage } from '../proto/index.ts';

export interface BodyInput {
  readonly commandId: string;
  readonly nodeId: string;
  readonly kind: string;
  readonly payload: Any;
  /** Empty outside of a batch. */
  readonly batchId: string;
}

export interface BodyMoment {
  readonly trustDomain: string;
  readonly issuedAtMs: number | bigint;
  readonly generation: number | bigint;
  readonly expiresAtMs: number | bigint;
}

/** @throws ProtocolError above the bound */
export function encodeBody(input: BodyInput, { trustDomain, issuedAtMs, generation, expiresAtMs }: BodyMoment): Uint8Array {
  const message = create(CommandBodySchema, {
    ...input,
    trustDomain,
    issuedAtMs: BigInt(Math.floor(Number(issuedAtMs))),
    expiresAtMs: BigInt(Math.floor(Number(expiresAtMs))),
    generation: BigInt(generation),
  });
  return encodeMessage(CommandBodySchema, message, 'commandBody');
}
