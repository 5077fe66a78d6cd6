/**
 * enrolment.json: the next identity of this machine while it is made ready over SSH, beside the one that is in force and without touching it. The key
 * is made here and never leaves; the pins are kept with it, so that the daemon's own join believes exactly what was checked.
 *
 *   prepared   a key and its request; the daemon takes no notice
 *   armed      the daemon's next start asks for the identity, until the deadline
 *
 * The daemon may run meanwhile and hold its folder, so these moves have a lock of their own. The file goes with the identity it led to, or by
 * `bcd enrol abandon`; behind its deadline it is kept, because the answer may be what got lost: then this key is the only way back.
 */
import { createHash, createPrivateKey, type KeyObject } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { isEnrolmentId } from '../../domain/enrolment/evidence.ts';
import { completesWithinMs } from '../../domain/enrolment/states.ts';
import { ControlError, codeOf } from '../../domain/errors.ts';
import { showInstant } from '../../domain/time.ts';
import { type ControlPlanePins, encodePinsFile, parsePinsFile } from '../../pki/enroll/index.ts';
import { createCsr, spkiOf } from '../../pki/x509/index.ts';
import { assertPrivateFile, damaged, hasErrno, openPrivateFolder, syncFolder } from '../state/files.ts';
import { generateNodeKey } from '../state/identity.ts';
import { readJsonFile, writeJsonFile } from '../state/json-file.ts';
import { lockFile } from '../state/lock.ts';

export interface PendingEnrolment {
  readonly id: string;
  readonly role: 'node' | 'site';
  readonly key: KeyObject;
  /** DER. */
  readonly csr: Uint8Array;
  /** Whom it was prepared to believe. */
  readonly pins: ControlPlanePins;
  readonly state: 'prepared' | 'armed';
  /** Unix milliseconds; null while it is only prepared. */
  readonly deadlineMs: number | null;
}

const schema = z.strictObject({
  format: z.literal('better-compute/enrolment/1'),
  id: z.string().refine(isEnrolmentId, 'is no id of an enrolment'),
  role: z.enum(['node', 'site']),
  key: z.string(),
  csr: z.base64(),
  pins: z.string(),
  state: z.enum(['prepared', 'armed']),
  deadlineMs: z.number().int().nullable(),
});

export const enrolmentPath = (folder: string): string => join(folder, 'enrolment.json');

/** undefined when there is none. @throws DATA_CORRUPT when it does not read back; INVALID_STATE when others can read it */
export async function findEnrolment(folder: string): Promise<PendingEnrolment | undefined> {
  const path = enrolmentPath(folder);
  try {
    await assertPrivateFile(path);
  } catch (error) {
    if (hasErrno(error, 'ENOENT')) return undefined;
    throw error;
  }
  const stored = await readJsonFile(path, schema, 64 * 1024);
  return stored === undefined ? undefined : pendingFrom(path, stored);
}

function pendingFrom(path: string, { id, role, state, deadlineMs, key, csr, pins }: z.infer<typeof schema>): PendingEnrolment {
  const rest = { id, role, state, deadlineMs };
  try {
    return { ...rest, key: createPrivateKey(key), csr: new Uint8Array(Buffer.from(csr, 'base64')), pins: parsePinsFile(pins) };
  } catch (cause) {
    throw damaged(path, 'its key or its pins do not read back', cause);
  }
}

async function write(folder: string, { key, csr, pins, ...rest }: PendingEnrolment): Promise<void> {
  await writeJsonFile(enrolmentPath(folder), {
    format: 'better-compute/enrolment/1',
    ...rest,
    key: key.export({ type: 'pkcs8', format: 'pem' }),
    csr: Buffer.from(csr).toString('base64'),
    pins: encodePinsFile(pins),
  });
}

const lockWaitSeconds = 10;

async function locked<T>(folder: string, work: () => Promise<T>): Promise<T> {
  const lock = await lockFile(join(folder, 'enrolment.lock'), {
    waitSeconds: lockWaitSeconds,
    held: (holder) =>
      new ControlError('CONFLICT', `the enrolment in ${folder} is being changed by another bcd${holder}`, {
        details: { reason: 'enrolment-locked' },
      }),
  });
  try {
    return await work();
  } finally {
    await lock.release();
  }
}

/** Which it would be: an armed one counts until its deadline. */
const isAlive = ({ state, deadlineMs }: PendingEnrolment, now: number): boolean => state === 'armed' && (deadlineMs ?? 0) > now;

