/** Which secret a unit of a machine gets: into its desired state, which the signing worker signs. */
import type { SpecCredentialName } from '../domain/secrets/spec-credentials.ts';
import { translated } from './failures.ts';

export interface NodeCredentialChange {
  readonly nodeId: string;
  readonly name: SpecCredentialName;
  /** null takes the section out. */
  readonly ref: string | null;
  readonly actor: string;
  readonly reason: string;
}

export interface SpecSigningPorts {
  readonly credentials: {
    /** A repeated call changes nothing and answers the same. @throws NOT_FOUND, CONFLICT */
    set(input: NodeCredentialChange): Promise<{ generation: number }>;
  };
}

export interface SpecSigningActivities {
  writeNodeCredential(input: NodeCredentialChange): Promise<{ generation: number }>;
  [name: string]: (...args: never[]) => Promise<unknown>;
}

export const createSpecSigningActivities = ({ credentials }: SpecSigningPorts): SpecSigningActivities =>
  translated<SpecSigningActivities>({ writeNodeCredential: (input) => credentials.set(input) });
