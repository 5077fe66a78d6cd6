/**
 * The access section of the nodes' desired state: who may log in to a machine. It names the break-glass authority and nothing
 * else that lets people in (SSH-007), the certificates that were taken back (SSH-006), and the keys of exec tickets (EXEC-006).
 *
 * The section is a function of the bundle and of the node's rows, so writing it is reconciling: what is as it should be is left
 * alone, and what a crash or a lost message left behind the next run brings up to date. Other sections are kept as they are.
 */
import type { JsonObject } from '@bufbuild/protobuf';
import { codeOf } from '../domain/errors.ts';
import type { Database } from '../drizzle/client.ts';
import { databaseNow } from '../drizzle/queries/clock.ts';
import { findStoredSpec } from '../drizzle/queries/nodes.ts';
import type { PkiBundle } from '../pki/bundle/index.ts';
import { encodePublicJwk } from '../pki/jose/index.ts';
import { parseSshCaLine } from '../pki/ssh/index.ts';
import { writeNodeSpec } from './desired-state.ts';
import { markListed, renderKrl } from './ssh-certificates.ts';
import type { WorkerKeyProvider } from './worker-keys.ts';

/** What the key bundle says, without its private halves. */
export interface AccessKeys {
  /** The break-glass authority's line; null in a bundle from before there was one. */
  readonly sshUserCa: string | null;
  /** Public keys of exec tickets, each a JWK in JSON. */
  readonly jwks: readonly string[];
  /** The origin of the api, whose tickets nodes take; null: there are no tunnels. */
  readonly ticketIssuer: string | null;
}

type AccessBundle = Pick<PkiBundle, 'sshCa' | 'execTicketKey' | 'execTicketKeyNext' | 'execTicketKeyFormer'>;

/** The ticket key that signs first, then the others that nodes must know. The sandbox authority is not read here (SSH-007). */
export function accessKeysOf(
  { sshCa, execTicketKey, execTicketKeyNext, execTicketKeyFormer }: AccessBundle,
  ticketIssuer: string | null = null,
): AccessKeys {
  const tickets = [execTicketKey, execTicketKeyNext, execTicketKeyFormer].flatMap((key) => (key === undefined ? [] : [key.spki]));
  return { ticketIssuer, sshUserCa: sshCa?.publicKey ?? null, jwks: tickets.map((spki) => JSON.stringify(encodePublicJwk(spki, 'sig'))) };
}

export interface NodeAccessOptions {
  readonly db: Database;
  readonly worker: WorkerKeyProvider;
  readonly trustDomain: string;
  readonly keys: AccessKeys;
  /** Wakes the gateways that hold these nodes. */
  readonly announce: (nodeIds: readonly string[]) => Promise<void>;
}

/** Another writer is rarely as fast more than once. */
const attempts = 5;

/**
 * Brings the access section of one node up to date.
 *
 * @returns the generation that holds it
 * @throws NOT_FOUND; CONFLICT when others kept changing the spec; STALE_BUNDLE
 */
export async function writeAccess(options: NodeAccessOptions, nodeId: string): Promise<number> {
  const { db, worker, trustDomain } = options;
  for (let attempt = 1; ; attempt += 1) {
    const stored = await findStoredSpec(db, nodeId);
    const now = await databaseNow(db);
    const { access, listed } = await renderAccess(options, { nodeId, now });
    try {
      const spec = (present: JsonObject): JsonObject => ({ ...present, access });
      const generation = await writeNodeSpec({ db, worker, trustDomain, nodeId, spec, now });
      await markListed(db, listed, generation);
      if (generation !== stored?.generation) await options.announce([nodeId]);
      return generation;
    } catch (error) {
      if (codeOf(error) !== 'CONFLICT' || attempt === attempts) throw error;
    }
  }
}

interface Rendered {
  /** An AccessSpec in protobuf JSON. */
  readonly access: JsonObject;
  /** Serials that its list names. */
  readonly listed: readonly string[];
}

async function renderAccess({ db, keys }: NodeAccessOptions, { nodeId, now }: { nodeId: string; now: number }): Promise<Rendered> {
  const { sshUserCa, jwks, ticketIssuer } = keys;
  const tickets = { ...(jwks.length === 0 ? {} : { jwks: [...jwks] }), ...(ticketIssuer === null ? {} : { ticketIssuer }) };
  if (sshUserCa === null) return { access: tickets, listed: [] };
  const { bytes, serials } = await renderKrl(db, { nodeId, authority: parseSshCaLine(sshUserCa), now });
  const krl = bytes.length === 0 ? {} : { sshKrl: Buffer.from(bytes).toString('base64') };
  return { access: { ...tickets, ...krl, sshUserCa }, listed: serials };
}

/** Of one attempt of a step that waits: some seconds of signatures and writes. */
const writtenAtATime = 500;

/** As the statements below compare them. */
const factsOf = ({ sshUserCa, jwks, ticketIssuer }: AccessKeys): string[] => [sshUserCa ?? '', JSON.stringify(jwks), ticketIssuer ?? ''];

const countBehind = {
  name: 'node-access-count',
  text: `select count(*) as left from nodes n where state = 'active' and role in ('node', 'site')
           and (coalesce(spec -> 'access' ->> 'sshUserCa', '') <> $1 or coalesce(spec -> 'access' -> 'jwks', '[]') <> $2::jsonb
             or coalesce(spec -> 'access' ->> 'ticketIssuer', '') <> $3)`,
};

/** Brings some of the nodes up to date, and says how many are left: for a step that waits until none is. @throws as writeAccess */
export async function writeAccessOfSome(options: NodeAccessOptions): Promise<{ readonly left: number }> {
  const { db, keys } = options;
  const facts = factsOf(keys);
  const rows = await db.query<{ id: string }>(behind, ['', ...facts, writtenAtATime]);
  for (const { id } of rows) await writeAccess(options, id);
  return { left: (await db.query<{ left: number }>(countBehind, facts))[0]?.left ?? 0 };
}

/** Machines with logins of their own; a ramdisk lives for minutes, a tenant's machine is the tenant's. */
const behind = {
  name: 'node-access-behind',
  text: `select id from nodes n where state = 'active' and role in ('node', 'site') and id > $1
           and (coalesce(spec -> 'access' ->> 'sshUserCa', '') <> $2 or coalesce(spec -> 'access' -> 'jwks', '[]') <> $3::jsonb
             or coalesce(spec -> 'access' ->> 'ticketIssuer', '') <> $4
             or exists (select from ssh_certificates c where c.node_id = n.id and c.revoked_at is not null and c.listed_generation is null
                          and c.valid_before > now()))
         order by id limit $5`,
};

/** Brings every node's section up to date; a run that finds nothing to do costs one read. @throws as writeAccess */
export async function writeAccessOfAll(
  options: NodeAccessOptions,
  { pageSize = 200, onProgress }: { readonly pageSize?: number; readonly onProgress?: (done: number) => void } = {},
): Promise<number> {
  const { db, keys } = options;
  let done = 0;
  for (let after: string | undefined = ''; after !== undefined; ) {
    const values: unknown[] = [after, ...factsOf(keys), pageSize];
    const rows: { id: string }[] = await db.query<{ id: string }>(behind, values);
    for (const { id } of rows) await writeAccess(options, id);
    done += rows.length;
    if (rows.length > 0) onProgress?.(done);
    after = rows.length < pageSize ? undefined : rows.at(-1)?.id;
  }
  return done;
}
