/** A whole small PKI for tests: every authority and its key, made anew for each call. */
import assert from 'node:assert/strict';
import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import { isControlError } from '../../../domain/errors.ts';
import {
  type CaProfileName,
  type Certificate,
  type CertificateTemplate,
  createCertificate,
  issueCa,
  oids,
  parseCertificate,
  type Signer,
  signerFromPrivateKey,
} from '../../../pki/x509/index.ts';

export const trustDomain = 'fleet.example';
/** 2027-03-04T05:06:07Z. */
export const now = 1_804_136_767_000;

export interface Key {
  readonly privateKey: KeyObject;
  readonly signer: Signer;
  readonly spki: Uint8Array;
}

export const createKey = (): Key => {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const signer = signerFromPrivateKey(privateKey);
  return { privateKey, signer, spki: signer.spki };
};

export interface Authority extends Key {
  readonly certificate: Uint8Array;
  readonly parsed: Certificate;
}

export const createAuthority = async (
  profile: CaProfileName,
  options: { parent?: Authority; key?: Key; now?: number; lifetimeMs?: number } = {},
): Promise<Authority> => {
  const key = options.key ?? createKey();
  const { parent, lifetimeMs } = options;
  const parsed = await issueCa({
    profile,
    trustDomain,
    spki: key.spki,
    issuer: parent === undefined ? { self: key.signer } : { certificate: parent.certificate, signer: parent.signer },
    now: options.now ?? now,
    ...(lifetimeMs === undefined ? {} : { lifetimeMs }),
  });
  return { ...key, certificate: parsed.der, parsed };
};

export interface Authorities {
  readonly root: Authority;
  readonly nodeCa: Authority;
  readonly servingCa: Authority;
  readonly internalCa: Authority;
  readonly commandRoot: Authority;
}

export const createAuthorities = async (): Promise<Authorities> => {
  const root = await createAuthority('rootCa');
  return {
    root,
    nodeCa: await createAuthority('nodeCa', { parent: root }),
    servingCa: await createAuthority('servingCa', { parent: root }),
    internalCa: await createAuthority('internalCa', { parent: root }),
    commandRoot: await createAuthority('commandRoot'),
  };
};

/** A certificate of any shape, signed by an authority or itself. */
export const createOther = async (
  change: Partial<CertificateTemplate>,
  issuer: Authority | null,
  key = createKey(),
): Promise<Authority> => {
  const certificate = await createCertificate({
    template: {
      serial: '0b',
      subject: [{ oid: oids.commonName, value: 'made' }],
      notBefore: now - 3_600_000,
      notAfter: now + 3_600_000,
      spki: key.spki,
      isCa: false,
      pathLen: null,
      keyUsage: change.isCa === true ? ['keyCertSign'] : ['digitalSignature'],
      ekus: [],
      uriSans: [],
      dnsSans: [],
      ipSans: [],
      ...change,
    },
    issuer: issuer === null ? 'self' : { certificate: issuer.certificate },
    signer: (issuer ?? key).signer,
  });
  return { ...key, certificate, parsed: parseCertificate(certificate) };
};
/** A name for createOther, and that it is an authority. */
export const named = (name: string): Pick<CertificateTemplate, 'isCa' | 'subject'> => ({
  isCa: true,
  subject: [{ oid: oids.commonName, value: name }],
});

/** Asserts code, reason and message of a refusal at once. */
export const refusedWith =
  (code: string, reason: string, message: RegExp) =>
  (error: unknown): true => {
    assert.ok(isControlError(error), `not a ControlError: ${String(error)}`);
    assert.deepEqual({ code: error.code, reason: error.details['reason'] }, { code, reason });
    assert.match(error.message, message);
    return true;
  };
