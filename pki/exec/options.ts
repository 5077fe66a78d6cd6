/** The `tunnels` option of a deployment, from its bundle (KEY-033, SBX-009). */
import type { PkiBundle } from '../bundle/types.ts';
import { assertDistinctSshAuthorities } from '../ssh/index.ts';
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
  if (ssh !== undefined && sandboxSsh !== undefined) assertDistinctSshAuthorities(ssh.publicKey, sandboxSsh.publicKey);
  return { issuer: execTicketIssuer(bundle, options), ssh, sandboxSsh };
}
