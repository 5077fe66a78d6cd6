/**
 * Whether a machine is entitled to what it asks for (SEC-006, SEC-007). Rows say where to look; what counts is what a worker key signed:
 * the command or the desired state of this node, in its present generation, under a command root that the JoinService key published.
 *
 * Threat model: whoever can write the database. He can put a command of his own into a node's log, open an ended one again, point a
 * boot entry elsewhere or change a spec's rows; each of these is either not signed, or signed for another node, or over. What he can bring
 * about is that a node is given once more what it was meant to have, within the time that its command may run.
 */
import type { DescMessage } from '@bufbuild/protobuf';
import { create, fromBinary } from '@bufbuild/protobuf';
import { findCommandKind } from '../../domain/commands/kinds.ts';
import { commandStates } from '../../domain/commands/states.ts';
import { ControlError } from '../../domain/errors.ts';
import { type Binding, type BindingTexts, readBinding } from '../../domain/secrets/binding.ts';
import type { Database } from '../../drizzle/client.ts';
import { findStoredSpec } from '../../drizzle/queries/nodes.ts';
import { publishedTrust } from '../../drizzle/queries/trust.ts';
import { parseSignature, verifyDesiredState, verifyIntent } from '../../pki/envelope/index.ts';
import { verifySignedTrustBundle } from '../../pki/trust/index.ts';
import {
  type CommandBody,
  CommandBodySchema,
  DesiredStateSchema,
  decodeMessage,
  NodeSpecSchema,
  protocolRegistry,
  SignatureSchema,
  SignedTrustBundleSchema,
  site,
} from '../../proto/index.ts';
import { namesReference, sectionNames } from './named-references.ts';

export interface BindingOptions {
  readonly db: Database;
  readonly trustDomain: string;
  /** SPKI of the JoinService key: what is published counts as it signed it. */
  readonly joinKey: Uint8Array;
  /** The database's. */
  readonly now: number;
  /** A NodeSpec; another one where a later release has more sections. */
  readonly specSchema?: DescMessage;
}

export interface Asking extends BindingTexts {
  readonly nodeId: string;
  readonly generation: number;
  readonly ref: string;
}

/** @returns false for a binding that does not hold @throws when that cannot be said */
export async function isBound(asking: Asking, options: BindingOptions): Promise<boolean> {
  const binding = readBinding(asking);
  if (binding === null) return false;
  const judge = judges[binding.kind] as (one: Binding, asking: Asking, options: BindingOptions) => Promise<boolean>;
  return judge(binding, asking, options);
}

type Judges = {
  readonly [K in Binding['kind']]: (binding: Extract<Binding, { kind: K }>, asking: Asking, options: BindingOptions) => Promise<boolean>;
};

const judges: Judges = {
  command: isCommandBound,
  'boot-entry': isEntryBound,
  spec: isSpecBound,
  // Nothing that is signed says which instance runs where: a row alone entitles nobody (SEC-025 has no sender yet).
  allocation: async () => false,
};

interface CommandRow {
  readonly id: string;
  readonly kind: string;
  readonly body: Uint8Array;
  readonly signature: Uint8Array;
}

const openCommand = {
  name: 'secret-command',
  text: `select id, kind, body, signature from node_commands
         where id = $1 and node_id = $2 and state in (${commandStates.open}, ${commandStates.acked}) and seq > 0`,
};

async function isCommandBound({ commandId }: { readonly commandId: string }, asking: Asking, options: BindingOptions): Promise<boolean> {
  const [row] = await options.db.query<CommandRow>(openCommand, [commandId, asking.nodeId]);
  const body = row === undefined ? undefined : readSigned(row, { ...asking, roots: await publishedRoots(options) }, options);
  if (row === undefined || body === undefined) return false;
  // Open in the database, and over by what was signed.
  const timeoutMs = findCommandKind(body.kind)?.timeoutMs ?? 0;
  if (options.now >= Number(body.expiresAtMs) + timeoutMs) return false;
  return payloadNames(body, asking.ref);
}

