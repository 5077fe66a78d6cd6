/** The daemon's half of attestor tpm: what it shows, how it answers the challenge, and how it attests the next key at a renewal. */
import type { MessageInitShape } from '@bufbuild/protobuf';
import { ControlError } from '../../domain/errors.ts';
import { type RenewStatement, renewStatement } from '../../pki/enroll/index.ts';
import { attestedDigest, parseTpmPublic } from '../../pki/tpm/index.ts';
import { parseCertificate, parseCsr, parseTpmAkUri } from '../../pki/x509/index.ts';
import {
  decodeMessage,
  encodeMessage,
  KeyAttestationSchema,
  type TpmAnswerSchema,
  type TpmChallenge,
  TpmChallengeSchema,
  TpmEvidenceSchema,
} from '../../proto/index.ts';
import type { Identity } from '../state/identity.ts';
import { type OpenTpm, type ShownTpm, type TpmPlace, withTpm } from './machine-tpm.ts';

interface AtTpm {
  readonly dataDir: string;
  readonly place: TpmPlace;
}

/** The first request: the keys, and no claim about them. */
export const tpmEvidence = ({ dataDir, place }: AtTpm): Promise<Uint8Array> =>
  withTpm({ dataDir, place, mayCreate: true }, async ({ shown }) => encodeEvidence(shown));

const encodeEvidence = (shown: ShownTpm, answer?: MessageInitShape<typeof TpmAnswerSchema>): Uint8Array =>
  encodeMessage(
    TpmEvidenceSchema,
    { ...shown, ekCertificates: [...shown.ekCertificates], ...(answer === undefined ? {} : { answer }) },
    'renewRequest',
  );

/**
 * The second request: the secret of the challenge, and the attestation key's word for the request's key.
 *
 * @throws MALFORMED for a challenge of another form; INVALID_STATE when it was made for another TPM
 */
export async function tpmAnswer(at: AtTpm, asked: { readonly challenge: Uint8Array; readonly csr: Uint8Array }): Promise<Uint8Array> {
  const { id, credential, encryptedSecret } = decodeChallenge(asked.challenge);
  return withTpm({ ...at, mayCreate: false }, async (tpm) => {
    const secret = await tpm.activate({ blob: credential, encryptedSecret });
    const attestation = await attest(tpm, { spki: parseCsr(asked.csr).spki, request: secret });
    return encodeEvidence(tpm.shown, { challengeId: id, secret, attestation });
  });
}

function decodeChallenge(bytes: Uint8Array): TpmChallenge {
  try {
    return decodeMessage(TpmChallengeSchema, bytes, 'joinResponse');
  } catch (cause) {
    throw new ControlError('MALFORMED', 'the challenge is not one for a TPM', { cause, details: { reason: 'attestor-challenge' } });
  }
}

async function attest(tpm: OpenTpm, attested: Parameters<typeof attestedDigest>[0]) {
  return { akPublic: tpm.shown.akPublic, ...(await tpm.quote(attestedDigest(attested))) };
}

export interface NextKey {
  readonly identity: Identity;
  readonly statement: RenewStatement;
}

/** What a renewal sends about its next key: an encoded KeyAttestation; empty where the certificate states nothing about a TPM. */
export type AttestNextKey = (next: NextKey, signal?: AbortSignal) => Promise<Uint8Array>;

/** @throws INVALID_STATE (tpm, tpm-key) when this machine's TPM is not at hand, or holds another attestation key than the certificate names */
export const attestByTpm =
  (dataDir: string): AttestNextKey =>
  async ({ identity, statement }, signal) => {
    const akName = statedAk(identity);
    if (akName === null) return new Uint8Array();
    const { tpm: place } = identity;
    if (place === null) throw unfit('the certificate names the key of a TPM, and this identity does not say where that is');
    return withTpm({ dataDir, place, mayCreate: false, ...(signal === undefined ? {} : { signal }) }, async (tpm) => {
      if (!Buffer.from(parseTpmPublic(tpm.shown.akPublic, 'ak.pub').name).equals(akName))
        throw unfit('the attestation key in this folder is not the one that the certificate names');
      const attestation = await attest(tpm, { spki: parseCsr(statement.csr).spki, request: renewStatement(statement) });
      return encodeMessage(KeyAttestationSchema, attestation, 'renewRequest');
    });
  };

/** ID-017: read by the same function that wrote it. null when the certificate states nothing about a TPM. */
export const statedAk = ({ chain }: Pick<Identity, 'chain'>): Uint8Array | null =>
  parseCertificate(chain[0] as Uint8Array)
    .uriSans.map(parseTpmAkUri)
    .find((name) => name !== null) ?? null;

const unfit = (message: string): ControlError =>
  new ControlError('INVALID_STATE', message, {
    details: { reason: 'tpm-key', hint: 'join again: bcd join --replace --attestor tpm' },
  });
