/** The daemon's side of asking for a secret: which answer counts, how long one is waited for, and what a refusal is to the asker's code. */
import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { fromBinary, toBinary } from '@bufbuild/protobuf';
import { answerWithinMs, SecretClient } from '../../daemon/secrets/client.ts';
import type { Code } from '../../domain/errors.ts';
import type { SecretError } from '../../domain/secrets/errors.ts';
import { openSecretRequest, refuseSecretRequest, sealSecretResponse } from '../../pki/secrets/index.ts';
import { signerFromPrivateKey } from '../../pki/x509/index.ts';
import { type SecretRequest, SecretRequestSchema, type SecretResponse, SecretResponseSchema } from '../../proto/index.ts';
import { refused } from '../services/support.ts';

const now = Date.UTC(2030, 0, 1);
const signer = signerFromPrivateKey(generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey);
const binding = { workflowId: 'machine/m-1/provision', stepId: 'power.1' };

class Session {
  readonly asked: SecretRequest[] = [];
  readonly #waiting: ((request: SecretRequest) => void)[] = [];

  sendSecretRequest(request: SecretRequest): boolean {
    const taker = this.#waiting.shift();
    if (taker === undefined) this.asked.push(request);
    else taker(request);
    return true;
  }

  next(): Promise<SecretRequest> {
    const request = this.asked.shift();
    return request === undefined ? new Promise((resolve) => void this.#waiting.push(resolve)) : Promise.resolve(request);
  }
}

const decoded = (bytes: Uint8Array): SecretResponse => fromBinary(SecretResponseSchema, bytes);
const secretFor = (request: SecretRequest, text: string): SecretResponse => {
  const question = openSecretRequest(toBinary(SecretRequestSchema, request), { nodeKey: signer.spki });
  return decoded(sealSecretResponse(question, { value: Buffer.from(text), expiresAt: now + 60_000 }));
};

describe('secrets of a daemon', () => {
  let clock: { at: number; timers: Map<() => void, number> };
  let client: SecretClient;
  beforeEach(() => {
    clock = { at: 0, timers: new Map() };
    client = new SecretClient({
      signer: () => signer,
      now: () => now,
      after(ms, callback) {
        clock.timers.set(callback, clock.at + ms);
        return () => void clock.timers.delete(callback);
      },
    });
  });
  const pass = (ms: number): void => {
    clock.at += ms;
    for (const [callback, at] of Array.from(clock.timers)) if (at <= clock.at) callback();
  };
  const read = (): Promise<Uint8Array> => client.read('secret://bmc/m-1', binding, new AbortController().signal);
  const textOf = async (reading: Promise<Uint8Array>): Promise<string> => Buffer.from(await reading).toString();

  it('SEC-017 an answer on another session than its question is ignored; the secret is asked for anew, by another question', async () => {
    const [first, second] = [new Session(), new Session()];
    client.onWelcomed(first);
    const reading = read();
    const asked = await first.next();
    client.onWelcomed(second);
    client.onResponse(second, secretFor(asked, 'of the wrong session'));
    assert.equal(client.open, 1, 'it still waits');
    client.onEnded(first);
    const again = await second.next();
    assert.notEqual(again.requestId, asked.requestId);
    assert.notDeepEqual(again.epk, asked.epk);
    client.onResponse(second, secretFor(asked, 'late'));
    assert.equal(client.open, 1);
    client.onResponse(second, secretFor(again, 'right'));
    assert.equal(await textOf(reading), 'right');
    assert.equal(client.open, 0);
  });

  it('SEC-018 ends after 10 s without an answer, and takes none after it', async () => {
    const session = new Session();
    client.onWelcomed(session);
    const reading = read();
    const asked = await session.next();
    pass(answerWithinMs - 1);
    assert.equal(client.open, 1);
    pass(1);
    await assert.rejects(reading, refused('UNAVAILABLE', /no answer came within 10 s/, 'no-answer'));
    assert.equal(answerWithinMs, 10_000);
    client.onResponse(session, secretFor(asked, 'late'));
    assert.deepEqual([client.open, clock.timers.size], [0, 0]);
  });

  it('SEC-018 the 10 s last over sessions, and with none at all', async () => {
    const reading = read();
    pass(answerWithinMs);
    await assert.rejects(reading, refused('UNAVAILABLE', /not connected/, 'not-connected'));
    const session = new Session();
    client.onWelcomed(session);
    const second = read();
    await session.next();
    pass(answerWithinMs - 1);
    client.onEnded(session);
    await Promise.resolve();
    pass(1);
    await assert.rejects(second, refused('UNAVAILABLE', /secret:\/\/bmc\/m-1/, 'not-connected'));
  });

  it('SEC-019 an answer to nothing has no effect, nor has the second one to a question', async () => {
    const session = new Session();
    client.onWelcomed(session);
    client.onResponse(session, decoded(refuseSecretRequest('never-asked', 'not-found')));
    const reading = read();
    const asked = await session.next();
    client.onResponse(session, decoded(refuseSecretRequest('never-asked', 'access-denied')));
    assert.equal(client.open, 1);
    client.onResponse(session, secretFor(asked, 'value'));
    client.onResponse(session, decoded(refuseSecretRequest(asked.requestId, 'not-found')));
    assert.equal(await textOf(reading), 'value');
  });

  it("SEC-016 the broker's word reaches the asker's code as reason and text", async () => {
    const session = new Session();
    client.onWelcomed(session);
    const words: Record<SecretError, Code> = {
      'not-found': 'NOT_FOUND',
      'not-bound': 'PERMISSION_DENIED',
      'access-denied': 'PERMISSION_DENIED',
      unavailable: 'UNAVAILABLE',
    };
    for (const [word, code] of Object.entries(words) as [SecretError, Code][]) {
      const reading = read();
      const { requestId } = await session.next();
      client.onResponse(session, decoded(refuseSecretRequest(requestId, word)));
      await assert.rejects(reading, refused(code, new RegExp(`refused secret://bmc/m-1 \\(${word}\\)`), word));
    }
  });
});
