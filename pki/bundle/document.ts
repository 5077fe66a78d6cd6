/**
 * The JSON document of a bundle (KEY-024, KEY-025) and its strict reader. The public half is everything but `seal` and
 * `privateKeys`; its digest is what the seal vouches for. Unknown fields are refused: nothing in the file is ignored.
 */
import { createHash } from 'node:crypto';
import type { CommandRoots, RemovedRootEntry, RootEntry, RotationEnded, RotationInProgress } from '../../domain/rotation/stages.ts';
import { canonicalJson, type Json } from './canonical.ts';
import { type KeyForm, type KeyName, keyNames, keyTable } from './keys.ts';
import { invalidBundle, Problems, restoreIt } from './problems.ts';
import { Reader } from './reader.ts';
import type { ExecTicketTimes, Republish } from './types.ts';

export const bundleFormat = 'better-compute-pki';
export const bundleVersion = 1;

/** Above this a file is no bundle (one has some 10 KiB): refused before it is parsed. 4 MiB of it took 70 ms to read. */
const maxTextLength = 1024 * 1024;

/** What the file says of one key: PEM certificates, a PEM public key, or an OpenSSH line. */
export interface KeyDocument {
  readonly certificates?: readonly string[];
  readonly publicKey?: string;
  /** Reference of the signer that keeps the private half. */
  readonly signer?: string;
}

export interface CommandRootDocument extends RootEntry {
  readonly certificates: readonly string[];
  readonly signer?: string;
}

export interface CommandRootsDocument extends Omit<CommandRoots, 'roots'> {
  readonly roots: readonly CommandRootDocument[];
}

export interface PublicDocument {
  readonly format: typeof bundleFormat;
  readonly version: typeof bundleVersion;
  readonly trustDomain: string;
  readonly generation: number;
  readonly trustVersion: number;
  readonly keys: Readonly<Partial<Record<KeyName, KeyDocument>>>;
  readonly commandRoots?: CommandRootsDocument;
  readonly republish: Republish | null;
  /** Absent unless the exec ticket key is being exchanged. */
  readonly execTicketTimes?: ExecTicketTimes;
}

export interface ParsedDocument {
  readonly document: PublicDocument;
  /** The public half exactly as the file has it. */
  readonly digest: string;
  /** Unread: seal.ts judges it. */
  readonly seal: unknown;
  readonly privateKeys: unknown;
}

/** Lower-case hex of SHA-256 over the canonical public half. */
export const documentDigest = (document: PublicDocument): string => digestOf(document as unknown as Json);

const digestOf = (value: Json): string => createHash('sha256').update(canonicalJson(value), 'utf8').digest('hex');

/** @throws INVALID_CONFIG (bundle-invalid) naming every problem */
export function parseDocument(text: string): ParsedDocument {
  const root = parseJson(text);
  const problems = new Problems();
  const reader = new Reader('the file', root, problems);
  const document = readPublic(reader);
  const seal = reader.raw('seal');
  const privateKeys = reader.raw('privateKeys');
  reader.refuseUnknown();
  if ((seal === undefined) === (privateKeys === undefined)) problems.add('the file', 'must have either seal or privateKeys');
  problems.throwIfAny();
  const { seal: _seal, privateKeys: _privateKeys, ...publicHalf } = root;
  return { document, digest: digestOf(publicHalf), seal, privateKeys };
}

function parseJson(text: string): Record<string, Json> {
  if (text.length > maxTextLength)
    throw invalidBundle(`the key bundle is not valid (${text.length} characters): ${restoreIt}`, { reason: 'bundle-invalid' });
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw invalidBundle(`the key bundle is not JSON: ${restoreIt}`, { reason: 'bundle-invalid' }, cause);
  }
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, Json>;
  throw invalidBundle(`the key bundle is not a JSON object: ${restoreIt}`, { reason: 'bundle-invalid' });
}

