/**
 * `sandboxes.exec` (SBX-001 to SBX-006, SBX-010): a certificate of the sandbox authority for one account in one sandbox, for the key that the
 * caller made for it. The way there is a tunnel of its own; with a certificate alone nobody reaches a guest, and a tunnel alone opens none.
 */
import { ControlError } from '../domain/errors.ts';
import { minute, showInstant } from '../domain/time.ts';
import type { Database } from '../drizzle/client.ts';
import { databaseNow } from '../drizzle/queries/clock.ts';
import { type SshAuthority, sandboxAuthorityOf } from '../pki/bundle/index.ts';
import { sshCertAuthorityLine } from '../pki/ssh/index.ts';
import { recordAudit } from './audit.ts';
import { assertAllowed, type Caller } from './callers.ts';
import { getInstance } from './tunnels.ts';

export interface SandboxExecRequest {
  readonly instanceId: string;
  readonly account: string;
  /** One line of OpenSSH form. */
  readonly publicKey: string;
  /** 60 to 900. */
  readonly ttlSeconds: number;
}

export interface ExecSandboxOptions {
  readonly db: Database;
  /** `tunnels.sandboxSsh`; undefined: this deployment has none. */
  readonly sandboxSsh: SshAuthority | undefined;
  readonly caller: Caller;
  readonly request: SandboxExecRequest;
}

export interface SandboxLogin {
  readonly certificate: string;
  readonly serial: string;
  /** Unix milliseconds. */
  readonly validBefore: number;
  readonly principal: string;
  /** The name the guest's host certificate has: HostKeyAlias of ssh. */
  readonly host: string;
  /** For UserKnownHostsFile: takes a host of that name that the sandbox authority certified, and no other (SBX-024). */
  readonly knownHosts: string;
}

/** For a caller whose session has no end of its own. */
const longestMs = 15 * minute;

/** @throws UNSUPPORTED (no-sandbox-ssh) before anything is asked; NOT_FOUND; PERMISSION_DENIED; INVALID_STATE (no-sandbox, session-over); INVALID_INPUT */
export async function execSandbox({ db, sandboxSsh, caller, request }: ExecSandboxOptions): Promise<SandboxLogin> {
  const ca = getAuthority(sandboxSsh);
  const instance = await getInstance(db, request.instanceId);
  const { sandboxEndsAt, capturedOn, id, tenantId } = instance;
  const details = { account: request.account };
  await assertAllowed(db, { caller, tenantId, subject: id, action: 'sandboxes.denied', details });
  if (sandboxEndsAt === null)
    throw new ControlError('INVALID_STATE', `instance ${id} is no sandbox`, { details: { reason: 'no-sandbox', instanceId: id } });
  const now = await databaseNow(db);
  // A guest that was restored from memory goes by the name it had when it was captured (SBX-006).
  const host = capturedOn ?? id;
  const { certificate, serial, validBefore, principal } = await sandboxAuthorityOf(ca, () => now).issueUserCertificate({
    publicKey: request.publicKey,
    account: request.account,
    ttlSeconds: request.ttlSeconds,
    instanceId: host,
    keyId: caller.name,
    sessionEndsAt: caller.session.endsAt ?? now + longestMs,
    sandboxExpiresAt: sandboxEndsAt,
  });
  const given = { serial: String(serial), principal, until: showInstant(validBefore), session: caller.session.id };
  const event = { key: `sandbox/${serial}`, actor: caller.actor, action: 'sandboxes.exec', subject: id, tenant: tenantId, details: given };
  await recordAudit(db, event, now);
  const knownHosts = sshCertAuthorityLine({ caPublicKey: ca.publicKey, host });
  return { certificate, serial: String(serial), validBefore, principal, host, knownHosts };
}

function getAuthority(sandboxSsh: SshAuthority | undefined): SshAuthority {
  if (sandboxSsh !== undefined) return sandboxSsh;
  throw new ControlError('UNSUPPORTED', 'this deployment has no tunnels.sandboxSsh: nobody can log in to its sandboxes', {
    details: { reason: 'no-sandbox-ssh', hint: 'better-compute pki add-sandbox-ca' },
  });
}
