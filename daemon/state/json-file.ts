/** A JSON file of the daemon's own: read strictly, written durably. */
import type { z } from 'zod';
import { damaged, readIfPresent, type WriteOptions, writeDurably } from './files.ts';

/** undefined when there is no such file. @throws DATA_CORRUPT when it does not read back */
export async function readJsonFile<S extends z.ZodType>(path: string, schema: S, maxBytes: number): Promise<z.infer<S> | undefined> {
  const content = await readIfPresent(path, maxBytes);
  if (content === undefined) return undefined;
  let value: unknown;
  try {
    value = JSON.parse(content.toString('utf8'));
  } catch (cause) {
    throw damaged(path, content.length === 0 ? 'it is empty' : 'it is not JSON', cause);
  }
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const problems = parsed.error.issues.map((issue) => `${issue.path.map(String).join('.') || 'content'}: ${issue.message}`);
  throw damaged(path, problems.slice(0, 5).join('; '), parsed.error);
}

export async function writeJsonFile(path: string, value: unknown, options: WriteOptions = {}): Promise<void> {
  await writeDurably(
    path,
    `${JSON.stringify(value, (_key, inner: unknown) => (typeof inner === 'bigint' ? inner.toString() : inner), 2)}\n`,
    options,
  );
}