const preparedBoots = {
  name: 'secret-prepared-boots',
  text: `select id, kind, body, signature from node_commands
         where node_id = $1 and kind = 'boot.prepareRamdisk' and id like 'machine/%' and id ~>=~ ($2 || '/') and id ~<~ ($2 || '0') and state in (${[commandStates.open, commandStates.acked, commandStates.done].join(', ')})
         order by seq desc limit 16`,
};
const openEntry = {
  name: 'secret-boot-entry',
  text: 'select 1 from boot_entries where id = $1 and run_id = $2 and node_id = $3 and closed_at is null and expires_at > $4::timestamptz',
};

/** A11 of the boot server: the command is done, and the entry that it made is served on. */
async function isEntryBound({ workflowId }: { readonly workflowId: string }, asking: Asking, options: BindingOptions): Promise<boolean> {
  const rows = await options.db.query<CommandRow>(preparedBoots, [asking.nodeId, workflowId]);
  if (rows.length === 0) return false;
  const roots = await publishedRoots(options);
  for (const row of rows) {
    const body = readSigned(row, { ...asking, roots }, options);
    if (body?.payload === undefined || body.kind !== 'boot.prepareRamdisk') continue;
    const prepared = fromBinary(site.BootPrepareRamdiskSchema, body.payload.value);
    if (prepared.discoveryTokenRef !== asking.ref || options.now >= Number(prepared.expiresAtMs)) continue;
    const key = [prepared.entryId, prepared.runId, prepared.nodeId, new Date(options.now)];
    return (await options.db.query(openEntry, key)).length > 0;
  }
  return false;
}

async function isSpecBound(
  { section, field }: { readonly section: string; readonly field: string },
  { nodeId, ref }: Asking,
  options: BindingOptions,
): Promise<boolean> {
  const { db, trustDomain, now, specSchema = NodeSpecSchema } = options;
  const stored = await findStoredSpec(db, nodeId);
  if (stored?.body == null || stored.signature == null) return false;
  const desired = create(DesiredStateSchema, {
    body: stored.body,
    signature: decodeMessage(SignatureSchema, stored.signature, 'certificate'),
  });
  const roots = await publishedRoots(options);
  const verified = believed(() => verifyDesiredState(desired, { roots, now, nodeId, trustDomain, required: true }));
  if (verified === undefined) return false;
  return sectionNames(specSchema, fromBinary(specSchema, verified.body.spec), { section, field, ref });
}

/** What is published, as the JoinService key signed it: the row's own list of roots is not asked. */
async function publishedRoots({ db, joinKey, trustDomain }: BindingOptions): Promise<readonly Uint8Array[]> {
  const published = await publishedTrust(db);
  if (published === null) return [];
  const signature = decodeMessage(SignatureSchema, published.signature, 'certificate');
  const signed = create(SignedTrustBundleSchema, { body: published.body, signature });
  return verifySignedTrustBundle(signed, { joinKey, trustDomain }).commandRoots;
}

interface Reader {
  readonly nodeId: string;
  readonly generation: number;
  readonly roots: readonly Uint8Array[];
}

/** The signed body, when it is this node's, of its present generation, and says that it is this command. */
function readSigned(
  { id, kind, body, signature }: CommandRow,
  reader: Reader,
  { trustDomain, now }: BindingOptions,
): CommandBody | undefined {
  const { nodeId, generation, roots } = reader;
  const said = believed(() => {
    verifyIntent({ purpose: 'command', body, signature: parseSignature(signature), roots, now, required: true });
    return decodeMessage(CommandBodySchema, body, 'commandBody');
  });
  const isIt =
    said?.commandId === id &&
    said.kind === kind &&
    said.nodeId === nodeId &&
    said.trustDomain === trustDomain &&
    said.generation === BigInt(generation);
  return isIt ? said : undefined;
}

/** undefined for what nobody signed who may. */
function believed<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch (error) {
    if (error instanceof ControlError) return undefined;
    throw error;
  }
}

function payloadNames({ kind, payload }: CommandBody, ref: string): boolean {
  const schema = protocolRegistry.getMessage(findCommandKind(kind)?.payload ?? '');
  if (schema === undefined || payload === undefined || payload.typeUrl !== `type.googleapis.com/${schema.typeName}`) return false;
  return namesReference(schema, fromBinary(schema, payload.value), ref);
}
