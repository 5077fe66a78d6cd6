/** The question for a secret and its sealed answer, with everything the gateway between them could do to both. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { generateKeyPairSync } from 'node:crypto';
import { promisify } from 'node:util';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { compactDecrypt, decodeProtectedHeader } from 'jose';
import { maxBindingLength } from '../../../domain/secrets/binding.ts';
import { type SecretError, secretErrors } from '../../../domain/secrets/errors.ts';
import { maxReferenceLength, maxSecretBytes } from '../../../domain/secrets/reference.ts';
import { minute, second } from '../../../domain/time.ts';
import { signEnvelope } from '../../../pki/envelope/index.ts';
import { sealJwe } from '../../../pki/jose/index.ts';
import {
  createSecretRequest,
  openSecretRequest,
  openSecretResponse,
  openSecretValue,
  type PendingSecret,
  refuseSecretRequest,
  type SecretQuestion,
  sealSecretResponse,
  sealSecretValue,
} from '../../../pki/secrets/index.ts';
import { signerFromPrivateKey } from '../../../pki/x509/index.ts';
import {
  bounds,
  type SecretRequest,
  SecretRequestSchema,
  type SecretResponse,
  SecretResponseSchema,
  type Signature,
} from '../../../proto/index.ts';
import { findPython } from '../../harness/python.ts';
import { now, refusal } from '../support.ts';

const nodeKey = signerFromPrivateKey(generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey);
const ask = (options: Partial<SecretQuestion> = {}): Promise<PendingSecret> =>
  createSecretRequest({ signer: nodeKey, ref: 'secret://bmc/m-1', workflowId: 'machine/m-1/provision/0a1b', stepId: 'boot.1', ...options });
const encode = (request: SecretRequest): Uint8Array => toBinary(SecretRequestSchema, request);
const open = (request: SecretRequest) => openSecretRequest(encode(request), { nodeKey: nodeKey.spki });
const decode = (bytes: Uint8Array): SecretResponse => fromBinary(SecretResponseSchema, bytes);

const value = Buffer.from('{"username":"root","password":"not for gateways"}');
const expiresAt = now + minute;
const answerTo = ({ request }: PendingSecret): SecretResponse => decode(sealSecretResponse(open(request), { value, expiresAt }));
const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString();

const partsOf = (request: SecretRequest) => {
  const { ref, workflowId, stepId, allocationId, epk, requestId } = request;
  return [ref, workflowId, stepId, allocationId, epk, requestId];
};
const signed = async (request: SecretRequest): Promise<SecretRequest> => ({
  ...request,
  nodeSig: await signEnvelope(nodeKey, 'secret-request', partsOf(request)),
});

describe('the exchange of a secret', () => {
  it('SEC-012 the halves of machine and broker fit: ask, read, seal, open', async () => {
    const pending = await ask();
    const { ref, workflowId, stepId, allocationId } = open(pending.request);
    assert.deepEqual([ref, workflowId, stepId, allocationId], ['secret://bmc/m-1', 'machine/m-1/provision/0a1b', 'boot.1', '']);
    assert.deepEqual(text(openSecretResponse(answerTo(pending), { pending, now })), text(value));
  });

  it('SEC-002 SEC-009 the messages have the fields of the protocol', () => {
    const names = (schema: typeof SecretRequestSchema | typeof SecretResponseSchema) => schema.fields.map(({ name }) => name).sort();
    assert.deepEqual(names(SecretRequestSchema), ['allocation_id', 'epk', 'node_sig', 'ref', 'request_id', 'step_id', 'workflow_id']);
    assert.deepEqual(names(SecretResponseSchema), ['error', 'jwe', 'request_id']);
  });

  it('SEC-003 every question has a key of its own, which is not the key of the node', async () => {
    const [one, two] = await Promise.all([ask(), ask()]);
    assert.notDeepEqual(one.request.epk, two.request.epk);
    const own = await signed({ ...one.request, epk: nodeKey.spki });
    assert.throws(() => open(own), refusal('MALFORMED', 'request', /epk is the node's own key/));
  });

  it('SEC-004 SEC-005 the signature covers every other field, by the node key, for this purpose', async () => {
    const { request } = await ask({ allocationId: 'i-1' });
    open(request);
    const changes: Partial<SecretRequest>[] = [
      { ref: 'secret://bmc/m-2' },
      { workflowId: 'machine/m-2/provision/0a1b' },
      { stepId: 'boot.2' },
      { allocationId: '' },
      { epk: (await ask()).request.epk },
      { requestId: `${request.requestId}1` },
      // What one field loses another gains: the parts are told apart.
      { workflowId: `${request.workflowId}/`, stepId: request.stepId.slice(1) },
    ];
    for (const change of changes)
      assert.throws(() => open({ ...request, ...change }), refusal('BAD_SIGNATURE', 'bad-signature', /./), JSON.stringify(change));
    const other = signerFromPrivateKey(generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey);
    assert.throws(
      () => openSecretRequest(encode(request), { nodeKey: other.spki }),
      refusal('BAD_SIGNATURE', 'other-key', /^the secret-request names key/),
    );
    const elsewhere = await signEnvelope(nodeKey, 'workload-token', partsOf(request).slice(0, 4));
    assert.throws(() => open({ ...request, nodeSig: elsewhere }), refusal('BAD_SIGNATURE', 'bad-signature', /./));
    assert.throws(
      () => open(create(SecretRequestSchema, { ...request, nodeSig: undefined as never })),
      refusal('BAD_SIGNATURE', 'unsigned', /is not signed/),
    );
  });

  it('refuses what is no question: size, shapes, a key that is not on the curve', async () => {
    const { request } = await ask();
    const bad: [Partial<SecretRequest>, RegExp][] = [
      [{ requestId: '' }, /request_id is not 1 to 64/],
      [{ ref: '' }, /ref is not 1 to 512/],
      [{ ref: `secret://${'a'.repeat(maxReferenceLength)}` }, /ref is not 1 to 512/],
      [{ ref: 'secret://a b' }, /ref/],
      [{ workflowId: 'a'.repeat(maxBindingLength + 1) }, /workflow_id is not at most 128/],
      [{ stepId: 'a\n' }, /step_id/],
      [{ allocationId: 'ä' }, /allocation_id/],
      [{ epk: request.epk.subarray(1) }, /epk is not a P-256 public key/],
    ];
    for (const [change, message] of bad) assert.throws(() => open({ ...request, ...change }), refusal('MALFORMED', 'request', message));
    const read = (bytes: Uint8Array) => openSecretRequest(bytes, { nodeKey: nodeKey.spki });
    assert.throws(() => read(Uint8Array.of(255)), refusal('MALFORMED', 'request', /the secret request does not decode/));
    assert.throws(() => read(new Uint8Array(bounds.secretRequest + 1)), refusal('FRAME_TOO_LARGE', 'request', /exceeds the bound/));
  });

  it('SEC-008 the answer is a compact JWE to the key of the question, which jose opens too', async () => {
    const pending = await ask();
    const { jwe } = answerTo(pending);
    const { plaintext, protectedHeader } = await compactDecrypt(jwe, pending.privateKey);
    assert.equal(text(plaintext), text(value));
    assert.deepEqual([protectedHeader.alg, protectedHeader.enc], ['ECDH-ES+A256KW', 'A256GCM']);
    const other = await ask();
    const opened = () => openSecretResponse(answerTo(pending), { pending: { ...pending, privateKey: other.privateKey }, now });
    assert.throws(opened, refusal('UNAUTHENTICATED', 'key-wrap', /./));
  });

  it('SEC-013 SEC-014 SEC-015 the box has its type and is bound to reference, request and end: nothing else opens it', async () => {
    const pending = await ask();
    const { request } = pending;
    const answer = answerTo(pending);
    const { alg: _a, enc: _e, epk: _k, ...bound } = decodeProtectedHeader(answer.jwe);
    assert.deepEqual(bound, { typ: 'bcsecret+jwe', bc_ref: request.ref, bc_request: request.requestId, exp: expiresAt / second });
    const openAs = (change: Partial<SecretResponse>, asked: Partial<SecretRequest> = {}, at = now) =>
      openSecretResponse({ ...answer, ...change }, { pending: { ...pending, request: { ...request, ...asked } }, now: at });
    assert.throws(() => openAs({ requestId: 'r-2' }), refusal('PERMISSION_DENIED', 'other-request', /not to this request/));
    assert.throws(() => openAs({ requestId: 'r-2' }, { requestId: 'r-2' }), refusal('PERMISSION_DENIED', 'bound-member', /bc_request/));
    assert.throws(() => openAs({}, { ref: 'secret://bmc/m-2' }), refusal('PERMISSION_DENIED', 'bound-member', /bc_ref/));
    assert.throws(() => openAs({}, {}, expiresAt), refusal('UNAUTHENTICATED', 'expired', /the answer is over/));
    assert.equal(text(openAs({}, {}, expiresAt - 1)), text(value));
    const box = (typ: string, bind: Record<string, string | number>) => sealJwe({ recipient: request.epk, plaintext: value, typ, bind });
    const bind = { bc_ref: request.ref, bc_request: request.requestId };
    const late = { ...bind, exp: expiresAt / second };
    assert.throws(() => openAs({ jwe: box('bcworkload+jwe', late) }), refusal('PERMISSION_DENIED', 'typ', /not bcsecret\+jwe/));
    assert.equal(text(openAs({ jwe: box('bcsecret+jwe', late) })), text(value));
    assert.throws(() => openAs({ jwe: box('bcsecret+jwe', bind) }), refusal('MALFORMED', 'answer', /names no end/));
    assert.throws(() => openAs({ jwe: box('bcsecret+jwe', { ...bind, exp: 'never' }) }), refusal('MALFORMED', 'answer', /names no end/));
    // A header that says a later end than the one it was sealed under.
    const [header = '', ...rest] = answer.jwe.split('.');
    const json = JSON.parse(Buffer.from(header, 'base64url').toString()) as Record<string, unknown>;
    const longer = Buffer.from(JSON.stringify({ ...json, exp: expiresAt / second + 60 })).toString('base64url');
    assert.throws(() => openAs({ jwe: [longer, ...rest].join('.') }), refusal('UNAUTHENTICATED', 'gcm-tag', /./));
  });

  it('SEC-009 SEC-016 each refusal is one of four words, and the machine learns which', async () => {
    const pending = await ask();
    assert.deepEqual(Object.keys(secretErrors), ['not-found', 'not-bound', 'access-denied', 'unavailable']);
    for (const [word, { code }] of Object.entries(secretErrors)) {
      const response = decode(refuseSecretRequest(pending.request.requestId, word as SecretError));
      assert.deepEqual([response.jwe, response.error], ['', word]);
      assert.throws(
        () => openSecretResponse(response, { pending, now }),
        refusal(code, word, new RegExp(`refused secret://bmc/m-1 \\(${word}\\)`)),
      );
    }
    const odd = create(SecretResponseSchema, { requestId: pending.request.requestId, error: 'a word of tomorrow' });
    assert.throws(() => openSecretResponse(odd, { pending, now }), refusal('UNAVAILABLE', 'unavailable', /./));
    for (const both of [
      { jwe: '', error: '' },
      { jwe: answerTo(pending).jwe, error: 'not-found' },
    ])
      assert.throws(
        () => openSecretResponse(create(SecretResponseSchema, { requestId: pending.request.requestId, ...both }), { pending, now }),
        refusal('MALFORMED', 'answer', /either a secret or an error/),
      );
  });

  it('the largest secret fits into the answer', async () => {
    const pending = await ask();
    const largest = Buffer.alloc(maxSecretBytes, 7);
    const bytes = sealSecretResponse(open(pending.request), { value: largest, expiresAt });
    assert.ok(bytes.length <= bounds.secretResponse);
    assert.deepEqual(Buffer.from(openSecretResponse(decode(bytes), { pending, now })), largest);
  });
});

const run = promisify(execFile);

/** Reads the question and answers it, or asks and opens: as somebody does who has the protocol's text and no line of ours. */
const independent = `
import json, struct, sys, hashlib
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives import hashes, serialization as s
from joserfc import jwe
from joserfc.jwk import ECKey

order = json.load(sys.stdin)
registry = jwe.JWERegistry(algorithms=["ECDH-ES+A256KW", "A256GCM"], strict_check_header=False)
public = lambda key: key.public_bytes(s.Encoding.DER, s.PublicFormat.SubjectPublicKeyInfo)
def signing_input(q):
    parts = [q["ref"].encode(), q["workflowId"].encode(), q["stepId"].encode(), q["allocationId"].encode(), bytes.fromhex(q["epk"]), q["requestId"].encode()]
    return b"bettercompute.v1/secret-request\\0" + b"".join(struct.pack(">I", len(p)) + p for p in parts)
if order["do"] == "answer":
    q = order["question"]
    sig = bytes.fromhex(q["sig"])
    key = s.load_der_public_key(bytes.fromhex(order["nodeKey"]))
    der = utils.encode_dss_signature(int.from_bytes(sig[:32], "big"), int.from_bytes(sig[32:], "big"))
    key.verify(der, signing_input(q), ec.ECDSA(hashes.SHA256()))
    epk = s.load_der_public_key(bytes.fromhex(q["epk"]))
    pem = epk.public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo)
    header = {"alg": "ECDH-ES+A256KW", "enc": "A256GCM", "typ": "bcsecret+jwe", "bc_ref": q["ref"], "bc_request": q["requestId"], "exp": order["exp"]}
    print(json.dumps({"jwe": jwe.encrypt_compact(header, order["value"].encode(), ECKey.import_key(pem), registry=registry)}))
else:
    node = ec.generate_private_key(ec.SECP256R1())
    once = ec.generate_private_key(ec.SECP256R1())
    q = {**order["question"], "epk": public(once.public_key()).hex()}
    r, t = utils.decode_dss_signature(node.sign(signing_input(q), ec.ECDSA(hashes.SHA256())))
    spki = public(node.public_key())
    out = {"epk": q["epk"], "sig": (r.to_bytes(32, "big") + t.to_bytes(32, "big")).hex(), "nodeKey": spki.hex(), "kid": hashlib.sha256(spki).hexdigest()}
    out["key"] = once.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption()).decode()
    print(json.dumps(out))
`;

