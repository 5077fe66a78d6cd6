import assert from 'node:assert/strict';
import { createHash, generateKeyPairSync, randomBytes } from 'node:crypto';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import type { PkiBundle } from '../../../pki/bundle/index.ts';
import {
  type RenewStatement,
  renewStatement,
  renewStatementId,
  signJoinResponse,
  signRenewProof,
  verifyJoinResponse,
  verifyRenewProof,
} from '../../../pki/enroll/index.ts';
import { signerFromPrivateKey } from '../../../pki/x509/index.ts';
import { JoinResponseBodySchema, JoinResponseSchema, SignatureSchema, signingInput, u64be } from '../../../proto/index.ts';
import { now, refusal, sharedBundle } from '../support.ts';

const nonce = randomBytes(32);
const csrSha256 = createHash('sha256').update('csr').digest();
const granted = { case: 'granted' as const, value: { nodeId: 'n1', siteId: 's1', chain: [Buffer.from('leaf')], generation: 1n } };

describe('the signed join answer', () => {
  let bundle: PkiBundle;
  before(async () => {
    bundle = await sharedBundle();
  });
  const sign = (change = {}) =>
    signJoinResponse(bundle.joinSigning.signer(), { nonce, csrSha256, serverTimeMs: BigInt(now), outcome: granted, ...change });
  const options = (change = {}) => ({ joinKey: bundle.joinSigning.spki, nonce, csrSha256, ...change });

  it('JOIN-023 is taken when the pinned key signed it for this request', async () => {
    const { outcome, serverTimeMs } = verifyJoinResponse(await sign(), options());
    assert.equal(outcome.case === 'granted' && outcome.value.nodeId, 'n1');
    assert.equal(serverTimeMs, BigInt(now));
  });

  it('JOIN-013 may defer instead', async () => {
    const deferral = { case: 'deferral', value: { retryAfterSeconds: 30 } } as const;
    assert.equal(verifyJoinResponse(await sign({ outcome: deferral }), options()).outcome.case, 'deferral');
  });

  it('JOIN-023 refuses another key, a changed byte and an unsigned one', async () => {
    const bytes = await sign();
    assert.throws(
      () => verifyJoinResponse(bytes, options({ joinKey: bundle.nodeCa.spki })),
      refusal('BAD_SIGNATURE', 'other-key', /join-response/),
    );
    const response = fromBinary(JoinResponseSchema, bytes);
    const body = fromBinary(JoinResponseBodySchema, response.body);
    response.body = toBinary(JoinResponseBodySchema, { ...body, serverTimeMs: 1n });
    assert.throws(() => verifyJoinResponse(response, options()), refusal('BAD_SIGNATURE', 'bad-signature', /does not match/));
    assert.throws(
      () => verifyJoinResponse(create(JoinResponseSchema, { body: response.body }), options()),
      refusal('BAD_SIGNATURE', 'unsigned', /not signed/),
    );
  });

  it('refuses the answer to another request: another nonce, another CSR, none at all', async () => {
    const other = randomBytes(32);
    for (const change of [{ nonce: other }, { csrSha256: other }]) {
      assert.throws(() => verifyJoinResponse(bytes, options(change)), refusal('REPLAYED', 'join-answer', /belongs to another request/));
    }
    const empty = await sign({ nonce: new Uint8Array() });
    assert.throws(
      () => verifyJoinResponse(empty, options({ nonce: new Uint8Array() })),
      refusal('REPLAYED', 'join-answer', /another request/),
    );
  });
  let bytes: Uint8Array;
  before(async () => {
    bytes = await sign();
  });

  it('refuses bytes that are none, an answer without an outcome and a chain of none or of five', async () => {
    assert.throws(
      () => verifyJoinResponse(Buffer.from([0xff]), options()),
      refusal('MALFORMED', 'join-response', /JoinResponse does not decode/),
    );
    const none = await sign({ outcome: { case: undefined } });
    assert.throws(() => verifyJoinResponse(none, options()), refusal('MALFORMED', 'join-outcome', /neither grants nor defers/));
    for (const length of [0, 5]) {
      const chain = Array.from({ length }, () => Buffer.from('x'));
      const answer = await sign({ outcome: { ...granted, value: { ...granted.value, chain } } });
      assert.throws(
        () => verifyJoinResponse(answer, options()),
        refusal('MALFORMED', 'join-chain', new RegExp(`carries ${length} certificates`)),
      );
    }
  });
});

describe('the proof of a renewal', () => {
  const signer = signerFromPrivateKey(generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey);
  const statement: RenewStatement = { csr: Buffer.from('a csr'), nodeId: 'n1', timeMs: now };

  it('RENEW-002 covers the CSR, the node id and the clock', async () => {
    const proof = await signRenewProof(signer, statement);
    verifyRenewProof(proof, statement, signer.spki);
    assert.deepEqual(renewStatement(statement), signingInput('renew', [statement.csr, 'n1', u64be(now)]));
    for (const change of [{ csr: Buffer.from('b csr') }, { nodeId: 'n2' }, { timeMs: now + 1 }]) {
      assert.throws(
        () => verifyRenewProof(proof, { ...statement, ...change }, signer.spki),
        refusal('BAD_SIGNATURE', 'bad-signature', /the renew does not match|signature of the renew/),
      );
    }
    assert.throws(
      () => verifyRenewProof(undefined, statement, signer.spki),
      refusal('BAD_SIGNATURE', 'unsigned', /the renew is not signed/),
    );
  });

  it('RENEW-007 is remembered by its statement: the twin signature (r, n-s) has the same id', async () => {
    const proof = await signRenewProof(signer, statement);
    const order = 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551n;
    const s = BigInt(`0x${Buffer.from(proof.sig.subarray(32)).toString('hex')}`);
    const twin = create(SignatureSchema, {
      kid: proof.kid,
      sig: Buffer.concat([proof.sig.subarray(0, 32), Buffer.from((order - s).toString(16).padStart(64, '0'), 'hex')]),
    });
    verifyRenewProof(twin, statement, signer.spki);
    assert.notDeepEqual(twin.sig, proof.sig);
    assert.match(renewStatementId(statement), /^[0-9a-f]{64}$/);
    assert.notEqual(renewStatementId(statement), renewStatementId({ ...statement, timeMs: now + 1 }));
  });
});
