/**
 * The gateways' serving certificate as an exchanged key: a new key and a certificate for the names of the present one, put in its
 * place. The private half goes into the folder that the gateways read and nowhere else: no history, no row, no log.
 */
import { generateKeyPairSync } from 'node:crypto';
import { ControlError } from '../../domain/errors.ts';
import { day, minute } from '../../domain/time.ts';
import { createAuthorities } from '../../pki/authority/index.ts';
import { bundleDigest, type PkiBundle } from '../../pki/bundle/index.ts';
import { type Certificate, encodePem, parseCertificate, parsePemCertificates, spkiOf } from '../../pki/x509/index.ts';
import type { ExchangedKeyPort, KeyView } from '../key-rotation-ports.ts';
import type { BundleSteps } from './bundle-steps.ts';

/** Where the gateways read their files; all PEM. */
export interface GatewayCertificateFolder {
  /** The serving chain; null when there is none. */
  read(): Promise<string | null>;
  /** Replaces key and chain as one set; a cut in the middle leaves a complete one. */
  replace(files: { readonly key: string; readonly chain: string; readonly nodeCa: string }): Promise<void>;
  /** Replaces the files of authorities that are there; a folder that has none is not this deployment's to fill. */
  writeAuthorities(files: { readonly nodeCa: string; readonly internalCa: string }): Promise<void>;
}

export interface GatewayCertificateOptions {
  readonly steps: BundleSteps;
  readonly clock: () => Promise<number>;
  readonly folder: GatewayCertificateFolder;
  readonly processes: ExchangedKeyPort['processes'];
}

/** Of a certificate whose own life was cut short by its authority. */
const shortestLifeMs = 14 * day;
/** Certificates are dated this much back (pki/x509/issue.ts). */
const backdateMs = minute;

export function createGatewayCertificate({ steps, clock, folder, processes }: GatewayCertificateOptions): ExchangedKeyPort {
  const show = async (bundle: PkiBundle): Promise<KeyView> => ({
    trustDomain: bundle.trustDomain,
    bundle: { digest: bundleDigest(bundle), generation: bundle.generation },
    keys: [{ id: (await readPresent(folder)).serial, state: 'signing', opensAt: null }],
  });
  const read = async (): Promise<KeyView> => show(await steps.read());
  return {
    read,
    add: async ({ from, refuse }) => {
      const present = await readPresent(folder);
      const bundle = await steps.read();
      if (present.serial !== from) return show(bundle);
      await steps.assertFresh();
      await refuse();
      await folder.replace(await issueLike(present, bundle, await clock()));
      return show(bundle);
    },
    promote: read,
    retire: read,
    processes,
  };
}

async function readPresent(folder: GatewayCertificateFolder): Promise<Certificate> {
  const pem = await folder.read();
  const [leaf] = pem === null ? [] : parsePemCertificates(pem);
  if (leaf !== undefined) return parseCertificate(leaf);
  throw new ControlError('INVALID_CONFIG', 'the folder of the TLS files has no gateway certificate whose names could be taken over', {
    details: { reason: 'no-gateway-certificate', hint: 'make the first one: better-compute pki issue-gateway --san <name>' },
  });
}

type Files = Parameters<GatewayCertificateFolder['replace']>[0];

async function issueLike(present: Certificate, bundle: PkiBundle, now: number): Promise<Files> {
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const lifetimeMs = Math.max(shortestLifeMs, present.notAfter - present.notBefore - backdateMs);
  const { chain } = await createAuthorities(bundle).issueGateway({
    spki: spkiOf(publicKey),
    now,
    lifetimeMs,
    dns: present.dnsSans,
    ips: present.ipSans,
  });
  return {
    key: encodePem('PRIVATE KEY', privateKey.export({ type: 'pkcs8', format: 'der' })),
    chain: pemOf(chain),
    nodeCa: authorityFiles(bundle).nodeCa,
  };
}

/** What a CA's renewal changes in the folder: whom gateways take certificates from, and whom processes do. */
export const authorityFiles = ({ nodeCa, internalCa }: PkiBundle): { nodeCa: string; internalCa: string } => ({
  nodeCa: pemOf(nodeCa.certificates.map(({ der }) => der)),
  internalCa: pemOf(internalCa.certificates.map(({ der }) => der)),
});

const pemOf = (chain: readonly Uint8Array[]): string => chain.map((der) => encodePem('CERTIFICATE', der)).join('');
