/**
 * A deployment in memory for tests of the daemon: real authorities, worker keys, trust bundles, join strings and node certificates of
 * the project's own PKI, without a database.
 */
import { createHash, generateKeyPairSync, randomUUID } from 'node:crypto';
import { create, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import { anyPack } from '@bufbuild/protobuf/wkt';
import { heldAsPublished } from '../../daemon/quorum/held-quorum.ts';
import type { Identity, StoredIdentity } from '../../daemon/state/identity.ts';
import { findCommandKind } from '../../domain/commands/kinds.ts';
import { day, hour, minute } from '../../domain/time.ts';
import { type CommandRoot, createBundle, createCommandRoot, type PkiBundle } from '../../pki/bundle/index.ts';
import { type JoinBundle, joinSecretBytes, sealJoinToken } from '../../pki/enroll/index.ts';
import { createWorkerKey, signCommand, type WorkerKey } from '../../pki/envelope/index.ts';
import { buildTrustBundle, type PublishedSet, signTrustBundle } from '../../pki/trust/index.ts';
import { createSerial, encodePem, issueLeaf, spkiOf, spkiPin } from '../../pki/x509/index.ts';
import {
  type Command,
  CommandBodySchema,
  CommandSchema,
  decodeMessage,
  InventoryRefreshSchema,
  protocolRegistry,
  type SignedTrustBundle,
  SignedTrustBundleSchema,
} from '../../proto/index.ts';

export interface TestDeployment {
  readonly bundle: PkiBundle;
  readonly trustDomain: string;
  readonly rootA: CommandRoot;
  readonly rootB: CommandRoot;
  readonly workerA: WorkerKey;
  readonly workerB: WorkerKey;
  /** Under a root that no daemon of this deployment holds. */
  readonly foreignWorker: WorkerKey;
  readonly serving: { readonly key: string; readonly cert: string };
  readonly siteId: string;
}

const lifetimes = { worker: day };

const workerUnder = (root: CommandRoot, now: number, lifetimeMs = lifetimes.worker): Promise<WorkerKey> =>
  createWorkerKey({ root: { certificate: root.certificate.der, signer: root.signer() }, now, lifetimeMs, serial: createSerial() });

export const gatewayName = 'gw.test';

export async function createDeployment({
  now = Date.now(),
  trustDomain = 'test.example',
}: {
  now?: number;
  trustDomain?: string;
} = {}): Promise<TestDeployment> {
  const bundle = await createBundle({ trustDomain, now });
  const [rootB, foreign] = await Promise.all([createCommandRoot({ trustDomain, now }), createCommandRoot({ trustDomain, now })]);
  const rootA = bundle.commandSigning as CommandRoot;
  const [workerA, workerB, foreignWorker] = await Promise.all([
    workerUnder(rootA, now),
    workerUnder(rootB, now),
    workerUnder(foreign, now),
  ]);
  return { bundle, trustDomain, rootA, rootB, workerA, workerB, foreignWorker, serving: await servingPair(bundle, now), siteId: 'site-1' };
}

export { workerUnder };

async function servingPair({ servingCa }: PkiBundle, now: number): Promise<{ key: string; cert: string }> {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const ca = { certificate: servingCa.certificate.der, signer: servingCa.signer() };
  const leaf = await issueLeaf({ ca, profile: 'gateway', spki: spkiOf(publicKey), sans: { dns: [gatewayName], ips: ['127.0.0.1'] }, now });
  return {
    key: String(privateKey.export({ type: 'pkcs8', format: 'pem' })),
    cert: encodePem('CERTIFICATE', leaf.der) + encodePem('CERTIFICATE', servingCa.certificate.der),
  };
}

export interface TrustInit {
  readonly version: number;
  readonly roots: readonly CommandRoot[];
  readonly removed?: Parameters<typeof buildTrustBundle>[0]['removed'];
  readonly quorum?: PublishedSet;
}

export const trustMessage = ({ trustDomain }: TestDeployment, { version, roots, removed = [], quorum }: TrustInit) =>
  buildTrustBundle({
    version,
    trustDomain,
    roots: roots.map((root) => root.certificate.der),
    removed,
    ...(quorum === undefined ? {} : { quorum }),
  });

export async function signedTrust(deployment: TestDeployment, init: TrustInit): Promise<SignedTrustBundle> {
  const bytes = await signTrustBundle(deployment.bundle.joinSigning.signer(), trustMessage(deployment, init));
  return decodeMessage(SignedTrustBundleSchema, bytes, 'trustBundle');
}

export interface NodeInit {
  readonly nodeId?: string;
  readonly gatewayUrl: string;
  readonly now?: number;
  readonly lifetimeMs?: number;
  readonly generation?: bigint;
  readonly trust?: TrustInit;
  readonly role?: 'node' | 'site' | 'ramdisk';
  readonly approverSetPin?: string | null;
}

/** A node that has joined, as its identity file would hold it. */
export async function joinedNode(deployment: TestDeployment, init: NodeInit): Promise<StoredIdentity> {
  const { bundle, trustDomain, siteId } = deployment;
  const {
    nodeId = 'node-1',
    gatewayUrl,
    now = Date.now(),
    lifetimeMs = day,
    generation = 1n,
    role = 'node',
    trust = { version: 1, roots: [deployment.rootA] },
    approverSetPin = null,
  } = init;
  const { privateKey: key } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const message = trustMessage(deployment, trust);
  const chain = await nodeChain(deployment, { nodeId, spki: spkiOf(key), now, lifetimeMs, role });
  const identity: Identity = {
    nodeId,
    siteId,
    role,
    trustDomain,
    generation,
    gatewayUrl,
    gatewayServerName: gatewayName,
    servingCaPin: spkiPin(bundle.servingCa.spki),
    joinKey: bundle.joinSigning.spki,
    chain,
    trust: message,
    signaturesRequired: trust.roots.length > 0,
    quorum: heldAsPublished(message),
    approverSetPin,
    joinedAtMs: now,
    tpm: null,
  };
  return { identity, key };
}

export async function nodeChain(
  { bundle, trustDomain, siteId }: TestDeployment,
  {
    nodeId,
    spki,
    now,
    lifetimeMs = day,
    role = 'node',
  }: { nodeId: string; spki: Uint8Array; now: number; lifetimeMs?: number; role?: 'node' | 'site' | 'ramdisk' },
): Promise<Uint8Array[]> {
  const ca = { certificate: bundle.nodeCa.certificate.der, signer: bundle.nodeCa.signer() };
  const leaf = await issueLeaf({ ca, profile: role, spki, identity: { trustDomain, siteId, nodeId }, lifetimeMs, now });
  return [leaf.der, bundle.nodeCa.certificate.der];
}

/** A join string of the deployment, with a token sealed for it. */
export function joinBundleOf({ bundle, trustDomain, siteId }: TestDeployment, gateway: string): JoinBundle {
  const claims = { tokenId: randomUUID(), secret: Buffer.alloc(joinSecretBytes, 7), siteId, role: 'node', expiresAt: Date.now() + hour };
  const token = sealJoinToken(bundle.joinEncryption.spki, claims, { trustDomain });
  return {
    gateway,
    serverName: gatewayName,
    servingCaPin: spkiPin(bundle.servingCa.spki),
    joinKey: bundle.joinSigning.spki,
    trustDomain,
    token,
  };
}

export interface CommandInit {
  readonly id?: string;
  readonly nodeId?: string;
  readonly kind?: string;
  readonly payload?: Record<string, unknown>;
  readonly issuedAtMs?: number;
  readonly expiresAtMs?: number;
  readonly trustDomain?: string;
  readonly generation?: bigint;
  readonly seq?: bigint;
  readonly epoch?: bigint;
  /** undefined: workerA; null: unsigned. */
  readonly worker?: WorkerKey | null;
  /** For bodies that no honest signer makes. */
  readonly body?: MessageInitShape<typeof CommandBodySchema>;
}

export async function commandOf(deployment: TestDeployment, init: CommandInit = {}): Promise<Command> {
  const {
    id = randomUUID(),
    nodeId = 'node-1',
    kind = 'inventory.refresh',
    payload = {},
    worker = deployment.workerA,
    seq = 1n,
    epoch = 1n,
  } = init;
  const now = Date.now();
  const schema = protocolRegistry.getMessage(findCommandKind(kind)?.payload ?? '') ?? InventoryRefreshSchema;
  const body = toBinary(
    CommandBodySchema,
    create(CommandBodySchema, {
      commandId: id,
      nodeId,
      kind,
      payload: anyPack(schema, create(schema, payload)),
      issuedAtMs: BigInt(init.issuedAtMs ?? now),
      expiresAtMs: BigInt(init.expiresAtMs ?? now + 10 * minute),
      trustDomain: init.trustDomain ?? deployment.trustDomain,
      generation: init.generation ?? 1n,
      ...init.body,
    }),
  );
  const signature = worker === null ? undefined : await signCommand(worker, body);
  return create(CommandSchema, { body, seq, epoch, ...(signature === undefined ? {} : { signature }) });
}

export const sha256 = (bytes: Uint8Array): Buffer => createHash('sha256').update(bytes).digest();
