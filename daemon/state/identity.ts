/**
 * identity.json: who this node is, whom it dials, what it pins and the whole trust bundle it holds (JOIN-025). The private key is a
 * file of its own that identity.json names, so that a renewal replaces key and certificate together: the new key is written
 * under a new name first, then one rename of identity.json makes both current.
 *
 * A damaged identity is never repaired from identity.json.previous by the daemon: an older trust bundle would bring back roots that
 * were removed. A person may; the error says how.
 */
import { createPrivateKey, generateKeyPairSync, type KeyObject } from 'node:crypto';
import { readdir, rm } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { fromJson, type JsonValue, toJson } from '@bufbuild/protobuf';
import { z } from 'zod';
import { ControlError, codeOf } from '../../domain/errors.ts';
import { isSpkiPin, isTrustDomain, kidOf, parseCertificate, spkiOf } from '../../pki/x509/index.ts';
import { type TrustBundle, TrustBundleSchema } from '../../proto/index.ts';
import type { HeldQuorum } from '../quorum/held-quorum.ts';
import { heldQuorumFrom, storedQuorum } from '../quorum/stored-quorum.ts';
import type { TpmPlace } from '../tpm/machine-tpm.ts';
import { isTcti } from '../tpm/tools.ts';
import { assertPrivateFile, damaged, hasErrno, readIfPresent, type WriteOptions, writeDurably } from './files.ts';
import { readJsonFile, writeJsonFile } from './json-file.ts';

export const identityRoles = ['node', 'site', 'ramdisk', 'node-tenant'] as const;

export interface Identity {
  readonly nodeId: string;
  readonly siteId: string;
  readonly role: (typeof identityRoles)[number];
  readonly trustDomain: string;
  readonly generation: bigint;
  readonly gatewayUrl: string;
  /** The name the gateway's certificate must carry; null: the host of gatewayUrl (TRN-029). */
  readonly gatewayServerName: string | null;
  /** sha256/<base64> of the serving CA's public key (TRN-011). */
  readonly servingCaPin: string;
  /** SPKI of the JoinService key: signs join responses and trust bundles (JOIN-023). */
  readonly joinKey: Uint8Array;
  /** DER, leaf first, then the node CA. */
  readonly chain: readonly Uint8Array[];
  readonly trust: TrustBundle;
  /** Set for good once the node held a command root (H-06). */
  readonly signaturesRequired: boolean;
  /** The approver set this node enforces; not always the one in the bundle (DMN-024). */
  readonly quorum: HeldQuorum;
  /** Lower-case hex SHA-256 of the only first set it takes; null: as it comes (PIN-007). */
  readonly approverSetPin: string | null;
  readonly joinedAtMs: number;
  /** The TPM that speaks for this node's keys; null: none does. */
  readonly tpm: TpmPlace | null;
}

export interface StoredIdentity {
  readonly identity: Identity;
  readonly key: KeyObject;
}

const maxBytes = 2 * 1024 * 1024;
const keyMaxBytes = 16 * 1024;

const b64 = z.base64().transform((text): Uint8Array => new Uint8Array(Buffer.from(text, 'base64')));

const schema = z.strictObject({
  format: z.literal('better-compute/identity/1'),
  nodeId: z.string().min(1).max(128),
  siteId: z.string().min(1).max(128),
  role: z.enum(identityRoles),
  trustDomain: z.string().refine(isTrustDomain, 'is not a trust domain'),
  generation: z
    .string()
    .regex(/^\d{1,20}$/)
    .transform(BigInt),
  gatewayUrl: z.url({ protocol: /^https$/ }),
  gatewayServerName: z.string().nullable(),
  servingCaPin: z.string().refine(isSpkiPin, 'is not a pin'),
  joinKey: b64,
  keyFile: z.string().regex(/^key-[0-9a-f]{16}\.pem$/),
  chain: z.array(b64).min(1).max(4),
  trust: z.json(),
  signaturesRequired: z.boolean(),
  // Absent in files of a daemon that knew no quorum.
  quorum: z.json().exactOptional(),
  approverSetPin: z
    .string()
    .regex(/^[0-9a-f]{64}$/)
    .nullable()
    .default(null),
  joinedAtMs: z.number().int(),
  tpm: z
    .strictObject({ tcti: z.string().refine(isTcti, 'is not a TCTI'), ek: z.enum(['rsa', 'ecc']) })
    .nullable()
    .default(null),
});

export const identityPath = (folder: string): string => join(folder, 'identity.json');

const keyFileOf = (key: KeyObject): string => `key-${kidOf(spkiOf(key)).slice(0, 16)}.pem`;

export const generateNodeKey = (): KeyObject => generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;

/** undefined when the node has not joined. @throws DATA_CORRUPT, INVALID_STATE (a key others can read) */
export async function findIdentity(folder: string): Promise<StoredIdentity | undefined> {
  const path = identityPath(folder);
  const stored = await readStored(path);
  if (stored === undefined) return undefined;
  const { format: _, keyFile, trust: trustJson, quorum: quorumJson, ...rest } = stored;
  const { trust, problem } = parseTrust(path, trustJson);
  const identity: Identity = { ...rest, trust, quorum: heldQuorumFrom(quorumJson, trust, problem) };
  const key = await readKey(join(folder, keyFile));
  assertKeyFitsChain(path, key, identity);
  return { identity, key };
}

