/**
 * The TLS files of a deployment on one machine: the gateway's serving leaf with the node authority it asks clients for, and an
 * internal leaf for each process that speaks to another. Renewed at half their life; processes that run pick a new file up
 * by its content.
 */
import { generateKeyPairSync } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createAuthorities, type IssuedCertificate } from '../../pki/authority/index.ts';
import type { PkiBundle } from '../../pki/bundle/index.ts';
import { encodePem, parseCertificate, parsePemCertificates, spkiOf } from '../../pki/x509/index.ts';
import { replaceWhole } from '../../runtime/bundle-file-store.ts';

export interface TlsNames {
  /** DNS names of the gateway, as daemons are told. */
  readonly dns: readonly string[];
  readonly ips: readonly string[];
}

interface Leaf {
  readonly file: string;
  readonly authority: 'servingCa' | 'internalCa';
  readonly issue: (spki: Uint8Array, now: number) => Promise<IssuedCertificate>;
}

const loopback = Object.freeze({ dns: ['localhost'], ips: ['127.0.0.1'] });

/**
 * Brings the folder up to date and says what was made anew.
 *
 * @throws CA_EXPIRED when an authority cannot issue any more
 */
export async function writeTlsFiles(
  folder: string,
  { bundle, names, now }: { bundle: PkiBundle; names: TlsNames; now: number },
): Promise<string[]> {
  const authorities = createAuthorities(bundle);
  const internal = (name: string, role: 'internal' | 'gateway'): Leaf => ({
    file: `internal-${name}`,
    authority: 'internalCa',
    issue: (spki, at) => authorities.issueInternal({ spki, now: at, commonName: name, role, ...loopback, dns: [name, 'localhost'] }),
  });
  const gateway: Leaf = {
    file: 'gateway',
    authority: 'servingCa',
    issue: (spki, at) => authorities.issueGateway({ spki, now: at, ...names }),
  };
  await writeAuthorities(folder, bundle);
  const written: string[] = [];
  for (const leaf of [gateway, internal('api', 'internal'), internal('gateway', 'gateway')]) {
    if (isGood(folder, leaf, { bundle, now })) continue;
    await writeLeaf(folder, leaf, now);
    written.push(leaf.file);
  }
  return written;
}

async function writeAuthorities(folder: string, bundle: PkiBundle): Promise<void> {
  const files = { 'node-ca.pem': bundle.nodeCa, 'internal-ca.pem': bundle.internalCa };
  for (const [name, authority] of Object.entries(files)) {
    await writeIfOther(join(folder, name), authority.certificates.map((certificate) => encodePem('CERTIFICATE', certificate.der)).join(''));
  }
}

async function writeLeaf(folder: string, leaf: Leaf, now: number): Promise<void> {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const issued = await leaf.issue(spkiOf(publicKey), now);
  // The key first: whoever reads between the two sees a pair that does not match and keeps what it has.
  await replaceWhole(join(folder, `${leaf.file}.key`), String(privateKey.export({ type: 'pkcs8', format: 'pem' })));
  await replaceWhole(join(folder, `${leaf.file}.crt`), issued.chain.map((der) => encodePem('CERTIFICATE', der)).join(''));
}

/** Good: there, issued by the authority of this bundle, and less than half of its life gone. */
function isGood(folder: string, leaf: Leaf, { bundle, now }: { bundle: PkiBundle; now: number }): boolean {
  try {
    readFileSync(join(folder, `${leaf.file}.key`));
    const [der, issuer] = parsePemCertificates(readFileSync(join(folder, `${leaf.file}.crt`), 'utf8'));
    if (der === undefined || issuer === undefined || !Buffer.from(issuer).equals(bundle[leaf.authority].certificate.der)) return false;
    const { notBefore, notAfter } = parseCertificate(der);
    return now < notBefore + (notAfter - notBefore) / 2;
  } catch {
    return false;
  }
}

async function writeIfOther(path: string, text: string): Promise<void> {
  try {
    if (readFileSync(path, 'utf8') === text) return;
  } catch {
    // Not there yet.
  }
  await replaceWhole(path, text);
}
