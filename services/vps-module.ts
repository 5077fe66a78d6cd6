/**
 * The vps module of a deployment's options, as far as sandboxes go (SBX-012, SBX-015, SBX-016, SBX-023): what a sandbox's instance must
 * be told so that `sandboxes.exec`, and nothing else, gets in.
 */
import { generateKeyPairSync } from 'node:crypto';
import { ControlError } from '../domain/errors.ts';
import { day } from '../domain/time.ts';
import { type PkiBundle, sandboxAuthorityOf } from '../pki/bundle/index.ts';
import {
  encodeSshKeyLine,
  type HostRequest,
  type IssuedSshCertificate,
  parseSshCaLine,
  renderGuestUserData,
  sshKeyOf,
} from '../pki/ssh/index.ts';

export interface SandboxExecOptions {
  /** The sandbox authority's line: `tunnels.sandboxSsh.publicKey`. */
  readonly caPublicKey: string;
  /** The sandbox authority's `issueHostCertificate`. */
  certifyHostKey(request: HostRequest): Promise<IssuedSshCertificate>;
}

/** From the bundle; undefined for one that was made before there was a sandbox authority. */
export function sandboxExecOptions(
  { sandboxSshCa }: Pick<PkiBundle, 'sandboxSshCa'>,
  { now = Date.now }: { readonly now?: () => number } = {},
): SandboxExecOptions | undefined {
  if (sandboxSshCa === undefined) return undefined;
  const { publicKey, issueHostCertificate } = sandboxAuthorityOf(sandboxSshCa, now);
  return { caPublicKey: publicKey, certifyHostKey: issueHostCertificate };
}

export interface SandboxGuest {
  readonly instanceId: string;
  /** The account that sandboxes.exec logs in to. */
  readonly account: string;
  /** For the log of whoever reads certificates: who asked. One line. */
  readonly keyId: string;
  /** Unix milliseconds: when the sandbox ends. Its host certificate ends then, and in 30 days at the latest. */
  readonly endsAt: number;
  readonly now: number;
}

export interface GuestUserData {
  /** For cloud-init. It holds the private half of the host key. */
  readonly userData: string;
  /** Of the host certificate. */
  readonly serial: bigint;
  /** Unix milliseconds. */
  readonly validBefore: number;
}

export interface VpsModule {
  readonly name: 'vps';
  /** The sandbox authority's line; null: sandboxes here are nothing that can be logged in to. */
  readonly sandboxCa: string | null;
  /** @throws UNSUPPORTED without `sandboxExec`; INVALID_INPUT, INVALID_CONFIG as renderGuestUserData */
  guestUserData(guest: SandboxGuest): Promise<GuestUserData>;
}

const longestHostCertificateMs = 30 * day;

/** @throws INVALID_CONFIG when `caPublicKey` is not one line of an Ed25519 or P-256 key, or there is nothing to certify host keys with */
export function vps({ sandboxExec }: { readonly sandboxExec?: SandboxExecOptions | undefined } = {}): VpsModule {
  if (sandboxExec !== undefined) assertSandboxExec(sandboxExec);
  return Object.freeze({
    name: 'vps',
    sandboxCa: sandboxExec?.caPublicKey ?? null,
    guestUserData: async (guest: SandboxGuest) => guestUserData(getSandboxExec(sandboxExec), guest),
  });
}

function assertSandboxExec({ caPublicKey, certifyHostKey }: SandboxExecOptions): void {
  parseSshCaLine(caPublicKey, 'vps.sandboxExec.caPublicKey');
  if (typeof certifyHostKey !== 'function')
    throw new ControlError('INVALID_CONFIG', "vps.sandboxExec.certifyHostKey must be the sandbox authority's issueHostCertificate", {
      details: { reason: 'certify-host-key' },
    });
}

function getSandboxExec(sandboxExec: SandboxExecOptions | undefined): SandboxExecOptions {
  if (sandboxExec !== undefined) return sandboxExec;
  throw new ControlError('UNSUPPORTED', 'this deployment has no sandboxExec: nobody can log in to its sandboxes', {
    details: { reason: 'no-sandbox-exec', hint: 'give vps({ sandboxExec: { caPublicKey, certifyHostKey } })' },
  });
}

/** A new host key for each guest. P-256 in its own PEM form is what every sshd reads. */
async function guestUserData({ caPublicKey, certifyHostKey }: SandboxExecOptions, guest: SandboxGuest): Promise<GuestUserData> {
  const { instanceId, account, keyId, endsAt, now } = guest;
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const publicKey = encodeSshKeyLine(sshKeyOf(privateKey), instanceId);
  const issued = await certifyHostKey({
    publicKey,
    principals: [instanceId],
    keyId,
    validBefore: Math.min(endsAt, now + longestHostCertificateMs),
  });
  const hostKey = { privateKey: String(privateKey.export({ type: 'sec1', format: 'pem' })), publicKey, certificate: issued.certificate };
  const userData = renderGuestUserData({ caPublicKey, account, instanceId, hostKey, now });
  return { userData, serial: issued.serial, validBefore: issued.validBefore };
}
