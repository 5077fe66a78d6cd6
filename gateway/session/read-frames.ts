/**
 * From frames of a daemon to rows for the database: every value a peer chose is bounded here, once, so that no frame can
 * spoil the batch it is stored with (a NUL in a text, an instant out of range, a number above 2^53).
 */
import { toBinary } from '@bufbuild/protobuf';
import { AnySchema } from '@bufbuild/protobuf/wkt';
import { isCommandId } from '../../domain/commands/ids.ts';
import type { ReportedSections } from '../../drizzle/queries/session-touch.ts';
import {
  bounds,
  type CommandAck,
  CommandOutcome,
  type CommandProgress,
  type CommandReject,
  CommandRejectReason,
  type CommandResult,
  type Hello,
  SectionState,
  type StatusReport,
} from '../../proto/index.ts';
import { refusal } from '../grpc/refusals.ts';
import type { CommandAckRow, CommandProgressRow, CommandRejectRow, CommandResultRow } from './store.ts';

/** Whose session the frame came on. */
export interface SessionKey {
  readonly nodeId: string;
  readonly epoch: number;
}

const longestText = 4_096;
/** The last instant a timestamp column and a Date both hold, roughly the year 9999. */
const lastInstant = 253_402_300_799_000;

const bad = (what: string): Error => refusal('undecodable-frame', { message: `${what} is not what the protocol says` });

/** Control characters except tab and line feed are dropped: PostgreSQL refuses NUL, and nobody needs the rest. */
const controls = /[\u0000-\u0008\u000b-\u001f\u007f\ud800-\udfff]/gu;

const text = (value: string, longest = longestText): string => value.slice(0, longest).replace(controls, '');

function commandId(value: string): string {
  if (!isCommandId(value)) throw bad('a command id');
  return value;
}

function count(value: bigint, what: string): number {
  if (value > BigInt(Number.MAX_SAFE_INTEGER)) throw bad(what);
  return Number(value);
}

/** 0 is "not said"; what no calendar holds is not said either. */
function instant(value: bigint): number | null {
  return value === 0n || value > BigInt(lastInstant) ? null : Number(value);
}

export const ackRow = ({ nodeId, epoch }: SessionKey, ack: CommandAck): CommandAckRow => ({
  nodeId,
  epoch,
  commandId: commandId(ack.commandId),
  seq: count(ack.seq, 'the position of an ack'),
});

/** BAD_SIGNATURE → bad-signature; a reason this version does not know keeps its number. */
export function rejectReasonName(reason: CommandRejectReason): string {
  const name: string | undefined = CommandRejectReason[reason];
  return name === undefined ? `reason-${reason}` : name.toLowerCase().replaceAll('_', '-');
}

/**
 * A daemon that cannot read a command cannot name it either: it rejects the position in its log. Without one that is usable
 * there is nothing to settle, and still nothing to end a session for.
 */
export const rejectRow = ({ nodeId, epoch }: SessionKey, reject: CommandReject): CommandRejectRow => ({
  nodeId,
  epoch,
  commandId: isCommandId(reject.commandId) ? reject.commandId : '',
  seq: reject.seq > BigInt(Number.MAX_SAFE_INTEGER) ? 0 : Number(reject.seq),
  reason: rejectReasonName(reject.reason),
  detail: text(reject.detail),
});

/** What a count cannot hold is as much as it can: how far a command is ends no session. */
const atMost = (value: bigint): number => (value > BigInt(Number.MAX_SAFE_INTEGER) ? Number.MAX_SAFE_INTEGER : Number(value));

const longestNote = 256;

export const progressRow = ({ nodeId, epoch }: SessionKey, progress: CommandProgress): CommandProgressRow => ({
  nodeId,
  epoch,
  commandId: commandId(progress.commandId),
  done: atMost(progress.done),
  total: atMost(progress.total),
  note: text(progress.note, longestNote),
});