const opener = `
import json, sys
from joserfc import jwe
from joserfc.jwk import ECKey
order = json.load(sys.stdin)
registry = jwe.JWERegistry(algorithms=["ECDH-ES+A256KW", "A256GCM"], strict_check_header=False)
opened = jwe.decrypt_compact(order["jwe"], ECKey.import_key(order["key"]), registry=registry)
print(json.dumps({"value": opened.plaintext.decode(), "header": {k: v for k, v in opened.protected.items() if k != "epk"}}))
`;

describe('the exchange of a secret with an implementation that nobody here wrote (skipped where python with joserfc is absent)', () => {
  let python: string | null = null;
  before(async function () {
    python = await findPython('joserfc, cryptography');
    if (python === null) this.skip();
  });
  const told = async (script: string, order: object): Promise<Record<string, unknown>> => {
    const child = run(python ?? '', ['-c', script]);
    child.child.stdin?.end(JSON.stringify(order));
    return JSON.parse((await child).stdout) as Record<string, unknown>;
  };

  it('SEC-020 a broker in Python verifies our question, and we open its answer', async () => {
    const pending = await ask();
    const { request } = pending;
    const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
    const { epk, nodeSig, $typeName: _t, ...fields } = request;
    const question = { ...fields, epk: hex(epk), sig: hex((nodeSig as Signature).sig) };
    const exp = expiresAt / second;
    const { jwe } = await told(independent, { do: 'answer', question, nodeKey: hex(nodeKey.spki), value: text(value), exp });
    const response = create(SecretResponseSchema, { requestId: request.requestId, jwe: jwe as string });
    assert.equal(text(openSecretResponse(response, { pending, now })), text(value));
  });

  it('SEC-020 a machine in Python asks, our broker reads its question, and it opens our answer', async () => {
    const question = {
      ref: 'vault://kv/site/berlin#token',
      workflowId: 'host:telemetry',
      stepId: 'headersRef',
      allocationId: '',
      requestId: 'r-1',
    };
    const asked = (await told(independent, { do: 'ask', question })) as Record<'epk' | 'sig' | 'nodeKey' | 'kid' | 'key', string>;
    const bytes = (hex: string): Uint8Array => Uint8Array.from(Buffer.from(hex, 'hex'));
    const request = create(SecretRequestSchema, { ...question, epk: bytes(asked.epk), nodeSig: { sig: bytes(asked.sig), kid: asked.kid } });
    const read = openSecretRequest(encode(request), { nodeKey: bytes(asked.nodeKey) });
    const { jwe } = decode(sealSecretResponse(read, { value, expiresAt }));
    assert.deepEqual(await told(opener, { jwe, key: asked.key }), {
      value: text(value),
      header: {
        alg: 'ECDH-ES+A256KW',
        enc: 'A256GCM',
        typ: 'bcsecret+jwe',
        bc_ref: question.ref,
        bc_request: 'r-1',
        exp: expiresAt / second,
      },
    });
  });
});

