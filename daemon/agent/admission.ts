/**
 * May this command run here, now? One pure function; the daemon, the fleet simulator and the tests call the same one. It decides
 * and changes nothing: the caller journals what was accepted.
 *
 * Threat model: the gateway and everything between it and the signing worker may forge, change, replay, delay, reorder and
 * redirect commands. Nothing outside the signed body says what runs; seq and epoch are routing and can only lead to a refusal.
 *
 * The order: size → decode → known already → signature under a held root → trust domain → node → generation → expiry by server time →
 * kind → role → payload → journal → epoch → quorum. "Known already" stands first, because a body that was accepted once gives no authority by
 * coming again: its answer is owed even when its signer or its time has run out since, and a refusal now would contradict
 * the run that is under way. It starts nothing. The quorum stands last: nothing of an approval is looked at, let alone used up, for a
 * command that would be refused anyway (DMN-021, DMN-032).
 */
import { createHash } from 'node:crypto';
import { type DescMessage, fromBinary, type Message } from '@bufbuild/protobuf';
import { subjectByRule } from '../../domain/batch/subjects.ts';
import { harmOf } from '../../domain/commands/harm.ts';
import { isCommandId, maxCommandIdLength } from '../../domain/commands/ids.ts';
import { type CommandKindSpec, findCommandKind, type NodeRole } from '../../domain/commands/kinds.ts';
import { ControlError } from '../../domain/errors.ts';
import { about } from '../../domain/rotation/gates.ts';
import { showInstant } from '../../domain/time.ts';
import { batchSubject } from '../../pki/quorum/index.ts';
import {
  bounds,
  type Command,
  type CommandBody,
  CommandBodySchema,
  CommandRejectReason,
  decodeMessage,
  type EarlierAttempt,
  protocolRegistry,
} from '../../proto/index.ts';
import type { QuorumClaim } from '../quorum/claims.ts';
import type { JudgedCommand, QuorumVerdict } from '../quorum/judge.ts';

export interface AdmissionState {
  readonly nodeId: string;
  readonly trustDomain: string;
  readonly generation: bigint;
  readonly role: NodeRole;
  /** Highest session epoch this daemon has seen. */
  readonly epoch: bigint;
  /** Welcomed below the gateway's minimum: nothing but daemon.upgrade (SKEW-015). */
  readonly upgradeRequired: boolean;
  /** Digest of the body under which this id was accepted. */
  readonly findDigest: (id: string) => string | undefined;
  /** Proves that a signer under a held root made the body; throws BAD_SIGNATURE with details.reason (pki verifyIntent). */
  readonly verify: (signed: Pick<Command, 'body' | 'signature'>, now: number) => void;
  /** Whether the approvers' word, where it takes one, covers the command (quorum/judge.ts). */
  readonly judgeQuorum: (command: JudgedCommand, now: number) => QuorumVerdict;
}

export interface AdmittedCommand {
  readonly id: string;
  readonly kind: string;
  readonly spec: CommandKindSpec;
  /** Lower-case hex of SHA-256 over the received body. */
  readonly digest: string;
  readonly seq: bigint;
  readonly issuedAtMs: number;
  readonly expiresAtMs: number;
  readonly body: Uint8Array;
  readonly payload: Message;
  /** What it acts on; null: its payload names nothing (only of a kind that does no harm). */
  readonly subject: string | null;
  /** What it uses up of a quorum once it is accepted; null: nothing. */
  readonly claim: QuorumClaim | null;
}

export type Admission =
  | { readonly kind: 'accept'; readonly command: AdmittedCommand }
  | { readonly kind: 'duplicate'; readonly id: string; readonly digest: string }
  /** id: empty where the body names none that can be used; the delivery's log position then says which command it was. */
  | { readonly kind: 'reject'; readonly id: string; readonly seq: bigint; readonly reason: CommandRejectReason; readonly detail: string };

const R = CommandRejectReason;

/** Carries the first refusal out of the list of checks. */
class Refusal extends Error {
  readonly reason: CommandRejectReason;
  constructor(reason: CommandRejectReason, detail: string) {
    super(detail);
    this.reason = reason;
  }
}

const refuse = (reason: CommandRejectReason, detail: string): never => {
  throw new Refusal(reason, detail);
};

