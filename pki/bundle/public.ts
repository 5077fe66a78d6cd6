/** From the document to parsed certificates and keys: the half of a bundle that needs no secret. */
import type { CommandRoots } from '../../domain/rotation/stages.ts';
import { formatSignerReference, parseSignerReference } from '../signers/reference.ts';
import { type Certificate, certificateId, isTrustDomain, parseCertificate, parseP256Spki } from '../x509/index.ts';
import type { CommandRootsDocument, ParsedDocument, PublicDocument } from './document.ts';
import { parseDocument } from './document.ts';
import { type KeyName, keyNames, keyTable } from './keys.ts';
import { parsePem } from './pem.ts';
import { Problems } from './problems.ts';
import { parseSshPublicKey } from './ssh-key.ts';
import type { PublicAuthority, PublicBundle, PublicKeyEntry, SealForm } from './types.ts';

/** A bundle before its first command root, or made before signed intent. */
export const noCommandRoots: CommandRoots = Object.freeze({
  signing: '',
  roots: Object.freeze([]),
  rotation: null,
  lastRotation: null,
  removed: Object.freeze([]),
});

/**
 * Reads the public half without a secret (KEY-025, CLI-013).
 *
 * @throws INVALID_CONFIG (bundle-invalid) when the file is no bundle. It does not notice a changed pin: only openBundle does.
 */
export function readPublicBundle(text: string): PublicBundle {
  return publicOf(parseDocument(text));
}

/** @throws INVALID_CONFIG (bundle-invalid) naming every certificate and key that does not parse */
export function publicOf({ document, seal, privateKeys }: ParsedDocument): PublicBundle {
  const problems = new Problems();
  if (!isTrustDomain(document.trustDomain)) problems.add('trustDomain', `"${document.trustDomain}" is not a trust domain`);
  const roots =
    document.commandRoots === undefined ? [] : document.commandRoots.roots.map((root, index) => readRoot(root, index, problems));
  const keys = readKeys(document, problems);
  problems.throwIfAny();
  return {
    trustDomain: document.trustDomain,
    generation: document.generation,
    trustVersion: document.trustVersion,
    seal: privateKeys === undefined ? sealForm(seal) : 'plaintext',
    ...(keys as Pick<PublicBundle, KeyName>),
    commandRoots: document.commandRoots === undefined ? noCommandRoots : stateOf(document.commandRoots),
    commandRootsById: new Map(roots.map((root) => [root.id, root])),
    republish: document.republish,
    ...(document.execTicketTimes === undefined ? {} : { execTicketTimes: document.execTicketTimes }),
  };
}

/** What the file claims; parseSeal decides whether it is one. */
const sealForm = (seal: unknown): SealForm => ((seal as { form?: unknown } | null)?.form === 'former' ? 'former' : 'current');

const stateOf = ({ roots, ...rest }: CommandRootsDocument): CommandRoots => ({
  ...rest,
  roots: roots.map(({ id, addedAt }) => ({ id, addedAt })),
});

function readKeys(document: PublicDocument, problems: Problems): Partial<Record<KeyName, unknown>> {
  const keys: Partial<Record<KeyName, unknown>> = {};
  for (const name of keyNames) {
    const entry = document.keys[name];
    if (entry === undefined) continue;
    const { form, mayBeExternal } = keyTable[name];
    const path = `keys.${name}`;
    const external = readReference(entry.signer, path, problems);
    if (entry.signer !== undefined && !mayBeExternal) problems.add(`${path}.signer`, 'is a key that only the bundle keeps');
    if (form === 'authority') keys[name] = { ...readCertificates(entry.certificates ?? [], path, problems), ...external };
    else if (form === 'ssh') keys[name] = readSshLine(entry.publicKey ?? '', path, problems);
    else keys[name] = { ...readPublicKey(entry.publicKey ?? '', path, problems), ...external };
  }
  return keys;
}

function readCertificates(pems: readonly string[], path: string, problems: Problems): PublicAuthority {
  const certificates = pems.map((pem, index) => {
    const parsed = orNull(() => parseCertificate(parsePem('CERTIFICATE', pem) ?? new Uint8Array()));
    if (parsed === null) problems.add(`${path}.certificates[${index}]`, 'is not one PEM certificate');
    return parsed;
  });
  // After throwIfAny no null is left; the caller never sees this value otherwise.
  return { certificate: certificates[0] as Certificate, certificates: certificates as Certificate[] };
}

function readRoot(
  root: { id: string; certificates: readonly string[]; signer?: string },
  index: number,
  problems: Problems,
): PublicAuthority & { id: string } {
  const path = `commandRoots.roots[${index}]`;
  const authority = readCertificates(root.certificates, path, problems);
  const { certificate } = authority;
  if (certificate !== null && certificate !== undefined && certificateId(certificate.der) !== root.id) {
    problems.add(`${path}.id`, 'is not the SHA-256 of its certificate');
  }
  return { id: root.id, ...authority, ...readReference(root.signer, path, problems) };
}

/** Only in the one form it is written in: equal places are equal texts. */
function readReference(text: string | undefined, path: string, problems: Problems): { signerReference?: string } {
  if (text === undefined) return {};
  if (orNull(() => formatSignerReference(parseSignerReference(text))) !== text) problems.add(`${path}.signer`, 'is no signer reference');
  return { signerReference: text };
}

function readPublicKey(pem: string, path: string, problems: Problems): PublicKeyEntry {
  const spki = orNull(() => parseP256Spki(parsePem('PUBLIC KEY', pem) ?? new Uint8Array()));
  if (spki === null) problems.add(`${path}.publicKey`, 'is not one PEM public key on P-256');
  return { spki: spki ?? new Uint8Array() };
}

function readSshLine(line: string, path: string, problems: Problems): { publicKey: string } {
  if (parseSshPublicKey(line) === null) problems.add(`${path}.publicKey`, 'is not exactly one line with an Ed25519 or ECDSA P-256 SSH key');
  return { publicKey: line };
}

function orNull<T>(parse: () => T): T | null {
  try {
    return parse();
  } catch {
    return null;
  }
}
