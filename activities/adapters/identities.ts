/** The identity ports over PostgreSQL. */
import { connectedWithinMs } from '../../domain/session/presence.ts';
import { instant } from '../../drizzle/client.ts';
import { recordAudit } from '../../services/audit.ts';
import { revokeNode } from '../../services/revocation.ts';
import type { IdentityPorts } from '../identities.ts';
import type { DatabasePorts } from './rotation.ts';

/** A gateway that died leaves its row open; its sessions ended with it, and it is not waited for. */
const openSessions = {
  name: 'revoked-sessions',
  text: `select gateway_id as "gatewayId" from node_sessions where node_id = $1 and ended_at is null and last_seen_at >= $2`,
};
const revokedCount = {
  name: 'revoked-count',
  text: `select count(*) as certificates from node_certs where node_id = $1 and revoked_at is not null and not_after > $2`,
};

export const createIdentities = ({ db, now }: DatabasePorts): IdentityPorts['identities'] => ({
  revoke: async ({ nodeId, actor, reason, retire = false }) => {
    const at = now();
    await revokeNode({ db, nodeId, actor, reason, retire, now: at });
    // Counted, not remembered: a repeated call answers the same.
    const [row] = await db.query<{ certificates: number }>(revokedCount, [nodeId, instant(at)]);
    return { certificates: row?.certificates ?? 0 };
  },
  sessions: (nodeId) => db.query<{ gatewayId: string }>(openSessions, [nodeId, instant(now() - connectedWithinMs)]),
  audit: async ({ nodeId, actor, reason, certificates, key }) => {
    await recordAudit(
      db,
      { key: `${key}/closed`, actor, action: 'node.revoke.closed', subject: nodeId, details: { reason, certificates } },
      now(),
    );
  },
});
