/** Joins the two halves of a bundle, and refuses halves that do not belong together. */
import { createPublicKey, type KeyObject } from 'node:crypto';
import { ControlError } from '../../domain/errors.ts';
import { type Certificate, findSpki, kidOf, publicKeyOf, rawFromDerSignature, signerFromPrivateKey, verifyRaw } from '../x509/index.ts';
import { commandRootKeyName, type KeyName, keyNames, keyTable } from './keys.ts';
import type { Authentication } from './open.ts';
import type { PrivateKeys } from './private-keys.ts';
import { Problems } from './problems.ts';
import { parseSshPublicKey } from './ssh-key.ts';
import type {
  Authority,
  CommandRoot,
  DecryptionKey,
  PkiBundle,
  PublicAuthority,
  PublicBundle,
  PublicKeyEntry,
  SigningKey,
  SshAuthority,
} from './types.ts';

interface Halves {
  readonly publicBundle: PublicBundle;
  readonly privateKeys: PrivateKeys;
  readonly verdict: Pick<Authentication, 'seal' | 'authenticated'>;
}

/** @throws INVALID_CONFIG (bundle-invalid) naming every key that is missing, foreign, shared between jobs or not one of a bundle */
export function loadKeys({ publicBundle, privateKeys, verdict }: Halves): PkiBundle {
  const problems = new Problems();
  const keys = Object.fromEntries(
    keyNames
      .filter((name) => publicBundle[name] !== undefined)
      .map((name) => [name, loadKey(name, { publicBundle, privateKeys, problems })]),
  );
  const roots = [...publicBundle.commandRootsById.values()].map((root) => loadRoot(root, privateKeys, problems));
  const commandRootsById = new Map(roots.map((root) => [root.id, root]));
  const bundle = { ...publicBundle, ...verdict, ...keys, commandRootsById } as unknown as PkiBundle;
  refuseUnknownKeys(bundle, privateKeys, problems);
  refuseSharedKeys(bundle, problems);
  refuseBrokenAuthorities(bundle, problems);
  refuseBrokenRoots(bundle, problems);
  refuseBrokenTicketKeys(bundle, problems);
  problems.throwIfAny();
  const signing = commandRootsById.get(publicBundle.commandRoots.signing);
  return Object.freeze({ ...bundle, ...(signing === undefined ? {} : { commandSigning: signing }) });
}

/** The other ticket keys are there with their times and beside the one that signs, or not at all. */
function refuseBrokenTicketKeys(bundle: PkiBundle, problems: Problems): void {
  const { execTicketKey, execTicketKeyNext, execTicketKeyFormer, execTicketTimes } = bundle;
  const others = { execTicketKeyNext: execTicketTimes?.nextAddedAt, execTicketKeyFormer: execTicketTimes?.formerStoppedAt } as const;
  for (const [name, at] of Object.entries(others))
    if ((bundle[name as keyof typeof others] === undefined) !== ((at ?? null) === null))
      problems.add('execTicketTimes', `does not fit ${name}`);
  if (execTicketKey === undefined && (execTicketKeyNext ?? execTicketKeyFormer) !== undefined)
    problems.add('execTicketKey', 'is missing beside its next or former key');
}

interface Loading {
  readonly publicBundle: PublicBundle;
  readonly privateKeys: PrivateKeys;
  readonly problems: Problems;
}

function loadKey(name: KeyName, { publicBundle, privateKeys, problems }: Loading): SigningKey | DecryptionKey | SshAuthority | Authority {
  const row = keyTable[name];
  const privateKey = privateKeys.get(name);
  const entry = publicBundle[name] as PublicAuthority | PublicKeyEntry;
  const { signerReference } = entry;
  if (privateKey === undefined && signerReference === undefined && !row.mayBeOffline) problems.add(name, 'has no private key');
  if (privateKey !== undefined && signerReference !== undefined) problems.add(name, 'has a private key here and another place too');
  if (row.form === 'ssh') return loadSsh(name, { line: (publicBundle[name] as SshAuthority).publicKey, privateKey, problems });
  const spki = 'certificate' in entry ? entry.certificate.spki : entry.spki;
  if (privateKey !== undefined && !belongsTo(privateKey, spki))
    problems.add(name, 'has a private key that is not the one of its public key');
  const key = createSigningKey({ name, spki, privateKey, signerReference });
  if (row.form === 'decryption') return { spki, publicKey: key.publicKey, privateKey: privateKey as KeyObject };
  return 'certificate' in entry ? { ...entry, ...key } : key;
}

function loadRoot(root: PublicAuthority & { readonly id: string }, privateKeys: PrivateKeys, problems: Problems): CommandRoot {
  const name = commandRootKeyName(root.id);
  const privateKey = privateKeys.get(name);
  const { spki } = root.certificate;
  const { signerReference } = root;
  if (privateKey !== undefined && signerReference !== undefined) problems.add(name, 'has a private key here and another place too');
  if (privateKey !== undefined && !belongsTo(privateKey, spki))
    problems.add(name, 'has a private key that is not the one of its public key');
  return { ...root, ...createSigningKey({ name, spki, privateKey, signerReference }) };
}

