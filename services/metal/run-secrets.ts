/**
 * The secrets that a run makes for itself, sealed as soon as they exist: the token of one boot, the join string of the system that is
 * deployed, the next password of a management controller. Nothing here leaves the process but a reference.
 *
 * A password is changed in two phases (M40): the next one is stored before anybody sets it, and stays beside the current one until a
 * session was opened with it; so whichever of the two a controller holds after a crash, it is stored, and there are never more than two.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import { ControlError } from '../../domain/errors.ts';
import { hour } from '../../domain/time.ts';
import { type Database, type Executor, instant } from '../../drizzle/client.ts';
import { encodeJoinBundle, type JoinBundle, joinSecretBytes, sealJoinToken } from '../../pki/enroll/index.ts';
import { deleteSecret, readSecret, setSecret } from '../secrets/store.ts';
import { secretSha256 } from '../tokens.ts';
import { createBootEntry, entryIdOf, tokenRefOf } from './boot-entries.ts';
import { getRun, lockRun, type StoredRun } from './stored-run.ts';
import type { BootEntry } from './types.ts';

export interface RunSecretsContext {
  /** BETTER_COMPUTE_SECRET. */
  readonly secret: string;
  readonly now: number;
}

const scheme = 'secret://';
const pathOf = (ref: string): string => ref.slice(scheme.length);
const by = (runId: string): string => `run ${runId}`;

/** Opens the entry of one boot and keeps its token. Repeated while nobody used it, both are new; the reference is the same. */
export async function openBoot(
  db: Database,
  { runId, attempt, expiresAt }: { readonly runId: string; readonly attempt: number; readonly expiresAt: number },
  { secret, now }: RunSecretsContext,
): Promise<BootEntry> {
  const token = randomBytes(32);
  const path = pathOf(tokenRefOf(runId, entryIdOf(runId, attempt)));
  const entry = await createBootEntry(db, { runId, attempt, token, expiresAt, now });
  await db.transaction((tx) => setSecret(tx, { path, value: token, secret, actor: by(runId), now }));
  return entry;
}

export interface JoinFacts {
  /** SPKI of the key that join tokens are sealed to. */
  readonly joinEncryption: Uint8Array;
  readonly pins: Omit<JoinBundle, 'token'>;
}

export const joinRefOf = (runId: string): string => `${scheme}run/${runId}/join`;
/** From the deployment to the first boot of what was deployed. */
const joinWithinMs = 24 * hour;

const insertToken = {
  name: 'join-token-provisioned',
  text: `insert into join_tokens (id, secret_sha256, site_id, role, node_id, created_by, created_at, expires_at, tenant_id, attestor, run_id)
         values ($1, $2, $3, 'node', $4, $5, $6, $7, $8, 'provisioned', $9)`,
};

/** The string with which the deployed system joins as the machine of the run, once. Repeated, it is the same one. */
export async function openProvisionedJoin(
  db: Database,
  runId: string,
  { joinEncryption, pins, secret, now }: JoinFacts & RunSecretsContext,
): Promise<string> {
  const ref = joinRefOf(runId);
  await db.transaction(async (tx) => {
    const run = await lockRun(tx, runId);
    assertOpen(run);
    if ((await readSecret(tx, { path: pathOf(ref), secret })) !== undefined) return;
    const { siteId, tenantId } = run.plan;
    const claims = { tokenId: randomUUID(), secret: randomBytes(joinSecretBytes), siteId, role: 'node' as const, nodeId: run.machineId };
    const expiresAt = Math.floor(now + joinWithinMs);
    const token = sealJoinToken(joinEncryption, { ...claims, expiresAt }, { trustDomain: pins.trustDomain });
    const values = [
      claims.tokenId,
      secretSha256(claims.secret),
      siteId,
      run.machineId,
      by(runId),
      instant(now),
      instant(expiresAt),
      tenantId,
      runId,
    ];
    await tx.query(insertToken, values);
    const value = Buffer.from(encodeJoinBundle({ ...pins, token }), 'utf8');
    await setSecret(tx, { path: pathOf(ref), value, secret, actor: by(runId), now });
  });
  return ref;
}

