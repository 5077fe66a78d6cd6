/** A new deployment's keys (KEY-002, KEY-010): every key of the table once, each for one job. */
import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import { ControlError } from '../../domain/errors.ts';
import type { ExternalKey } from '../signers/index.ts';
import { type CaProfileName, type CertificateAuthority, issueCa, isTrustDomain, spkiOf } from '../x509/index.ts';
import { createCommandRoot, withCommandRoots } from './command-roots.ts';
import { externalSigningKey } from './external.ts';
import { createSigningKey } from './load-keys.ts';
import { noCommandRoots } from './public.ts';
import { encodeSshPublicKey } from './ssh-key.ts';
import type { Authority, DecryptionKey, PkiBundle, SigningKey, SshAuthority } from './types.ts';

export interface CreateBundleOptions {
  readonly trustDomain: string;
  readonly now: number;
  /** Keys that are kept elsewhere (KEY-039); every other one is made for the bundle. */
  readonly external?: ExternalKeys;
}

export type ExternalKeys = Readonly<Partial<Record<'rootCa' | 'auditSigning' | 'commandRoot', ExternalKey>>>;

export interface OfflineRootBundle {
  readonly bundle: PkiBundle;
  readonly rootKey: KeyObject;
}

/** @throws INVALID_INPUT when the trust domain is not one (ID-003, ID-004) */
export async function createBundle(options: CreateBundleOptions): Promise<PkiBundle> {
  return (await createWithRoot(options)).bundle;
}

/** As createBundle; the root's private key is in the answer only. */
export async function createBundleWithOfflineRoot(
  options: CreateBundleOptions & { readonly external?: Omit<ExternalKeys, 'rootCa'> },
): Promise<OfflineRootBundle> {
  const { bundle, rootKey } = await createWithRoot(options);
  const { privateKey: _kept, ...publicHalf } = bundle.rootCa;
  const offline = { ...publicHalf, ...createSigningKey({ name: 'rootCa', spki: bundle.rootCa.spki }) };
  return { bundle: Object.freeze({ ...bundle, rootCa: offline }), rootKey };
}

async function createWithRoot({ trustDomain, now, external = {} }: CreateBundleOptions): Promise<OfflineRootBundle> {
  if (!isTrustDomain(trustDomain)) {
    throw new ControlError('INVALID_INPUT', `"${trustDomain}" is not a trust domain: 1 to 255 of a-z, 0-9, ".", "-" and "_"`, {
      details: { reason: 'trust-domain' },
    });
  }
  const keyOf = (name: 'rootCa' | 'auditSigning'): SigningKey => {
    const kept = external[name];
    return kept === undefined ? newSigningKey(name) : externalSigningKey(kept);
  };
  const newAuthority = async (profile: CaProfileName, root: CertificateAuthority | null): Promise<Authority> => {
    const key = profile === 'rootCa' ? keyOf(profile) : newSigningKey(profile);
    const issuer = root ?? { self: key.signer() };
    const certificate = await issueCa({ profile, trustDomain, spki: key.spki, issuer, now });
    return { ...key, certificate, certificates: [certificate] };
  };
  const rootCa = await newAuthority('rootCa', null);
  const root = { certificate: rootCa.certificate.der, signer: rootCa.signer() };
  const commandRoot = await createCommandRoot({ trustDomain, now, external: external.commandRoot });
  const bundle: PkiBundle = {
    trustDomain,
    generation: 1,
    trustVersion: 1,
    seal: 'current',
    authenticated: true,
    rootCa,
    nodeCa: await newAuthority('nodeCa', root),
    servingCa: await newAuthority('servingCa', root),
    internalCa: await newAuthority('internalCa', root),
    joinSigning: newSigningKey('joinSigning'),
    joinEncryption: newDecryptionKey(),
    rekeyEncryption: newDecryptionKey(),
    execTicketKey: newSigningKey('execTicketKey'),
    auditSigning: keyOf('auditSigning'),
    sshCa: newSshAuthority(`${trustDomain} ssh ca`),
    sandboxSshCa: newSandboxSshCa(trustDomain),
    commandRoots: noCommandRoots,
    commandRootsById: new Map(),
    republish: null,
  };
  const state = { ...noCommandRoots, signing: commandRoot.id, roots: [{ id: commandRoot.id, addedAt: now }] };
  return { bundle: withCommandRoots(bundle, state, [commandRoot]), rootKey: rootCa.privateKey as KeyObject };
}

const newP256 = (): { publicKey: KeyObject; privateKey: KeyObject } => generateKeyPairSync('ec', { namedCurve: 'P-256' });

/** A P-256 key nobody has seen before. */
export function newSigningKey(name: string): SigningKey & { readonly privateKey: KeyObject } {
  const { publicKey, privateKey } = newP256();
  return { ...createSigningKey({ name, spki: spkiOf(publicKey), privateKey }), privateKey };
}

function newDecryptionKey(): DecryptionKey {
  const { publicKey, privateKey } = newP256();
  return { spki: spkiOf(publicKey), publicKey, privateKey };
}

/** The authority for machines that run tenants' sandboxes (CLI-029). */
export const newSandboxSshCa = (trustDomain: string): SshAuthority => newSshAuthority(`${trustDomain} sandbox ssh ca`);

function newSshAuthority(comment: string): SshAuthority {
  const { publicKey, privateKey } = generateKeyPairSync('ed25519');
  return { publicKey: encodeSshPublicKey(publicKey, comment), privateKey };
}
