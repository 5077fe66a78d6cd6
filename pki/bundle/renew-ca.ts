/**
 * The renewal of the node, serving or internal CA on a bundle (CLI-049 to CLI-059): a new certificate from the root for the same key
 * and subject. domain/rotation/ca-renewal.ts decides; this file issues and keeps the list. Pins do not change and no certificate
 * below the CA loses its issuer, so nothing is pinned again and no machine joins again.
 *
 * Both steps answer the bundle they were given when they change nothing, so a repeated step writes nothing. Gates on processes are
 * the caller's (domain/rotation/gates.ts: judgeProcesses over the bundle's digest).
 */
import { ControlError } from '../../domain/errors.ts';
import {
  assertRoomForCertificate,
  type CaRetirementFacts,
  isRenewalDue,
  retireCertificate,
  retirementOpensAt,
} from '../../domain/rotation/ca-renewal.ts';
import { productionTimes } from '../../domain/rotation/gates.ts';
import { minute, showInstant } from '../../domain/time.ts';
import { type Certificate, issueCa, leafProfiles, type Signer } from '../x509/index.ts';
import type { BundleStep } from './rotation.ts';
import type { PkiBundle } from './types.ts';

export const renewableCas = Object.freeze(['nodeCa', 'servingCa', 'internalCa'] as const);
export type RenewableCa = (typeof renewableCas)[number];

/** Certificates are dated this much back (pki/x509/issue.ts): the renewal itself was so much later. */
const backdateMs = minute;

export interface RenewCaInput {
  readonly ca: RenewableCa;
  readonly now: number;
  /** The certificate to be replaced: names the renewal, so that a repeated one changes nothing. Default: the present one. */
  readonly serial?: string;
  /** The root's signer where its key is not in the bundle: an offline file, a token, a key service (KEY-045). */
  readonly rootSigner?: Signer;
}

/**
 * Puts a new certificate in front of the present one and leaves out earlier ones whose time is over.
 *
 * @throws INVALID_STATE when the root's key is not at hand, the renewal gains no time (the root ends first), the certificate was
 *   renewed and retired since, or too many overlap; INVALID_INPUT for the signer of another root; CA_EXPIRED when the root is about
 *   to end
 */
export async function renewCa(bundle: PkiBundle, input: RenewCaInput): Promise<BundleStep & { readonly certificate: Certificate }> {
  const { ca, now } = input;
  const authority = bundle[ca];
  if (!isRenewalDue(authority.certificates, input.serial ?? authority.certificate.serial)) {
    return { bundle, changed: false, certificate: authority.certificate };
  }
  const kept = withoutEnded(ca, authority.certificates, now);
  assertRoomForCertificate(kept);
  const certificate = await issueCa({
    profile: ca,
    trustDomain: bundle.trustDomain,
    spki: authority.spki,
    issuer: { certificate: bundle.rootCa.certificate.der, signer: rootSignerOf(bundle, input.rootSigner) },
    now,
  });
  assertGain(bundle, authority.certificate, certificate);
  const renewed = { ...authority, certificate, certificates: Object.freeze([certificate, ...kept]) };
  return { bundle: Object.freeze({ ...bundle, [ca]: renewed }), changed: true, certificate };
}

/** Whose signature the new certificate gets. A key that is not the root's is refused before anything is signed with it. */
function rootSignerOf({ rootCa }: PkiBundle, given: Signer | undefined): Signer {
  if (given === undefined) {
    if (rootCa.privateKey !== undefined || rootCa.signerReference !== undefined) return rootCa.signer();
    throw new ControlError('INVALID_STATE', "the root's private key is not in the key bundle", {
      details: { reason: 'key-offline', key: 'rootCa', hint: 'give the offline root key: --root-key FILE' },
    });
  }
  if (Buffer.from(given.spki).equals(rootCa.spki)) return given;
  throw new ControlError('INVALID_INPUT', "the given root key is not the one of this key bundle's root CA", {
    details: { reason: 'wrong-root-key' },
  });
}

function assertGain({ rootCa }: PkiBundle, present: Certificate, next: Certificate): void {
  if (next.notAfter > present.notAfter) return;
  const rootEnds = rootCa.certificate.notAfter <= present.notAfter;
  throw new ControlError(
    'INVALID_STATE',
    `a renewal gains nothing: the certificate ends at ${showInstant(present.notAfter)} already${rootEnds ? ', with the root' : ''}`,
    {
      details: {
        reason: rootEnds ? 'root-ends-first' : 'nothing-gained',
        hint: rootEnds ? 'the root must be replaced: docs/runbooks/keys-and-their-ends.md' : 'renew it later',
      },
    },
  );
}

export interface RetireCaInput {
  readonly ca: RenewableCa;
  readonly serial: string;
  readonly now: number;
  readonly opensAt: number;
  /** Not empty: an operator cuts the overlap short. */
  readonly forcedReason: string;
}

/** Takes an earlier certificate out (the `drop` of a renewal). @throws INVALID_STATE for the present one, or too early */
export function retireCaCertificate(bundle: PkiBundle, { ca, ...input }: RetireCaInput): BundleStep {
  const authority = bundle[ca];
  const certificates = retireCertificate(authority.certificates, input);
  if (certificates === null) return { bundle, changed: false };
  return { changed: true, bundle: Object.freeze({ ...bundle, [ca]: { ...authority, certificates: Object.freeze(certificates) } }) };
}

/** The longest life of any leaf an authority issues. */
export const longestLeafMs = (ca: RenewableCa): number =>
  Math.max(...Object.values(leafProfiles).flatMap((leaf) => (leaf.issuedBy === ca ? [leaf.maxLifetimeMs] : [])));

/**
 * What decides when the earlier certificate `serial` may go. Without issuance records the last leaf is taken to be the longest that
 * could have been issued the moment before the renewal.
 *
 * @throws INVALID_STATE when no newer certificate stands in front of it
 */
export function caRetirementFacts(
  certificates: readonly Certificate[],
  { ca, serial, lastLeafNotAfter }: { ca: RenewableCa; serial: string; lastLeafNotAfter: number | null },
): CaRetirementFacts {
  const at = certificates.findIndex((certificate) => certificate.serial === serial);
  const [old, successor] = [certificates[at], certificates[at - 1]];
  if (old === undefined || successor === undefined) {
    throw new ControlError('INVALID_STATE', `certificate ${serial} has not been renewed`, { details: { reason: 'out-of-order' } });
  }
  const renewedAt = successor.notBefore + backdateMs;
  return { renewedAt, oldNotAfter: old.notAfter, lastLeafNotAfter: lastLeafNotAfter ?? renewedAt + longestLeafMs(ca) };
}

/** Earlier certificates leave by themselves at the next renewal once nobody can need them, records or not. */
function withoutEnded(ca: RenewableCa, certificates: readonly Certificate[], now: number): Certificate[] {
  return certificates.filter(
    ({ serial }, at) =>
      at === 0 || now < retirementOpensAt(caRetirementFacts(certificates, { ca, serial, lastLeafNotAfter: null }), productionTimes),
  );
}
