/** The question of a host and its sealed answer, with everything the gateway between them could do to both. */
import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { compactDecrypt, decodeProtectedHeader } from 'jose';
import { minute, second } from '../../../domain/time.ts';
import { type WorkloadError, workloadErrors } from '../../../domain/workload/errors.ts';
import { signEnvelope } from '../../../pki/envelope/index.ts';
import { sealJwe } from '../../../pki/jose/index.ts';
import {
  createWorkloadTokenRequest,
  openWorkloadTokenRequest,
  openWorkloadTokenResponse,
  type PendingWorkloadToken,
  refuseWorkloadTokenRequest,
  sealWorkloadTokenResponse,
} from '../../../pki/workload/index.ts';
import { signerFromPrivateKey } from '../../../pki/x509/index.ts';
import {
  bounds,
  type Signature,
  signingInput,
  type WorkloadTokenRequest,
  WorkloadTokenRequestSchema,
  type WorkloadTokenResponse,
  WorkloadTokenResponseSchema,
} from '../../../proto/index.ts';
import { now, refusal } from '../support.ts';

const nodeKey = signerFromPrivateKey(generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey);
const ask = (options: { instanceId?: string; audience?: string; requestId?: string } = {}): Promise<PendingWorkloadToken> =>
  createWorkloadTokenRequest({ signer: nodeKey, instanceId: 'i-1', ...options });
const encode = (request: WorkloadTokenRequest): Uint8Array => toBinary(WorkloadTokenRequestSchema, request);
const open = (request: WorkloadTokenRequest) => openWorkloadTokenRequest(encode(request), { nodeKey: nodeKey.spki });
const decode = (bytes: Uint8Array): WorkloadTokenResponse => fromBinary(WorkloadTokenResponseSchema, bytes);

const token = 'eyJ.the.token';
const expiresAt = now + 10 * minute;
const answerTo = ({ request }: PendingWorkloadToken): WorkloadTokenResponse =>
  decode(sealWorkloadTokenResponse(open(request), { token, expiresAt }));

