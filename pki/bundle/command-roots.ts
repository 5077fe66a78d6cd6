/** The command-signing roots of a bundle: made, kept beside the state of the rotation, found by id. */
import { generateKeyPairSync } from 'node:crypto';
import type { CommandRoots } from '../../domain/rotation/stages.ts';
import { certificateId, issueCa, signerFromPrivateKey, spkiOf } from '../x509/index.ts';
import { commandRootKeyName } from './keys.ts';
import { createSigningKey } from './load-keys.ts';
import type { CommandRoot, PkiBundle } from './types.ts';

/** A new self-signed root, an anchor of its own: not under the root CA (A-PKI-03). */
export async function createCommandRoot({ trustDomain, now }: { trustDomain: string; now: number }): Promise<CommandRoot> {
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const spki = spkiOf(publicKey);
  const certificate = await issueCa({ profile: 'commandRoot', trustDomain, spki, issuer: { self: signerFromPrivateKey(privateKey) }, now });
  const id = certificateId(certificate.der);
  return { id, certificate, certificates: [certificate], ...createSigningKey({ name: commandRootKeyName(id), spki, privateKey }) };
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
