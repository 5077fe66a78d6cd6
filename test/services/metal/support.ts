/** A site with agents and machines for the tests of bare metal; ramdisks with real certificates that sign real evidence. */
import { createHash, randomBytes } from 'node:crypto';
import { create, toBinary } from '@bufbuild/protobuf';
import { type Any, AnySchema, anyPack } from '@bufbuild/protobuf/wkt';
import { hour } from '../../../domain/time.ts';
import type { Database } from '../../../drizzle/client.ts';
import { changeIdentity, lockNode } from '../../../drizzle/queries/nodes.ts';
import { signEnvelope } from '../../../pki/envelope/index.ts';
import { type Certificate, signerFromPrivateKey } from '../../../pki/x509/index.ts';
import { DeployEvidenceSchema, DiskWipeSchema, driver, EraseEvidenceSchema, SignedSchema, site } from '../../../proto/index.ts';
import { enqueueCommands } from '../../../services/command-queue.ts';
import { addMachine, createBootEntry, finishRun, planRun, recordInventory } from '../../../services/metal/index.ts';
import type { BootEntry, NewMachine, PlanRunInput, RunPlan } from '../../../services/metal/types.ts';
import { goodProfile } from '../../domain/metal/profiles.ts';
import { batchWorker } from '../batch-support.ts';
import { addNode, certify, type NodeKey, newKey, testBundle, trustDomain } from '../support.ts';

export const now = Date.now();
export const pin = 'd'.repeat(64);
export const siteId = 'berlin';

export const newMachine = (id: string, changes: Partial<NewMachine> = {}): NewMachine => ({
  id,
  siteId,
  bmcAddress: `${id}.bmc.example`,
  serial: `SN-${id}`,
  ...changes,
});

/** With the agents `agent-a` and `agent-b`. */
export async function addSite(db: Database): Promise<void> {
  await addNode(db, 'agent-a', 'site');
  await addNode(db, 'agent-b', 'site');
}

let workflows = 0;
export const runOf = (machineId: string, kind: PlanRunInput['kind'], changes: Partial<PlanRunInput> = {}): PlanRunInput => {
  workflows += 1;
  return {
    machineId,
    kind,
    profile: kind === 'provision' ? goodProfile() : null,
    workflowId: `machine/${machineId}/${kind}`,
    workflowRunId: `workflow-run-${workflows}`,
    actor: 'olga',
    reason: 'a test',
    now,
    ...changes,
  };
};

export const inventoryReport = (changes: Parameters<typeof create<typeof site.BmcInventoryReportSchema>>[1] = {}): Uint8Array =>
  toBinary(
    site.BmcInventoryReportSchema,
    create(site.BmcInventoryReportSchema, { pinSha256: pin, manufacturer: 'Dell', model: 'R750', power: site.PowerState.OFF, ...changes }),
  );

/** Added and inspected: its controller's key is known. */
export async function availableMachine(db: Database, id: string, changes: Partial<NewMachine> = {}): Promise<void> {
  await addMachine(db, newMachine(id, changes), { actor: 'olga', now });
  const { runId } = await planRun(db, runOf(id, 'inspect'));
  await recordInventory(db, { runId, report: inventoryReport(), now });
  await finishRun(db, { runId, end: 'done', reason: '', actor: 'olga', now });
}

export const stateOf = async (db: Database, id: string) => {
  const [row] = await db.query<{ state: string; node: string; role: string; generation: number; reason: string }>(
    {
      text: `select m.state, n.state as node, n.role, n.identity_generation as generation, m.state_reason as reason
             from machines m join nodes n on n.id = m.id where m.id = $1`,
    },
    [id],
  );
  return row;
};

export interface Ramdisk {
  readonly machineId: string;
  readonly entry: BootEntry;
  readonly key: NodeKey;
  readonly certificate: Certificate;
}

/** The machine of a run boots into the ramdisk and joins, as services/join/discovery.ts lets it. */
export async function bootRamdisk(db: Database, { runId, machineId }: Pick<RunPlan, 'runId' | 'machineId'>, attempt = 1): Promise<Ramdisk> {
  const entry = await createBootEntry(db, { runId, attempt, token: randomBytes(32), expiresAt: now + hour, now });
  await db.query({ text: 'update boot_entries set used_at = now() where id = $1' }, [entry.entryId]);
  await db.transaction(async (tx) => {
    const node = await lockNode(tx, machineId);
    if (node !== undefined) await changeIdentity(tx, { node, state: 'active', role: 'ramdisk', now });
  });
  const key = newKey();
  return { machineId, entry, key, certificate: await certify(db, { id: machineId, key, now }) };
}

