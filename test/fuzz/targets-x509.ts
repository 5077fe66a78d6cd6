/** Certificates, requests and what they are made of. */
import { type KeyObject, sign } from 'node:crypto';
import { readDer } from '../../pki/x509/der-reader.ts';
import {
  createCsr,
  parseCertificate,
  parseCsr,
  parseP256Spki,
  parsePemCertificates,
  parseSpiffeId,
  rawFromDerSignature,
  verifyChain,
} from '../../pki/x509/index.ts';
import { bounds } from '../../proto/index.ts';
import type { Target } from './engine.ts';
import { mutateDer } from './mutate-der.ts';
import { mutateBase64 } from './mutate-text.ts';
import { bytesOf, mutatorsOf, now, textOf, trustDomain, type World } from './world.ts';

export async function x509Targets({ bundle, node, leaf }: World): Promise<Target[]> {
  const csr = await createCsr({ key: node });
  const certificates = [
    leaf,
    bundle.rootCa.certificate.der,
    bundle.servingCa.certificate.der,
    bundle.commandSigning?.certificate.der ?? leaf,
  ];
  const der = mutatorsOf(bounds.certificate, mutateDer);
  const anchors = [bundle.nodeCa.certificate.der];
  return [
    { name: 'der', maxBytes: bounds.certificate, seeds: [...certificates, csr], mutators: der, run: (input) => readDer(input) },
    { name: 'certificate', maxBytes: bounds.certificate + 1, seeds: certificates, mutators: der, run: (input) => parseCertificate(input) },
    {
      name: 'certificate-chain',
      maxBytes: bounds.certificate,
      seeds: certificates,
      mutators: der,
      run: (input) => verifyChain([input, bundle.nodeCa.certificate.der], { anchors, now, purpose: 'client' }),
    },
    { name: 'csr', maxBytes: 8_193, seeds: [csr], mutators: der, run: (input) => parseCsr(input) },
    { name: 'csr-signed', maxBytes: 8_000, seeds: [csrInfoOf(csr)], mutators: der, run: (input) => parseCsr(signedRequest(node, input)) },
    { name: 'spki', maxBytes: 1_024, seeds: [bundle.joinSigning.spki], mutators: der, run: (input) => parseP256Spki(input) },
    {
      name: 'ecdsa-signature',
      maxBytes: 1_024,
      seeds: [sign('sha256', leaf, node)],
      mutators: der,
      run: (input) => rawFromDerSignature(input),
    },
    {
      name: 'pem-certificates',
      maxBytes: 64 * 1024,
      seeds: [
        bytesOf(
          `-----BEGIN CERTIFICATE-----\n${(
            Buffer.from(leaf)
              .toString('base64')
              .match(/.{1,64}/g) ?? []
          ).join('\n')}\n-----END CERTIFICATE-----\n`,
        ),
      ],
      mutators: mutatorsOf(64 * 1024, mutateBase64),
      run: (input) => parsePemCertificates(textOf(input)),
    },
    {
      name: 'spiffe-id',
      maxBytes: 4_096,
      seeds: [bytesOf(`spiffe://${trustDomain}/site/site/node/node-1`)],
      mutators: mutatorsOf(4_096),
      run: (input) => parseSpiffeId(textOf(input)),
    },
  ];
}

/** CertificationRequestInfo: the first value inside of the request. */
const csrInfoOf = (csr: Uint8Array): Uint8Array => {
  const start = (csr[1] as number) < 0x80 ? 2 : 2 + ((csr[1] as number) & 0x7f);
  const inner = csr[start + 1] as number;
  return inner < 0x80 ? csr.subarray(start, start + 2 + inner) : csr.subarray(start, start + 3 + (csr[start + 2] as number));
};

const derLength = (length: number): Uint8Array =>
  length < 0x80 ? Uint8Array.of(length) : length < 0x100 ? Uint8Array.of(0x81, length) : Uint8Array.of(0x82, length >> 8, length & 0xff);

const derOf = (tag: number, ...parts: Uint8Array[]): Uint8Array => {
  const body = Buffer.concat(parts);
  return Buffer.concat([Uint8Array.of(tag), derLength(body.length), body]);
};

const ecdsaWithSha256 = Buffer.from('300a06082a8648ce3d040302', 'hex');

const signedRequest = (key: KeyObject, info: Uint8Array): Uint8Array =>
  derOf(0x30, info, ecdsaWithSha256, derOf(0x03, Uint8Array.of(0), sign('sha256', info, key)));
