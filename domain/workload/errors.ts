/** Why a host gets no token (WID-036): the closed words of WorkloadTokenResponse.error, and what each is to the host's code. */
import type { Code } from '../errors.ts';

export interface WorkloadErrorRow {
  readonly code: Code;
  readonly summary: string;
}

export const workloadErrors = Object.freeze({
  'not-bound': { code: 'PERMISSION_DENIED', summary: 'the instance is not one that this node runs' },
  disabled: { code: 'UNSUPPORTED', summary: 'this deployment issues no workload tokens' },
  audience: { code: 'PERMISSION_DENIED', summary: 'tokens are not issued for that audience' },
  'rate-limited': { code: 'RATE_LIMITED', summary: 'too many tokens were asked for; ask again later' },
  'access-denied': { code: 'PERMISSION_DENIED', summary: 'this node may not ask for workload tokens' },
  unavailable: { code: 'UNAVAILABLE', summary: 'no token can be issued now' },
} as const satisfies Record<string, WorkloadErrorRow>);

export type WorkloadError = keyof typeof workloadErrors;

export const isWorkloadError = (text: string): text is WorkloadError => Object.hasOwn(workloadErrors, text);
