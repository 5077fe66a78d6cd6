/** A reviewed batch in words (BATCLI-009 to BATCLI-011, BATCLI-019, BATCLI-022). Every text of the server goes through the filter. */
import { about } from '../../domain/rotation/gates.ts';
import { showInstant } from '../../domain/time.ts';
import { facts, table } from '../format.ts';
import { proposalOf } from './document.ts';
import { fieldsText, type Operation } from './operations.ts';
import { printable, shown } from './printable.ts';
import type { Review } from './review.ts';

/** Subjects that are named for each kind; the rest is counted. */
const namedSubjects = 12;

export function summaryText(review: Review, now: number): string {
  const { batch, operations, warnings } = review;
  const proposal = proposalOf(batch);
  return [
    facts([
      ['batch', batch.id],
      ['deployment', printable(batch.trustDomain)],
      ['tenant', shown(batch.tenantId)],
      ['asked for by', shown(batch.createdBy)],
      ['reason', printable(batch.reason)],
      ['size', `${batch.size} operation(s)`],
      ['approvals', `${batch.approvals.length} of ${batch.required}`],
      ['window', `until ${showInstant(batch.notAfterMs)}, ${about(Math.max(0, batch.notAfterMs - now))} from now`],
      ['root', batch.root],
    ]),
    ...(proposal === null ? [] : ['', printable(proposal)]),
    ...(batch.approvals.length === 0
      ? []
      : ['', ...batch.approvals.map(({ kid, at }) => `approved by ${kid.slice(0, 16)} at ${showInstant(at)}`)]),
    '',
    ...subjectLines(operations),
    '',
    ...operations.map(operationLine),
    ...(warnings.length === 0 ? [] : ['', ...warnings.map((warning) => `warning: ${printable(warning)}`)]),
  ].join('\n');
}

/** Each kind with how many machines it is for, and up to twelve of them. */
function subjectLines(operations: readonly Operation[]): readonly string[] {
  const byKind = new Map<string, Set<string>>();
  for (const { kind, subjects } of operations) {
    const known = byKind.get(kind) ?? new Set();
    for (const subject of subjects) known.add(subject);
    byKind.set(kind, known);
  }
  const rows = [...byKind].map(([kind, subjects]) => {
    const names = [...subjects].slice(0, namedSubjects).map((subject) => shown(subject, 120));
    const more = subjects.size - names.length;
    return [shown(kind), String(subjects.size), `${names.join(', ')}${more > 0 ? ` and ${more} more` : ''}`];
  });
  return [table(['KIND', 'SUBJECTS', ''], rows)];
}

function operationLine({ kind, payloadSha256, form, fields, why, subjects }: Operation): string {
  const times = `${subjects.length} ×`;
  switch (form) {
    case 'decoded':
      return `${times} ${shown(kind)} ${payloadSha256.slice(0, 12)}  ${fieldsText(fields)}`;
    case 'opaque':
      return `${times} ${shown(kind)} ${payloadSha256.slice(0, 12)}  opaque: ${why}`;
    case 'any-payload':
      return `${times} ${shown(kind)}  any payload`;
  }
}

/** The same for a machine: nothing is filtered, because JSON escapes what it must. */
export const summaryJson = ({ batch, operations, warnings, refusals }: Review): object => ({
  ...batchJson(batch),
  operations: operations.map(({ kind, payloadSha256, form, fields, subjects }) => ({
    kind,
    payloadSha256,
    form,
    ...(fields === null ? {} : { payload: fields }),
    subjects: subjects.length,
  })),
  warnings,
  refusals: refusals.map(({ code, message, details }) => ({ code, reason: details['reason'], message })),
});

export function batchJson(batch: Review['batch']): object {
  const { id, tenantId, state, reason, root, size, notAfterMs, trustDomain, required, createdBy, approvals, waves, progress } = batch;
  const proposedBy = proposalOf(batch);
  return {
    id,
    tenantId,
    state,
    reason,
    root,
    size,
    notAfter: showInstant(notAfterMs),
    notAfterMs,
    trustDomain,
    required,
    createdBy,
    ...(proposedBy === null ? {} : { proposedBy }),
    approvals: approvals.map(({ kid, at }) => ({ kid, at: showInstant(at) })),
    ...(waves == null ? {} : { waves }),
    ...(progress == null ? {} : { progress }),
  };
}
