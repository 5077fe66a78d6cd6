/**
 * data_dir/batch-leaves.json (DMN-016): durable before the command that used a leaf is acknowledged. A first line that names the format,
 * then a line of JSON a leaf, so that a person can look one up.
 *
 * A leaf is appended: a site agent may hold those of a hundred thousand operations, and one more must not cost writing all of them.
 * Leaves that are forgotten are left out by writing the file anew beside it and renaming it; so is everything where the file is not, byte
 * for byte, as long as it was left.
 *
 * Damage: a last line without its end is what a crash leaves of an append that nobody was told of. If it reads back it counts, else the
 * journal still has its claim (claims.ts). Anything else that does not read back makes every batch wait, because a forgotten leaf
 * could run twice.
 */
import { open, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { codeOf } from '../../domain/errors.ts';
import type { CrashHook } from '../state/crash-points.ts';
import { damaged, hasErrno, readIfPresent, writeDurably } from '../state/files.ts';
import { type LeavesChange, maxUsedLeaves, type UsedLeaf, UsedLeaves } from './used-leaves.ts';

/** A leaf, a command id of 128 characters, a digest and a time. */
const maxEntryBytes = 512;
/** As many forgotten ones may still stand in it. */
const maxBytes = 2 * maxUsedLeaves * maxEntryBytes;
const hash = z.string().regex(/^[0-9a-f]{64}$/);

const entrySchema = z.strictObject({
  leaf: hash,
  commandId: z.string().min(1).max(128),
  digest: hash,
  notAfterMs: z.number().int().nonnegative(),
}) satisfies z.ZodType<UsedLeaf>;

/** Of daemons that wrote it as a whole each time. */
const wholeSchema = z.strictObject({
  format: z.literal('better-compute/batch-leaves/1'),
  leaves: z.array(entrySchema).max(maxUsedLeaves),
});
const header = '{"format":"better-compute/batch-leaves/2"}\n';

export const leavesPath = (folder: string): string => join(folder, 'batch-leaves.json');

/** A file that does not read back is left as it is and makes every batch wait (see UsedLeaves); the caller says so. */
export async function openLeavesFile(folder: string, { crash }: { crash: CrashHook }): Promise<UsedLeaves> {
  const path = leavesPath(folder);
  try {
    const kept = await readLeaves(path);
    return new UsedLeaves({ entries: kept.entries, save: saver(path, kept.bytes, crash) });
  } catch (error) {
    return new UsedLeaves({ entries: [], save: saver(path, null, crash), unreadable: whyUnreadable(error) });
  }
}

interface ReadLeaves {
  readonly entries: readonly UsedLeaf[];
  /** Its length, when lines can be appended to it as it is. */
  readonly bytes: number | null;
}

/** @throws DATA_CORRUPT when it does not read back */
async function readLeaves(path: string): Promise<ReadLeaves> {
  const content = await readIfPresent(path, maxBytes);
  if (content === undefined) return { entries: [], bytes: null };
  const text = content.toString('utf8');
  if (!text.startsWith(header)) return { entries: readWhole(path, text), bytes: null };
  const lines = text.slice(header.length).split('\n');
  const last = lines.pop() ?? '';
  const entries = lines.map((line, at) => parseEntry(line) ?? refuse(path, `line ${at + 2} does not read back`));
  if (last === '') return { entries, bytes: content.length };
  const unended = parseEntry(last);
  return { entries: unended === null ? entries : [...entries, unended], bytes: null };
}

const refuse = (path: string, why: string, cause?: unknown): never => {
  throw damaged(path, why, cause);
};

function readWhole(path: string, text: string): readonly UsedLeaf[] {
  const parsed = wholeSchema.safeParse(parseJson(text) ?? refuse(path, text.length === 0 ? 'it is empty' : 'it is not JSON'));
  return parsed.success ? parsed.data.leaves : refuse(path, z.prettifyError(parsed.error).slice(0, 500), parsed.error);
}

const parseEntry = (line: string): UsedLeaf | null => entrySchema.safeParse(parseJson(line)).data ?? null;

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

const lineOf = ({ leaf, commandId, digest, notAfterMs }: UsedLeaf): string =>
  `${JSON.stringify({ leaf, commandId, digest, notAfterMs })}\n`;

/** @param bytes how long the file is, if it ends with a line of ours */
function saver(path: string, bytes: number | null, crash: CrashHook): (change: LeavesChange) => Promise<void> {
  let known = bytes;
  return async ({ added, forgets, all }) => {
    crash('before-claim');
    const length = known;
    // Unless this ends well, nobody knows how the file ends.
    known = null;
    if (length !== null && !forgets && (await lengthOf(path)) === length) known = length + (await append(path, added, crash));
    else known = await replace(path, all(), crash);
    crash('after-claim');
  };
}

async function lengthOf(path: string): Promise<number | null> {
  try {
    return (await stat(path)).size;
  } catch (error) {
    if (hasErrno(error, 'ENOENT')) return null;
    throw error;
  }
}

async function append(path: string, added: readonly UsedLeaf[], crash: CrashHook): Promise<number> {
  const lines = Buffer.from(added.map(lineOf).join(''));
  const file = await open(path, 'a');
  try {
    await file.writeFile(lines);
    crash('claim-unsynced');
    await file.sync();
  } finally {
    await file.close();
  }
  return lines.length;
}

async function replace(path: string, entries: readonly UsedLeaf[], crash: CrashHook): Promise<number> {
  const content = Buffer.from(header + entries.map(lineOf).join(''));
  await writeDurably(path, content, { beforeRename: () => crash('claim-unrenamed') });
  return content.length;
}

/** What is damaged, and what cannot be read at all: both keep the daemon from knowing what was used. */
export const whyUnreadable = (error: unknown): string =>
  codeOf(error) === 'INTERNAL' ? `it cannot be read: ${(error as Error).message}` : (error as Error).message;
