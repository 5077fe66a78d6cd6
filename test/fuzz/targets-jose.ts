/** Tokens and boxes: JWK, JWS, JWE, exec tickets, workload tokens' questions and keys. */
import { generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import { toBinary } from '@bufbuild/protobuf';
import { parseTicketKeys, verifyExecTicket } from '../../pki/exec/index.ts';
import { encodePublicJwk, openJwe, parseJsonObject, parseJwks, parsePublicJwk, sealJwe, verifyJws } from '../../pki/jose/index.ts';
import { createWorkloadTokenRequest, openWorkloadTokenRequest } from '../../pki/workload/index.ts';
import { signerFromPrivateKey } from '../../pki/x509/index.ts';
import { bounds, WorkloadTokenRequestSchema } from '../../proto/index.ts';
import type { Target } from './engine.ts';
import { mutateProtobuf } from './mutate-fields.ts';
import { mutateCompact, mutateJson } from './mutate-text.ts';
import { bytesOf, mutatorsOf, now, textOf, type World } from './world.ts';

const small = 64 * 1024;
const ticketClaims = {
  iss: 'https://api.example',
  aud: 'node:node-1',
  sub: 'ada',
  sid: 'session-1',
  op: 'exec',
  jti: '0123456789abcdef012345',
  iat: now / 1_000,
  exp: now / 1_000 + 60,
};

const encoded = (value: object | Uint8Array): string =>
  (value instanceof Uint8Array ? Buffer.from(value) : Buffer.from(JSON.stringify(value))).toString('base64url');

/** A token whose payload is whatever these bytes are. */
function signedOver(key: KeyObject, header: object, payload: Uint8Array): string {
  const input = `${encoded(header)}.${encoded(payload)}`;
  return `${input}.${encoded(sign('sha256', Buffer.from(input), { key, dsaEncoding: 'ieee-p1363' }))}`;
}

export async function joseTargets({ node }: World): Promise<Target[]> {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const signer = signerFromPrivateKey(privateKey);
  const jwk = encodePublicJwk(signer.spki, 'sig');
  const keys = parseTicketKeys([JSON.stringify(jwk)]);
  const header = { alg: 'ES256', kid: keys[0]?.kid, typ: 'bc-exec+jwt' };
  const jws = signedOver(privateKey, header, bytesOf(JSON.stringify(ticketClaims)));
  const jwe = sealJwe({ recipient: signer.spki, plaintext: bytesOf('{"a":1}'), typ: 'x' });
  const ticket = { keys, issuer: ticketClaims.iss, nodeId: 'node-1', now, guard: { claim: () => true } };
  const json = mutatorsOf(small, mutateJson);
  const compact = mutatorsOf(small, mutateCompact);
  const nodeKey = signerFromPrivateKey(node).spki;
  const question = await createWorkloadTokenRequest({ signer: signerFromPrivateKey(node), instanceId: 'instance-1', audience: 'db' });
  return [
    {
      name: 'jwk',
      maxBytes: small,
      seeds: [bytesOf(JSON.stringify(jwk))],
      mutators: json,
      run: (input) => parsePublicJwk(parseJsonObject(input, 'jwk'), 'sig'),
    },
    {
      name: 'jwks',
      maxBytes: small,
      seeds: [bytesOf(JSON.stringify({ keys: [jwk] }))],
      mutators: json,
      run: (input) => parseJwks(parseJsonObject(input, 'jwks'), 'sig'),
    },
    { name: 'jws', maxBytes: small, seeds: [bytesOf(jws)], mutators: compact, run: (input) => verifyJws(textOf(input), { keys }) },
    {
      name: 'jwe',
      maxBytes: 262_145,
      seeds: [bytesOf(jwe)],
      mutators: mutatorsOf(262_145, mutateCompact),
      run: (input) => openJwe(textOf(input), { privateKey }),
    },
    {
      name: 'exec-ticket',
      maxBytes: small,
      seeds: [bytesOf(jws)],
      mutators: compact,
      run: (input) => verifyExecTicket(textOf(input), ticket),
    },
    {
      name: 'exec-ticket-signed',
      maxBytes: 8 * 1024,
      seeds: [bytesOf(JSON.stringify(ticketClaims))],
      mutators: mutatorsOf(8 * 1024, mutateJson),
      run: (input) => verifyExecTicket(signedOver(privateKey, header, input), ticket),
    },
    {
      name: 'workload-token-request',
      maxBytes: bounds.workloadTokenRequest + 1,
      seeds: [toBinary(WorkloadTokenRequestSchema, question.request)],
      mutators: mutatorsOf(bounds.workloadTokenRequest, mutateProtobuf),
      run: (input) => openWorkloadTokenRequest(input, { nodeKey }),
    },
  ];
}