function readPublic(reader: Reader): PublicDocument {
  const commandRoots = reader.optionalObject('commandRoots');
  return {
    format: reader.literal('format', bundleFormat),
    version: reader.literal('version', bundleVersion),
    trustDomain: reader.text('trustDomain'),
    generation: reader.count('generation', 1),
    trustVersion: reader.count('trustVersion', 0),
    keys: readKeys(reader.object('keys')),
    ...(commandRoots === null ? {} : { commandRoots: readCommandRoots(commandRoots) }),
    republish: nullable(reader, 'republish', (inner) => ({
      version: inner.count('version', 1),
      reason: inner.text('reason'),
      actor: inner.text('actor'),
      at: inner.count('at', 0),
    })),
    ...readTicketTimes(reader.optionalObject('execTicketTimes')),
  };
}

function readTicketTimes(reader: Reader | null): Pick<PublicDocument, 'execTicketTimes'> {
  if (reader === null) return {};
  const execTicketTimes = { nextAddedAt: reader.nullableCount('nextAddedAt'), formerStoppedAt: reader.nullableCount('formerStoppedAt') };
  reader.refuseUnknown();
  return { execTicketTimes };
}

function readKeys(reader: Reader): PublicDocument['keys'] {
  const keys: Partial<Record<KeyName, KeyDocument>> = {};
  for (const name of keyNames) {
    const { optional, form } = keyTable[name];
    const entry = optional ? reader.optionalObject(name) : reader.object(name);
    if (entry !== null) keys[name] = readKey(entry, form);
  }
  reader.refuseUnknown();
  return keys;
}

function readKey(reader: Reader, form: KeyForm): KeyDocument {
  const entry = {
    ...(form === 'authority' ? { certificates: reader.texts('certificates') } : { publicKey: reader.text('publicKey') }),
    ...readSigner(reader),
  };
  reader.refuseUnknown();
  return entry;
}

function readCommandRoots(reader: Reader): CommandRootsDocument {
  const state = {
    signing: reader.text('signing'),
    roots: reader.list('roots', readRoot),
    rotation: nullable(reader, 'rotation', readRotation),
    lastRotation: nullable(reader, 'lastRotation', readEnded),
    removed: reader.list('removed', readRemoved),
  };
  reader.refuseUnknown();
  return state;
}

/** A field that is there only where the private half is kept elsewhere. */
const readSigner = (reader: Reader): { signer?: string } => (reader.raw('signer') === undefined ? {} : { signer: reader.text('signer') });

const readRoot = (reader: Reader): CommandRootDocument => ({
  id: reader.text('id'),
  addedAt: reader.count('addedAt', 0),
  certificates: reader.texts('certificates'),
  ...readSigner(reader),
});

const readRotation = (reader: Reader): RotationInProgress => ({
  id: reader.text('id'),
  stage: reader.oneOf('stage', ['added', 'switched']),
  oldRoot: reader.text('oldRoot'),
  newRoot: reader.text('newRoot'),
  addedAt: reader.count('addedAt', 0),
  switchedAt: reader.nullableCount('switchedAt'),
  aborted: reader.flag('aborted'),
});

const readEnded = (reader: Reader): RotationEnded => ({
  id: reader.text('id'),
  outcome: reader.oneOf('outcome', ['dropped', 'aborted']),
  endedAt: reader.count('endedAt', 0),
});

const readRemoved = (reader: Reader): RemovedRootEntry => ({
  id: reader.text('id'),
  switchedAt: reader.count('switchedAt', 0),
  removedAt: reader.count('removedAt', 0),
  forcedReason: reader.possiblyEmptyText('forcedReason'),
});

function nullable<T>(reader: Reader, name: string, read: (inner: Reader) => T): T | null {
  const inner = reader.nullableObject(name);
  if (inner === null) return null;
  const value = read(inner);
  inner.refuseUnknown();
  return value;
}