describe('a secret at rest', () => {
  const seal = { secret: 'a secret of thirty-two characters at least', path: 'bmc/m-1', version: 3 };

  it('SEC-028 opens under its own path and version, with the deployment’s secret, unchanged, and not else', () => {
    const sealed = sealSecretValue(value, seal);
    assert.deepEqual(Buffer.from(openSecretValue(sealed, seal)), value);
    assert.equal(Buffer.from(sealed).includes('not for gateways'), false);
    assert.notDeepEqual(sealSecretValue(value, seal), sealed, 'fresh salt and nonce');
    const changed = Uint8Array.from(sealed);
    changed[changed.length - 1] = (changed[changed.length - 1] as number) ^ 1;
    const bad: [Uint8Array, typeof seal][] = [
      [sealed, { ...seal, path: 'bmc/m-2' }],
      [sealed, { ...seal, version: 2 }],
      [sealed, { ...seal, secret: `${seal.secret}!` }],
      [changed, seal],
      [sealed.subarray(0, 60), seal],
      [new Uint8Array(), seal],
    ];
    for (const [bytes, under] of bad)
      assert.throws(() => openSecretValue(bytes, under), refusal('INVALID_CONFIG', 'secret-seal', /does not open/));
  });

  it('refuses an empty value, one above the bound, and a deployment secret that is too short', () => {
    for (const size of [0, maxSecretBytes + 1])
      assert.throws(() => sealSecretValue(new Uint8Array(size), seal), refusal('INVALID_INPUT', 'secret-size', /1 to 65536 bytes/));
    assert.throws(() => sealSecretValue(value, { ...seal, secret: 'short' }), /32 characters/);
  });
});
