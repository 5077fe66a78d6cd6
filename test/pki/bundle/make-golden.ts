/**
 * Makes test/golden/bundles anew: bundle files that must load for ever, and files that must never load, each named for what
 * was done to it. Run by hand (`npx tsx test/pki/bundle/make-golden.ts`) only when the format changes on purpose; the files are
 * the contract, this is where they came from.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { addCommandRoot, createBundle, createBundleWithOfflineRoot, encodeBundle, type PkiBundle } from '../../../pki/bundle/index.ts';
import { encodeSealedKeys, parsePlainKeys } from '../../../pki/bundle/private-keys.ts';
import { sealPayloadFormer } from '../../../pki/bundle/seal.ts';
import { edited, type OpenDocument, secret, trustDomain } from '../support.ts';

const folder = join(import.meta.dirname, '../../golden/bundles');
const now = Date.UTC(2026, 0, 1);

const flip = (base64: string): string => {
  const bytes = Buffer.from(base64, 'base64');
  bytes[0] = (bytes[0] as number) ^ 1;
  return bytes.toString('base64');
};

/** The former form had the private keys alone inside the seal. */
function former(bundle: PkiBundle): string {
  const { privateKeys, ...publicHalf }: OpenDocument = JSON.parse(encodeBundle(bundle, { plaintext: true }));
  const seal = sealPayloadFormer({ privateKeys: encodeSealedKeys(parsePlainKeys(privateKeys)) }, { secret, trustDomain });
  return JSON.stringify({ ...publicHalf, seal });
}

async function main(): Promise<void> {
  const { bundle } = await addCommandRoot(await createBundle({ trustDomain, now }), { rotationId: 'golden', now: now + 1000 });
  const other = await createBundle({ trustDomain, now });
  const offline = await createBundleWithOfflineRoot({ trustDomain, now });
  const current = encodeBundle(bundle, { secret });
  const plaintext = encodeBundle(bundle, { plaintext: true });
  const foreign: OpenDocument = JSON.parse(encodeBundle(other, { secret }));
  const foreignPlain: OpenDocument = JSON.parse(encodeBundle(other, { plaintext: true }));
  const foreignRoot = foreign.commandRoots.roots[0];
  const change = (edit: (document: OpenDocument) => void): string => edited(current, edit);
  const files: Record<string, string> = {
    current,
    'current.reformatted': JSON.stringify(Object.fromEntries(Object.entries(JSON.parse(current) as object).toReversed())),
    former: former(bundle),
    plaintext,
    'offline-root': encodeBundle(offline.bundle, { secret }),
    'tampered.trust-domain-changed': change((d) => (d.trustDomain = 'evil.example.com')),
    'tampered.trust-version-raised': change((d) => d.trustVersion++),
    'tampered.generation-raised': change((d) => d.generation++),
    'tampered.command-root-appended': change((d) => d.commandRoots.roots.push(foreignRoot)),
    'tampered.signing-root-exchanged': change((d) => (d.commandRoots.signing = d.commandRoots.roots[1].id)),
    'tampered.rotation-cleared': change((d) => (d.commandRoots.rotation = null)),
    'tampered.removed-root-forged': change((d) =>
      d.commandRoots.removed.push({ id: foreignRoot.id, switchedAt: 0, removedAt: now, forcedReason: 'x' }),
    ),
    'tampered.republish-ordered': change((d) => (d.republish = { version: 9, reason: 'x', actor: 'x', at: now })),
    'tampered.node-ca-exchanged': change((d) => (d.keys.nodeCa = foreign.keys.nodeCa)),
    'tampered.node-ca-certificate-appended': change((d) => d.keys.nodeCa.certificates.push(...foreign.keys.nodeCa.certificates)),
    'tampered.serving-ca-certificate-repeated': change((d) => d.keys.servingCa.certificates.push(...d.keys.servingCa.certificates)),
    'tampered.join-key-exchanged': change((d) => (d.keys.joinSigning = foreign.keys.joinSigning)),
    'tampered.ssh-ca-exchanged': change((d) => (d.keys.sshCa = foreign.keys.sshCa)),
    'tampered.ssh-ca-second-line': change((d) => (d.keys.sshCa.publicKey += `\n${foreign.keys.sshCa.publicKey}`)),
    'tampered.audit-key-removed': change((d) => delete d.keys.auditSigning),
    'tampered.unknown-field-added': change((d) => (d.extra = true)),
    'tampered.ciphertext-flipped': change((d) => (d.seal.ciphertext = flip(d.seal.ciphertext))),
    'tampered.tag-flipped': change((d) => (d.seal.tag = flip(d.seal.tag))),
    'tampered.tag-cut-to-12-bytes': change((d) => (d.seal.tag = Buffer.from(d.seal.tag, 'base64').subarray(0, 12).toString('base64'))),
    'tampered.iv-flipped': change((d) => (d.seal.iv = flip(d.seal.iv))),
    'tampered.salt-flipped': change((d) => (d.seal.salt = flip(d.seal.salt))),
    'tampered.seal-relabelled-former': change((d) => (d.seal.form = 'former')),
    'tampered.seal-of-another-bundle': change((d) => (d.seal = foreign.seal)),
    'tampered.seal-removed': change((d) => delete d.seal),
    'tampered.seal-replaced-by-plain-keys': change((d) => {
      delete d.seal;
      Object.assign(d, foreignPlain);
    }),
  };
  mkdirSync(folder, { recursive: true });
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, `${name}.json`), text);
}

await main();
