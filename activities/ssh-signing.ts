/** Taking a break-glass certificate back: its row, then the desired state of its node, which the signing worker signs. */
import { translated } from './failures.ts';

export interface SshRevocation {
  /** In decimal digits. */
  readonly serial: string;
  readonly actor: string;
  readonly reason: string;
}

export interface SshSigningPorts {
  readonly ssh: {
    /** A repeated call changes nothing and answers the same. @throws NOT_FOUND */
    revoke(input: SshRevocation): Promise<{ nodeId: string; generation: number }>;
  };
}

export interface SshSigningActivities {
  revokeSshCert(input: SshRevocation): Promise<{ nodeId: string; generation: number }>;
  [name: string]: (...args: never[]) => Promise<unknown>;
}

export const createSshSigningActivities = ({ ssh }: SshSigningPorts): SshSigningActivities =>
  translated<SshSigningActivities>({ revokeSshCert: (input) => ssh.revoke(input) });
