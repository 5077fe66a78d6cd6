/** What operators decided about a rotation, and the evidence its stages left (H-08, H-17). Both are written once. */
import { asc, eq } from 'drizzle-orm';
import { ControlError } from '../domain/errors.ts';
import { type Database, type Executor, instant } from '../drizzle/client.ts';
import { rotationEvidence, rotationOverrides } from '../drizzle/schema/index.ts';
import type { CanonicalValue } from '../pki/audit/canonical-json.ts';
import { appendAudit } from './audit.ts';

export type OverrideKind = 'force' | 'exclude' | 'abort';

export interface RotationOverride {
  readonly kind: OverrideKind;
  /** The gate a force opens, or the node an exclusion names; empty for an abort. */
  readonly subject: string;
  readonly actor: string;
  readonly reason: string;
  readonly at: number;
}

const insertOverride = {
  name: 'rotation-override',
  text: `insert into rotation_overrides (rotation_id, kind, subject, actor, reason, at) values ($1, $2, $3, $4, $5, $6)
         on conflict (rotation_id, kind, subject) do nothing returning at`,
};
const overrideOf = (rows: readonly RotationOverride[], kind: OverrideKind, subject: string): RotationOverride | undefined =>
  rows.find((row) => row.kind === kind && row.subject === subject);

export interface NewOverride {
  readonly rotationId: string;
  readonly override: Omit<RotationOverride, 'at'>;
  /** Facts at the moment of the decision, for the trail: who is left behind. */
  readonly details: Readonly<Record<string, CanonicalValue>>;
  readonly now: number;
}

/**
 * Writes a decision and its audit event in one transaction. A repeated one changes nothing and answers the first.
 *
 * @throws INVALID_INPUT without an actor or a reason
 */
export async function recordOverride(db: Database, input: NewOverride): Promise<RotationOverride> {
  const { rotationId, override, details, now } = input;
  if (override.actor.trim() === '' || override.reason.trim() === '') {
    throw new ControlError('INVALID_INPUT', `${override.kind} needs an actor and a reason`, { details: { reason: 'reason-needed' } });
  }
  return db.transaction(async (tx) => {
    const values = [rotationId, override.kind, override.subject, override.actor, override.reason, instant(now)];
    const inserted = await tx.query(insertOverride, values);
    if (inserted.length > 0) {
      await appendAudit(
        tx,
        {
          key: `rotation/${rotationId}/${override.kind}/${override.subject}`,
          actor: override.actor,
          action: `rotation.${override.kind}`,
          subject: rotationId,
          details: { ...details, subject: override.subject, reason: override.reason },
        },
        now,
      );
    }
    const stored = overrideOf(await readOverrides(tx, rotationId), override.kind, override.subject);
    return stored as RotationOverride;
  });
}

/** In the order in which they were made. */
export async function readOverrides(db: Executor, rotationId: string): Promise<RotationOverride[]> {
  const { at, kind, subject } = rotationOverrides;
  const rows = await db.run((orm) =>
    orm.select().from(rotationOverrides).where(eq(rotationOverrides.rotationId, rotationId)).orderBy(asc(at), asc(kind), asc(subject)),
  );
  return rows.map((row) => ({
    kind: row.kind as OverrideKind,
    subject: row.subject,
    actor: row.actor,
    reason: row.reason,
    at: row.at.getTime(),
  }));
}

export interface RotationEvidence {
  readonly stage: string;
  readonly at: number;
  readonly document: Uint8Array;
  readonly signature: Uint8Array;
}

const insertEvidence = {
  name: 'rotation-evidence-insert',
  text: `insert into rotation_evidence (rotation_id, stage, at, document, signature) values ($1, $2, $3, $4, $5)
         on conflict (rotation_id, stage) do nothing returning stage`,
};
export interface NewEvidence extends RotationEvidence {
  readonly rotationId: string;
  readonly actor: string;
}

/**
 * Stores the evidence of a stage once, with its audit event. A repeated stage with the same document changes nothing.
 *
 * @throws CONFLICT when the stage left another document
 */
export function recordEvidence(db: Database, input: NewEvidence): Promise<void> {
  return db.transaction(async (tx) => {
    const inserted = await tx.query(insertEvidence, [input.rotationId, input.stage, instant(input.at), input.document, input.signature]);
    if (inserted.length === 0) {
      const known = (await readEvidence(tx, input.rotationId)).find((row) => row.stage === input.stage);
      if (known !== undefined && Buffer.from(known.document).equals(input.document)) return;
      throw new ControlError('CONFLICT', `stage ${input.stage} of rotation ${input.rotationId} has left other evidence`, {
        details: { reason: 'evidence-differs', stage: input.stage },
      });
    }
    const event = {
      key: `rotation/${input.rotationId}/stage/${input.stage}`,
      actor: input.actor,
      action: `rotation.stage.${input.stage}`,
      subject: input.rotationId,
      details: { document: Buffer.from(input.document).toString('base64') },
    };
    await appendAudit(tx, event, input.at);
  });
}

/** In the order of the stages. */
export async function readEvidence(db: Executor, rotationId: string): Promise<RotationEvidence[]> {
  const { at, stage } = rotationEvidence;
  const rows = await db.run((orm) =>
    orm.select().from(rotationEvidence).where(eq(rotationEvidence.rotationId, rotationId)).orderBy(asc(at), asc(stage)),
  );
  return rows.map((row) => ({ stage: row.stage, at: row.at.getTime(), document: row.document, signature: row.signature }));
}

const unfinished = {
  name: 'rotation-unfinished',
  text: `select rotation_id as id from rotation_evidence where starts_with(rotation_id, $1)
          group by rotation_id having bool_or(stage = 'add') and not bool_or(stage = 'confirm')
          order by max(at) desc, rotation_id limit 1`,
};

/** The newest rotation of a workflow that has added a key and has not been confirmed: a run that was cut off left it. */
export async function findUnfinishedRotation(db: Executor, workflowId: string): Promise<string | null> {
  const [row] = await db.query<{ id: string }>(unfinished, [`${workflowId}/`]);
  return row?.id ?? null;
}
