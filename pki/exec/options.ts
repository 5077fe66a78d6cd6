/** The `tunnels` option of a deployment, from its bundle (KEY-033, SBX-009). */
import { ControlError } from '../../domain/errors.ts';
import type { PkiBundle } from '../bundle/types.ts';
import { type ExecTicketIssuer, type ExecTicketIssuerOptions, execTicketIssuer } from './issuer.ts';

export interface TunnelsOptions {
  readonly issuer: ExecTicketIssuer;
  /** The break-glass CA; absent in bundles made before it. */
  readonly ssh: PkiBundle['sshCa'];
  /** The sandbox CA: another one, so that neither certificate opens what the other is for. */
  readonly sandboxSsh: PkiBundle['sandboxSshCa'];
}

/**
 * `{ issuer: execTicketIssuer(bundle, …), ssh: bundle.sshCa, sandboxSsh: bundle.sandboxSshCa }`.
 *
 * @throws INVALID_CONFIG: what execTicketIssuer throws; same-ssh-ca when both SSH CAs have one key (SBX-011)
 */
export function tunnelsOptions(bundle: PkiBundle, options: ExecTicketIssuerOptions): TunnelsOptions {
  const { sshCa: ssh, sandboxSshCa: sandboxSsh } = bundle;
  assertApart(ssh?.publicKey, sandboxSsh?.publicKey);
  return { issuer: execTicketIssuer(bundle, options), ssh, sandboxSsh };
}

/** By the key, not by the comment behind it. */
function assertApart(ssh: string | undefined, sandbox: string | undefined): void {
  const keyOf = (line: string | undefined): string | undefined => line?.split(' ')[1];
  if (ssh === undefined || sandbox === undefined || keyOf(ssh) !== keyOf(sandbox)) return;
  throw new ControlError('INVALID_CONFIG', 'tunnels.sandboxSsh must be a different CA from tunnels.ssh', {
    details: { reason: 'same-ssh-ca' },
  });
}