/** @throws NOT_FOUND when the node has not joined; and what findIdentity throws */
export async function getIdentity(folder: string): Promise<StoredIdentity> {
  const found = await findIdentity(folder);
  if (found !== undefined) return found;
  throw new ControlError('NOT_FOUND', `no identity in ${folder}: this machine has not joined`, {
    details: { reason: 'not-joined', hint: `bcd join --data-dir ${folder} <join string>` },
  });
}

async function readStored(path: string): Promise<z.infer<typeof schema> | undefined> {
  try {
    return await readJsonFile(path, schema, maxBytes);
  } catch (error) {
    if (codeOf(error) !== 'DATA_CORRUPT') throw error;
    throw new ControlError('DATA_CORRUPT', (error as Error).message, {
      cause: error,
      details: {
        reason: 'damaged',
        path,
        hint: `compare it with ${basename(path)}.previous, which holds an older trust bundle, or join again with bcd join --replace`,
      },
    });
  }
}

interface ReadTrust {
  readonly trust: TrustBundle;
  /** Why the approvers' part is missing from it; null when all of it was read. */
  readonly problem: string | null;
}

/**
 * Where only the approvers' part does not read back, the roots still say whose commands are genuine: what does no harm goes on,
 * and destructive commands are refused (DMN-034).
 */
function parseTrust(path: string, json: JsonValue): ReadTrust {
  const read = (value: JsonValue): TrustBundle => fromJson(TrustBundleSchema, value, { ignoreUnknownFields: true });
  try {
    return { trust: read(json), problem: null };
  } catch (cause) {
    const roots = rootsPart(json);
    if (roots === undefined) throw damaged(path, 'trust is no trust bundle', cause);
    try {
      return { trust: read(roots), problem: `${path} is damaged: the approver set in trust does not read back` };
    } catch {
      throw damaged(path, 'trust is no trust bundle', cause);
    }
  }
}

const rootFields = ['version', 'trustDomain', 'commandRoots', 'removedRoots'] as const;

function rootsPart(json: JsonValue): JsonValue | undefined {
  if (typeof json !== 'object' || json === null || Array.isArray(json)) return undefined;
  return Object.fromEntries(rootFields.flatMap((name) => (json[name] === undefined ? [] : [[name, json[name]]])));
}

async function readKey(path: string): Promise<KeyObject> {
  let pem: Buffer | undefined;
  try {
    await assertPrivateFile(path);
    pem = await readIfPresent(path, keyMaxBytes);
  } catch (error) {
    if (!hasErrno(error, 'ENOENT')) throw error;
  }
  if (pem === undefined) throw damaged(path, 'the key that identity.json names is missing');
  try {
    return createPrivateKey(pem);
  } catch (cause) {
    throw damaged(path, 'it holds no private key', cause);
  }
}

function assertKeyFitsChain(path: string, key: KeyObject, identity: Identity): void {
  const leaf = identity.chain[0];
  const fits = leaf !== undefined && Buffer.from(parseCertificate(leaf).spki).equals(spkiOf(key));
  if (!fits) throw damaged(path, 'its certificate is for another key than the one it names');
}

/** Makes key and identity current together. The former identity stays under .previous; keys neither of them names are deleted. */
export async function saveIdentity(
  folder: string,
  { identity, key }: StoredIdentity,
  options: Pick<WriteOptions, 'beforeRename'> = {},
): Promise<void> {
  const keyFile = keyFileOf(key);
  await writeDurably(join(folder, keyFile), key.export({ type: 'pkcs8', format: 'pem' }));
  const { trust, joinKey, chain, generation, quorum, tpm, ...rest } = identity;
  const stored = {
    format: 'better-compute/identity/1',
    ...rest,
    generation: generation.toString(),
    joinKey: base64(joinKey),
    keyFile,
    chain: chain.map(base64),
    trust: toJson(TrustBundleSchema, trust),
    quorum: storedQuorum(quorum),
    ...(tpm === null ? {} : { tpm }),
  };
  await writeJsonFile(identityPath(folder), stored, { ...options, keepPrevious: true });
  await deleteOtherKeys(folder, keyFile);
}

const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64');

async function deleteOtherKeys(folder: string, current: string): Promise<void> {
  const previous = await readIfPresent(`${identityPath(folder)}.previous`, maxBytes);
  const previousKey = /"keyFile": "(key-[0-9a-f]{16}\.pem)"/.exec(previous?.toString('utf8') ?? '')?.[1];
  const others = (await readdir(folder)).filter((name) => /^key-[0-9a-f]{16}\.pem$/.test(name) && name !== current && name !== previousKey);
  for (const name of others) await rm(join(folder, name), { force: true });
}
