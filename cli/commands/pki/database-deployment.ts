/** The deployment port over PostgreSQL. Loaded only by a command that asks the database. */
import { connectedWithinMs } from '../../../domain/session/presence.ts';
import { createDatabase } from '../../../drizzle/client.ts';
import { databaseNow } from '../../../drizzle/queries/clock.ts';
import { fleetFacts } from '../../../drizzle/queries/sessions.ts';
import { earlierVersionOf, publishedTrust } from '../../../drizzle/queries/trust.ts';
import { recordsApproverSets } from '../../../services/approver-lag.ts';
import { readSetChanges } from '../../../services/approver-sets.ts';
import { listProcesses } from '../../../services/processes.ts';
import { countSignedUnder } from '../../../services/resign.ts';
import { readOverrides, recordOverride } from '../../../services/rotations.ts';
import { lastWorkerNotAfter } from '../../../services/worker-keys.ts';
import type { Deployment, NodeTrust } from './deployment.ts';

const connected = (sets: string) => ({
  text: `select p.node_id as "nodeId", p.trust_version as "trustVersion", p.last_seen_at as "lastSeenAt", ${sets}
         from node_presence p left join node_sessions s on s.id = p.session_id where p.last_seen_at >= now() - interval '${connectedWithinMs} ms' order by p.node_id`,
});
const heldSets = `s.approver_set_epoch as "approverSetEpoch", encode(s.approver_set_sha256, 'hex') as "approverSetSha256"`;
const noSets = `null as "approverSetEpoch", null as "approverSetSha256"`;

export function createDatabaseDeployment(url: string): Deployment {
  const db = createDatabase(url, { max: 2, applicationName: 'better-compute pki' });
  return {
    now: () => databaseNow(db),
    published: () => publishedTrust(db),
    earlierVersionOf: (digest) => earlierVersionOf(db, digest),
    excludedNodes: async (rotationId) =>
      (await readOverrides(db, rotationId)).filter(({ kind }) => kind === 'exclude').map(({ subject }) => subject),
    processes: () => listProcesses(db),
    fleet: (version, excluded) => fleetFacts(db, { version, excluded }),
    connected: async () => db.query<NodeTrust>(connected((await recordsApproverSets(db)) ? heldSets : noSets)),
    recordsSets: () => recordsApproverSets(db),
    introducedSet: async () => (await readSetChanges(db)).at(-1) ?? null,
    lastWorkerNotAfter: (rootId) => lastWorkerNotAfter(db, rootId),
    signedUnder: (rootId) => countSignedUnder(db, rootId),
    recordForce: async ({ rotationId, stage, actor, reason, details }) => {
      await recordOverride(db, {
        rotationId,
        override: { kind: 'force', subject: stage, actor, reason },
        details,
        now: await databaseNow(db),
      });
    },
    close: () => db.close(),
  };
}
