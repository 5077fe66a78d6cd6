/**
 * The way of a command into a node's log (gateway.md, SIGN-001): judge, sign, append in one statement. Idempotent by id: the
 * same request again changes nothing, the same id with another content is refused.
 *
 * What the signature was made for (node active, its generation) is checked again by the statement that appends, so facts that
 * were kept from an earlier call can never put a wrong command into a log: they only save a read.
 */
import { createHash } from 'node:crypto';
import { fromBinary, type Message, toBinary } from '@bufbuild/protobuf';
import { type Any, AnySchema } from '@bufbuild/protobuf/wkt';
import { isCommandId, maxCommandIdLength } from '../domain/commands/ids.ts';
import { type CommandKindSpec, findCommandKind } from '../domain/commands/kinds.ts';
import { ControlError } from '../domain/errors.ts';
import { day, showInstant } from '../domain/time.ts';
import type { Database } from '../drizzle/client.ts';
import { type NewCommand, readCommands, type StoredCommand } from '../drizzle/queries/commands.ts';
import { type NodeFacts, readNodeFacts } from '../drizzle/queries/nodes.ts';
import { signCommand, type WorkerKey } from '../pki/envelope/index.ts';
import { CommandBodySchema, protocolRegistry, SignatureSchema } from '../proto/index.ts';
import { appendTogether } from './append-together.ts';
import { appendToBatches, type BatchedCommand } from './batches/enqueue.ts';
import { assertBatched } from './batches/required.ts';
import { type BodyInput, type EarlierAttempt, encodeBody } from './command-body.ts';
import type { WorkerKeyProvider } from './worker-keys.ts';

export { cancelCommand, expireCommands, findCommand, getCommand, reconcileCommands } from './command-ends.ts';
export { countSignedUnder, resignCommands } from './resign.ts';

export interface CommandRequest {
  /** Chosen by the caller, the same at every retry: `<workflow id>/<step>`. */
  readonly id: string;
  readonly nodeId: string;
  readonly kind: string;
  /** An encoded google.protobuf.Any of the kind's payload type. */
  readonly payload: Uint8Array;
  /** Server time (Unix milliseconds, an instant) after which the command must not start. */
  readonly deadlineMs: number;
  readonly requestedBy: string;
  /** Server time before which it is not delivered; it gets its place in the log when it is due. Not for a command of a batch. */
  readonly notBeforeMs?: number;
  /** Its batch: held until that is approved and released, when its deadline is set anew. */
  readonly batchId?: string;
  /** Where an earlier command may have done the same already: who gets this one looks before he acts. */
  readonly earlier?: EarlierAttempt;
}

export interface EnqueueOptions {
  readonly db: Database;
  readonly worker: WorkerKeyProvider;
  readonly trustDomain: string;
  readonly now: number;
  readonly commands: readonly CommandRequest[];
  /** Wakes the gateways of these nodes; a lost call costs one poll. */
  readonly poke?: (nodeIds: readonly string[]) => void;
}

export interface Enqueued {
  readonly enqueued: readonly string[];
  /** Ids of the same request, appended by an earlier call. */
  readonly existing: readonly string[];
  /** Of those that were enqueued: they wait for their batch. */
  readonly held: readonly string[];
}

/** Longest time a command may wait: an approval takes up to 72 h, a wipe as long again. */
const maxDeadlineMs = 31 * day;
const typePrefix = 'type.googleapis.com/';

/** A request that was judged: nothing below takes any other. */
export interface Judged {
  readonly request: CommandRequest;
  readonly spec: CommandKindSpec;
  readonly payload: Any;
  /** The same, decoded. */
  readonly message: Message;
}

/**
 * Signs and appends commands.
 *
 * @throws INVALID_INPUT for a request that no node could run, or that is not in the scope of its batch; NOT_FOUND for an unknown node or
 *   batch; INVALID_STATE for a node that is not active, a batch that has ended, or (batch-required) a destructive command without one;
 *   CONFLICT when an id exists with another content; STALE_BUNDLE when this process must not sign
 */
export async function enqueueCommands(options: EnqueueOptions): Promise<Enqueued> {
  const judged = options.commands.map((request) => judge(request, options.now));
  assertDistinct(options.commands);
  // Of a batch, what was put in before is told from the rest first: its batch may have ended since, and a retry is no new command.
  const before = await assertSameContent(
    options,
    judged.filter(({ request }) => request.batchId !== undefined),
  );
  const fresh = judged.filter(({ request }) => !before.has(request.id));
  await assertBatched(options.db, fresh);
  const first = await append(options, fresh, await factsOf(options.db, fresh));
  const existing = new Set([...before, ...(await assertSameContent(options, first.missing))]);
  // Neither appended nor there: the facts were old. Read again, judge again, sign for the generation that counts now.
  const again = first.missing.filter(({ request }) => !existing.has(request.id));
  const second = again.length === 0 ? nothing : await retry(options, again);
  const enqueued = new Set([...first.appended, ...second.appended]);
  const held = new Set([...first.held, ...second.held]);
  const sent = judged.filter(({ request: { id } }) => enqueued.has(id) && !held.has(id));
  if (sent.length > 0) options.poke?.([...new Set(sent.map(({ request }) => request.nodeId))]);
  return { enqueued: [...enqueued], existing: [...existing], held: [...held] };
}

