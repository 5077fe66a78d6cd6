/**
 * Refused logins in a file of the agent's own: a daemon that restarts again and again with a wrong password must not lock an account a
 * try at a time. The passwords are not in it, only what tells one from another, made with a key that is beside it.
 */
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { z } from 'zod';
import { readJsonFile, writeJsonFile } from '../../state/json-file.ts';
import type { Refusal, RefusalStore } from './credential-broker.ts';

const refusalSchema = z.object({ version: z.string().regex(/^[0-9a-f]{16}$/), atMs: z.int().nonnegative(), isCertain: z.boolean() });
const fileSchema = z.strictObject({
  format: z.literal('better-compute/refused-logins/1'),
  key: z.string().regex(/^[0-9a-f]{64}$/),
  refusals: z.record(z.string().max(300), z.array(refusalSchema).max(64)),
});

export const refusalsPath = (folder: string): string => join(folder, 'refused-logins.json');

const maxBytes = 4 * 2 ** 20;

/** @throws DATA_CORRUPT when the file does not read back: better no login than one too many */
export async function openRefusals(folder: string): Promise<RefusalStore> {
  const path = refusalsPath(folder);
  const kept = await readJsonFile(path, fileSchema, maxBytes);
  const key = kept === undefined ? randomBytes(32) : Buffer.from(kept.key, 'hex');
  const refusals = new Map<string, readonly Refusal[]>(Object.entries(kept?.refusals ?? {}));
  let last: Promise<void> = Promise.resolve();
  // One write at a time, each of all that is known by then.
  const write = (): Promise<void> => {
    last = last
      .catch(() => undefined)
      .then(() =>
        writeJsonFile(path, {
          format: 'better-compute/refused-logins/1',
          key: key.toString('hex'),
          refusals: Object.fromEntries(refusals),
        }),
      );
    return last;
  };
  if (kept === undefined) await write();
  return {
    key,
    load: async (address) => refusals.get(address) ?? [],
    async save(address, list) {
      if (list.length === 0) refusals.delete(address);
      else refusals.set(address, list);
      await write();
    },
  };
}
