/** The command-signing roots of a bundle: made, kept beside the state of the rotation, found by id. */
import { generateKeyPairSync } from 'node:crypto';
import type { CommandRoots } from '../../domain/rotation/stages.ts';
import type { ExternalKey } from '../signers/index.ts';
import { certificateId, issueCa, spkiOf } from '../x509/index.ts';
import { externalSigningKey } from './external.ts';
import { commandRootKeyName } from './keys.ts';
import { createSigningKey } from './load-keys.ts';
import type { CommandRoot, PkiBundle, SigningKey } from './types.ts';

export interface NewCommandRoot {
  readonly trustDomain: string;
  readonly now: number;
  /** The key, when it is kept elsewhere; by default a new one is made for the bundle. */
  readonly external?: ExternalKey | undefined;
}

/** A new self-signed root, an anchor of its own: not under the root CA (A-PKI-03). */
export async function createCommandRoot({ trustDomain, now, external }: NewCommandRoot): Promise<CommandRoot> {
  const keyNamed = external === undefined ? newKey() : () => externalSigningKey(external);
  const { spki, signer } = keyNamed('commandRoot');
  const certificate = await issueCa({ profile: 'commandRoot', trustDomain, spki, issuer: { self: signer() }, now });
  const id = certificateId(certificate.der);
  return { id, certificate, certificates: [certificate], ...keyNamed(commandRootKeyName(id)) };
}

function newKey(): (name: string) => SigningKey {
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  return (name) => createSigningKey({ name, spki: spkiOf(publicKey), privateKey });
}

/**
 * The bundle with another state of its roots. Only the roots that the state lists stay, so the private half of a root that
 * was dropped leaves the bundle with it.
 *
 * @param added roots that the bundle does not have yet
 */
export function withCommandRoots(bundle: PkiBundle, state: CommandRoots, added: readonly CommandRoot[] = []): PkiBundle {
  const known = new Map([...bundle.commandRootsById, ...added.map((root) => [root.id, root] as const)]);
  const kept = state.roots.flatMap(({ id }) => known.get(id) ?? []);
  const { commandSigning: _before, ...rest } = bundle;
  const signing = known.get(state.signing);
  return Object.freeze({
    ...rest,
    commandRoots: state,
    commandRootsById: new Map(kept.map((root) => [root.id, root])),
    ...(signing === undefined ? {} : { commandSigning: signing }),
  });
}
