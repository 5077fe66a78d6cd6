/** What an operator compares: pins in bcd's form, ids, digests and ends of certificates (CLI-018, CLI-019, CLI-044). */
import { createHash } from 'node:crypto';
import type { RotationInProgress } from '../../domain/rotation/stages.ts';
import { showInstant } from '../../domain/time.ts';
import { jwkThumbprint } from '../jose/index.ts';
import { spkiPin } from '../x509/index.ts';
import { bundleDigest } from './encode.ts';
import type { PublicAuthority, PublicBundle, PublicKeyEntry, Republish, SealForm } from './types.ts';

export interface CertificateFacts {
  /** Hex SHA-256 over every certificate of the entry: one appended behind the first changes it (CLI-044). */
  readonly sha256: string;
  readonly count: number;
  readonly serial: string;
  readonly notAfter: string;
}

export interface CommandRootPins extends CertificateFacts {
  readonly id: string;
  readonly pin: string;
  readonly signing: boolean;
  readonly addedAt: string;
}

export interface BundlePins {
  readonly trustDomain: string;
  readonly authenticated: boolean;
  readonly seal: SealForm;
  readonly generation: number;
  readonly trustVersion: number;
  readonly bundleDigest: string;
  readonly rootPin: string;
  readonly nodeCaPin: string;
  readonly servingCaPin: string;
  readonly internalCaPin: string;
  readonly joinSigningPin: string;
  /** Base64 SPKI, as daemons are configured with it. */
  readonly joinSigningKey: string;
  readonly joinEncryptionPin: string;
  readonly rekeyEncryptionPin: string;
  readonly auditPin: string | null;
  /** RFC 7638 thumbprint, base64url. */
  readonly execTicketKid: string | null;
  /** While the ticket key is exchanged: the one that will sign, and the one that did. */
  readonly execTicketNextKid: string | null;
  readonly execTicketFormerKid: string | null;
  readonly sshCaPublicKey: string | null;
  readonly sandboxSshCaPublicKey: string | null;
  readonly commandRoots: readonly CommandRootPins[];
  /** Keys that are kept elsewhere: name (of a command root, its id) → reference of its signer. */
  readonly signers: Readonly<Record<string, string>>;
  readonly rotation: RotationInProgress | null;
  readonly republish: Republish | null;
  readonly certificates: Readonly<Record<'rootCa' | 'nodeCa' | 'servingCa' | 'internalCa', CertificateFacts>>;
}

/** @param authenticated what authenticateBundle found; false when there was no secret to ask with */
export function describePins(bundle: PublicBundle, authenticated: boolean): BundlePins {
  const { rootCa, nodeCa, servingCa, internalCa } = bundle;
  return {
    trustDomain: bundle.trustDomain,
    authenticated,
    seal: bundle.seal,
    generation: bundle.generation,
    trustVersion: bundle.trustVersion,
    bundleDigest: bundleDigest(bundle),
    rootPin: spkiPin(rootCa.certificate.spki),
    nodeCaPin: spkiPin(nodeCa.certificate.spki),
    servingCaPin: spkiPin(servingCa.certificate.spki),
    internalCaPin: spkiPin(internalCa.certificate.spki),
    joinSigningPin: spkiPin(bundle.joinSigning.spki),
    joinSigningKey: Buffer.from(bundle.joinSigning.spki).toString('base64'),
    joinEncryptionPin: spkiPin(bundle.joinEncryption.spki),
    rekeyEncryptionPin: spkiPin(bundle.rekeyEncryption.spki),
    auditPin: bundle.auditSigning === undefined ? null : spkiPin(bundle.auditSigning.spki),
    execTicketKid: kidOf(bundle.execTicketKey),
    execTicketNextKid: kidOf(bundle.execTicketKeyNext),
    execTicketFormerKid: kidOf(bundle.execTicketKeyFormer),
    sshCaPublicKey: bundle.sshCa?.publicKey ?? null,
    sandboxSshCaPublicKey: bundle.sandboxSshCa?.publicKey ?? null,
    commandRoots: commandRootPins(bundle),
    signers: signersOf(bundle),
    rotation: bundle.commandRoots.rotation,
    republish: bundle.republish,
    certificates: { rootCa: factsOf(rootCa), nodeCa: factsOf(nodeCa), servingCa: factsOf(servingCa), internalCa: factsOf(internalCa) },
  };
}

const kidOf = (key: PublicKeyEntry | undefined): string | null => (key === undefined ? null : jwkThumbprint(key.spki));

function signersOf(bundle: PublicBundle): Record<string, string> {
  const { rootCa, auditSigning, commandRootsById } = bundle;
  const keys = [['rootCa', rootCa], ['auditSigning', auditSigning], ...commandRootsById] as const;
  return Object.fromEntries(keys.flatMap(([name, key]) => (key?.signerReference === undefined ? [] : [[name, key.signerReference]])));
}

/** The roots with their pins, in the order they were added. */
export const commandRootPins = (bundle: PublicBundle): CommandRootPins[] =>
  bundle.commandRoots.roots.flatMap(({ id, addedAt }) => {
    const root = bundle.commandRootsById.get(id);
    if (root === undefined) return [];
    const pin = spkiPin(root.certificate.spki);
    return [{ id, pin, signing: id === bundle.commandRoots.signing, addedAt: showInstant(addedAt), ...factsOf(root) }];
  });

function factsOf({ certificate, certificates }: PublicAuthority): CertificateFacts {
  const hash = createHash('sha256');
  for (const { der } of certificates) hash.update(der);
  return {
    sha256: hash.digest('hex'),
    count: certificates.length,
    serial: certificate.serial,
    notAfter: showInstant(certificate.notAfter),
  };
}
