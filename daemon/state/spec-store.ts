/** The desired state that was taken last, kept so that a restart does not fall back behind it. */
import { join } from 'node:path';
import { z } from 'zod';
import type { SectionOutcome } from '../agent/desired-state.ts';
import { readJsonFile, writeJsonFile } from './json-file.ts';

export interface KeptSpec {
  readonly generation: bigint;
  readonly spec: Uint8Array;
}

export interface SpecStore {
  readonly current: KeptSpec | undefined;
  /** What became of its access section; absent where nothing is done about logins, or the spec has none. */
  readonly access?: SectionOutcome | undefined;
  /** Section → what became of the credential it names; absent where the machine has no folder for them. */
  readonly credentials?: ReadonlyMap<string, SectionOutcome>;
  save(next: KeptSpec): Promise<void>;
}

const schema = z.object({
  generation: z
    .string()
    .regex(/^\d{1,20}$/)
    .transform(BigInt),
  spec: z.base64().transform((text): Uint8Array => new Uint8Array(Buffer.from(text, 'base64'))),
});

/** @throws DATA_CORRUPT when the file does not read back */
export async function openSpecStore(folder: string): Promise<SpecStore> {
  const path = join(folder, 'desired-state.json');
  let current: KeptSpec | undefined = await readJsonFile(path, schema, 4 * 1024 * 1024);
  return {
    get current() {
      return current;
    },
    async save(next) {
      await writeJsonFile(path, { generation: next.generation, spec: Buffer.from(next.spec).toString('base64') });
      current = next;
    },
  };
}
