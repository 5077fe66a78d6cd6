/** Texts and JSON: join bundles, evidence, checkpoints, and the lines of signer programs. */
import { parseCanonicalJson } from '../../pki/audit/canonical-json.ts';
import { createCheckpoint, parseCheckpoint } from '../../pki/audit/checkpoint.ts';
import { createStageEvidence, parseStageEvidence, type SignedEvidence } from '../../pki/audit/evidence.ts';
import { encodeEvidenceFile, parseEvidenceFile } from '../../pki/audit/evidence-file.ts';
import { encodeJoinBundle, parseJoinBundle } from '../../pki/enroll/index.ts';
import { parseAnswer, parseRequest, parseSignerReference } from '../../pki/signers/index.ts';
import { spkiPin } from '../../pki/x509/index.ts';
import { goodRotation } from '../pki/audit/support.ts';
import type { Target } from './engine.ts';
import { mutateBase64, mutateJson } from './mutate-text.ts';
import { bytesOf, mutatorsOf, now, textOf, trustDomain, type World } from './world.ts';

export async function textTargets({ bundle }: World): Promise<Target[]> {
  const evidence = await signedEvidence(bundle);
  const checkpoint = await createCheckpoint({
    trustDomain,
    tenant: 'deployment',
    at: now,
    events: [{ seq: 1, hash: new Uint8Array(32) }],
    previous: null,
    signer: (bundle.auditSigning ?? bundle.joinSigning).signer(),
  });
  const file = encodeEvidenceFile({ auditKey: bundle.joinSigning.spki, documents: [evidence] });
  const joining = encodeJoinBundle({
    gateway: 'https://gw.example:443',
    servingCaPin: spkiPin(bundle.servingCa.spki),
    joinKey: bundle.joinSigning.spki,
    trustDomain,
    token: 'bcj1.AAAA',
  });
  const small = 64 * 1024;
  const json = mutatorsOf(small, mutateJson);
  const lineOf = (value: object): Uint8Array => bytesOf(JSON.stringify(value));
  return [
    {
      name: 'join-bundle',
      maxBytes: small,
      seeds: [bytesOf(joining)],
      mutators: mutatorsOf(small, mutateBase64),
      run: (input) => parseJoinBundle(textOf(input)),
    },
    {
      name: 'canonical-json',
      maxBytes: small,
      seeds: [bytesOf('{"a":[1,"b",null,{"c":true}]}')],
      mutators: json,
      run: (input) => parseCanonicalJson(input),
    },
    { name: 'stage-evidence', maxBytes: small, seeds: [evidence.document], mutators: json, run: (input) => parseStageEvidence(input) },
    {
      name: 'evidence-file',
      maxBytes: 1024 * 1024,
      seeds: [bytesOf(file)],
      mutators: mutatorsOf(1024 * 1024, mutateJson),
      run: (input) => parseEvidenceFile(textOf(input)),
    },
    {
      name: 'audit-checkpoint',
      maxBytes: small,
      seeds: [checkpoint.document],
      mutators: json,
      run: (input) => parseCheckpoint(input),
    },
    {
      name: 'signer-answer',
      maxBytes: small + 1,
      seeds: [
        lineOf({ id: 1, signature: 'AAAA' }),
        lineOf({ id: 1, publicKey: 'AAAA' }),
        lineOf({ id: 1, error: { code: 'denied', message: 'x' } }),
      ],
      mutators: json,
      run: (input) => parseAnswer(textOf(input)),
    },
    {
      name: 'signer-request',
      maxBytes: small + 1,
      seeds: [lineOf({ id: 1, do: 'sign', key: 'k', input: 'AAAA' }), lineOf({ id: 1, do: 'public-key', key: 'k' })],
      mutators: json,
      run: (input) => parseRequest(textOf(input)),
    },
    {
      name: 'signer-reference',
      maxBytes: 1_024,
      seeds: [bytesOf('pkcs11:token=bc;object=command%20root;id=%01'), bytesOf('external:alias/root')],
      mutators: mutatorsOf(1_024),
      run: (input) => parseSignerReference(textOf(input)),
    },
  ];
}

const signedEvidence = async (bundle: World['bundle']): Promise<SignedEvidence> => {
  if (bundle.auditSigning === undefined) throw new Error('a new bundle has an audit key');
  const facts = goodRotation[1] ?? goodRotation[0];
  if (facts === undefined) throw new Error('a rotation has stages');
  return createStageEvidence({ signer: bundle.auditSigning.signer(), facts, previous: null });
};
