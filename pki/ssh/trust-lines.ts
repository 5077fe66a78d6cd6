/**
 * What sshd and ssh are told, as the contents of their files. Each is built from one parsed key, so nothing that a configuration
 * holds can put a second key, principal or host into them.
 */
import { parseSshCaLine } from './authority.ts';
import { encodeSshKeyLine } from './public-key.ts';
import { invalid } from './refusals.ts';
import { isPlainHostName } from './verify-certificate.ts';

export interface SshTrustFiles {
  /** For `TrustedUserCAKeys`: the one authority. */
  readonly trustedUserCaKeys: string;
  /** For `AuthorizedPrincipalsFile` of the account: its one principal. */
  readonly authorizedPrincipals: string;
}

/** What a node (break-glass) or a guest (sandbox) trusts, for one account (SBX-013, SBX-014). INVALID_CONFIG, INVALID_INPUT. */
export const sshTrustFiles = (options: {
  readonly caPublicKey: string;
  readonly account: string;
  readonly place: string;
}): SshTrustFiles => {
  const { caPublicKey, account, place } = options;
  if (!/^[A-Za-z_][A-Za-z0-9._-]{0,31}$/.test(account))
    throw invalid('account', `${JSON.stringify(account.slice(0, 64))} is no account name`);
  if (!/^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/.test(place)) throw invalid('place', `${JSON.stringify(place.slice(0, 64))} is no id`);
  return { trustedUserCaKeys: `${caLine(caPublicKey)}\n`, authorizedPrincipals: `${account}@${place}\n` };
};

/** A line of known_hosts that takes hosts certified by this authority, under exactly this name (SBX-024). */
export const sshCertAuthorityLine = (options: { readonly caPublicKey: string; readonly host: string }): string => {
  if (!isPlainHostName(options.host)) throw invalid('host', `${JSON.stringify(options.host.slice(0, 64))} is no plain name`);
  return `@cert-authority ${options.host} ${caLine(options.caPublicKey)}\n`;
};

const caLine = (line: string): string => {
  const { comment, ...key } = parseSshCaLine(line);
  return encodeSshKeyLine(key, comment);
};
