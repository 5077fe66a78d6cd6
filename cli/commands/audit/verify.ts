import { Command, InvalidArgumentError, Option } from 'commander';
import { ControlError, isControlError } from '../../../domain/errors.ts';
import { about } from '../../../domain/rotation/gates.ts';
import { hour } from '../../../domain/time.ts';
import { deploymentTenant } from '../../../pki/audit/event.ts';
import type { TrailProblem, TrailVerdict } from '../../../pki/audit/verify-trail.ts';
import { type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import { instantText } from '../../format.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';
import { pkiOption } from '../pki/source.ts';
import { readAuditPin } from './pin.ts';

export interface KeptCheckpoint {
  readonly number: number;
  readonly sha256: string;
}

export interface AuditVerifyOptions extends CommonOptions {
  readonly tenant: string;
  readonly pin: string | null;
  readonly kept: KeptCheckpoint | null;
  readonly pki: string | null;
}

export function newAuditVerify(run: (options: AuditVerifyOptions) => Promise<void>): Command {
  const command = new Command('verify')
    .description("Check a tenant's audit trail: every event, and every checkpoint against the pin of the audit key")
    .addOption(new Option('--tenant <id>', 'whose trail').default(deploymentTenant, "the deployment's own"))
    .option('--pin <pin>', 'pin of the audit key, sha256/…; else BETTER_COMPUTE_AUDIT_PIN, else the key bundle')
    .addOption(
      new Option('--kept <number:sha256>', 'a checkpoint from an earlier run, which must be part of the trail').argParser(parseKept),
    )
    .addOption(pkiOption())
    .action((flags: { tenant: string; pin?: string; kept?: KeptCheckpoint; pki?: string }) =>
      run({ ...commonOptions(command), tenant: flags.tenant, pin: flags.pin ?? null, kept: flags.kept ?? null, pki: flags.pki ?? null }),
    );
  return withExamples(command, [
    'better-compute audit verify',
    'better-compute audit verify --tenant acme --pin sha256/47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=',
    'better-compute audit verify --kept 4711:9c0f…   # notices a trail that was cut off behind it',
  ]);
}

function parseKept(value: string): KeptCheckpoint {
  const match = /^([1-9]\d{0,14}):([0-9a-f]{64})$/.exec(value);
  if (match === null) throw new InvalidArgumentError('It must be a number, ":" and 64 hex digits, as audit verify prints them.');
  return { number: Number(match[1]), sha256: match[2] ?? '' };
}

/** Twice the schedule: one run may be missed. */
const overdueMs = 2 * hour;

/** AUD-004 to AUD-007. */
export async function auditVerifyRun(options: AuditVerifyOptions, ports: Ports): Promise<void> {
  const { pin, trustDomain } = await readAuditPin(options, ports);
  const { chain, verdict } = await readTrail(options, { pin, trustDomain, ports });
  const problems = chain === null ? verdict.problems : [chain, ...verdict.problems];
  const empty = verdict.checkpoints === 0 && verdict.sealed + verdict.unsealed === 0;
  if (empty && problems.length === 0) {
    throw new ControlError('NOT_FOUND', `tenant ${options.tenant} has no audit trail`, { details: { reason: 'no-trail' } });
  }
  const judged = { ...verdict, valid: problems.length === 0, problems };
  if (options.json) writeJson(ports.io, judged);
  else ports.io.out(describe(judged));
  warn(judged, ports);
  const [first] = problems;
  if (first === undefined) return;
  throw new ControlError('AUDIT_TAMPERED', `the audit trail of ${options.tenant} does not hold: ${first.at} ${first.message}`, {
    details: { reason: 'trail-not-valid', problems: problems.length },
  });
}

interface Reading {
  readonly pin: string;
  readonly trustDomain: string | null;
  readonly ports: Ports;
}

async function readTrail(
  { tenant, kept }: AuditVerifyOptions,
  { pin, trustDomain, ports }: Reading,
): Promise<{ chain: TrailProblem | null; verdict: TrailVerdict }> {
  const url = ports.settings.databaseUrl();
  if (url === null) {
    throw new ControlError(
      'MISSING_ENV',
      'the audit trail is in the database: BETTER_COMPUTE_DATABASE_URL is not set and no stack runs here',
      {
        details: { reason: 'no-database' },
      },
    );
  }
  const [{ createDatabase }, { verifyTenantTrail }, { verifyAuditChain }] = await Promise.all([
    import('../../../drizzle/client.ts'),
    import('../../../services/audit-checkpoints.ts'),
    import('../../../services/audit.ts'),
  ]);
  const db = createDatabase(url, { applicationName: 'better-compute audit verify', max: 2, connectTimeoutMs: 3_000 });
  try {
    // The chain over all tenants: what is behind the last checkpoint is held by it alone.
    const chain = await verifyAuditChain(db).then(() => null, chainProblem);
    const verdict = await verifyTenantTrail(db, { tenant, pin, trustDomain, ...(kept === null ? {} : { kept }) });
    return { chain, verdict };
  } finally {
    await db.close();
  }
}

function chainProblem(error: unknown): TrailProblem {
  if (!isControlError(error) || error.code !== 'AUDIT_TAMPERED') throw error;
  const at = `event ${String(error.details['seq'])}`;
  return { check: 'chain', at, message: error.message.replace(`audit ${at} `, '') };
}

function describe({ tenant, checkpoints, lastCheckpoint, sealed, unsealed, problems, valid }: TrailVerdict): string {
  const last = lastCheckpoint === null ? '-' : `${lastCheckpoint.number}:${lastCheckpoint.sha256} (${instantText(lastCheckpoint.at)})`;
  return [
    `tenant: ${tenant}`,
    `checkpoints: ${checkpoints}`,
    `lastCheckpoint: ${last}`,
    `sealed: ${sealed} event(s)`,
    `unsealed: ${unsealed} event(s)`,
    ...problems.map(({ check, at, message }) => `PROBLEM ${check}: ${at} ${message}`),
    `verdict: ${valid ? 'VALID' : `NOT VALID, ${problems.length} problem(s)`}`,
  ].join('\n');
}

function warn({ oldestUnsealedAt, unsealed }: TrailVerdict, { io }: Ports): void {
  if (oldestUnsealedAt === null || io.now() - oldestUnsealedAt <= overdueMs) return;
  io.err(
    `warning: ${unsealed} event(s) wait for a checkpoint, the oldest for ${about(io.now() - oldestUnsealedAt)}: does the schedule run? If it does, checkpoints were taken away: compare with one that was kept, --kept`,
  );
}
