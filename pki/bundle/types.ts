/** What a loaded key bundle is, to the code that uses it. Values of these types come from openBundle and createBundle only. */
import type { KeyObject } from 'node:crypto';
import type { CommandRoots } from '../../domain/rotation/stages.ts';
import type { ExternalSigners } from '../signers/index.ts';
import type { Certificate, Signer } from '../x509/index.ts';

/** A P-256 key that signs. */
export interface SigningKey {
  /** 91-byte DER. */
  readonly spki: Uint8Array;
  readonly publicKey: KeyObject;
  /** Absent where only the public half is at hand: an offline root, a root kept in a key service. */
  readonly privateKey?: KeyObject;
  /** Where the private half is kept instead of the bundle (pki/signers): a token, a key service. */
  readonly signerReference?: string;
  /** @throws INVALID_STATE when the private half is absent (key-offline), or elsewhere and unreachable from here (key-external) */
  signer(): Signer;
}

/** A P-256 key that opens what was sealed to it. It never signs. */
export interface DecryptionKey {
  readonly spki: Uint8Array;
  readonly publicKey: KeyObject;
  readonly privateKey: KeyObject;
}

/** A certificate authority, or a command-signing root. */
export interface Authority extends SigningKey {
  readonly certificate: Certificate;
  /** The current certificate first, then earlier ones of the same key and subject (C14). */
  readonly certificates: readonly Certificate[];
}

export interface CommandRoot extends Authority {
  /** Lower-case hex of SHA-256 over the certificate. */
  readonly id: string;
}

export interface SshAuthority {
  /** One line of OpenSSH form: `ssh-ed25519 <base64> <comment>`. */
  readonly publicKey: string;
  readonly privateKey: KeyObject;
}

/**
 * An order to publish the trust content under at least `version`, although it was published and replaced before: how an
 * aborted rotation takes its added root back (H-04).
 */
export interface Republish {
  readonly version: number;
  readonly reason: string;
  readonly actor: string;
  readonly at: number;
}

/** When the other exec ticket keys came to be what they are; null where there is none. */
export interface ExecTicketTimes {
  readonly nextAddedAt: number | null;
  readonly formerStoppedAt: number | null;
}

/** How the private half is kept in the file. `former` is the seal without a digest over the public half. */
export type SealForm = 'current' | 'former' | 'plaintext';

export interface PkiBundle {
  readonly trustDomain: string;
  /** Raised by one at every write-back: the order of bundles in time (H-07). */
  readonly generation: number;
  /** Floor of the published version (KEY-046). */
  readonly trustVersion: number;
  readonly seal: SealForm;
  /** The public half was checked against a seal of the current form (KEY-044). */
  readonly authenticated: boolean;
  readonly rootCa: Authority;
  readonly nodeCa: Authority;
  readonly servingCa: Authority;
  readonly internalCa: Authority;
  readonly joinSigning: SigningKey;
  readonly joinEncryption: DecryptionKey;
  readonly rekeyEncryption: DecryptionKey;
  readonly execTicketKey?: SigningKey;
  /** Published, signs after its promotion (ticket-key.ts). */
  readonly execTicketKeyNext?: SigningKey;
  /** The public half of the key before: its last tickets verify by it. */
  readonly execTicketKeyFormer?: SigningKey;
  readonly execTicketTimes?: ExecTicketTimes;
  readonly auditSigning?: SigningKey;
  readonly sshCa?: SshAuthority;
  readonly sandboxSshCa?: SshAuthority;
  /** The root that certifies new worker keys; one of commandRootsById. Absent in a bundle made before signed intent. */
  readonly commandSigning?: CommandRoot;
  /** Stages of a rotation; `signing` is empty and `roots` too where the bundle has no command root. */
  readonly commandRoots: CommandRoots;
  readonly commandRootsById: ReadonlyMap<string, CommandRoot>;
  readonly republish: Republish | null;
  /** What keeps the keys that have a signerReference; put there by withExternalSigners, never part of the file. */
  readonly signers?: ExternalSigners;
}

export interface PublicAuthority {
  readonly certificate: Certificate;
  readonly certificates: readonly Certificate[];
  readonly signerReference?: string;
}

export interface PublicKeyEntry {
  readonly spki: Uint8Array;
  readonly signerReference?: string;
}

/** The half of a bundle that needs no secret. Nothing vouches for it: whoever can write the file chose it. */
export interface PublicBundle {
  readonly trustDomain: string;
  readonly generation: number;
  readonly trustVersion: number;
  readonly seal: SealForm;
  readonly rootCa: PublicAuthority;
  readonly nodeCa: PublicAuthority;
  readonly servingCa: PublicAuthority;
  readonly internalCa: PublicAuthority;
  readonly joinSigning: PublicKeyEntry;
  readonly joinEncryption: PublicKeyEntry;
  readonly rekeyEncryption: PublicKeyEntry;
  readonly execTicketKey?: PublicKeyEntry;
  readonly execTicketKeyNext?: PublicKeyEntry;
  readonly execTicketKeyFormer?: PublicKeyEntry;
  readonly execTicketTimes?: ExecTicketTimes;
  readonly auditSigning?: PublicKeyEntry;
  readonly sshCa?: { readonly publicKey: string };
  readonly sandboxSshCa?: { readonly publicKey: string };
  readonly commandRoots: CommandRoots;
  readonly commandRootsById: ReadonlyMap<string, PublicAuthority & { readonly id: string }>;
  readonly republish: Republish | null;
}