/** @param now server time, Unix milliseconds */
export function admitCommand(state: AdmissionState, command: Command, now: number): Admission {
  let id = '';
  try {
    const body = decodeBody(command.body);
    id = knownId(body);
    const digest = createHash('sha256').update(command.body).digest('hex');
    if (state.findDigest(id) === digest) {
      assertEpoch(state, command);
      return { kind: 'duplicate', id, digest };
    }
    assertSigned(state, command, now);
    assertTrustDomain(state, body);
    assertNode(state, body);
    assertGeneration(state, body);
    assertInTime(body, now);
    const spec = getKind(state, body);
    assertRole(state, { body, spec });
    const payload = decodePayload(body, spec);
    assertNoOtherBody(state, id);
    assertEpoch(state, command);
    const claim = claimOf(state, { command, body, digest, payload }, now);
    const subject = findSubject(body, { spec, payload });
    const times = { issuedAtMs: Number(body.issuedAtMs), expiresAtMs: Number(body.expiresAtMs) };
    return {
      kind: 'accept',
      command: { id, kind: body.kind, spec, digest, seq: command.seq, ...times, body: command.body, payload, subject, claim },
    };
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    return { kind: 'reject', id, seq: command.seq, reason: error.reason, detail: error.message };
  }
}

export interface AdmittedPayload {
  readonly spec: CommandKindSpec;
  readonly payload: Message;
  readonly kind: string;
  /** As of the admitted command. */
  readonly subject: string | null;
  readonly earlier: EarlierAttempt | undefined;
}

/** Decodes a body that was admitted before; it comes from the journal. @throws DATA_CORRUPT when it does not decode */
export function readAdmittedPayload(bytes: Uint8Array): AdmittedPayload {
  try {
    const body = decodeMessage(CommandBodySchema, bytes, 'commandBody');
    const spec = findCommandKind(body.kind) ?? refuse(R.UNSUPPORTED, `this daemon has no kind "${body.kind}" any more`);
    const payload = decodePayload(body, spec);
    return { spec, payload, kind: body.kind, subject: findSubject(body, { spec, payload }), earlier: body.earlier };
  } catch (cause) {
    throw new ControlError('DATA_CORRUPT', 'a journaled command does not decode', { cause, details: { reason: 'journal-body' } });
  }
}

/** The bound comes first: nothing is decoded, hashed or verified that is larger. */
function decodeBody(bytes: Uint8Array): CommandBody {
  if (bytes.length > bounds.commandBody) return refuse(R.MALFORMED, `the body has ${bytes.length} bytes, more than ${bounds.commandBody}`);
  try {
    return decodeMessage(CommandBodySchema, bytes, 'commandBody');
  } catch {
    return refuse(R.MALFORMED, 'the body does not decode');
  }
}

function knownId(body: CommandBody): string {
  return isCommandId(body.commandId)
    ? body.commandId
    : refuse(R.MALFORMED, `the command id is not 1 to ${maxCommandIdLength} printable characters`);
}

const signatureReasons: Readonly<Record<string, CommandRejectReason>> = Object.freeze({
  unsigned: R.UNSIGNED,
  'unknown-root': R.UNKNOWN_ROOT,
  'signer-expired': R.SIGNER_EXPIRED,
});

/** SIGN-005, SIGN-010, SIGN-011, SIGN-017: a worker certificate under a root that this daemon holds, whatever the kind. */
function assertSigned(state: AdmissionState, command: Command, now: number): void {
  try {
    state.verify(command, now);
  } catch (error) {
    if (!(error instanceof ControlError)) throw error;
    const { reason } = error.details;
    const known = typeof reason === 'string' && Object.hasOwn(signatureReasons, reason) ? signatureReasons[reason] : undefined;
    refuse(known ?? R.BAD_SIGNATURE, error.message);
  }
}

/** A command of another deployment whose root this daemon happens to hold. */
function assertTrustDomain(state: AdmissionState, body: CommandBody): void {
  if (body.trustDomain !== state.trustDomain)
    refuse(R.WRONG_TRUST_DOMAIN, `the command is for trust domain ${shown(body.trustDomain)}, this node is in ${state.trustDomain}`);
}

/** A gateway that sends one node's command to another. */
function assertNode(state: AdmissionState, body: CommandBody): void {
  if (body.nodeId !== state.nodeId) refuse(R.WRONG_NODE, `the command is for node ${shown(body.nodeId)}, this is ${state.nodeId}`);
}

/** A command meant for an identity that was replaced. */
function assertGeneration(state: AdmissionState, body: CommandBody): void {
  if (body.generation !== state.generation)
    refuse(R.WRONG_GENERATION, `the command is for generation ${body.generation} of this node, which is at ${state.generation}`);
}

