/**
 * The approvers that the environment names: public keys and set signatures lie in files, which approvers hand over and nobody needs to
 * keep secret. Read here, judged by services/approvers.ts.
 */
import { createPublicKey } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { ControlError } from '../domain/errors.ts';

export const approverEnv = {
  /** The .pub files of batch keygen, comma-separated. */
  BETTER_COMPUTE_APPROVER_KEYS: z.string().optional(),
  BETTER_COMPUTE_APPROVER_THRESHOLD: z
    .string()
    .regex(/^\d{1,6}$/, 'must be a whole number')
    .transform(Number)
    .optional(),
  BETTER_COMPUTE_UNBATCHED_PER_HOUR: z
    .string()
    .regex(/^\d{1,6}$/, 'must be a whole number')
    .transform(Number)
    .optional(),
  /** The files that batch sign-approvers wrote, comma-separated. */
  BETTER_COMPUTE_APPROVER_SET_SIGNATURES: z.string().optional(),
};

type ApproverEnv = { readonly [Name in keyof typeof approverEnv]?: z.output<(typeof approverEnv)[Name]> };

export interface ApproverFiles {
  readonly keys: readonly Uint8Array[];
  readonly threshold: number;
  readonly unbatchedDestructivePerHour: number;
  readonly setSignatures: readonly { readonly path: string; readonly document: unknown }[];
}

const invalid = (message: string, reason: string, cause?: unknown): ControlError<'INVALID_CONFIG'> =>
  new ControlError('INVALID_CONFIG', message, { details: { reason }, ...(cause === undefined ? {} : { cause }) });

/**
 * null where BETTER_COMPUTE_APPROVER_KEYS names nobody: this process then says nothing about approvers.
 *
 * @throws MISSING_ENV without a threshold; INVALID_CONFIG for a file that cannot be used, or names that only mean something with keys
 */
export function readApproverFiles(env: ApproverEnv): ApproverFiles | null {
  const { BETTER_COMPUTE_APPROVER_KEYS: keys = '', BETTER_COMPUTE_APPROVER_THRESHOLD: threshold } = env;
  const paths = namesOf(keys);
  const signatures = namesOf(env.BETTER_COMPUTE_APPROVER_SET_SIGNATURES ?? '');
  if (paths.length === 0) {
    const left = (
      ['BETTER_COMPUTE_APPROVER_THRESHOLD', 'BETTER_COMPUTE_UNBATCHED_PER_HOUR', 'BETTER_COMPUTE_APPROVER_SET_SIGNATURES'] as const
    ).filter((name) => env[name] !== undefined);
    if (left.length === 0) return null;
    throw invalid(`${left.join(', ')} means nothing without BETTER_COMPUTE_APPROVER_KEYS`, 'approvers');
  }
  if (threshold === undefined) {
    throw new ControlError(
      'MISSING_ENV',
      `BETTER_COMPUTE_APPROVER_THRESHOLD is not set: how many of the ${paths.length} approvers must sign?`,
      {
        details: { reason: 'environment' },
      },
    );
  }
  return {
    keys: paths.map(readKey),
    threshold,
    unbatchedDestructivePerHour: env.BETTER_COMPUTE_UNBATCHED_PER_HOUR ?? 0,
    setSignatures: signatures.map((path) => ({ path, document: readJson(path) })),
  };
}

const namesOf = (text: string): string[] =>
  text
    .split(',')
    .map((name) => name.trim())
    .filter((name) => name !== '');

function readText(path: string, what: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (cause) {
    throw invalid(`${what}: ${path} cannot be read`, 'approvers', cause);
  }
}

function readKey(path: string): Uint8Array {
  const text = readText(path, 'BETTER_COMPUTE_APPROVER_KEYS');
  // A private key would parse as well: it must never lie where a process of the control plane reads it (QUO-004).
  if (text.includes('PRIVATE KEY'))
    throw invalid(
      `BETTER_COMPUTE_APPROVER_KEYS: ${path} holds a private key: give the .pub file, and keep the key away from here`,
      'approver-private-key',
    );
  try {
    return new Uint8Array(createPublicKey(text).export({ type: 'spki', format: 'der' }));
  } catch (cause) {
    throw invalid(`BETTER_COMPUTE_APPROVER_KEYS: ${path} is no public key in PEM`, 'approvers', cause);
  }
}

function readJson(path: string): unknown {
  const text = readText(path, 'BETTER_COMPUTE_APPROVER_SET_SIGNATURES');
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw invalid(`BETTER_COMPUTE_APPROVER_SET_SIGNATURES: ${path} is not JSON`, 'approver-signature', cause);
  }
}
