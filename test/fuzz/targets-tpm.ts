/** What machines show of their TPMs: public areas, quotes, signatures, manufacturers' certificates, and the inventory that an operator writes. */
import { create, toBinary } from '@bufbuild/protobuf';
import {
  makeCredential,
  parseEndorsementRoots,
  parseQuote,
  parseTpmPublic,
  parseTpmSignature,
  verifyEndorsementChain,
  verifyKeyAttestation,
} from '../../pki/tpm/index.ts';
import { encodePem } from '../../pki/x509/index.ts';
import { bounds, decodeMessage, KeyAttestationSchema, TpmEvidenceSchema } from '../../proto/index.ts';
import { readTpmEvidence, shownKeys } from '../../services/join/tpm.ts';
import { readTpmInventory } from '../../services/join/tpm-inventory.ts';
import { createSoftwareAk } from '../fakes/attestation-key.ts';
import type { Target } from './engine.ts';
import { mutateDer } from './mutate-der.ts';
import { mutateProtobuf } from './mutate-fields.ts';
import { bytesOf, mutatorsOf, now, textOf, type World } from './world.ts';

const small = 4 * 1024;
const text = 64 * 1024;

export function tpmTargets({ bundle, worker, leaf }: World): Target[] {
  const ak = createSoftwareAk();
  // As an endorsement key: it decrypts, and has AES-128 in CFB mode for its children.
  const area = Buffer.from(ak.akPublic.subarray(2));
  const ekArea = Buffer.concat([
    area.subarray(0, 4),
    Buffer.from('000300b20000', 'hex'),
    Buffer.from('000600800043', 'hex'),
    Buffer.from('0010', 'hex'),
    area.subarray(16),
  ]);
  const ekPublic = Buffer.concat([Buffer.from([0, ekArea.length]), ekArea]);
  const spki = bundle.nodeCa.spki;
  const request = bytesOf('the request');
  const attestation = ak.attest(spki, request);
  const encoded = toBinary(KeyAttestationSchema, create(KeyAttestationSchema, attestation));
  const answer = { challengeId: 'one', secret: new Uint8Array(32), attestation };
  const evidence = create(TpmEvidenceSchema, { ekPublic, akPublic: ak.akPublic, ekCertificates: [leaf], answer });
  const roots = parseEndorsementRoots(encodePem('CERTIFICATE', bundle.commandSigning?.certificate.der ?? bundle.nodeCa.certificate.der));
  const wire = mutatorsOf(small);
  return [
    {
      name: 'tpm-public',
      maxBytes: small,
      seeds: [ak.akPublic, ekPublic],
      mutators: wire,
      run: (input) => makeCredential(parseTpmPublic(input, 'key'), ak.name, new Uint8Array(32)),
    },
    { name: 'tpm-quote', maxBytes: small, seeds: [attestation.quote], mutators: wire, run: (input) => parseQuote(input) },
    { name: 'tpm-signature', maxBytes: small, seeds: [attestation.signature], mutators: wire, run: (input) => parseTpmSignature(input) },
    {
      name: 'tpm-evidence',
      maxBytes: bounds.renewRequest + 1,
      seeds: [toBinary(TpmEvidenceSchema, evidence)],
      mutators: mutatorsOf(bounds.renewRequest, mutateProtobuf),
      run: (input) => shownKeys(readTpmEvidence(input)),
    },
    {
      name: 'tpm-key-attestation',
      maxBytes: bounds.renewRequest + 1,
      seeds: [encoded],
      mutators: mutatorsOf(bounds.renewRequest, mutateProtobuf),
      run: (input) => verifyKeyAttestation(decodeMessage(KeyAttestationSchema, input, 'renewRequest'), { spki, request }, ak.name),
    },
    {
      name: 'tpm-endorsement-certificate',
      maxBytes: 16 * 1024,
      // Of a worker: it names no use, as some makers' certificates do.
      seeds: [worker.certificate],
      mutators: mutatorsOf(16 * 1024, mutateDer),
      run: (input) => verifyEndorsementChain([input], { roots, spki: worker.signer.spki, now }),
    },
    {
      name: 'tpm-inventory',
      maxBytes: text,
      seeds: [
        bytesOf(`ek_sha256,site,node,role,tenant\n${'ab'.repeat(32)},berlin,"metal,7",node,default\n${'cd'.repeat(32)},berlin,,site,\n`),
      ],
      mutators: mutatorsOf(text),
      run: (input) => readTpmInventory(textOf(input)),
    },
  ];
}
