/**
 * data_dir/batch-leaves.json (DMN-016): replaced as a whole, durable before the command that used a leaf is acknowledged. One line a leaf,
 * so that a person can look one up.
 */
import { join } from 'node:path';
import { z } from 'zod';
import { codeOf } from '../../domain/errors.ts';
import type { CrashHook } from '../state/crash-points.ts';
import { writeDurably } from '../state/files.ts';
import { readJsonFile } from '../state/json-file.ts';
import { maxUsedLeaves, type UsedLeaf, UsedLeaves } from './used-leaves.ts';

/** A leaf, a command id of 128 characters, a digest and a time. */
const maxEntryBytes = 512;
const maxBytes = maxUsedLeaves * maxEntryBytes;
const hash = z.string().regex(/^[0-9a-f]{64}$/);

const schema = z.strictObject({
  format: z.literal('better-compute/batch-leaves/1'),
  leaves: z
    .array(
      z.strictObject({
        leaf: hash,
        commandId: z.string().min(1).max(128),
        digest: hash,
        notAfterMs: z.number().int().nonnegative(),
      }),
    )
    .max(maxUsedLeaves),
});

export const leavesPath = (folder: string): string => join(folder, 'batch-leaves.json');

/** A file that does not read back is left as it is and makes every batch wait (see UsedLeaves); the caller says so. */
export async function openLeavesFile(folder: string, { crash }: { crash: CrashHook }): Promise<UsedLeaves> {
  const path = leavesPath(folder);
  const save = async (entries: readonly UsedLeaf[]): Promise<void> => {
    crash('before-claim');
    await writeDurably(path, encode(entries), { beforeRename: () => crash('claim-unrenamed') });
    crash('after-claim');
  };
  try {
    const kept = await readJsonFile(path, schema, maxBytes);
    return new UsedLeaves({ entries: kept?.leaves ?? [], save });
  } catch (error) {
    return new UsedLeaves({ entries: [], save, unreadable: whyUnreadable(error) });
  }
}

function encode(entries: readonly UsedLeaf[]): string {
  const lines = entries.map(({ leaf, commandId, digest, notAfterMs }) => JSON.stringify({ leaf, commandId, digest, notAfterMs }));
  return `{"format":"better-compute/batch-leaves/1","leaves":[\n${lines.join(',\n')}\n]}\n`;
}

/** What is damaged, and what cannot be read at all: both keep the daemon from knowing what was used. */
export const whyUnreadable = (error: unknown): string =>
  codeOf(error) === 'INTERNAL' ? `it cannot be read: ${(error as Error).message}` : (error as Error).message;