function assertInTime(body: CommandBody, now: number): void {
  const expiresAtMs = Number(body.expiresAtMs);
  // An instant no clock reaches is a mistake of the signer's; the journal would keep it for ever.
  if (!Number.isSafeInteger(expiresAtMs) || !isInstant(expiresAtMs)) refuse(R.MALFORMED, 'expires_at_ms is not an instant');
  if (now > expiresAtMs)
    refuse(R.EXPIRED, `the command expired at ${showInstant(expiresAtMs)}, ${about(now - expiresAtMs)} ago by server time`);
}

const isInstant = (ms: number): boolean => !Number.isNaN(new Date(ms).getTime());

function getKind(state: AdmissionState, body: CommandBody): CommandKindSpec {
  if (state.upgradeRequired && body.kind !== 'daemon.upgrade') {
    return refuse(R.UNSUPPORTED, 'the gateway no longer speaks this daemon’s protocol: only daemon.upgrade runs');
  }
  return findCommandKind(body.kind) ?? refuse(R.UNSUPPORTED, `this daemon has no kind ${shown(body.kind)}`);
}

function assertRole(state: AdmissionState, { body, spec }: { body: CommandBody; spec: CommandKindSpec }): void {
  if (!spec.roles.includes(state.role))
    refuse(R.WRONG_ROLE, `${body.kind} runs on role ${spec.roles.join(' or ')}, this is a ${state.role}`);
}

const typePrefix = 'type.googleapis.com/';

function decodePayload(body: CommandBody, spec: CommandKindSpec): Message {
  const { payload } = body;
  if (payload === undefined) return refuse(R.INVALID_PAYLOAD, `${body.kind} has no payload`);
  if (payload.typeUrl !== typePrefix + spec.payload)
    return refuse(R.INVALID_PAYLOAD, `${body.kind} takes ${spec.payload}, not ${shown(payload.typeUrl)}`);
  try {
    return fromBinary(payloadSchema(spec), payload.value);
  } catch {
    return refuse(R.INVALID_PAYLOAD, `the payload of ${body.kind} does not decode as ${spec.payload}`);
  }
}

function payloadSchema(spec: CommandKindSpec): DescMessage {
  const schema = protocolRegistry.getMessage(spec.payload);
  if (schema === undefined) throw new ControlError('INTERNAL', `the protocol has no message ${spec.payload}`);
  return schema;
}

/** The same id with another body: one of the two is not what the operator approved. */
function assertNoOtherBody(state: AdmissionState, id: string): void {
  if (state.findDigest(id) !== undefined) refuse(R.REPLAY_MISMATCH, `command ${id} was accepted before with another body`);
}

/** A gateway whose session was taken over goes on sending (B52). */
function assertEpoch(state: AdmissionState, command: Command): void {
  if (command.epoch < state.epoch)
    refuse(R.STALE_EPOCH, `the delivery is of session epoch ${command.epoch}, this daemon has seen ${state.epoch}`);
}

interface Decoded {
  readonly command: Command;
  readonly body: CommandBody;
  readonly digest: string;
  readonly payload: Message;
}

function claimOf(state: AdmissionState, { command, body, digest, payload }: Decoded, now: number): QuorumClaim | null {
  const { commandId, kind, batchId } = body;
  const harm = harmOf(kind, payload);
  if (harm === 'none') return null;
  const subject = subjectOf(body, payload);
  const payloadSha256 = createHash('sha256')
    .update(body.payload?.value ?? new Uint8Array())
    .digest();
  const { batchApproval: approval, batchProof: proof } = command;
  const verdict = state.judgeQuorum({ commandId, digest, kind, harm, subject, payloadSha256, batchId, approval, proof }, now);
  switch (verdict.kind) {
    case 'free':
      return null;
    case 'claim':
      return verdict.claim;
    case 'refuse':
      return refuse(verdict.reject, verdict.detail);
  }
}

const findSubject = ({ nodeId }: CommandBody, { spec, payload }: { spec: CommandKindSpec; payload: Message }): string | null =>
  subjectByRule(spec.subject, { nodeId, payload });

/** QUO-027: from the signed body alone. */
function subjectOf({ nodeId, kind }: CommandBody, payload: Message): string {
  try {
    return batchSubject({ nodeId, kind, payload });
  } catch (error) {
    if (!(error instanceof ControlError)) throw error;
    return refuse(R.INVALID_PAYLOAD, error.message);
  }
}

/** What a peer sent, made short and printable for a message. */
const shown = (text: string): string => `"${text.replace(/[^\x20-\x7e]/g, '?').slice(0, 80)}"`;