export interface Preparing {
  readonly id: string;
  readonly role: 'node' | 'site';
  readonly pins: ControlPlanePins;
  readonly now: number;
}

/**
 * The same key and request each time it is asked for with the same id. Another enrolment that is only prepared, or whose deadline is over, gives way.
 *
 * @throws CONFLICT (enrolment-armed) while another one may complete; (enrolment-differs) for the same id with another role or other pins
 */
export async function prepareEnrolment(folder: string, { id, role, pins, now }: Preparing): Promise<PendingEnrolment> {
  await openPrivateFolder(folder);
  return locked(folder, async () => {
    const found = await findReadable(folder);
    if (found?.id === id) return assertSame(found, { role, pins });
    if (found !== undefined && isAlive(found, now)) throw otherArmed(found);
    const key = generateNodeKey();
    const made: PendingEnrolment = { id, role, key, csr: await createCsr({ key }), pins, state: 'prepared', deadlineMs: null };
    await write(folder, made);
    return made;
  });
}

/** One that does not read back is of no use to anybody: a new one takes its place. */
async function findReadable(folder: string): Promise<PendingEnrolment | undefined> {
  try {
    return await findEnrolment(folder);
  } catch (error) {
    if (codeOf(error) === 'DATA_CORRUPT') return undefined;
    throw error;
  }
}

function assertSame(found: PendingEnrolment, { role, pins }: Pick<Preparing, 'role' | 'pins'>): PendingEnrolment {
  const differs = found.role === role ? (samePins(found.pins, pins) ? null : 'other pins') : `role ${found.role}`;
  if (differs === null) return found;
  throw new ControlError('CONFLICT', `enrolment ${found.id} is ${found.state} here with ${differs}`, {
    details: { reason: 'enrolment-differs', hint: `bcd enrol abandon --id ${found.id}, then prepare it again` },
  });
}

export const samePins = (one: ControlPlanePins, other: ControlPlanePins): boolean => encodePinsFile(one) === encodePinsFile(other);

const otherArmed = ({ id, deadlineMs }: PendingEnrolment): ControlError =>
  new ControlError('CONFLICT', `enrolment ${id} is armed here until ${showInstant(deadlineMs ?? 0)}`, {
    details: { reason: 'enrolment-armed', hint: `wait for its end, or: bcd enrol abandon --id ${id}` },
  });

/** @throws NOT_FOUND (enrolment-unknown) */
export async function getEnrolment(folder: string, id: string): Promise<PendingEnrolment> {
  const found = await findEnrolment(folder);
  if (found?.id === id) return found;
  const what = found === undefined ? 'none is' : `${found.id} is`;
  throw new ControlError('NOT_FOUND', `enrolment ${id} is not prepared in ${folder}: ${what}`, {
    details: { reason: 'enrolment-unknown', hint: `bcd enrol prepare --id ${id}` },
  });
}

/** One that is armed stays as it is. @throws NOT_FOUND; INVALID_STATE (enrolment-over) when its deadline is over */
export async function armEnrolment(
  folder: string,
  { id, withinMs, now }: { readonly id: string; readonly withinMs: number; readonly now: number },
): Promise<PendingEnrolment> {
  await openPrivateFolder(folder);
  return locked(folder, async () => {
    const found = await getEnrolment(folder, id);
    if (isAlive(found, now)) return found;
    if (found.state === 'armed')
      throw new ControlError('INVALID_STATE', `enrolment ${id} was armed until ${showInstant(found.deadlineMs ?? 0)}: it is over`, {
        details: { reason: 'enrolment-over', hint: 'order another one: better-compute nodes enrol' },
      });
    const armed: PendingEnrolment = { ...found, state: 'armed', deadlineMs: now + Math.min(withinMs, completesWithinMs) };
    await write(folder, armed);
    return armed;
  });
}

/** False when none of that id is there. One that does not read back goes under any. */
export async function removeEnrolment(folder: string, id: string): Promise<boolean> {
  return locked(folder, async () => {
    const found = await findEnrolment(folder).catch((error: unknown) => {
      if (codeOf(error) !== 'DATA_CORRUPT') throw error;
      return { id };
    });
    if (found?.id !== id) return false;
    await rm(enrolmentPath(folder));
    await syncFolder(folder);
    return true;
  });
}

export const csrSha256Of = ({ csr }: PendingEnrolment): string => createHash('sha256').update(csr).digest('hex');
export const spkiSha256Of = ({ key }: PendingEnrolment): string => createHash('sha256').update(spkiOf(key)).digest('hex');
