/** The sandbox SSH authority of a bundle: at work, and added to one that was made before there was one (CLI-029 to CLI-033). */
import { ControlError } from '../../domain/errors.ts';
import { createSandboxAuthority, type SandboxAuthority, sshSignerFromPrivateKey } from '../ssh/index.ts';
import { newSandboxSshCa } from './create.ts';
import type { PkiBundle, SshAuthority } from './types.ts';

/** @throws INVALID_STATE when the bundle has one: its public key is in machines' images, another would lock their owners out */
export function addSandboxSshCa(bundle: PkiBundle): PkiBundle & { readonly sandboxSshCa: SshAuthority } {
  if (bundle.sandboxSshCa !== undefined) {
    throw new ControlError('INVALID_STATE', 'the key bundle already has a sandbox SSH CA', {
      details: { reason: 'sandbox-ca-present', hint: 'better-compute pki show prints its public key: sandboxSshCaPublicKey' },
    });
  }
  return Object.freeze({ ...bundle, sandboxSshCa: newSandboxSshCa(bundle.trustDomain) });
}

/** The authority at work, from `bundle.sandboxSshCa`. */
export const sandboxAuthorityOf = ({ publicKey, privateKey }: SshAuthority, now: () => number): SandboxAuthority =>
  createSandboxAuthority({ publicKey, signer: sshSignerFromPrivateKey(privateKey), now });