async function retry(options: EnqueueOptions, judged: readonly Judged[]): Promise<Appended> {
  forget(options.db, judged);
  const second = await append(options, judged, await factsOf(options.db, judged));
  const existing = await assertSameContent(options, second.missing);
  const lost = second.missing.find(({ request }) => !existing.has(request.id));
  if (lost === undefined) return second;
  throw new ControlError(
    'CONFLICT',
    `node ${lost.request.nodeId} or what is published changed while command ${lost.request.id} was signed`,
    {
      details: { reason: 'node-changed', nodeId: lost.request.nodeId },
    },
  );
}

function judge(request: CommandRequest, now: number): Judged {
  const refuse = (reason: string, message: string): never => {
    throw new ControlError('INVALID_INPUT', `command ${request.id.slice(0, 80)}: ${message}`, { details: { reason, kind: request.kind } });
  };
  if (!isCommandId(request.id)) return refuse('command-id', `the id is not 1 to ${maxCommandIdLength} printable ASCII characters`);
  const spec = findCommandKind(request.kind) ?? refuse('unknown-kind', `there is no command kind ${request.kind}`);
  if (!(request.deadlineMs > now)) return refuse('deadline-past', `the deadline ${shown(request.deadlineMs)} is not in the future`);
  if (request.deadlineMs > now + maxDeadlineMs)
    return refuse('deadline-far', `the deadline ${shown(request.deadlineMs)} is more than 31 days away`);
  if (request.notBeforeMs !== undefined && request.batchId !== undefined)
    return refuse('not-before', 'a command of a batch is due when the batch is released');
  if ((request.notBeforeMs ?? now) >= request.deadlineMs) return refuse('not-before', 'it would be due only after its deadline');
  const { payload, message } = parsePayload(request, spec) ?? refuse('payload', `the payload is not a ${spec.payload}`);
  return { request, spec, payload, message };
}

const shown = (ms: number): string => (Number.isFinite(ms) && Math.abs(ms) < 8.64e15 ? showInstant(ms) : String(ms));

/** null when the bytes are not an Any of the kind's own type. */
function parsePayload({ payload }: CommandRequest, spec: CommandKindSpec): Pick<Judged, 'payload' | 'message'> | null {
  const schema = protocolRegistry.getMessage(spec.payload);
  try {
    const any = fromBinary(AnySchema, payload);
    if (schema === undefined || any.typeUrl !== `${typePrefix}${spec.payload}`) return null;
    return { payload: any, message: fromBinary(schema, any.value) };
  } catch {
    return null;
  }
}

function assertDistinct(commands: readonly CommandRequest[]): void {
  const seen = new Set<string>();
  for (const { id } of commands) {
    if (seen.has(id))
      throw new ControlError('INVALID_INPUT', `command ${id} stands twice in one request`, { details: { reason: 'duplicate-id' } });
    seen.add(id);
  }
}

/** Facts of active nodes from earlier calls, per database; the appending statement is what decides. */
const known = new WeakMap<Database, Map<string, NodeFacts>>();
const maxKnown = 200_000;

function knownOf(db: Database): Map<string, NodeFacts> {
  const facts = known.get(db) ?? new Map<string, NodeFacts>();
  known.set(db, facts);
  return facts;
}

const forget = (db: Database, judged: readonly Judged[]): void => {
  for (const { request } of judged) knownOf(db).delete(request.nodeId);
};

async function factsOf(db: Database, judged: readonly Judged[]): Promise<Map<string, NodeFacts>> {
  const facts = knownOf(db);
  const missing = [...new Set(judged.map(({ request }) => request.nodeId).filter((id) => !facts.has(id)))];
  const read = missing.length === 0 ? new Map<string, NodeFacts>() : await readNodeFacts(db, missing);
  for (const { request, spec } of judged) assertRunnable(request, spec, facts.get(request.nodeId) ?? read.get(request.nodeId));
  if (facts.size + read.size > maxKnown) facts.clear();
  for (const [id, node] of read) facts.set(id, node);
  return facts;
}

function assertRunnable(request: CommandRequest, spec: CommandKindSpec, node: NodeFacts | undefined): void {
  const { nodeId, kind } = request;
  if (node === undefined)
    throw new ControlError('NOT_FOUND', `no node is called ${nodeId}`, { details: { reason: 'unknown-node', nodeId } });
  if (node.state !== 'active') {
    throw new ControlError('INVALID_STATE', `node ${nodeId} is ${node.state}: it gets no commands`, {
      details: { reason: 'node-not-active', nodeId },
    });
  }
  if (!spec.roles.includes(node.role)) {
    throw new ControlError('INVALID_INPUT', `${kind} is not for nodes of role ${node.role} (${nodeId})`, {
      details: { reason: 'wrong-role', nodeId },
    });
  }
}

