/**
 * What a plugin's manifest says: which program it is, and of each of its methods whether it destroys, how long it may take and how much
 * it may be given and may answer. It is the word of the machine's owner; a command names its SHA-256 and so nothing else (KIND-008).
 */
import { z } from 'zod';
import { ControlError } from '../../domain/errors.ts';
import { isManifestSha256, isMethodName, isPluginName, pluginBounds } from '../../domain/plugins/invocation.ts';
import { second } from '../../domain/time.ts';

const bytes = (most: number) => z.number().int().min(0).max(most);

const method = z.strictObject({
  /** Under a quorum it runs with the approvers' word only, bound to the exact call. */
  destructive: z.boolean(),
  timeoutSeconds: z
    .number()
    .min(pluginBounds.leastTimeoutMs / second)
    .max(pluginBounds.timeoutMs / second),
  maxInputBytes: bytes(pluginBounds.inputBytes),
  maxOutputBytes: bytes(pluginBounds.outputBytes),
});

const manifest = z.strictObject({
  name: z.string().refine(isPluginName, 'must be a-z, 0-9 and -, at most 63, as its folder is called'),
  version: z.string().regex(/^[\x21-\x7e]{1,64}$/, 'must be 1 to 64 printable characters without spaces'),
  /** In the plugin's own folder. */
  executable: z.string().regex(/^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$/, "must be the name of a file in the plugin's folder, not a path"),
  /** Of the executable. */
  sha256: z.string().refine(isManifestSha256, 'must be 64 lower-case hex digits'),
  methods: z
    .record(z.string().refine(isMethodName, 'is no name of a method: letters, digits, ., _ and -, at most 63'), method)
    .refine((all) => Object.keys(all).length > 0, 'at least one method is needed')
    .refine((all) => Object.keys(all).length <= pluginBounds.methods, `at most ${pluginBounds.methods} methods`),
});

export type PluginManifest = Readonly<z.infer<typeof manifest>>;
export type PluginMethod = Readonly<z.infer<typeof method>>;

/** @param path for the message @throws INVALID_CONFIG with all problems at once */
export function parseManifest(path: string, text: string): PluginManifest {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new ControlError('INVALID_CONFIG', `${path} is not JSON`, { cause, details: { reason: 'plugin-manifest' } });
  }
  const parsed = manifest.safeParse(value);
  if (parsed.success) return Object.freeze(parsed.data);
  const problems = parsed.error.issues.map(problemOf);
  throw new ControlError('INVALID_CONFIG', `${path}: ${problems.join('; ')}`, { details: { reason: 'plugin-manifest', problems } });
}

function problemOf(issue: z.core.$ZodIssue): string {
  const place = issue.path.map(String).join('.') || 'the manifest';
  if (issue.code === 'unrecognized_keys') return `${place}: ${issue.keys.map((key) => `"${key}"`).join(', ')} means nothing here`;
  return `${place}: ${issue.code === 'invalid_key' ? (issue.issues[0]?.message ?? issue.message) : issue.message}`;
}
