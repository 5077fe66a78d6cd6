/** What a caller lists, judged leaf by leaf before anything is hashed or stored (QUO-016 to QUO-026, BAT-043). */
import { createHash } from 'node:crypto';
import { fromBinary } from '@bufbuild/protobuf';
import { maxBatchPayloads, maxLeafPayload, maxLeaves } from '../../domain/batch/limits.ts';
import { machineOfSubject, parseSubject, type Subject } from '../../domain/batch/subjects.ts';
import { type CommandKindSpec, findCommandKind } from '../../domain/commands/kinds.ts';
import { ControlError } from '../../domain/errors.ts';
import type { ScopeLeaf } from '../../pki/quorum/index.ts';
import { protocolRegistry } from '../../proto/index.ts';
import type { LeafInput, LeafPayload } from './types.ts';

export interface JudgedLeaf extends ScopeLeaf {
  readonly payload: LeafPayload | null;
  /** The machine that must be the tenant's. */
  readonly machine: string;
}

const typePrefix = 'type.googleapis.com/';
const sha256 = (bytes: Uint8Array): Buffer => createHash('sha256').update(bytes).digest();

/** Which leaf, in words that cannot deceive. */
const at = (index: number): string => `leaf ${index + 1}`;
const shown = (text: string): string =>
  JSON.stringify(text.slice(0, 80)).replaceAll(/[^\x20-\x7e]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);

const bad = (reason: string, message: string, details: Readonly<Record<string, unknown>> = {}): ControlError<'INVALID_INPUT'> =>
  new ControlError('INVALID_INPUT', message, { details: { reason, ...details } });

/**
 * Every leaf, judged. `duplicates`: what to do with one that is listed twice: a request that does is refused, for whoever lists it
 * twice expects two runs; a module's scope collapses it (QUO-006).
 *
 * @throws INVALID_INPUT naming the leaf: empty-scope, too-many-leaves, bad-subject, subject-form, unknown-kind, payload-type,
 *   payload-too-large, payloads-too-large, payload-malformed, payload-digest, duplicate-leaf
 */
export function judgeLeaves(scope: readonly LeafInput[], duplicates: 'refuse' | 'collapse'): JudgedLeaf[] {
  if (scope.length === 0) throw bad('empty-scope', 'the scope is empty: a batch has at least one leaf');
  if (scope.length > maxLeaves)
    throw bad('too-many-leaves', `the scope has ${scope.length} leaves, at most ${maxLeaves} fit into a batch: split it`);
  assertPayloadSizes(scope);
  const places = new Map<string, number>();
  const judged: JudgedLeaf[] = [];
  for (const [index, leaf] of scope.entries()) {
    const one = judgeLeaf(leaf, index);
    const key = `${one.subject}\0${one.kind}\0${Buffer.from(one.payloadSha256).toString('latin1')}`;
    const before = places.get(key);
    if (before === undefined) judged.push(one);
    else if (duplicates === 'refuse') {
      throw bad('duplicate-leaf', `${at(index)} (${one.kind} on ${one.subject}) is ${at(before)} again: each leaf runs once`, {
        leaf: index,
        first: before,
      });
    }
    places.set(key, before ?? index);
  }
  return judged;
}

function assertPayloadSizes(scope: readonly LeafInput[]): void {
  let total = 0;
  for (const [index, { payload }] of scope.entries()) {
    const bytes = payload?.value.length ?? 0;
    total += bytes;
    if (bytes > maxLeafPayload)
      throw bad('payload-too-large', `the payload of ${at(index)} has ${bytes} bytes, at most ${maxLeafPayload} are allowed`, {
        leaf: index,
      });
    if (total > maxBatchPayloads) {
      throw bad(
        'payloads-too-large',
        `the payloads have more than ${maxBatchPayloads} bytes together, from ${at(index)} on: split the batch`,
        {
          leaf: index,
        },
      );
    }
  }
}

function judgeLeaf(leaf: LeafInput, index: number): JudgedLeaf {
  const { subject: text, kind } = leaf;
  const subject = parseSubject(text);
  if (subject === null) {
    throw bad('bad-subject', `${at(index)}: ${shown(text)} is no subject: give a node id, bmc:<site agent>/<address> or node:<node id>`, {
      leaf: index,
    });
  }
  const spec = findCommandKind(kind);
  if (spec === undefined) throw bad('unknown-kind', `${at(index)}: there is no command kind ${shown(kind)}`, { leaf: index });
  assertForm(subject, spec, { kind, index });
  return {
    subject: text,
    kind,
    payloadSha256: digestOf(leaf, spec, index),
    payload: leaf.payload ?? null,
    machine: machineOfSubject(subject),
  };
}

const formOf: Readonly<Record<CommandKindSpec['subject'], Subject['form']>> = { node: 'node', bmc: 'bmc', target: 'target' };

/** A leaf that no command of its kind can ever use would be approved in vain. */
function assertForm({ form }: Subject, spec: CommandKindSpec, { kind, index }: { kind: string; index: number }): void {
  if (form === formOf[spec.subject]) return;
  throw bad('subject-form', `${at(index)}: ${kind} acts on a subject of the form "${formOf[spec.subject]}", not "${form}"`, {
    leaf: index,
  });
}

function digestOf({ payload, payloadSha256, kind }: LeafInput, spec: CommandKindSpec, index: number): Uint8Array {
  if (payloadSha256 !== undefined && payloadSha256.length !== 32)
    throw bad('payload-digest', `${at(index)}: payloadSha256 has ${payloadSha256.length} bytes, not 32`, { leaf: index });
  if (payload === undefined) return payloadSha256 ?? new Uint8Array(0);
  assertPayload(payload, spec, { kind, index });
  const digest = sha256(payload.value);
  if (payloadSha256 === undefined || digest.equals(payloadSha256)) return digest;
  throw bad('payload-digest', `${at(index)}: payloadSha256 is not the digest of the payload beside it`, { leaf: index });
}

/** A creator must not label bytes as a harmless message (QUO-022). */
function assertPayload({ typeUrl, value }: LeafPayload, spec: CommandKindSpec, { kind, index }: { kind: string; index: number }): void {
  const schema = protocolRegistry.getMessage(spec.payload);
  if (schema === undefined || typeUrl !== `${typePrefix}${spec.payload}`) {
    throw bad('payload-type', `${at(index)}: the payload of ${kind} is ${typePrefix}${spec.payload}, not ${shown(typeUrl)}`, {
      leaf: index,
    });
  }
  try {
    fromBinary(schema, value);
  } catch (cause) {
    throw new ControlError('INVALID_INPUT', `${at(index)}: the payload does not decode as ${spec.payload}`, {
      cause,
      details: { reason: 'payload-malformed', leaf: index },
    });
  }
}
