/**
 * Evidence of erasures and deployments, verified before it is stored, and stored as it was signed: who reads it later verifies it again. That a
 * wipe is proven is what lets a machine be called clean (domain/metal/run-ends.ts), so the checks here are those a clean disk hangs on.
 */
import { createHash } from 'node:crypto';
import { ControlError } from '../../domain/errors.ts';
import { minute } from '../../domain/time.ts';
import { type Database, type Executor, instant } from '../../drizzle/client.ts';
import {
  type SignedMetalEvidence,
  splitSignedEvidence,
  type VerifiedMetalEvidence,
  verifyMetalEvidence,
} from '../../pki/evidence/index.ts';
import { appendAudit } from '../audit.ts';
import { commandsBegin, getRun, type StoredRun } from './stored-run.ts';
import type { EvidenceKind } from './types.ts';

export interface EvidenceInput {
  readonly runId: string;
  readonly commandId: string;
  readonly kind: EvidenceKind;
  /** An encoded Signed, as the command's result holds it. */
  readonly signed: Uint8Array;
}

export interface EvidenceContext {
  /** DER of the root and the node authority. */
  readonly anchors: readonly Uint8Array[];
  readonly trustDomain: string;
  readonly now: number;
}

export interface RecordedEvidence {
  readonly id: string;
  /** Everything that was asked for was done. */
  readonly complete: boolean;
  /** Of what is not. */
  readonly shortcomings: readonly string[];
  /** For people: disks, methods, bytes. */
  readonly summary: string;
  /** It was stored before. */
  readonly existing: boolean;
}

const insert = {
  name: 'metal-evidence-insert',
  text: `insert into metal_evidence (id, run_id, node_id, command_id, kind, body, signature, body_sha256, signer_serial, complete, finished_at, recorded_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) on conflict (command_id, kind) do nothing returning id`,
};
const stored = {
  name: 'metal-evidence-of',
  text: 'select id, body_sha256 as digest from metal_evidence where command_id = $1 and kind = $2',
};
const revokedAt = {
  name: 'metal-evidence-signer',
  text: 'select revoked_at as "revokedAt" from node_certs where node_id = $1 and serial = $2 and cert_der is not null',
};
const entry = {
  name: 'metal-evidence-boot',
  text: `select id from boot_entries where run_id = $1 and boot_nonce = decode($2, 'hex') and used_at is not null`,
};
const command = { name: 'metal-evidence-command', text: 'select kind, node_id as "nodeId" from node_commands where id = $1' };

const kinds: Readonly<Record<EvidenceKind, string>> = Object.freeze({ erase: 'disk.wipe', deploy: 'deploy.image' });

/**
 * Verifies evidence of a run and stores it. The same again changes nothing.
 *
 * @throws NOT_FOUND; what verifyMetalEvidence throws; INVALID_STATE (other-run, other-command, other-boot, other-time) for evidence that is not
 *   of this run, command and boot; REVOKED for a signer whose certificate had ended; CONFLICT when other evidence of the command is stored
 */
export async function recordEvidence(
  db: Database,
  input: EvidenceInput,
  { anchors, trustDomain, now }: EvidenceContext,
): Promise<RecordedEvidence> {
  const { runId, commandId, kind } = input;
  const run = await getRun(db, runId);
  const evidence = splitSignedEvidence(kind, input.signed);
  const verified = verifyMetalEvidence({ evidence, anchors, trustDomain }); // 1. signed by a ramdisk of this deployment
  assertOfRun(verified, run, { commandId, now }); //                           2. about this run's machine and command
  await assertCommand(db, run, input); //                                      3. which was really asked
  await assertBoot(db, run, verified); //                                      4. in a boot of this run that was used
  await assertSignerHeld(db, verified); //                                     5. by a certificate that we issued and that held then
  return store(db, run, { input, evidence, verified, now });
}

const other = (reason: string, message: string): ControlError<'INVALID_STATE'> =>
  new ControlError('INVALID_STATE', message, { details: { reason } });

/** Clocks differ a little; a document from before the run, or from next week, is another story. */
const clockSlackMs = 10 * minute;

function assertOfRun(verified: VerifiedMetalEvidence, run: StoredRun, { commandId, now }: { commandId: string; now: number }): void {
  const { runId, nodeId, finishedAtMs } = verified;
  if (runId !== run.id || nodeId !== run.machineId)
    throw other('other-run', `the evidence is of run ${runId} on ${nodeId}, not of run ${run.id} on ${run.machineId}`);
  if (verified.commandId !== commandId || !commandId.startsWith(`${commandsBegin(run)}/`))
    throw other('other-command', `the evidence is of command ${verified.commandId}, not of ${commandId}`);
  if (finishedAtMs < run.startedAt - clockSlackMs || finishedAtMs > now + clockSlackMs)
    throw other('other-time', `the evidence ends at ${finishedAtMs}, outside of run ${run.id}`);
}

