/** Join tokens: made once, shown once, used once (JOIN-024). The database keeps only the hash of the secret inside. */
import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { isNodeId, maxNodeIdLength } from '../domain/commands/ids.ts';
import { ControlError } from '../domain/errors.ts';
import { day, minute, showInstant } from '../domain/time.ts';
import { type Database, instant } from '../drizzle/client.ts';
import { joinSecretBytes, sealJoinToken } from '../pki/enroll/index.ts';
import { formatSpiffeId } from '../pki/x509/index.ts';
import { appendAudit } from './audit.ts';
import { assertTenant, defaultTenant } from './tenants.ts';

export type TokenRole = 'node' | 'site';

export interface CreateTokenOptions {
  readonly db: Database;
  readonly trustDomain: string;
  /** SPKI of the join encryption key. */
  readonly joinEncryption: Uint8Array;
  readonly siteId: string;
  readonly role: TokenRole;
  /** Whose machine it will be; default: the default tenant. */
  readonly tenantId?: string;
  /** The node that may use it; without one the join names the node. */
  readonly nodeId?: string;
  readonly lifetimeMs: number;
  readonly actor: string;
  readonly now: number;
  readonly random?: (bytes: number) => Uint8Array;
}

export interface CreatedToken {
  readonly tokenId: string;
  /** `bcj1.…`: hand it to the machine; it is kept nowhere. */
  readonly token: string;
  readonly expiresAt: number;
}

export const tokenLifetimes = Object.freeze({ min: minute, default: day / 24, max: 30 * day });

const insert = {
  name: 'join-token-insert',
  text: `with site as (insert into sites (id, created_at) values ($3, $7) on conflict (id) do nothing)
         insert into join_tokens (id, secret_sha256, site_id, role, node_id, created_by, created_at, expires_at, tenant_id)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
};

export const secretSha256 = (secret: Uint8Array): Buffer => createHash('sha256').update(secret).digest();

function check(options: CreateTokenOptions): void {
  const { trustDomain, siteId, nodeId = 'node', lifetimeMs, role } = options;
  formatSpiffeId({ trustDomain, siteId, nodeId });
  if (!isNodeId(nodeId)) {
    throw new ControlError('INVALID_INPUT', `a node id has at most ${maxNodeIdLength} characters, not ${nodeId.length}`, {
      details: { reason: 'node-id' },
    });
  }
  const { min, max } = tokenLifetimes;
  if (!(lifetimeMs >= min && lifetimeMs <= max)) {
    throw new ControlError('INVALID_INPUT', `a join token lives ${min / minute} min to ${max / day} days, not ${lifetimeMs} ms`, {
      details: { reason: 'token-lifetime' },
    });
  }
  if (role !== 'node' && role !== 'site') {
    throw new ControlError('INVALID_INPUT', `a join token is for role node or site, not ${String(role)}`, {
      details: { reason: 'token-role' },
    });
  }
}

/** @throws INVALID_INPUT for names no identity can hold, or a lifetime out of bounds; NOT_FOUND or INVALID_STATE for a tenant that is not there */
export async function createJoinToken(options: CreateTokenOptions): Promise<CreatedToken> {
  check(options);
  const { db, trustDomain, siteId, role, nodeId, actor, now, random = randomBytes, tenantId = defaultTenant } = options;
  const tokenId = randomUUID();
  const secret = random(joinSecretBytes);
  const expiresAt = Math.floor(now + options.lifetimeMs);
  const claims = { tokenId, secret, siteId, role, ...(nodeId === undefined ? {} : { nodeId }), expiresAt };
  const token = sealJoinToken(options.joinEncryption, claims, { trustDomain });
  await db.transaction(async (tx) => {
    await assertTenant(tx, tenantId);
    await tx.query(insert, [
      tokenId,
      secretSha256(secret),
      siteId,
      role,
      nodeId ?? null,
      actor,
      instant(now),
      instant(expiresAt),
      tenantId,
    ]);
    const details = { site: siteId, role, tenant: tenantId, node: nodeId ?? null, expires: showInstant(expiresAt) };
    await appendAudit(tx, { key: `token/${tokenId}`, actor, action: 'token.create', subject: tokenId, details }, now);
  });
  return { tokenId, token, expiresAt };
}
