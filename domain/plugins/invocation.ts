/**
 * A call of a plugin, as a command and a profile name it, and the bounds that no manifest may widen: one place for the machine that
 * judges a call, and for whoever plans one.
 */
import { minute, second } from '../time.ts';

export const pluginBounds = Object.freeze({
  /** As large as the body of a relayed request: both stand in a command's body, next to a batch's proof. */
  inputBytes: 512 * 1024,
  /** Within what a result carries. */
  outputBytes: 512 * 1024,
  leastTimeoutMs: second,
  /** Below the kind's own time, so that the machine says what was late before it is late itself. */
  timeoutMs: 29 * minute,
  manifestBytes: 64 * 1024,
  methods: 64,
});

/** Also the name of its folder: never a path, never hidden, never an option. */
export const isPluginName = (text: string): boolean => /^[a-z0-9][a-z0-9-]{0,62}$/.test(text);

/** It is the program's only argument, so likewise never an option. */
export const isMethodName = (text: string): boolean => /^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/.test(text);

export const isManifestSha256 = (text: string): boolean => /^[0-9a-f]{64}$/.test(text);

export interface Invocation {
  readonly plugin: string;
  /** Lower-case hex. */
  readonly manifestSha256: string;
  readonly method: string;
  readonly input: Uint8Array;
  /** What whoever made the command says: the method is not destructive. */
  readonly harmless: boolean;
}

export interface InvocationProblem {
  readonly field: 'plugin' | 'manifestSha256' | 'method' | 'input';
  readonly message: string;
}

/** What is wrong with a call, whatever machine it is for; all of it at once. */
export function problemsOfInvocation({ plugin, manifestSha256, method, input }: Omit<Invocation, 'harmless'>): InvocationProblem[] {
  const problems: InvocationProblem[] = [];
  if (!isPluginName(plugin)) problems.push({ field: 'plugin', message: 'must be the name of a plugin: a-z, 0-9 and -, at most 63' });
  if (!isManifestSha256(manifestSha256))
    problems.push({ field: 'manifestSha256', message: 'must be 64 lower-case hex digits, as bcd plugins prints them on the machine' });
  if (!isMethodName(method)) problems.push({ field: 'method', message: 'must be the name of a method that the manifest has' });
  if (input.length > pluginBounds.inputBytes)
    problems.push({ field: 'input', message: `has ${input.length} bytes, at most ${pluginBounds.inputBytes}` });
  return problems;
}