interface Appended {
  readonly appended: ReadonlySet<string>;
  readonly held: ReadonlySet<string>;
  readonly missing: readonly Judged[];
}

const nothing: Appended = Object.freeze({ appended: new Set<string>(), held: new Set<string>(), missing: [] });

type Facts = ReadonlyMap<string, NodeFacts>;

async function append(options: EnqueueOptions, judged: readonly Judged[], facts: Facts): Promise<Appended> {
  const free = judged.filter(({ request }) => request.batchId === undefined);
  const appended = free.length === 0 ? new Set<string>() : await appendTogether(options.db, await signAll(options, free, facts));
  const batched = free.length === judged.length ? nothing : await appendBatched(options, judged, facts);
  const all = new Set([...appended, ...batched.appended]);
  return { appended: all, held: batched.held, missing: judged.filter(({ request }) => !all.has(request.id)) };
}

/** Held rows are complete but for what their release gives them: key, times, place. */
async function appendBatched(options: EnqueueOptions, judged: readonly Judged[], facts: Facts): Promise<Omit<Appended, 'missing'>> {
  const byId = new Map(judged.map((one) => [one.request.id, one]));
  const commands = judged.flatMap(({ request: { id, nodeId, kind, batchId }, payload }): BatchedCommand[] =>
    batchId === undefined ? [] : [{ id, nodeId, kind, payload, batchId }],
  );
  return appendToBatches(options.db, commands, {
    trustDomain: options.trustDomain,
    now: options.now,
    rowsOf: async (own, { heldUntil }) => {
      const list = own.map(({ id }) => byId.get(id) as Judged);
      if (heldUntil === null) return signAll(options, list, facts);
      const held = { signature: new Uint8Array(0), signerRoot: '', signerNotAfter: -Infinity, notBefore: Infinity, deadline: heldUntil };
      return list.map((one) => ({ ...unsigned(options, { ...one, node: facts.get(one.request.nodeId) as NodeFacts }), ...held }));
    },
  });
}

async function signAll(options: EnqueueOptions, judged: readonly Judged[], facts: Facts): Promise<NewCommand[]> {
  const worker = await options.worker.current();
  return Promise.all(judged.map((one) => sign(options, worker, { ...one, node: facts.get(one.request.nodeId) as NodeFacts })));
}

type WithNode = Judged & { readonly node: NodeFacts };

async function sign(options: EnqueueOptions, worker: WorkerKey, one: WithNode): Promise<NewCommand> {
  const row = unsigned(options, one);
  return {
    ...row,
    signature: toBinary(SignatureSchema, await signCommand(worker, row.body)),
    signerRoot: worker.rootId,
    signerNotAfter: worker.notAfter,
  };
}

type Unsigned = Omit<NewCommand, 'signature' | 'signerRoot' | 'signerNotAfter'>;

function unsigned({ trustDomain, now }: EnqueueOptions, { request, spec, payload, node }: WithNode): Unsigned {
  const generation = node.identityGeneration;
  const body = encodeBody(bodyOf(request, payload), { trustDomain, issuedAtMs: now, generation, expiresAtMs: request.deadlineMs });
  return {
    id: request.id,
    nodeId: request.nodeId,
    generation,
    kind: request.kind,
    lane: spec.lane,
    body,
    bodySha256: sha256(body),
    batchId: request.batchId ?? null,
    requestedBy: request.requestedBy,
    notBefore: request.notBeforeMs ?? -Infinity,
    deadline: request.deadlineMs,
    createdAt: now,
  };
}

const bodyOf = ({ id, nodeId, kind, batchId, earlier }: CommandRequest, payload: Any): BodyInput => ({
  commandId: id,
  nodeId,
  kind,
  payload,
  batchId: batchId ?? '',
  earlier,
});

/**
 * Which of these exist already with the same content. A retry has another clock, and perhaps another deadline, than the first
 * call: so the request is encoded again with the times and the generation of the stored body, and the digests compared.
 */
async function assertSameContent({ db, trustDomain }: EnqueueOptions, judged: readonly Judged[]): Promise<Set<string>> {
  if (judged.length === 0) return new Set();
  const stored = await readCommands(
    db,
    judged.map(({ request }) => request.id),
  );
  const existing = judged.filter(({ request }) => stored.has(request.id));
  for (const { request, payload } of existing) {
    const row = stored.get(request.id) as StoredCommand;
    const { issuedAtMs, generation, expiresAtMs } = fromBinary(CommandBodySchema, row.body);
    const body = encodeBody(bodyOf(request, payload), { trustDomain, issuedAtMs, generation, expiresAtMs });
    if (Buffer.from(row.bodySha256).equals(sha256(body))) continue;
    throw new ControlError('CONFLICT', `command ${request.id} exists with another content (${row.kind} for ${row.nodeId})`, {
      details: { reason: 'command-differs', commandId: request.id },
    });
  }
  return new Set(existing.map(({ request }) => request.id));
}

const sha256 = (bytes: Uint8Array): Buffer => createHash('sha256').update(bytes).digest();
