/** data_dir/unbatched-destructive.json (DMN-020): the destructive commands outside of batches of the last hour. */
import { join } from 'node:path';
import { z } from 'zod';
import type { CrashHook } from '../state/crash-points.ts';
import { writeDurably } from '../state/files.ts';
import { readJsonFile } from '../state/json-file.ts';
import { whyUnreadable } from './leaves-file.ts';
import { type KeptSlots, maxSlots, UnbatchedSlots } from './unbatched-slots.ts';

const maxBytes = 1024 * 1024;
const instant = z.number().int().nonnegative();

const schema = z.strictObject({
  format: z.literal('better-compute/unbatched-destructive/1'),
  newestMs: instant,
  slots: z
    .array(
      z.strictObject({
        commandId: z.string().min(1).max(128),
        digest: z.string().regex(/^[0-9a-f]{64}$/),
        atMs: instant,
      }),
    )
    .max(maxSlots),
});

export const unbatchedPath = (folder: string): string => join(folder, 'unbatched-destructive.json');

export async function openUnbatchedFile(folder: string, { crash }: { crash: CrashHook }): Promise<UnbatchedSlots> {
  const path = unbatchedPath(folder);
  const save = async (kept: KeptSlots): Promise<void> => {
    crash('before-claim');
    const content = { format: 'better-compute/unbatched-destructive/1', ...kept };
    await writeDurably(path, `${JSON.stringify(content, null, 2)}\n`, { beforeRename: () => crash('claim-unrenamed') });
    crash('after-claim');
  };
  const nothing: KeptSlots = { slots: [], newestMs: 0 };
  try {
    const kept = await readJsonFile(path, schema, maxBytes);
    return new UnbatchedSlots({ kept: kept ?? nothing, save });
  } catch (error) {
    return new UnbatchedSlots({ kept: nothing, save, unreadable: whyUnreadable(error) });
  }
}
