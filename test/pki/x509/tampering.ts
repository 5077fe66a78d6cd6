/** Certificates that the writer cannot make: takes a good one apart as a DER tree, changes it, and signs it again. */
import {
  type DerNode,
  derFromRawSignature,
  encodeDer,
  encodeDerBitString,
  encodeDerNode,
  encodeDerSequence,
  readDer,
} from '../../../pki/x509/index.ts';
import type { Key } from './authorities.ts';

export const node = (bytes: Uint8Array): DerNode => readDer(bytes);

/** A tree with the node at a path of child indices replaced; null takes it out. */
export const replaceAt = (
  tree: DerNode,
  path: readonly number[],
  change: (found: DerNode) => DerNode | readonly DerNode[] | null,
): DerNode => {
  const [index, ...rest] = path;
  if (index === undefined) return change(tree) as DerNode;
  const children = (tree.children ?? []).flatMap((child, i) => {
    if (i !== index) return [child];
    const changed = rest.length === 0 ? change(child) : replaceAt(child, rest, change);
    return changed === null ? [] : Array.isArray(changed) ? (changed as DerNode[]) : [changed as DerNode];
  });
  return { ...tree, children };
};

/** Signs a TBSCertificate (or a request's info) and wraps it. */
export const signed = async (tbs: Uint8Array, key: Key, algorithm?: Uint8Array): Promise<Uint8Array> => {
  const ecdsaWithSha256 = Buffer.from('300a06082a8648ce3d040302', 'hex');
  const signature = derFromRawSignature(await key.signer.sign(tbs));
  return encodeDerSequence(tbs, algorithm ?? ecdsaWithSha256, encodeDerBitString(signature));
};

/** A certificate and the key of its issuer. */
export type Source = readonly [der: Uint8Array, key: Key];

/** The certificate with its signed part changed, signed by the key. */
export const resigned = async (
  [der, key]: Source,
  path: readonly number[],
  change: (found: DerNode) => DerNode | readonly DerNode[] | null,
): Promise<Uint8Array> => signed(encodeDerNode(replaceAt(node(der).children?.[0] as DerNode, path, change)), key);

/** Where things are in a version 3 TBSCertificate. */
export const at = Object.freeze({ version: 0, serial: 1, algorithm: 2, issuer: 3, validity: 4, subject: 5, spki: 6, extensions: 7 });

/** With one more extension at the end. */
export const withExtension = (der: Uint8Array, key: Key, extension: Uint8Array): Promise<Uint8Array> =>
  resigned([der, key], [at.extensions, 0], (list) => ({ ...list, children: [...(list.children ?? []), node(extension)] }));

/** An Extension value. */
export const extension = (oid: string, value: Uint8Array, isCritical = false): Uint8Array =>
  encodeDerSequence(Buffer.from(oid, 'hex'), ...(isCritical ? [Buffer.from('0101ff', 'hex')] : []), encodeDer(0x04, value));

/** The extension whose OID has these content octets (hex), changed. */
export const withChangedExtension = async (
  [der, key]: Source,
  oid: string,
  change: (entry: DerNode) => DerNode | readonly DerNode[] | null,
): Promise<Uint8Array> => {
  const list = node(der).children?.[0]?.children?.[at.extensions]?.children?.[0]?.children ?? [];
  const index = list.findIndex((entry) => Buffer.from(entry.children?.[0]?.content ?? []).toString('hex') === oid);
  if (index === -1) throw new Error(`no extension ${oid}`);
  return resigned([der, key], [at.extensions, 0, index], change);
};
