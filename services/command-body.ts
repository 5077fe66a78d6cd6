/** The bytes that a worker key signs for a command, from what was asked and what only the moment of signing knows. */
import { create } from '@bufbuild/protobuf';
import type { Any } from '@bufbuild/protobuf/wkt';
import { CommandBodySchema, encodeMessage } from '../proto/index.ts';

/** The first command that asked for the same action, and how its target was before it; null where nobody told. */
export interface EarlierAttempt {
  readonly commandId: string;
  readonly seen: Any | null;
}

export interface BodyInput {
  readonly commandId: string;
  readonly nodeId: string;
  readonly kind: string;
  readonly payload: Any;
  /** Empty outside of a batch. */
  readonly batchId: string;
  /** Absent for a first attempt. */
  readonly earlier?: EarlierAttempt | undefined;
}

export interface BodyMoment {
  readonly trustDomain: string;
  readonly issuedAtMs: number | bigint;
  readonly generation: number | bigint;
  readonly expiresAtMs: number | bigint;
}

/** @throws ProtocolError above the bound */
export function encodeBody({ earlier, ...input }: BodyInput, { trustDomain, issuedAtMs, generation, expiresAtMs }: BodyMoment): Uint8Array {
  const message = create(CommandBodySchema, {
    ...input,
    ...(earlier === undefined
      ? {}
      : { earlier: { commandId: earlier.commandId, ...(earlier.seen === null ? {} : { seen: earlier.seen }) } }),
    trustDomain,
    issuedAtMs: BigInt(Math.floor(Number(issuedAtMs))),
    expiresAtMs: BigInt(Math.floor(Number(expiresAtMs))),
    generation: BigInt(generation),
  });
  return encodeMessage(CommandBodySchema, message, 'commandBody');
}
