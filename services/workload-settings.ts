/** The workload issuer as the environment of a process names it: the same for every process that reads or changes its keys. */
import { assertSealingSecret } from '../pki/bundle/index.ts';
import { parseIssuerUrl } from '../pki/workload/index.ts';
import type { WorkloadSettings } from './workload-keys.ts';

export interface WorkloadEnvironment {
  readonly BETTER_COMPUTE_SECRET?: string | undefined;
  readonly BETTER_COMPUTE_WORKLOAD_ISSUER?: string | undefined;
  readonly BETTER_COMPUTE_WORKLOAD_AUDIENCE?: string | undefined;
  readonly BETTER_COMPUTE_WORKLOAD_AUDIENCES?: string | undefined;
}

/**
 * @returns null without an issuer: no workload tokens (WID-004)
 * @throws INVALID_CONFIG (issuer-url); MISSING_ENV for a secret that seals nothing
 */
export function workloadSettingsOf(env: WorkloadEnvironment): WorkloadSettings | null {
  const { BETTER_COMPUTE_WORKLOAD_ISSUER: issuer, BETTER_COMPUTE_SECRET: secret } = env;
  if (issuer === undefined) return null;
  parseIssuerUrl(issuer);
  assertSealingSecret(secret);
  return {
    issuer,
    secret,
    defaultAudience: env.BETTER_COMPUTE_WORKLOAD_AUDIENCE ?? issuer,
    audiences: (env.BETTER_COMPUTE_WORKLOAD_AUDIENCES ?? '')
      .split(',')
      .map((item) => item.trim())
      .filter((item) => item !== ''),
  };
}
