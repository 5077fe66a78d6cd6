/** One certificate of every kind that a deployment issues, made by the code that production uses, with what others need to judge it. */
import { day } from '../../domain/time.ts';
import { createBundle, type PkiBundle, renewableCas, renewCa } from '../../pki/bundle/index.ts';
import { createWorkerKey } from '../../pki/envelope/worker-key.ts';
import { type Certificate, createSerial, issueLeaf, type LeafProfileName, parseCertificate } from '../../pki/x509/index.ts';
import { createKey, type Key } from '../pki/x509/authorities.ts';

export const trustDomain = 'fleet.example';
export const serverName = 'gw.fleet.example';
const identity = { trustDomain, siteId: 'fra1', nodeId: 'n1' };
const statement = `urn:bc:tpm-ak:000b:${'ab'.repeat(32)}`;

export type Use = 'client' | 'server';

export interface Issued {
  readonly kind: string;
  readonly certificate: Certificate;
  /** Between it and the anchor. */
  readonly intermediates: readonly Certificate[];
  readonly anchor: Certificate;
  /** Empty: none in particular (authorities, and workers, whose role is what counts). */
  readonly uses: readonly Use[];
  /** The private half of a leaf's key, where the test has it. */
  readonly key: Key | null;
}

export interface Deployment {
  readonly bundle: PkiBundle;
  readonly all: readonly Issued[];
  get(kind: string): Issued;
}

const leaves: Readonly<
  Record<string, { profile: LeafProfileName; ca: 'nodeCa' | 'servingCa' | 'internalCa'; uses: readonly Use[]; uris?: string[] }>
> = Object.freeze({
  node: { profile: 'node', ca: 'nodeCa', uses: ['client'] },
  'node with a statement': { profile: 'node', ca: 'nodeCa', uses: ['client'], uris: [statement] },
  site: { profile: 'site', ca: 'nodeCa', uses: ['client'] },
  ramdisk: { profile: 'ramdisk', ca: 'nodeCa', uses: ['client'] },
  nodeTenant: { profile: 'nodeTenant', ca: 'nodeCa', uses: ['client'] },
  gateway: { profile: 'gateway', ca: 'servingCa', uses: ['server'] },
  internal: { profile: 'internal', ca: 'internalCa', uses: ['server', 'client'] },
});

/** A deployment that is 40 days old and renewed its authorities just now: both certificates of each are in force. */
export const createDeployment = async (now: number): Promise<Deployment> => {
  let bundle = await createBundle({ trustDomain, now: now - 40 * day });
  for (const ca of renewableCas) ({ bundle } = await renewCa(bundle, { ca, now }));
  const anchor = bundle.rootCa.certificate;
  const own = (kind: string, certificate: Certificate, issuer: Certificate): Issued => ({
    kind,
    certificate,
    intermediates: [],
    anchor: issuer,
    uses: [],
    key: null,
  });
  const commandRoot = bundle.commandSigning as NonNullable<PkiBundle['commandSigning']>;
  const all: Issued[] = [own('rootCa', anchor, anchor), own('commandRoot', commandRoot.certificate, commandRoot.certificate)];
  for (const ca of renewableCas) {
    const [renewed, former] = bundle[ca].certificates as readonly [Certificate, Certificate];
    all.push(own(ca, former, anchor), own(`${ca} renewed`, renewed, anchor));
  }
  for (const [kind, { profile, ca, uses, uris = [] }] of Object.entries(leaves)) {
    const key = createKey();
    const names = ca === 'nodeCa' ? { identity, sans: { uris } } : { sans: { dns: [serverName], ips: ['192.0.2.7', '2001:db8::1'] } };
    const [renewed, former] = bundle[ca].certificates as readonly [Certificate, Certificate];
    const certificate = await issueLeaf({
      ca: { certificate: renewed.der, signer: bundle[ca].signer() },
      profile,
      spki: key.spki,
      now,
      ...names,
    });
    const issued = { certificate, anchor, uses, key };
    all.push({ kind, ...issued, intermediates: [renewed] }, { kind: `${kind} below the former CA`, ...issued, intermediates: [former] });
  }
  const root = { certificate: commandRoot.certificate.der, signer: commandRoot.signer() };
  const worker = await createWorkerKey({ root, now, lifetimeMs: day, serial: createSerial() });
  all.push(own('worker', parseCertificate(worker.certificate), commandRoot.certificate));
  const byKind = new Map(all.map((issued) => [issued.kind, issued]));
  return Object.freeze({
    bundle,
    all,
    get(kind: string) {
      const found = byKind.get(kind);
      if (found === undefined) throw new Error(`nothing of kind ${kind} is issued`);
      return found;
    },
  });
};

/** Each certificate once: a leaf below the former CA is the leaf below the renewed one, by another way. */
export const isOfOwnKind = ({ kind }: Issued): boolean => !kind.endsWith('below the former CA');

/** Changes bytes of a certificate that a signature protects, or the signature. */
export const tamperings: Readonly<Record<string, (der: Uint8Array, parsed: Certificate) => Uint8Array>> = Object.freeze({
  'another serial': (der, { serial }) => flipped(der, Buffer.from(der).indexOf(Buffer.from(serial, 'hex')) + 3),
  'another key': (der, { spki }) => withBytes(der, spki, createKey().spki),
  'another end': (der) => withOtherEnd(der),
  'another signature': (der) => flipped(der, der.length - 1),
});

const flipped = (der: Uint8Array, at: number): Uint8Array => {
  const copy = Uint8Array.from(der);
  copy[at] = (copy[at] as number) ^ 1;
  return copy;
};

const withBytes = (der: Uint8Array, from: Uint8Array, to: Uint8Array): Uint8Array => {
  const copy = Buffer.from(der);
  copy.set(to, copy.indexOf(from));
  return copy;
};

/** notAfter is the second UTCTime; the last digit of its minutes changes, so that it stays a time, and in the future. */
const withOtherEnd = (der: Uint8Array): Uint8Array => {
  const [, end] = [
    ...Buffer.from(der)
      .toString('latin1')
      .matchAll(/\d{12}Z/g),
  ];
  return flipped(der, (end?.index ?? 0) + 9);
};
