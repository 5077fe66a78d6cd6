/** Writing a node's desired state (SPEC-001 to SPEC-006): the next generation with its signed body, in one UPDATE. */
import type { JsonObject } from '@bufbuild/protobuf';
import { ControlError } from '../domain/errors.ts';
import { type Database, instant } from '../drizzle/client.ts';
import { findStoredSpec } from '../drizzle/queries/nodes.ts';
import { nodeSpecFromJson, storedDesiredState } from '../pki/envelope/index.ts';
import type { WorkerKeyProvider } from './worker-keys.ts';

export interface WriteSpecOptions {
  readonly db: Database;
  readonly worker: WorkerKeyProvider;
  readonly trustDomain: string;
  readonly nodeId: string;
  /** A NodeSpec in protobuf JSON, or what becomes of the stored one: two writers of different sections must not undo each other. */
  readonly spec: JsonObject | ((stored: JsonObject) => JsonObject);
  readonly now: number;
}

const write = {
  name: 'spec-write',
  text: `update nodes set spec = $3, generation = $2 + 1, spec_body = $4, spec_signature = $5, spec_signer_root = $6,
           spec_signer_not_after = $7, updated_at = $8
         where id = $1 and generation = $2 returning generation`,
};

/**
 * @returns the generation that holds this spec; the present one when nothing changed
 * @throws NOT_FOUND; MALFORMED when the spec is none; CONFLICT when another writer was faster; STALE_BUNDLE
 */
export async function writeNodeSpec({ db, worker, trustDomain, nodeId, now, ...asked }: WriteSpecOptions): Promise<number> {
  const stored = await findStoredSpec(db, nodeId);
  if (stored === undefined)
    throw new ControlError('NOT_FOUND', `no node is called ${nodeId}`, { details: { reason: 'unknown-node', nodeId } });
  const spec = typeof asked.spec === 'function' ? asked.spec(stored.spec as JsonObject) : asked.spec;
  const encoded = nodeSpecFromJson(spec);
  const unchanged = stored.body !== null && Buffer.from(nodeSpecFromJson(stored.spec as JsonObject)).equals(encoded);
  if (unchanged) return stored.generation;
  const key = await worker.current();
  const generation = stored.generation + 1;
  const { body, signature } = await storedDesiredState(key, { nodeId, generation, trustDomain, spec: encoded });
  const values = [nodeId, stored.generation, JSON.stringify(spec), body, signature, key.rootId, instant(key.notAfter), instant(now)];
  if ((await db.query(write, values)).length > 0) return generation;
  throw new ControlError('CONFLICT', `the spec of node ${nodeId} changed meanwhile`, { details: { reason: 'spec-changed', nodeId } });
}
