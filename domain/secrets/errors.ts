/** Why a machine gets no secret (SEC-009): the closed words of SecretResponse.error, and what each is to the asker's code. */
import type { Code } from '../errors.ts';

export interface SecretErrorRow {
  readonly code: Code;
  readonly summary: string;
}

export const secretErrors = Object.freeze({
  'not-found': { code: 'NOT_FOUND', summary: 'there is no such secret' },
  'not-bound': { code: 'PERMISSION_DENIED', summary: 'no open command of this node, and nothing of its desired state, names it' },
  'access-denied': { code: 'PERMISSION_DENIED', summary: 'this node may not ask for secrets' },
  unavailable: { code: 'UNAVAILABLE', summary: 'it cannot be had now' },
} as const satisfies Record<string, SecretErrorRow>);

export type SecretError = keyof typeof secretErrors;

export const isSecretError = (text: string): text is SecretError => Object.hasOwn(secretErrors, text);