async function assertCommand(db: Executor, run: StoredRun, { commandId, kind }: EvidenceInput): Promise<void> {
  const [found] = await db.query<{ kind: string; nodeId: string }>(command, [commandId]);
  if (found?.kind === kinds[kind] && found.nodeId === run.machineId) return;
  throw other('other-command', `command ${commandId} is no ${kinds[kind]} of machine ${run.machineId}`);
}

async function assertBoot(db: Executor, run: StoredRun, { bootNonce }: VerifiedMetalEvidence): Promise<void> {
  if (/^[0-9a-f]{32}$/.test(bootNonce) && (await db.query(entry, [run.id, bootNonce])).length > 0) return;
  throw other('other-boot', `the evidence is of a boot that is none of run ${run.id}`);
}

async function assertSignerHeld(db: Executor, { nodeId, signer, finishedAtMs }: VerifiedMetalEvidence): Promise<void> {
  const [row] = await db.query<{ revokedAt: number | null }>(revokedAt, [nodeId, signer.serial]);
  if (row === undefined) {
    throw new ControlError('PERMISSION_DENIED', `certificate ${signer.serial} was not issued here to ${nodeId}`, {
      details: { reason: 'unknown-certificate', nodeId },
    });
  }
  if (row.revokedAt === null || row.revokedAt >= finishedAtMs) return;
  throw new ControlError('REVOKED', `certificate ${signer.serial} of ${nodeId} was revoked before the evidence was signed`, {
    details: { reason: 'certificate-revoked', nodeId },
  });
}

interface ToStore {
  readonly input: EvidenceInput;
  readonly evidence: SignedMetalEvidence;
  readonly verified: VerifiedMetalEvidence;
  readonly now: number;
}

function store(db: Database, run: StoredRun, { input, evidence, verified, now }: ToStore): Promise<RecordedEvidence> {
  const { commandId, kind } = input;
  const { shortcomings, finishedAtMs, signer } = verified;
  const digest = createHash('sha256').update(evidence.body).digest();
  const id = `${kind}-${digest.toString('hex').slice(0, 16)}`;
  const summary = summaryOf(verified);
  const complete = shortcomings.length === 0;
  return db.transaction(async (tx) => {
    const { body, signature } = evidence;
    const values = [
      id,
      run.id,
      run.machineId,
      commandId,
      kind,
      body,
      signature,
      digest,
      signer.serial,
      complete,
      instant(finishedAtMs),
      instant(now),
    ];
    const [row] = await tx.query<{ id: string }>(insert, values);
    if (row === undefined) await assertSameStored(tx, { commandId, kind, digest });
    const event = { key: `evidence/${id}/${commandId}`, actor: run.machineId, action: `machine.evidence.${kind}`, subject: run.machineId };
    const details = { run: run.id, command: commandId, complete, sha256: digest.toString('hex'), summary: summary.slice(0, 500) };
    if (row !== undefined) await appendAudit(tx, { ...event, tenant: run.plan.tenantId, details }, now);
    return { id, complete, shortcomings, summary, existing: row === undefined };
  });
}

async function assertSameStored(
  tx: Executor,
  { commandId, kind, digest }: { commandId: string; kind: EvidenceKind; digest: Buffer },
): Promise<void> {
  const [row] = await tx.query<{ id: string; digest: Uint8Array }>(stored, [commandId, kind]);
  if (row !== undefined && digest.equals(row.digest)) return;
  throw new ControlError('CONFLICT', `other ${kind} evidence of command ${commandId} is stored already`, {
    details: { reason: 'evidence-differs', commandId },
  });
}

function summaryOf(verified: VerifiedMetalEvidence): string {
  if (verified.shortcomings.length > 0) return verified.shortcomings.join('; ');
  if (verified.kind === 'deploy') {
    const { disk, imageSha256, writtenBytes } = verified.body;
    return `${writtenBytes} bytes of image ${imageSha256.slice(0, 12)} on ${disk?.serial || disk?.wwn || 'a disk'}, read back`;
  }
  const { disks, kept } = verified.body;
  const each = disks.map(
    ({ disk, method, samples }) => `${disk?.serial || disk?.wwn || 'a disk'} by ${method} (${samples.length} samples)`,
  );
  return `${disks.length} disk(s) erased: ${each.join(', ')}${kept.length === 0 ? '' : `; ${kept.length} kept as asked`}`;
}