export const commandIdOf = ({ workflowId, runId }: Pick<RunPlan, 'workflowId' | 'runId'>, end: string): string =>
  `${workflowId}/${runId}/${end}`;

/** A wipe that is in the machine's log, and that it has taken. */
export async function sendWipe(
  db: Database,
  plan: RunPlan,
  { end = 'wipe.1', acked = true }: { end?: string; acked?: boolean } = {},
): Promise<string> {
  const payload = anyPack(DiskWipeSchema, create(DiskWipeSchema, { runId: plan.runId }));
  return sendAs(db, plan, { end, kind: 'disk.wipe', payload, acked });
}

/** A call of a plugin that the machine has taken. */
export const sendCall = (db: Database, plan: RunPlan, end: 'ask-ramdisk.1' | 'invoke-ramdisk.1'): Promise<string> => {
  const harmless = end.startsWith('ask-');
  const payload = anyPack(driver.DriverInvokeSchema, create(driver.DriverInvokeSchema, { runId: plan.runId, harmless }));
  return sendAs(db, plan, { end, kind: 'driver.invoke', payload, acked: true });
};

async function sendAs(
  db: Database,
  plan: RunPlan,
  { end, kind, payload, acked }: { end: string; kind: string; payload: Any; acked: boolean },
): Promise<string> {
  const id = commandIdOf(plan, end);
  const bytes = toBinary(AnySchema, payload);
  const command = { id, nodeId: plan.machineId, kind, payload: bytes, deadlineMs: now + hour, requestedBy: 'olga' };
  await enqueueCommands({ db, worker: await batchWorker(db), trustDomain, now, commands: [command] });
  if (acked) await db.query({ text: 'update node_commands set state = 1, acked_at = now() where id = $1' }, [id]);
  return id;
}

const sha = (text: string): Buffer => createHash('sha256').update(text).digest();

export interface EvidenceChanges {
  readonly method?: string;
  readonly erased?: boolean;
  readonly after?: Uint8Array;
  readonly before?: Uint8Array;
  readonly nodeId?: string;
  readonly runId?: string;
  readonly bootNonce?: string;
  readonly trustDomain?: string;
  readonly finishedAtMs?: number;
  readonly disks?: number;
}

/** An encoded EraseEvidence. */
export function eraseBody(
  { machineId, entry }: Pick<Ramdisk, 'machineId' | 'entry'>,
  commandId: string,
  changes: EvidenceChanges = {},
): Uint8Array {
  const { method = 'nvme-format-ses1', erased = true, before = sha('before'), after = sha('after'), disks = 1 } = changes;
  const sample = { offset: 0n, length: 4096, beforeSha256: before, afterSha256: after, clean: true };
  return toBinary(
    EraseEvidenceSchema,
    create(EraseEvidenceSchema, {
      trustDomain: changes.trustDomain ?? trustDomain,
      nodeId: changes.nodeId ?? machineId,
      runId: changes.runId ?? entry.runId,
      commandId,
      bootNonce: Buffer.from(changes.bootNonce ?? entry.bootNonce, 'hex'),
      finishedAtMs: BigInt(changes.finishedAtMs ?? now),
      disks: Array.from({ length: disks }, (_, index) => ({ disk: { serial: `D${index}` }, method, erased, samples: [sample] })),
    }),
  );
}

/** An encoded DeployEvidence. */
export const deployBody = ({ machineId, entry }: Pick<Ramdisk, 'machineId' | 'entry'>, commandId: string, readback = 'image'): Uint8Array =>
  toBinary(
    DeployEvidenceSchema,
    create(DeployEvidenceSchema, {
      trustDomain,
      nodeId: machineId,
      runId: entry.runId,
      commandId,
      bootNonce: Buffer.from(entry.bootNonce, 'hex'),
      imageSha256: 'c'.repeat(64),
      writtenBytes: 10n,
      writtenSha256: sha('image'),
      readbackSha256: sha(readback),
      finishedAtMs: BigInt(now),
    }),
  );

/** An encoded Signed, as a ramdisk answers it. */
export async function signBody(
  { key, certificate }: Pick<Ramdisk, 'key' | 'certificate'>,
  body: Uint8Array,
  purpose: 'erase-evidence' | 'deploy-evidence' = 'erase-evidence',
): Promise<Uint8Array> {
  const signature = await signEnvelope(signerFromPrivateKey(key.privateKey), purpose, [body]);
  signature.chain = [certificate.der, (await testBundle()).nodeCa.certificate.der];
  return toBinary(SignedSchema, create(SignedSchema, { body, signature }));
}

export const evidenceContext = async () => ({ anchors: [(await testBundle()).rootCa.certificate.der], trustDomain, now });
