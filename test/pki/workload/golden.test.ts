/** One exchange that is kept: either half reads what the other half wrote, today's as well as that of the day when the file was made. */
import assert from 'node:assert/strict';
import { createPrivateKey } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { fromBinary, toBinary } from '@bufbuild/protobuf';
import { openWorkloadTokenRequest, openWorkloadTokenResponse } from '../../../pki/workload/index.ts';
import { WorkloadTokenRequestSchema, WorkloadTokenResponseSchema } from '../../../proto/index.ts';
import { refused } from '../../services/support.ts';

interface Golden {
  readonly nodeKeySpki: string;
  readonly oneTimeKeyPkcs8: string;
  readonly request: string;
  readonly question: { readonly requestId: string; readonly instanceId: string; readonly audience: string };
  readonly response: string;
  readonly answer: { readonly token: string; readonly expiresAt: number };
}

describe('the kept exchange of a workload token', () => {
  const golden = JSON.parse(readFileSync(new URL('../../golden/workload-exchange.json', import.meta.url), 'utf8')) as Golden;
  const bytes = (text: string): Buffer => Buffer.from(text, 'base64');
  const privateKey = createPrivateKey({ key: bytes(golden.oneTimeKeyPkcs8), format: 'der', type: 'pkcs8' });
  const nodeKey = bytes(golden.nodeKeySpki);
  const request = fromBinary(WorkloadTokenRequestSchema, bytes(golden.request));
  const response = fromBinary(WorkloadTokenResponseSchema, bytes(golden.response));
  const pending = { request, privateKey };
  const now = golden.answer.expiresAt - 1;

  it("WID-026 the broker's half opens the host's question, byte for byte what its node signed", () => {
    const { epk, ...question } = openWorkloadTokenRequest(bytes(golden.request), { nodeKey });
    assert.deepEqual(question, golden.question);
    assert.deepEqual(Buffer.from(epk), Buffer.from(request.epk));
    assert.deepEqual(Buffer.from(toBinary(WorkloadTokenRequestSchema, request)), bytes(golden.request));
    const other = { ...request, instanceId: 'i-2' };
    assert.throws(
      () => openWorkloadTokenRequest(toBinary(WorkloadTokenRequestSchema, other), { nodeKey }),
      refused('BAD_SIGNATURE', /does not match its bytes/, 'bad-signature'),
    );
  });

  it("WID-026 WID-039 the host's half opens the broker's answer, for this question and until its end", () => {
    assert.deepEqual(openWorkloadTokenResponse(response, { pending, now }), golden.answer);
    const other = { ...pending, request: { ...request, instanceId: 'i-2' } };
    assert.throws(() => openWorkloadTokenResponse(response, { pending: other, now }), refused('PERMISSION_DENIED', /./));
    assert.throws(
      () => openWorkloadTokenResponse(response, { pending, now: golden.answer.expiresAt }),
      refused('UNAUTHENTICATED', /the answer is over/, 'expired'),
    );
  });
});
