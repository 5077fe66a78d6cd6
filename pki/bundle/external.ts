/** Keys of a bundle that are kept elsewhere: the bundle has their public half and a reference (KEY-039). */
import type { ExternalKey, ExternalSigners } from '../signers/index.ts';
import { createSigningKey } from './load-keys.ts';
import type { PkiBundle, SigningKey } from './types.ts';

/** A key that is kept elsewhere, ready to sign. */
export const externalSigningKey = ({ reference, signer }: ExternalKey): SigningKey => ({
  ...createSigningKey({ name: reference, spki: signer.spki, signerReference: reference }),
  signer: () => signer,
});

/**
 * The bundle with signers for the keys that it only refers to. Nothing is asked yet; a bundle without such keys is answered as it is.
 *
 * @throws nothing: references were judged when the bundle was opened
 */
export function withExternalSigners(bundle: PkiBundle, signers: ExternalSigners): PkiBundle {
  const reached = <T extends SigningKey>(key: T): T => {
    const { signerReference, spki } = key;
    return signerReference === undefined ? key : { ...key, signer: () => signers.signerOf(signerReference, spki) };
  };
  const { rootCa, auditSigning, commandSigning, commandRootsById } = bundle;
  const keys = [rootCa, auditSigning, ...commandRootsById.values()];
  if (keys.every((key) => key?.signerReference === undefined)) return bundle;
  const roots = new Map([...commandRootsById].map(([id, root]) => [id, reached(root)]));
  const signing = commandSigning === undefined ? undefined : roots.get(commandSigning.id);
  return Object.freeze({
    ...bundle,
    signers,
    rootCa: reached(rootCa),
    ...(auditSigning === undefined ? {} : { auditSigning: reached(auditSigning) }),
    commandRootsById: roots,
    ...(signing === undefined ? {} : { commandSigning: signing }),
  });
}
