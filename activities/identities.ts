/** Taking a node's identity away, and the proof that no gateway holds a session of it. */
import { ControlError } from '../domain/errors.ts';
import { translated } from './failures.ts';
import { currentWait, notYet } from './not-yet.ts';
import type { Clock } from './rotation-ports.ts';

export interface Revocation {
  readonly nodeId: string;
  readonly actor: string;
  readonly reason: string;
  /** The node is deleted with its identity. */
  readonly retire?: boolean;
}

export interface IdentityPorts extends Clock {
  readonly identities: {
    /** Every certificate of the node and its state in one transaction; a repeated call changes nothing. @throws NOT_FOUND */
    revoke(input: Revocation): Promise<{ certificates: number }>;
    /** Gateways with an open session of the node. */
    sessions(nodeId: string): Promise<readonly { gatewayId: string }[]>;
    audit(input: Revocation & { certificates: number; key: string }): Promise<void>;
  };
}

export interface IdentityActivities {
  revokeNode(input: Revocation): Promise<{ certificates: number }>;
  awaitSessionsClosed(input: { nodeId: string }): Promise<void>;
  recordRevocation(input: Revocation & { certificates: number; key: string }): Promise<void>;
  [name: string]: (...args: never[]) => Promise<unknown>;
}

export function createIdentityActivities(ports: IdentityPorts): IdentityActivities {
  const { identities } = ports;
  return translated<IdentityActivities>({
    async revokeNode(input) {
      if (input.nodeId === '') throw new ControlError('INVALID_INPUT', 'nodeId is empty');
      return identities.revoke(input);
    },

    async awaitSessionsClosed({ nodeId }) {
      const open = await identities.sessions(nodeId);
      if (open.length === 0) return;
      const gateways = [...new Set(open.map((session) => session.gatewayId))];
      notYet(
        { reason: 'session-open', message: `${gateways.join(', ')} still hold(s) a session of ${nodeId}`, behind: gateways },
        currentWait(),
      );
    },

    async recordRevocation(input) {
      await identities.audit(input);
    },
  });
}
