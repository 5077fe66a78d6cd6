/** The daemon's side of asking for an instance's token: the exchange over a session, and how long one waits for it. */
import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { fromBinary, toBinary } from '@bufbuild/protobuf';
import { tokenWithinMs, WorkloadTokenClient } from '../../daemon/workload/token-client.ts';
import { openWorkloadTokenRequest, refuseWorkloadTokenRequest, sealWorkloadTokenResponse } from '../../pki/workload/index.ts';
import { signerFromPrivateKey } from '../../pki/x509/index.ts';
import { type WorkloadTokenRequest, WorkloadTokenRequestSchema, WorkloadTokenResponseSchema } from '../../proto/index.ts';
import { refused } from '../services/support.ts';

const now = Date.UTC(2030, 0, 1);
const signer = signerFromPrivateKey(generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey);

describe('workload tokens of a daemon', () => {
  let due: (() => void) | undefined;
  let client: WorkloadTokenClient;
  beforeEach(() => {
    client = new WorkloadTokenClient({
      signer: () => signer,
      now: () => now,
      after(ms, callback) {
        assert.equal(ms, tokenWithinMs);
        due = callback;
        return () => void (due = undefined);
      },
    });
  });

  const session = () => {
    let take: (request: WorkloadTokenRequest) => void = () => undefined;
    const next = new Promise<WorkloadTokenRequest>((resolve) => void (take = resolve));
    const sendWorkloadTokenRequest = (request: WorkloadTokenRequest): boolean => {
      take(request);
      return true;
    };
    return { next, sendWorkloadTokenRequest };
  };
  const ask = () => client.ask({ instanceId: 'i-1', audience: '' }, new AbortController().signal);
  const sealed = (request: WorkloadTokenRequest, token: string) => {
    const question = openWorkloadTokenRequest(toBinary(WorkloadTokenRequestSchema, request), { nodeKey: signer.spki });
    return fromBinary(WorkloadTokenResponseSchema, sealWorkloadTokenResponse(question, { token, expiresAt: now + 60_000 }));
  };

  it('WID-026 WID-031 asks with the node key and a key of its own, and opens the answer on the session that carried the question', async () => {
    const [one, other] = [session(), session()];
    client.onWelcomed(one);
    const asking = ask();
    const request = await one.next;
    client.onResponse(other, sealed(request, 'on another session'));
    client.onResponse(one, sealed(request, 'token'));
    assert.deepEqual(await asking, { token: 'token', expiresAt: now + 60_000 });
    assert.deepEqual([client.open, due], [0, undefined]);
  });

  it('asks anew on the next session when one ends, and ends with the time of an instance, not of a command', async () => {
    const [one, two] = [session(), session()];
    client.onWelcomed(one);
    const asking = ask();
    const first = await one.next;
    client.onEnded(one);
    client.onWelcomed(two);
    const second = await two.next;
    assert.notDeepEqual(first.epk, second.epk);
    due?.();
    await assert.rejects(asking, refused('UNAVAILABLE', /the token of instance i-1: no answer came within 5 s/, 'no-answer'));
    const alone = new WorkloadTokenClient({
      signer: () => signer,
      now: () => now,
      after: (_ms, callback) => (queueMicrotask(callback), () => undefined),
    });
    await assert.rejects(
      alone.ask({ instanceId: 'i-1', audience: '' }, new AbortController().signal),
      refused('UNAVAILABLE', /this daemon is not connected/, 'not-connected'),
    );
  });

  it('WID-036 WID-039 a refusal is its word, and an answer to another key is none', async () => {
    const one = session();
    client.onWelcomed(one);
    const refusedOnce = ask();
    client.onResponse(one, fromBinary(WorkloadTokenResponseSchema, refuseWorkloadTokenRequest((await one.next).requestId, 'not-bound')));
    await assert.rejects(refusedOnce, refused('PERMISSION_DENIED', /\(not-bound\)/, 'not-bound'));
    const two = session();
    client.onWelcomed(two);
    const asking = ask();
    const { requestId } = await two.next;
    const other = { ...sealed(await one.next, 'for another question'), requestId };
    client.onResponse(two, other);
    await assert.rejects(asking, refused('PERMISSION_DENIED', /./));
  });
});
