/**
 * Break-glass certificates as the deployment remembers them (SSH-005, SSH-006). A row is written before its certificate leaves, so
 * whatever opens a node is known here; taking one back marks the row, and the node hears of it in its next desired state.
 *
 * What a node's list holds is computed from its rows alone, so whoever renders it renders the same bytes. A certificate that ended
 * a day ago is left out: no clock that a node may have would let it in.
 */
import { ControlError } from '../domain/errors.ts';
import { day, showInstant } from '../domain/time.ts';
import { type Database, type Executor, instant } from '../drizzle/client.ts';
import { databaseNow } from '../drizzle/queries/clock.ts';
import { createKrl, type SshPublicKey } from '../pki/ssh/index.ts';
import { appendAudit } from './audit.ts';

export interface SshIssuance {
  readonly serial: bigint;
  readonly nodeId: string;
  readonly account: string;
  readonly principal: string;
  readonly keyId: string;
  /** Fingerprint of the certified key. */
  readonly publicKey: string;
  readonly issuedTo: string;
  /** Unix milliseconds. */
  readonly validBefore: number;
}

export interface SshCertificateView extends Omit<SshIssuance, 'serial'> {
  /** In decimal digits: 63 bits are more than a number holds. */
  readonly serial: string;
  readonly issuedAt: number;
  readonly revokedAt: number | null;
}

const insert = {
  name: 'ssh-certificate-insert',
  text: `insert into ssh_certificates (serial, node_id, account, principal, key_id, public_key, issued_to, issued_at, valid_before)
         select $1, id, $3, $4, $5, $6, $7, $8, $9 from nodes where id = $2 returning node_id`,
};

/**
 * Writes an issuance down; call it before the certificate leaves.
 *
 * @throws NOT_FOUND for a node nobody knows; CONFLICT for a serial that was given out
 */
export async function recordSshCertificate(db: Database, issuance: SshIssuance): Promise<void> {
  const { serial, nodeId, account, principal, keyId, publicKey, issuedTo, validBefore } = issuance;
  await db.transaction(async (tx) => {
    const now = await databaseNow(tx);
    const values = [String(serial), nodeId, account, principal, keyId, publicKey, issuedTo, instant(now), instant(validBefore)];
    if ((await tx.query(insert, values)).length === 0)
      throw new ControlError('NOT_FOUND', `no node is called ${nodeId}: no certificate is issued for one`, {
        details: { reason: 'unknown-node', nodeId, hint: 'better-compute nodes list' },
      });
    const details = { serial: String(serial), principal, keyId, publicKey, until: showInstant(validBefore) };
    await appendAudit(tx, { key: `ssh/${serial}`, actor: issuedTo, action: 'ssh.sign', subject: nodeId, details }, now);
  });
}

const columns = `serial::text as serial, node_id as "nodeId", account, principal, key_id as "keyId", public_key as "publicKey",
  issued_to as "issuedTo", issued_at as "issuedAt", valid_before as "validBefore", revoked_at as "revokedAt"`;
const list = {
  name: 'ssh-certificates-list',
  text: `select ${columns} from ssh_certificates where ($1::text is null or node_id = $1) order by issued_at desc, serial limit $2`,
};

/** The newest first. */
export const listSshCertificates = (
  db: Executor,
  { nodeId, limit }: { readonly nodeId: string | null; readonly limit: number },
): Promise<SshCertificateView[]> => db.query<SshCertificateView>(list, [nodeId, limit]);

const find = { name: 'ssh-certificate', text: `select ${columns} from ssh_certificates where serial = $1` };

/** @throws NOT_FOUND when no certificate of that serial was issued here; INVALID_INPUT for what is no serial */
export async function getSshCertificate(db: Executor, serial: string): Promise<SshCertificateView> {
  assertSerial(serial);
  const [row] = await db.query<SshCertificateView>(find, [serial]);
  if (row !== undefined) return row;
  throw new ControlError('NOT_FOUND', `no certificate ${serial} was issued here`, {
    details: { reason: 'unknown-ssh-certificate', serial, hint: 'better-compute ssh list' },
  });
}

