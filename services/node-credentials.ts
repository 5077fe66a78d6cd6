/**
 * The credentials that a node's desired state names (SEC-007): an operator says which secret a unit of the machine gets, the signing worker
 * signs it into the node's next generation, and the machine asks for it. The spec holds the reference and never the value.
 */
import type { JsonObject } from '@bufbuild/protobuf';
import { codeOf } from '../domain/errors.ts';
import { type SpecCredentialName, specCredentials } from '../domain/secrets/spec-credentials.ts';
import type { Database } from '../drizzle/client.ts';
import { databaseNow } from '../drizzle/queries/clock.ts';
import { recordAudit } from './audit.ts';
import { writeNodeSpec } from './desired-state.ts';
import type { WorkerKeyProvider } from './worker-keys.ts';

export interface NodeCredentialOptions {
  readonly db: Database;
  readonly worker: WorkerKeyProvider;
  readonly trustDomain: string;
  /** Wakes the gateway that holds this node. */
  readonly announce: (nodeIds: readonly string[]) => Promise<void>;
}

export interface NodeCredential {
  readonly nodeId: string;
  readonly name: SpecCredentialName;
  /** A reference to a secret; null takes the section out. */
  readonly ref: string | null;
  readonly actor: string;
  readonly reason: string;
}

/** Another writer is rarely as fast more than once. */
const attempts = 5;

/**
 * @returns the generation that says so; the present one when nothing changed
 * @throws NOT_FOUND; CONFLICT when others kept changing the spec; STALE_BUNDLE
 */
export async function setNodeCredential(
  { db, worker, trustDomain, announce }: NodeCredentialOptions,
  { nodeId, name, ref, actor, reason }: NodeCredential,
): Promise<number> {
  const { key, field } = specCredentials[name];
  const spec = (present: JsonObject): JsonObject => {
    const others = Object.fromEntries(Object.entries(present).filter(([section]) => section !== key));
    return ref === null ? others : { ...others, [key]: { [field]: ref } };
  };
  for (let attempt = 1; ; attempt += 1) {
    const now = await databaseNow(db);
    try {
      const generation = await writeNodeSpec({ db, worker, trustDomain, nodeId, spec, now });
      const details = { name, ref, reason, generation };
      const event = { key: `node/${nodeId}/credential/${name}/${generation}`, actor, action: 'node.credential', subject: nodeId, details };
      await recordAudit(db, event, now);
      await announce([nodeId]);
      return generation;
    } catch (error) {
      if (codeOf(error) !== 'CONFLICT' || attempt === attempts) throw error;
    }
  }
}