/** An end this version does not know is a failure. */
const isOutcome = (outcome: CommandOutcome): boolean => outcome !== CommandOutcome.UNSPECIFIED && CommandOutcome[outcome] !== undefined;

export function resultRow({ nodeId, epoch }: SessionKey, result: CommandResult): CommandResultRow {
  const payload = result.payload === undefined ? null : toBinary(AnySchema, result.payload);
  if (payload !== null && payload.length > bounds.commandResultPayload) {
    throw refusal('frame-too-large', {
      message: `a result of ${payload.length} bytes exceeds the bound of ${bounds.commandResultPayload}`,
    });
  }
  if (result.bodySha256.length !== 32) throw bad('the body digest of a result');
  return {
    nodeId,
    epoch,
    commandId: commandId(result.commandId),
    outcome: isOutcome(result.outcome) ? result.outcome : CommandOutcome.FAILED,
    payload,
    errorCode: text(result.errorCode, 128),
    errorMessage: text(result.errorMessage),
    startedAt: instant(result.startedAtMs),
    finishedAt: instant(result.finishedAtMs),
    bodySha256: result.bodySha256,
  };
}

/** What Hello says, bounded. */
export interface HelloFacts {
  readonly protocol: { readonly min: number; readonly max: number };
  readonly daemonVersion: string;
  readonly capabilities: readonly string[];
  /** null when the daemon reports none (SKEW-025). */
  readonly trustVersion: number | null;
  readonly bootId: string;
  readonly specGeneration: number;
  /** The highest epoch it has taken; 0 for none. */
  readonly epochSeen: number;
  readonly approverSetEpoch: number | null;
  readonly approverSetSha256: Uint8Array | null;
}

const mostCapabilities = 128;
/** Far below the last number that counts exactly: a daemon that claims it can still be given the next epochs. */
const highestEpochSeen = 2n ** 52n - 1n;

export function readHello(hello: Hello): HelloFacts {
  const capabilities = [...new Set(hello.capabilities)];
  if (capabilities.length > mostCapabilities || !capabilities.every((name) => /^[a-z0-9][A-Za-z0-9.-]{0,62}$/.test(name)))
    throw bad('a capability');
  return {
    protocol: { min: hello.protoMin, max: hello.protoMax },
    daemonVersion: text(hello.daemonVersion, 64),
    capabilities,
    trustVersion: hello.trustVersion === 0n ? null : count(hello.trustVersion, 'the trust version'),
    bootId: text(hello.bootId, 64),
    specGeneration: count(hello.specGeneration, 'the spec generation'),
    epochSeen: hello.epochSeen < highestEpochSeen ? Number(hello.epochSeen) : Number(highestEpochSeen),
    ...approverSet(hello),
  };
}

/** The digest of an approver set and its epoch travel together or not at all. */
export function approverSet({
  approverSetEpoch,
  approverSetSha256,
}: {
  readonly approverSetEpoch: bigint;
  readonly approverSetSha256: Uint8Array;
}): {
  readonly approverSetEpoch: number | null;
  readonly approverSetSha256: Uint8Array | null;
} {
  if (approverSetSha256.length !== 32) return { approverSetEpoch: null, approverSetSha256: null };
  return { approverSetEpoch: count(approverSetEpoch, 'the approver set epoch'), approverSetSha256 };
}

/** More than a NodeSpec will have; a daemon that reports more is not believed further. */
const mostSections = 32;

/** What is not applied of the desired state; a state that this version does not know counts as failed. */
export function sectionsOf({ specGeneration, sections }: StatusReport): ReportedSections {
  const faults = sections.slice(0, mostSections).filter(({ state }) => state !== SectionState.APPLIED);
  return {
    generation: count(specGeneration, 'the spec generation'),
    faults: faults.map(({ section, state, detail }) => ({
      section: text(section, 64),
      state: state === SectionState.UNSUPPORTED ? ('unsupported' as const) : ('failed' as const),
      detail: text(detail, longestNote),
    })),
  };
}

export { count as safeCount, text as safeText };