describe('the exchange of a workload token', () => {
  it('WID-024 WID-025 the halves of host and broker fit: ask, read, seal, open', async () => {
    const pending = await ask({ audience: 'https://db.example.com' });
    const question = open(pending.request);
    assert.equal(question.instanceId, 'i-1');
    assert.equal(question.audience, 'https://db.example.com');
    assert.deepEqual(openWorkloadTokenResponse(answerTo(pending), { pending, now }), { token, expiresAt });
  });

  it('WID-029 WID-034 the messages have the fields of the protocol', () => {
    const names = (schema: typeof WorkloadTokenRequestSchema | typeof WorkloadTokenResponseSchema) =>
      schema.fields.map(({ name, number }) => `${number} ${name}`);
    assert.deepEqual(names(WorkloadTokenRequestSchema), ['1 request_id', '2 instance_id', '3 audience', '4 epk', '5 node_sig']);
    assert.deepEqual(names(WorkloadTokenResponseSchema), ['1 request_id', '2 jwe', '3 expires_at', '4 error']);
  });

  it('WID-030 an audience that is not named is the empty one', async () => {
    assert.equal((await ask()).request.audience, '');
  });

  it('WID-031 every question has a key of its own, which is not the key of the node', async () => {
    const [one, two] = await Promise.all([ask(), ask()]);
    assert.notDeepEqual(one.request.epk, two.request.epk);
    const own = await signed({ ...one.request, epk: nodeKey.spki });
    assert.throws(() => open(own), refusal('MALFORMED', 'request', /epk is the node's own key/));
  });

  it('WID-022 is signed by the node key for this purpose: another key and another purpose are refused', async () => {
    const { request } = await ask();
    const other = signerFromPrivateKey(generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey);
    assert.throws(
      () => openWorkloadTokenRequest(encode(request), { nodeKey: other.spki }),
      refusal('BAD_SIGNATURE', 'other-key', /^the workload-token names key/),
    );
    // The very same fields, signed for something else.
    const input = Buffer.from(signingInput('workload-token', [request.requestId, request.instanceId, request.audience, request.epk]));
    const elsewhere = Buffer.concat([Buffer.from('bettercompute.v1/secret-request'), input.subarray(input.indexOf(0))]);
    const nodeSig = { ...(request.nodeSig as Signature), sig: await nodeKey.sign(elsewhere) };
    assert.throws(() => open({ ...request, nodeSig }), refusal('BAD_SIGNATURE', 'bad-signature', /does not match/));
    assert.throws(
      () => open(create(WorkloadTokenRequestSchema, { ...request, nodeSig: undefined as never })),
      refusal('BAD_SIGNATURE', 'unsigned', /is not signed/),
    );
  });

  it('WID-032 the signature covers every other field', async () => {
    const { request } = await ask({ audience: 'a' });
    const changes: Partial<WorkloadTokenRequest>[] = [
      { requestId: `${request.requestId}1` },
      { instanceId: 'i-2' },
      { audience: '' },
      { epk: (await ask()).request.epk },
      // What one field loses another gains: the parts are told apart.
      { instanceId: 'i-1a', audience: '' },
    ];
    for (const change of changes)
      assert.throws(() => open({ ...request, ...change }), refusal('BAD_SIGNATURE', 'bad-signature', /./), JSON.stringify(change));
  });

  it('refuses what is no question: size, shape, names, a key that is not on the curve', async () => {
    const { request } = await ask();
    const bad: [Partial<WorkloadTokenRequest>, RegExp][] = [
      [{ requestId: '' }, /request_id is not 1 to 64/],
      [{ requestId: 'a'.repeat(65) }, /request_id/],
      [{ instanceId: 'a:b' }, /instance_id is no instance id/],
      [{ audience: 'a'.repeat(257) }, /audience is not at most 256/],
      [{ epk: request.epk.subarray(1) }, /epk is not a P-256 public key/],
      [{ epk: Uint8Array.from([...request.epk.subarray(0, 90), ((request.epk[90] as number) + 1) % 256]) }, /epk is not a P-256/],
    ];
    for (const [change, message] of bad) assert.throws(() => open({ ...request, ...change }), refusal('MALFORMED', 'request', message));
    const read = (bytes: Uint8Array) => openWorkloadTokenRequest(bytes, { nodeKey: nodeKey.spki });
    assert.throws(() => read(Uint8Array.of(255)), refusal('MALFORMED', 'request', /does not decode/));
    assert.throws(() => read(new Uint8Array(bounds.workloadTokenRequest + 1)), refusal('FRAME_TOO_LARGE', 'request', /exceeds the bound/));
    await assert.rejects(ask({ instanceId: '' }), refusal('MALFORMED', 'request', /instance_id/));
  });

  it('WID-035 the answer is a compact JWE to the key of the question, which jose opens too', async () => {
    const pending = await ask();
    const { jwe } = answerTo(pending);
    const { plaintext, protectedHeader } = await compactDecrypt(jwe, pending.privateKey);
    assert.equal(Buffer.from(plaintext).toString(), token);
    assert.deepEqual([protectedHeader.alg, protectedHeader.enc], ['ECDH-ES+A256KW', 'A256GCM']);
    const other = await ask();
    assert.throws(
      () => openWorkloadTokenResponse(answerTo(pending), { pending: { ...pending, privateKey: other.privateKey }, now }),
      refusal('UNAUTHENTICATED', 'key-wrap', /./),
    );
  });

  it('WID-023 WID-039 the box has its type and is bound to request, instance and end: nothing else opens it', async () => {
    const pending = await ask();
    const { request } = pending;
    const answer = answerTo(pending);
    const { alg: _a, enc: _e, epk: _k, ...bound } = decodeProtectedHeader(answer.jwe);
    assert.deepEqual(bound, { typ: 'bcworkload+jwe', bc_request: request.requestId, bc_instance: 'i-1', exp: expiresAt / second });
    const openAs = (change: Partial<WorkloadTokenResponse>, asked: Partial<WorkloadTokenRequest> = {}, at = now) =>
      openWorkloadTokenResponse({ ...answer, ...change }, { pending: { ...pending, request: { ...request, ...asked } }, now: at });
    assert.throws(() => openAs({ requestId: 'r-2' }), refusal('PERMISSION_DENIED', 'other-request', /not to this request/));
    assert.throws(() => openAs({ requestId: 'r-2' }, { requestId: 'r-2' }), refusal('PERMISSION_DENIED', 'bound-member', /bc_request/));
    assert.throws(() => openAs({}, { instanceId: 'i-2' }), refusal('PERMISSION_DENIED', 'bound-member', /bc_instance/));
    assert.throws(() => openAs({ expiresAt: answer.expiresAt + 1000n }), refusal('PERMISSION_DENIED', 'bound-member', /exp/));
    assert.throws(() => openAs({}, {}, expiresAt), refusal('UNAUTHENTICATED', 'expired', /the answer is over/));
    assert.equal(openAs({}, {}, expiresAt - 1).token, token);
    const bind = { bc_request: request.requestId, bc_instance: 'i-1', exp: expiresAt / second };
    const secretBox = sealJwe({ recipient: request.epk, plaintext: Buffer.from(token), typ: 'bcsecret+jwe', bind });
    assert.throws(() => openAs({ jwe: secretBox }), refusal('PERMISSION_DENIED', 'typ', /not bcworkload\+jwe/));
  });

  it('WID-036 each refusal is one of six words, and the host learns which', async () => {
    const words: [WorkloadError, string][] = [
      ['not-bound', 'PERMISSION_DENIED'],
      ['disabled', 'UNSUPPORTED'],
      ['audience', 'PERMISSION_DENIED'],
      ['rate-limited', 'RATE_LIMITED'],
      ['access-denied', 'PERMISSION_DENIED'],
      ['unavailable', 'UNAVAILABLE'],
    ];
    assert.deepEqual(
      words.map(([word]) => word),
      Object.keys(workloadErrors),
    );
    const pending = await ask();
    for (const [word, code] of words) {
      const answer = decode(refuseWorkloadTokenRequest(pending.request.requestId, word));
      assert.deepEqual([answer.error, answer.jwe], [word, '']);
      assert.throws(
        () => openWorkloadTokenResponse(answer, { pending, now }),
        refusal(code as never, word, new RegExp(`refused the workload token \\(${word}\\)`)),
      );
    }
    const newer = { ...answerTo(pending), jwe: '', error: 'something-new' };
    assert.throws(() => openWorkloadTokenResponse(newer, { pending, now }), refusal('UNAVAILABLE', 'unavailable', /./));
    for (const change of [{ error: 'disabled' }, { jwe: '' }])
      assert.throws(
        () => openWorkloadTokenResponse({ ...answerTo(pending), ...change }, { pending, now }),
        refusal('MALFORMED', 'answer', /either a token or an error/),
      );
  });
});

/** Signs a changed question anew, as the node itself could. */
async function signed(request: WorkloadTokenRequest): Promise<WorkloadTokenRequest> {
  const nodeSig = await signEnvelope(nodeKey, 'workload-token', [request.requestId, request.instanceId, request.audience, request.epk]);
  return { ...request, nodeSig };
}
