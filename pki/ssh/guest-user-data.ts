/**
 * What the instance of a sandbox is told at its first boot, as user data of cloud-init (SBX-008, SBX-013, SBX-014, SBX-018, SBX-023).
 *
 *   user_ca              TrustedUserCAKeys: the sandbox authority and nobody else
 *   principals/<account> AuthorizedPrincipalsFile: the one principal `<account>@<instance>`
 *   host_key, …-cert.pub what the guest proves itself with: a key that the sandbox authority certified under the instance's id
 *   a drop-in of sshd    names them, and takes nothing but certificates
 *
 * Nothing in it refers to a list of what was revoked: a guest has no agent that could bring one, so certificates are short (SBX-018).
 * The drop-in stands first in its folder, because of two words sshd takes the first. The host key lies outside the names that
 * cloud-init deletes and makes anew (`ssh_host_*`).
 *
 * Every text is written as a string in double quotes, which is one value in YAML whatever it holds.
 */
import { ControlError } from '../../domain/errors.ts';
import { parseSshCertificateLine } from './certificate.ts';
import { parseSshKeyLine } from './public-key.ts';
import { sshTrustFiles } from './trust-lines.ts';
import { verifySshCertificate } from './verify-certificate.ts';

export interface GuestUserDataOptions {
  /** The sandbox authority, one line. */
  readonly caPublicKey: string;
  readonly account: string;
  readonly instanceId: string;
  readonly hostKey: {
    /** PEM, as sshd reads it. */
    readonly privateKey: string;
    /** One line of OpenSSH form. */
    readonly publicKey: string;
    /** One line, by the sandbox authority, for this instance. */
    readonly certificate: string;
  };
  /** Unix milliseconds. */
  readonly now: number;
}

interface GuestFile {
  readonly path: string;
  readonly permissions: '0600' | '0644';
  readonly content: string;
}

const folder = '/etc/ssh/better-compute';
const dropIn = '/etc/ssh/sshd_config.d/00-better-compute.conf';

/**
 * The whole user data, as text that begins with `#cloud-config`. Pure.
 *
 * @throws INVALID_CONFIG (ssh-ca-key, host-certificate) for an authority that is none, or a host certificate that is not its own for this
 *   instance and key; INVALID_INPUT for an account or instance that is no name
 */
export const renderGuestUserData = (options: GuestUserDataOptions): string => {
  const files = filesOf(options);
  const { account, instanceId } = options;
  return [
    '#cloud-config',
    `# Logins to instance ${instanceId}: certificates of the sandbox authority for ${account}@${instanceId}, and nothing else.`,
    ...(account === 'root' ? [] : accountLines(account)),
    'write_files:',
    ...files.flatMap(fileLines),
    'runcmd:',
    '  - ["systemctl", "try-reload-or-restart", "sshd.service"]',
    '',
  ].join('\n');
};

/** Besides the one that the image has. No password opens it. */
const accountLines = (account: string): string[] => [
  'users:',
  '  - default',
  `  - name: ${JSON.stringify(account)}`,
  '    lock_passwd: true',
  '    shell: "/bin/bash"',
];

const fileLines = ({ path, permissions, content }: GuestFile): string[] => [
  `  - path: ${JSON.stringify(path)}`,
  '    owner: "root:root"',
  `    permissions: ${JSON.stringify(permissions)}`,
  `    content: ${JSON.stringify(content)}`,
];

const filesOf = (options: GuestUserDataOptions): GuestFile[] => {
  const { caPublicKey, account, instanceId, hostKey } = options;
  const { trustedUserCaKeys, authorizedPrincipals } = sshTrustFiles({ caPublicKey, account, place: instanceId });
  assertHostCertificate(options);
  const file = (name: string, content: string, permissions: GuestFile['permissions'] = '0644'): GuestFile => ({
    path: `${folder}/${name}`,
    permissions,
    content,
  });
  return [
    file('user_ca', trustedUserCaKeys),
    file(`principals/${account}`, authorizedPrincipals),
    file('host_key', hostKey.privateKey, '0600'),
    file('host_key-cert.pub', `${hostKey.certificate}\n`),
    { path: dropIn, permissions: '0644', content: sshdConfig(account) },
  ];
};

/** A guest whose certificate its callers refuse would be found out after it was started, one by one. */
const assertHostCertificate = ({ caPublicKey, instanceId, hostKey, now }: GuestUserDataOptions): void => {
  try {
    const certificate = parseSshCertificateLine(hostKey.certificate);
    verifySshCertificate(certificate, { authorities: [parseSshKeyLine(caPublicKey)], kind: 'host', principal: instanceId, now });
    if (Buffer.compare(certificate.publicKey.blob, parseSshKeyLine(hostKey.publicKey).blob) !== 0)
      throw new ControlError('PERMISSION_DENIED', 'the certificate is for another key', { details: { reason: 'host-key' } });
  } catch (cause) {
    throw new ControlError('INVALID_CONFIG', `what certifies host keys did not certify the key of instance ${instanceId}`, {
      details: { reason: 'host-certificate', instanceId },
      cause,
    });
  }
};

const sshdConfig = (account: string): string =>
  [
    '# Written by better-compute: who may log in, and what this guest proves itself with.',
    `HostKey ${folder}/host_key`,
    `HostCertificate ${folder}/host_key-cert.pub`,
    `TrustedUserCAKeys ${folder}/user_ca`,
    `AuthorizedPrincipalsFile ${folder}/principals/%u`,
    'AuthorizedPrincipalsCommand none',
    'AuthorizedKeysFile none',
    'AuthorizedKeysCommand none',
    'AuthenticationMethods publickey',
    'PubkeyAuthentication yes',
    'PasswordAuthentication no',
    'KbdInteractiveAuthentication no',
    'HostbasedAuthentication no',
    `PermitRootLogin ${account === 'root' ? 'prohibit-password' : 'no'}`,
    'PermitUserEnvironment no',
    '',
  ].join('\n');