const maxSerial = 2n ** 63n - 1n;

function assertSerial(serial: string): void {
  if (/^[1-9]\d{0,18}$/.test(serial) && BigInt(serial) <= maxSerial) return;
  throw new ControlError('INVALID_INPUT', `${JSON.stringify(serial.slice(0, 40))} is no serial: a whole number from 1 to ${maxSerial}`, {
    details: { reason: 'ssh-serial' },
  });
}

export interface RevokeSshOptions {
  readonly db: Database;
  readonly serial: string;
  readonly actor: string;
  readonly reason: string;
}

const revoke = {
  name: 'ssh-certificate-revoke',
  text: `update ssh_certificates set revoked_at = $2, revoked_by = $3, revoke_reason = $4
         where serial = $1 and revoked_at is null returning node_id as "nodeId"`,
};

/**
 * Marks a certificate as taken back. Repeated, it changes nothing; the node hears of it by writeAccess.
 *
 * @throws NOT_FOUND, INVALID_INPUT
 */
export async function revokeSshCertificate({ db, serial, actor, reason }: RevokeSshOptions): Promise<{ nodeId: string; already: boolean }> {
  if (actor.trim() === '' || reason.trim() === '')
    throw new ControlError('INVALID_INPUT', 'revoking a certificate needs an actor and a reason', { details: { reason: 'reason-needed' } });
  const { nodeId } = await getSshCertificate(db, serial);
  return db.transaction(async (tx) => {
    const now = await databaseNow(tx);
    const changed = await tx.query(revoke, [serial, instant(now), actor, reason]);
    if (changed.length === 0) return { nodeId, already: true };
    const details = { serial, reason };
    await appendAudit(tx, { key: `ssh/${serial}/revoke`, actor, action: 'ssh.revoke', subject: nodeId, details }, now);
    return { nodeId, already: false };
  });
}

/** A certificate that ended this long ago is in no list. */
const listedAfterEndMs = day;

const revokedOf = {
  name: 'ssh-certificates-revoked',
  text: `select serial::text as serial, revoked_at as "revokedAt" from ssh_certificates
         where node_id = $1 and revoked_at is not null and valid_before > $2 order by serial`,
};

export interface RenderedKrl {
  /** Empty when nothing is revoked. */
  readonly bytes: Uint8Array;
  readonly serials: readonly string[];
}

/** The list of a node: what was taken back and has not ended. */
export async function renderKrl(
  db: Executor,
  { nodeId, authority, now }: { readonly nodeId: string; readonly authority: SshPublicKey; readonly now: number },
): Promise<RenderedKrl> {
  const rows = await db.query<{ serial: string; revokedAt: number }>(revokedOf, [nodeId, instant(now - listedAfterEndMs)]);
  if (rows.length === 0) return { bytes: new Uint8Array(), serials: [] };
  const newest = Math.max(...rows.map(({ revokedAt }) => revokedAt));
  const serials = rows.map(({ serial }) => serial);
  const { bytes } = createKrl({
    // Raised by every certificate that is taken back, and the same for the same rows.
    version: BigInt(newest),
    generatedAt: newest,
    comment: `break-glass certificates of ${nodeId}`,
    certificates: [{ authority, serials: serials.map(BigInt), keyIds: [] }],
    keys: [],
  });
  return { bytes, serials };
}

const mark = {
  name: 'ssh-certificates-listed',
  text: 'update ssh_certificates set listed_generation = $2 where serial = any($1::bigint[]) and listed_generation is null',
};

/** These stand in that generation of their node's desired state. */
export async function markListed(db: Executor, serials: readonly string[], generation: number): Promise<void> {
  if (serials.length > 0) await db.query(mark, [serials, generation]);
}