function loadSsh(
  name: string,
  { line, privateKey, problems }: { line: string; privateKey: KeyObject | undefined; problems: Problems },
): SshAuthority {
  const expected = parseSshPublicKey(line)?.export({ format: 'jwk' });
  const actual = privateKey === undefined ? undefined : createPublicKey(privateKey).export({ format: 'jwk' });
  if (actual !== undefined && (expected?.x !== actual.x || expected?.y !== actual.y))
    problems.add(name, 'has a private key that is not the one of its public key');
  return { publicKey: line, privateKey: privateKey as KeyObject };
}

interface KeyParts {
  readonly name: string;
  readonly spki: Uint8Array;
  readonly privateKey?: KeyObject | undefined;
  readonly signerReference?: string | undefined;
}

/** A key whose public half is given; its signer needs the private one (external.ts gives one to a key that is kept elsewhere). */
export function createSigningKey({ name, spki, privateKey, signerReference }: KeyParts): SigningKey {
  return {
    spki,
    publicKey: publicKeyOf(spki),
    ...(privateKey === undefined ? {} : { privateKey }),
    ...(signerReference === undefined ? {} : { signerReference }),
    signer: () => {
      if (privateKey !== undefined) return signerFromPrivateKey(privateKey);
      if (signerReference !== undefined) {
        throw new ControlError(
          'INVALID_STATE',
          `the private key of ${name} is kept by ${signerReference}, which this process does not use`,
          {
            details: { reason: 'key-external', key: name },
          },
        );
      }
      throw new ControlError('INVALID_STATE', `the private key of ${name} is not in the key bundle`, {
        details: { reason: 'key-offline', key: name },
      });
    },
  };
}

const belongsTo = (privateKey: KeyObject, spki: Uint8Array): boolean => Buffer.from(findSpki(privateKey) ?? []).equals(spki);

function refuseUnknownKeys(bundle: PkiBundle, privateKeys: PrivateKeys, problems: Problems): void {
  const known = new Set<string>([
    ...keyNames.filter((name) => bundle[name] !== undefined),
    ...[...bundle.commandRootsById.keys()].map(commandRootKeyName),
  ]);
  for (const name of privateKeys.keys()) {
    if (!known.has(name)) problems.add(`privateKeys.${name}`, 'belongs to no public key of the bundle');
  }
}

/** No key does two jobs (KEY-007). */
function refuseSharedKeys(bundle: PkiBundle, problems: Problems): void {
  const owners = new Map<string, string>();
  const claim = (identity: string, name: string): void => {
    const owner = owners.get(identity);
    if (owner !== undefined) problems.add(name, `uses the key of ${owner}`);
    owners.set(identity, name);
  };
  for (const name of keyNames) {
    const key = bundle[name];
    if (key === undefined) continue;
    claim('spki' in key ? kidOf(key.spki) : (key.publicKey.split(' ')[1] ?? ''), name);
  }
  for (const root of bundle.commandRootsById.values()) claim(kidOf(root.spki), commandRootKeyName(root.id));
}

function refuseBrokenAuthorities(bundle: PkiBundle, problems: Problems): void {
  const root = bundle.rootCa.certificate;
  for (const name of ['rootCa', 'nodeCa', 'servingCa', 'internalCa'] as const) {
    for (const [index, certificate] of bundle[name].certificates.entries()) {
      const path = `${name}.certificates[${index}]`;
      if (!certificate.isCa) problems.add(path, 'is not a certificate authority');
      // Renewal keeps key and subject; anything else behind the first certificate was put there (CLI-044).
      if (!sameBytes(certificate.spki, bundle[name].spki) || !sameBytes(certificate.subject.der, bundle[name].certificate.subject.der)) {
        problems.add(path, 'has another key or subject than the first');
      }
      if (!sameBytes(certificate.issuer.der, root.subject.der)) problems.add(path, 'is not issued by the root CA');
      else if (!isSignedBy(certificate, bundle.rootCa.publicKey)) problems.add(path, 'is not signed by the root CA');
    }
  }
}

function refuseBrokenRoots(bundle: PkiBundle, problems: Problems): void {
  const { commandRoots: state, commandRootsById: byId } = bundle;
  if (byId.size !== state.roots.length) problems.add('commandRoots.roots', 'names a root twice');
  if (byId.size > 0 && !byId.has(state.signing)) problems.add('commandRoots.signing', 'is not one of the roots');
  for (const id of state.rotation === null ? [] : [state.rotation.oldRoot, state.rotation.newRoot]) {
    if (!byId.has(id)) problems.add('commandRoots.rotation', `names root ${id}, which the bundle does not have`);
  }
  for (const root of byId.values()) {
    if (!root.certificate.isCa) problems.add(`commandRoots ${root.id}`, 'is not a certificate authority');
  }
}

/** Whoever sealed the bundle vouches for it; the root's signature says that it was this root, and no mistake of a restore. */
const isSignedBy = ({ tbs, signature }: Certificate, key: KeyObject): boolean => verifyRaw(key, tbs, rawFromDerSignature(signature));

const sameBytes = (a: Uint8Array, b: Uint8Array): boolean => Buffer.from(a).equals(b);