function assertOpen({ id, state }: StoredRun): void {
  if (state === 'open') return;
  throw new ControlError('INVALID_STATE', `run ${id} has ended: ${state}`, { details: { reason: 'run-ended', runId: id } });
}

const nextOf = (credentialRef: string): string => `${credentialRef}/next`;

/** @throws INVALID_STATE for a credential that is kept elsewhere: who keeps it changes it */
function ownPath({ machineId, plan }: StoredRun): string {
  const { credentialRef } = plan.bmc;
  if (credentialRef.startsWith(scheme)) return pathOf(credentialRef);
  throw new ControlError('INVALID_STATE', `the credential of ${machineId} is kept elsewhere (${credentialRef}): change it there`, {
    details: { reason: 'credential-elsewhere', machineId },
  });
}

interface Credential {
  readonly username: string;
  readonly password: string;
}

/** @throws NOT_FOUND; INVALID_STATE for one that is not {username, password} */
async function readCredential(tx: Executor, path: string, secret: string): Promise<Credential> {
  const found = await readSecret(tx, { path, secret });
  if (found === undefined)
    throw new ControlError('NOT_FOUND', `there is no secret ${path}: better-compute secrets set ${path}`, {
      details: { reason: 'no-secret', path },
    });
  try {
    const { username, password } = JSON.parse(Buffer.from(found.value).toString('utf8')) as Partial<Credential>;
    if (typeof username === 'string' && typeof password === 'string') return { username, password };
  } catch {
    // The same refusal as for JSON of another shape; what was read is never repeated.
  }
  throw new ControlError('INVALID_STATE', `secret ${path} is not JSON with username and password`, {
    details: { reason: 'bad-credential', path },
  });
}

const letters = 'ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789';
/** The longest that every controller we know takes. */
const passwordLength = 20;

/** Of every class that controllers ask for; no character that is read for another. */
export function newPassword(random: (bytes: number) => Uint8Array = randomBytes): string {
  for (;;) {
    const picked = [...random(passwordLength * 4)]
      .filter((byte) => byte < letters.length * 4)
      .map((byte) => letters[byte % letters.length]);
    const text = `${picked.slice(0, passwordLength - 1).join('')}-`;
    if (text.length === passwordLength && /[A-Z]/.test(text) && /[a-z]/.test(text) && /[0-9]/.test(text)) return text;
  }
}

/** Repeated, also by a later run: the one that is stored stays, because the controller may hold it. */
export async function storeNextCredential(db: Database, runId: string, { secret, now }: RunSecretsContext): Promise<string> {
  return db.transaction(async (tx) => {
    const run = await lockRun(tx, runId);
    assertOpen(run);
    const path = nextOf(ownPath(run));
    if ((await readSecret(tx, { path, secret })) === undefined) {
      const { username } = await readCredential(tx, ownPath(run), secret);
      const value = Buffer.from(JSON.stringify({ username, password: newPassword() }), 'utf8');
      await setSecret(tx, { path, value, secret, actor: by(runId), now });
    }
    return `${scheme}${path}`;
  });
}

/** The next one is the current one from here. Repeated, nothing changes. */
export async function adoptCredential(db: Database, runId: string, { secret, now }: RunSecretsContext): Promise<void> {
  await db.transaction(async (tx) => {
    const run = await lockRun(tx, runId);
    const path = ownPath(run);
    const next = await readSecret(tx, { path: nextOf(path), secret });
    if (next === undefined) return;
    await setSecret(tx, { path, value: next.value, secret, actor: by(runId), now });
    await deleteSecret(tx, { path: nextOf(path), actor: by(runId), now });
  });
}

/** What the run made for itself is of no use behind its end. */
export async function forgetRunSecrets(db: Database, runId: string, now: number): Promise<void> {
  const { id } = await getRun(db, runId);
  await db.transaction(async (tx) => {
    for (const path of [1, 2].map((attempt) => pathOf(tokenRefOf(id, entryIdOf(id, attempt)))))
      await deleteSecret(tx, { path, actor: by(id), now });
    await deleteSecret(tx, { path: pathOf(joinRefOf(id)), actor: by(id), now });
  });
}
