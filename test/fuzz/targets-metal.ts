/** What machines without a system, their site agents and their controllers say: evidence, assertions, secrets that are asked for, Redfish answers. */
import { generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { parseBmcAddress } from '../../daemon/site/redfish/address.ts';
import { refusalOf } from '../../daemon/site/redfish/refusals.ts';
import { parseAnswer } from '../../daemon/site/redfish/resource.ts';
import { observe } from '../../daemon/site/redfish/system.ts';
import { judgeTask, retryAfterMs, taskPath } from '../../daemon/site/redfish/tasks.ts';
import { signEnvelope, verifyEnvelope } from '../../pki/envelope/index.ts';
import { splitSignedEvidence, verifyMetalEvidence } from '../../pki/evidence/index.ts';
import { createSecretRequest, openSecretRequest, openSecretResponse, sealSecretResponse } from '../../pki/secrets/index.ts';
import { issueLeaf, kidOf, nodeIdentityOf, signerFromPrivateKey, verifyChain } from '../../pki/x509/index.ts';
import {
  bounds,
  DeployEvidenceSchema,
  decodeMessage,
  EraseEvidenceSchema,
  type SecretRequest,
  SecretRequestSchema,
  SecretResponseSchema,
  SignatureSchema,
  SignedSchema,
  signingInput,
  site,
  X509PopEvidenceSchema,
} from '../../proto/index.ts';
import { readAssertion, readDiscoveryEvidence } from '../../services/join/discovery.ts';
import { popGraceMs, readPopEvidence } from '../../services/join/x509pop.ts';
import type { Target } from './engine.ts';
import { mutateDer } from './mutate-der.ts';
import { mutateProtobuf } from './mutate-fields.ts';
import { mutateCompact, mutateJson } from './mutate-text.ts';
import { bytesOf, mutatorsOf, now, textOf, trustDomain, type World } from './world.ts';

type Purpose = Parameters<typeof signingInput>[0];

/** An agent of some role, with what it signs as. */
async function agentOf({ bundle }: World, role: 'ramdisk' | 'site') {
  const key = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
  const signer = signerFromPrivateKey(key);
  const { certificate } = bundle.nodeCa;
  const ca = { certificate: certificate.der, signer: bundle.nodeCa.signer() };
  const identity = { trustDomain, siteId: 'site', nodeId: 'node-1' };
  const { der } = await issueLeaf({ ca, profile: role, spki: signer.spki, identity, now, sans: { uris: [] } });
  const signature = (purpose: Purpose, parts: (Uint8Array | string)[]) => ({
    ...signatureBy(key, signer.spki, { purpose, parts }),
    chain: [der, certificate.der],
  });
  return { signature };
}

const signatureBy = (key: KeyObject, spki: Uint8Array, { purpose, parts }: { purpose: Purpose; parts: (Uint8Array | string)[] }) => ({
  sig: new Uint8Array(sign('sha256', signingInput(purpose, parts), { key, dsaEncoding: 'ieee-p1363' })),
  kid: kidOf(spki),
});

async function secretTargets({ node }: World): Promise<Target[]> {
  const signer = signerFromPrivateKey(node);
  const pending = await createSecretRequest({ signer, ref: 'secret://bmc/m-1', workflowId: 'machine/m-1/provision', stepId: 'power.1' });
  const request = toBinary(SecretRequestSchema, pending.request);
  const question = openSecretRequest(request, { nodeKey: signer.spki });
  const answer = sealSecretResponse(question, { value: bytesOf('a password'), expiresAt: now + 60_000 });
  const resigned = (said: SecretRequest): Uint8Array => {
    const { ref, workflowId, stepId, allocationId, epk, requestId } = said;
    const nodeSig = signatureBy(node, signer.spki, {
      purpose: 'secret-request',
      parts: [ref, workflowId, stepId, allocationId, epk, requestId],
    });
    return toBinary(SecretRequestSchema, { ...said, nodeSig: create(SignatureSchema, nodeSig) });
  };
  const requests = mutatorsOf(bounds.secretRequest, mutateProtobuf, mutateDer);
  const compact = mutatorsOf(bounds.secretResponse - 512, mutateCompact);
  return [
    {
      name: 'secret-request',
      maxBytes: bounds.secretRequest + 1,
      seeds: [request],
      mutators: requests,
      run: (input) => openSecretRequest(input, { nodeKey: signer.spki }),
    },
    {
      name: 'secret-request-signed',
      maxBytes: bounds.secretRequest - 512,
      seeds: [request],
      mutators: requests,
      run: (input) => openSecretRequest(resigned(decodeMessage(SecretRequestSchema, input, 'secretRequest')), { nodeKey: signer.spki }),
    },
    {
      name: 'secret-response',
      maxBytes: bounds.secretResponse + 1,
      seeds: [answer],
      mutators: mutatorsOf(bounds.secretResponse, mutateProtobuf),
      run: (input) => openSecretResponse(decodeMessage(SecretResponseSchema, input, 'secretResponse'), { pending, now }),
    },
    {
      name: 'secret-response-box',
      maxBytes: bounds.secretResponse - 512,
      seeds: [bytesOf(fromBinary(SecretResponseSchema, answer).jwe)],
      mutators: compact,
      run: (input) =>
        openSecretResponse(create(SecretResponseSchema, { requestId: pending.request.requestId, jwe: textOf(input) }), { pending, now }),
    },
  ];
}

async function joinTargets(world: World): Promise<Target[]> {
  const { bundle, node, leaf } = world;
  const anchors = [bundle.nodeCa.certificate.der];
  const agent = await agentOf(world, 'site');
  const csr = bytesOf('the request');
  const nonce = new Uint8Array(32).fill(7);
  const proof = await signEnvelope(signerFromPrivateKey(node), 'x509pop', [nonce, csr]);
  const pop = toBinary(X509PopEvidenceSchema, create(X509PopEvidenceSchema, { chain: [leaf, ...anchors], proof }));
  const said = { trustDomain, siteId: 'site', agentNodeId: 'node-1', nodeId: 'm-1', entryId: 'entry-1', issuedAtMs: BigInt(now) };
  const assertion = toBinary(site.DiscoveryAssertionSchema, create(site.DiscoveryAssertionSchema, said));
  const signedOver = (body: Uint8Array): Uint8Array =>
    toBinary(
      site.SignedDiscoveryAssertionSchema,
      create(site.SignedDiscoveryAssertionSchema, { body, signature: agent.signature('discovery', [body]) }),
    );
  const judgeAssertion = (input: Uint8Array): unknown => {
    const { body, signature } = readDiscoveryEvidence(input);
    const chained = verifyChain(signature.chain, { anchors, now, purpose: 'client' });
    verifyEnvelope({ signature, purpose: 'discovery', parts: [body], key: chained.leaf.spki });
    return [nodeIdentityOf(chained.leaf, trustDomain), readAssertion(body)];
  };
  const chained = mutatorsOf(bounds.renewRequest, mutateProtobuf, mutateProtobuf, mutateDer);
  return [
    {
      name: 'x509pop-evidence',
      maxBytes: bounds.renewRequest + 1,
      seeds: [pop],
      mutators: chained,
      run: (input) => {
        const evidence = readPopEvidence(input);
        const { leaf: shown } = verifyChain(evidence.chain, { anchors, now, purpose: 'client', leafGraceMs: popGraceMs });
        verifyEnvelope({ signature: evidence.proof, purpose: 'x509pop', parts: [nonce, csr], key: shown.spki });
        return nodeIdentityOf(shown, trustDomain);
      },
    },
    {
      name: 'discovery-assertion',
      maxBytes: bounds.renewRequest + 1,
      seeds: [signedOver(assertion)],
      mutators: chained,
      run: judgeAssertion,
    },
    {
      name: 'discovery-assertion-signed',
      maxBytes: bounds.renewRequest - 4_096,
      seeds: [assertion],
      mutators: mutatorsOf(bounds.renewRequest, mutateProtobuf),
      run: (input) => judgeAssertion(signedOver(input)),
    },
  ];
}

const evidenceBodies = (): { erase: Uint8Array; deploy: Uint8Array } => {
  const common = {
    nodeId: 'node-1',
    runId: '0123456789ab',
    commandId: 'machine/node-1/provision/0123456789ab/wipe.1',
    bootNonce: new Uint8Array(16),
    trustDomain,
    finishedAtMs: BigInt(now),
  };
  const samples = Array.from({ length: 4 }, (_, at) => ({
    offset: BigInt(at * 4096),
    length: 4096 << at,
    beforeSha256: new Uint8Array(32).fill(1),
    afterSha256: new Uint8Array(32).fill(2),
    clean: true,
  }));
  const disks = [{ disk: { serial: 'D0' }, method: 'overwrite-random-zero', passes: 2, erased: true, samples }];
  const written = { imageSha256: 'a'.repeat(64), writtenBytes: 1n, writtenSha256: new Uint8Array(32), readbackSha256: new Uint8Array(32) };
  return {
    erase: toBinary(EraseEvidenceSchema, create(EraseEvidenceSchema, { ...common, disks })),
    deploy: toBinary(DeployEvidenceSchema, create(DeployEvidenceSchema, { ...common, ...written })),
  };
};

async function evidenceTargets(world: World): Promise<Target[]> {
  const anchors = [world.bundle.nodeCa.certificate.der];
  const ramdisk = await agentOf(world, 'ramdisk');
  const bodies = evidenceBodies();
  const largest = bounds.commandResultPayload;
  return (['erase', 'deploy'] as const).flatMap((kind): Target[] => {
    const signature = (body: Uint8Array) => ramdisk.signature(`${kind}-evidence`, [body]);
    const signed = toBinary(SignedSchema, create(SignedSchema, { body: bodies[kind], signature: signature(bodies[kind]) }));
    return [
      {
        name: `${kind}-evidence`,
        maxBytes: largest + 1,
        seeds: [signed],
        mutators: mutatorsOf(largest, mutateProtobuf, mutateProtobuf, mutateDer),
        run: (input) => verifyMetalEvidence({ evidence: splitSignedEvidence(kind, input), anchors, trustDomain }),
      },
      {
        name: `${kind}-evidence-signed`,
        maxBytes: largest + 1,
        seeds: [bodies[kind]],
        mutators: mutatorsOf(largest, mutateProtobuf),
        run: (body) => {
          const signatureBytes = toBinary(SignatureSchema, create(SignatureSchema, signature(body) as never));
          return verifyMetalEvidence({ evidence: { kind, body, signature: signatureBytes }, anchors, trustDomain });
        },
      },
    ];
  });
}

/** What an answer is asked for, whatever request it answers. Its status is taken from the bytes too. */
function readAnswer(input: Uint8Array): unknown {
  const text = textOf(input);
  const answer = {
    status: 200 + ((input[0] ?? 0) % 4) * 100,
    headers: { location: text.slice(0, 512), 'retry-after': text.slice(0, 64) },
    text,
  };
  const address = parseBmcAddress('10.0.0.1');
  const exchange = { method: 'GET', path: '/redfish/v1/', headers: {} } as const;
  refusalOf({ address: address.key, exchange, answer, requestId: 'r-1', secrets: ['correct-horse-1'] });
  judgeTask(answer, ['correct-horse-1']);
  taskPath(answer, address);
  retryAfterMs(answer.headers['retry-after'], now);
  return observe({ path: exchange.path, body: parseAnswer(answer, 'its root'), etag: null });
}

const largestAnswer = 1024 * 1024;
const redfishTarget = (): Target => ({
  name: 'redfish-answer',
  maxBytes: largestAnswer,
  seeds: [
    JSON.stringify({
      '@odata.id': '/redfish/v1/Systems/1',
      PowerState: 'On',
      BootProgress: { LastState: 'OSRunning' },
      LastResetTime: 'x',
    }),
    JSON.stringify({ error: { '@Message.ExtendedInfo': [{ MessageId: 'Base.1.12.ResourceInUse', Message: 'no', MessageArgs: ['a'] }] } }),
    JSON.stringify({ TaskState: 'Exception', TaskStatus: 'Critical', Messages: [{ MessageId: 'Base.1.0.X', Message: 'why' }] }),
    '<html><head><title>502</title></head><body>Bad gateway</body></html>',
  ].map(bytesOf),
  mutators: mutatorsOf(largestAnswer, mutateJson),
  run: readAnswer,
});

export async function metalTargets(world: World): Promise<Target[]> {
  return [...(await secretTargets(world)), ...(await joinTargets(world)), ...(await evidenceTargets(world)), redfishTarget()];
}
