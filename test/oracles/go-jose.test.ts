/** go-jose as a judge of workload tokens and of the key set that verifiers fetch. */
import assert from 'node:assert/strict';
import { isControlError } from '../../domain/errors.ts';
import { verifyJws } from '../../pki/jose/index.ts';
import { createWorkloadIssuer } from '../../pki/workload/index.ts';
import { describeWithGo } from './go-judge.ts';
import { isFailure } from './program.ts';

const issuerUrl = 'https://id.fleet.example/workloads';
const now = 1_804_136_767_000;
const order = { tenantId: 'acme', instanceId: 'i-1', claims: { tier: 'gold', nested: { list: [1, 'two', null] } } };

const claimsOf = (token: string): unknown => JSON.parse(Buffer.from(token.split('.')[1] as string, 'base64url').toString());

/** The text with the last bit of its signature's first byte turned. */
const changed = (token: string): string => {
  const [header, payload, signature = ''] = token.split('.');
  const bytes = Buffer.from(signature, 'base64url');
  bytes[0] = (bytes[0] as number) ^ 1;
  return [header, payload, bytes.toString('base64url')].join('.');
};

const refusalOf = (action: () => unknown): string => {
  try {
    action();
  } catch (error) {
    return isControlError(error) ? `${error.code} ${String(error.details['reason'])}` : String(error);
  }
  return 'accepted';
};

describeWithGo('go-jose', (go) => {
  const issuer = createWorkloadIssuer({ issuer: issuerUrl, defaultAudience: 'https://api.example', now: () => now });
  const asked = (token: string, change: object = {}): object => ({
    jwks: issuer.jwks(),
    token,
    issuer: issuerUrl,
    audience: 'https://api.example',
    now: now / 1_000 + 1,
    ...change,
  });

  it('verifies our tokens by the set we publish, also with a second key in it', async () => {
    const first = await issuer.issueToken(order);
    issuer.addKey();
    const second = await issuer.issueToken({ tenantId: 'acme', instanceId: 'i-2' });
    const tokens = [first.token, second.token];
    assert.deepEqual(
      await go().ask(
        'token',
        tokens.map((token) => asked(token)),
      ),
      tokens.map(claimsOf),
    );
  });

  it('refuses a changed token, another issuer or audience, another key, and one that has ended or not begun', async () => {
    const { token } = await issuer.issueToken(order);
    const other = createWorkloadIssuer({ issuer: issuerUrl, defaultAudience: 'https://api.example', now: () => now });
    const answers = await go().ask('token', [
      asked(changed(token)),
      asked(token, { issuer: 'https://other.example' }),
      asked(token, { audience: 'https://other.example' }),
      asked(token, { jwks: other.jwks() }),
      asked(token, { now: now / 1_000 + 601 }),
      asked(token, { now: now / 1_000 - 1 }),
    ]);
    const patterns = [/verification error|error in cryptographic primitive/, /iss/, /aud/, /0 keys/, /expired/, /not.*(valid yet|before)/i];
    for (const [i, pattern] of patterns.entries()) assert.match(isFailure(answers[i]) ? answers[i].error : 'accepted', pattern);
  });

  it('signs what we verify; what is outside our rules we refuse, each with its code', async () => {
    const sign = { algorithm: 'ES256', typ: 'JWT', kid: 'theirs', extra: {}, claims: { sub: 'ada', n: 1 } };
    const [good, otherCurve, extra, otherTyp] = (await go().ask<{ token: string; spki: string }>('sign', [
      sign,
      { ...sign, algorithm: 'ES384' },
      { ...sign, extra: { x5u: 'https://theirs.example/key' } },
      { ...sign, typ: 'at+jwt' },
    ])) as { token: string; spki: string }[];
    const verify = (made: { token: string; spki: string } | undefined, kid = 'theirs', spki = made?.spki ?? ''): Uint8Array =>
      verifyJws(made?.token ?? '', { keys: [{ kid, spki: Buffer.from(spki, 'base64') }], typ: 'JWT' }).payload;
    assert.deepEqual(JSON.parse(Buffer.from(verify(good)).toString()), sign.claims);
    assert.equal(
      refusalOf(() => verify(otherCurve, 'theirs', good?.spki)),
      'UNSUPPORTED algorithm',
    );
    assert.equal(
      refusalOf(() => verify(extra)),
      'MALFORMED field',
    );
    assert.equal(
      refusalOf(() => verify(otherTyp)),
      'PERMISSION_DENIED typ',
    );
    assert.equal(
      refusalOf(() => verify(good, 'another')),
      'BAD_SIGNATURE unknown-key',
    );
    assert.equal(
      refusalOf(() => verify(good, 'theirs', extra?.spki)),
      'BAD_SIGNATURE bad-signature',
    );
    assert.equal(
      refusalOf(() => verify({ token: changed(good?.token ?? ''), spki: good?.spki ?? '' })),
      'BAD_SIGNATURE bad-signature',
    );
  });
});
