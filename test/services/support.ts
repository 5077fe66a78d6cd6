/** What the database tests share: keys made once, nodes with certificates, a log that remembers. */
import assert from 'node:assert/strict';
import { createHash, generateKeyPairSync, randomBytes, randomUUID } from 'node:crypto';
import { create, toBinary } from '@bufbuild/protobuf';
import { AnySchema, anyPack } from '@bufbuild/protobuf/wkt';
import type { NodeRole } from '../../domain/commands/kinds.ts';
import { type Code, ControlError } from '../../domain/errors.ts';
import { productionTimes } from '../../domain/rotation/gates.ts';
import { day, hour } from '../../domain/time.ts';
import type { Database } from '../../drizzle/client.ts';
import { insertNodeRow, lockNode, type NodeFacts } from '../../drizzle/queries/nodes.ts';
import { type NewSession, openSession } from '../../drizzle/queries/sessions.ts';
import { createBundle, type PkiBundle } from '../../pki/bundle/index.ts';
import { type Certificate, createCsr, spkiOf } from '../../pki/x509/index.ts';
import { InventoryRefreshSchema, NodeRebootSchema } from '../../proto/index.ts';
import type { CommandRequest } from '../../services/command-queue.ts';
import type { ServiceLog } from '../../services/log.ts';
import { issuerOf, type NodeAuthority, reserveSerial, signReserved, storeCertificate } from '../../services/node-certs.ts';
import { createWorkerKeyring, type WorkerKeyProvider } from '../../services/worker-keys.ts';

export const trustDomain = 'fleet.example';
export const t0 = Date.UTC(2026, 2, 1, 12);

let bundle: Promise<PkiBundle> | undefined;
/** One bundle for all tests that do not change it. */
export const testBundle = (): Promise<PkiBundle> => {
  bundle ??= createBundle({ trustDomain, now: t0 - 30 * day });
  return bundle;
};

export const authorityOf = ({ nodeCa }: PkiBundle): NodeAuthority => ({
  certificate: nodeCa.certificate.der,
  spki: nodeCa.spki,
  signer: nodeCa.signer(),
});

export const newKey = () => generateKeyPairSync('ec', { namedCurve: 'P-256' });
export type NodeKey = ReturnType<typeof newKey>;
export const csrOf = (key: NodeKey): Promise<Uint8Array> => createCsr({ key: key.privateKey });

export async function addNode(db: Database, id: string, role: NodeRole = 'node'): Promise<void> {
  await db.transaction(async (tx) => {
    assert.ok(await insertNodeRow(tx, { id, siteId: 'berlin', role, now: t0 }));
  });
}

export interface EnrolledNode {
  readonly id: string;
  readonly key: NodeKey;
  readonly certificate: Certificate;
  readonly issuer: string;
}

/** A node with an issued certificate, without the detour of a token. */
export async function enrol(
  db: Database,
  id: string,
  { now = t0, role = 'node' }: { now?: number; role?: NodeRole } = {},
): Promise<EnrolledNode> {
  const keys = await testBundle();
  const key = newKey();
  await addNode(db, id, role);
  const certificate = await certify(db, { id, key, now });
  return { id, key, certificate, issuer: issuerOf(keys.nodeCa.spki) };
}

/** Another certificate of a node. */
export async function certify(db: Database, { id, key, now }: { id: string; key: NodeKey; now: number }): Promise<Certificate> {
  const authority = authorityOf(await testBundle());
  const node = (await db.transaction((tx) => lockNode(tx, id))) as NodeFacts;
  const identity = { trustDomain, siteId: node.siteId, nodeId: id };
  const order = { identity, role: node.role, generation: node.identityGeneration, spki: spkiOf(key.publicKey), statements: [], now };
  const reservation = await reserveSerial(db, authority, order);
  const certificate = await signReserved(authority, reservation, now);
  await storeCertificate(db, { reservation, certificate, now });
  return certificate;
}

export const sessionOf = (node: EnrolledNode, changes: Partial<NewSession> = {}): NewSession => ({
  sessionId: randomUUID(),
  nodeId: node.id,
  gatewayId: 'gw-1',
  role: 'node',
  certIssuer: node.issuer,
  certSerial: node.certificate.serial,
  peer: '192.0.2.7:40000',
  bootId: 'boot-1',
  daemonVersion: '0.1.0',
  protoMax: 1,
  capabilities: ['commands', 'trust'],
  trustVersion: null,
  now: t0,
  ...changes,
});

export async function connect(
  db: Database,
  node: EnrolledNode,
  changes: Partial<NewSession> = {},
): Promise<{ sessionId: string; epoch: number }> {
  const session = sessionOf(node, changes);
  const { epoch } = await openSession(db, session);
  return { sessionId: session.sessionId, epoch };
}

export interface RecordingLog extends ServiceLog {
  readonly lines: { level: 'info' | 'warn' | 'error'; fields: object; message: string }[];
}

export function recordingLog(): RecordingLog {
  const lines: RecordingLog['lines'] = [];
  const at = (level: 'info' | 'warn' | 'error') => (fields: object, message: string) => void lines.push({ level, fields, message });
  return { lines, info: at('info'), warn: at('warn'), error: at('error') };
}

export async function keyring(
  db: Database,
  options: { bundle?: () => PkiBundle; now?: () => number; processId?: string; recheckMs?: number; catchUpMs?: number } = {},
): Promise<WorkerKeyProvider> {
  const own = await testBundle();
  return createWorkerKeyring({
    db,
    processId: options.processId ?? 'worker-signing@test:1',
    bundle: options.bundle ?? (() => own),
    times: productionTimes,
    now: options.now ?? (() => t0),
    catchUpMs: options.catchUpMs ?? 0,
    ...(options.recheckMs === undefined ? {} : { recheckMs: options.recheckMs }),
  });
}

export const inventoryPayload = (): Uint8Array =>
  toBinary(AnySchema, anyPack(InventoryRefreshSchema, create(InventoryRefreshSchema, { sections: ['cpu'] })));
export const rebootPayload = (reason = ''): Uint8Array =>
  toBinary(AnySchema, anyPack(NodeRebootSchema, create(NodeRebootSchema, { reason })));

let ids = 0;
export const command = (nodeId: string, changes: Partial<CommandRequest> = {}): CommandRequest => {
  ids += 1;
  return {
    id: `command/test/${ids}`,
    nodeId,
    kind: 'inventory.refresh',
    payload: inventoryPayload(),
    deadlineMs: t0 + hour,
    requestedBy: 'olga',
    ...changes,
  };
};

export const sha256 = (bytes: Uint8Array): Buffer => createHash('sha256').update(bytes).digest();
export { randomBytes };

/** For assert.rejects and assert.throws: code, message and reason. */
export const refused =
  (code: Code, message: RegExp, reason?: string) =>
  (error: unknown): true => {
    assert.ok(error instanceof ControlError, String(error));
    assert.equal(error.code, code, error.message);
    assert.match(error.message, message);
    if (reason !== undefined) assert.equal(error.details['reason'], reason);
    return true;
  };
