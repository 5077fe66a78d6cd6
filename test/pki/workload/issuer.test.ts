/** Workload tokens: what the issuer says, whose keys it says it with, and what jose makes of it. */
import assert from 'node:assert/strict';
import { createPrivateKey, generateKeyPairSync } from 'node:crypto';
import { inspect } from 'node:util';
import { createLocalJWKSet, decodeJwt, decodeProtectedHeader, jwtVerify } from 'jose';
import { minute, second } from '../../../domain/time.ts';
import { encodeBundle, keyNames } from '../../../pki/bundle/index.ts';
import { createWorkloadIssuer, parseIssuerUrl, type StoredWorkloadKey, type WorkloadIssuer } from '../../../pki/workload/index.ts';
import { now, refusal, secret, sharedBundle } from '../support.ts';

const issuerUrl = 'https://id.example.com/workloads';
const order = { tenantId: 'acme', instanceId: 'i-1' };

/** An issuer on a clock that the test moves. */
function issuerAt(options: { readonly keys?: readonly StoredWorkloadKey[]; readonly audiences?: readonly string[] } = {}) {
  const clock = { now };
  const issuer = createWorkloadIssuer({ issuer: issuerUrl, defaultAudience: 'https://api.example.com', now: () => clock.now, ...options });
  return { issuer, clock };
}

const verify = (issuer: WorkloadIssuer, token: string, at = now) =>
  jwtVerify(token, createLocalJWKSet(issuer.jwks() as never), { issuer: issuerUrl, algorithms: ['ES256'], currentDate: new Date(at) });

const kidOfToken = (token: string): string => decodeProtectedHeader(token).kid as string;

describe('the issuer of workload tokens', () => {
  it('WID-002 has keys of its own: the bundle knows none', async () => {
    assert.ok(!keyNames.some((name) => /workload/i.test(name)));
    assert.doesNotMatch(encodeBundle(await sharedBundle(), { secret }), /workload/i);
  });

  it('WID-003 is made with new keys or with those of another: P-256, one that signs', async () => {
    const { issuer } = issuerAt();
    assert.deepEqual([...issuer.listKeys().values()], [{ state: 'signing', addedAt: now }]);
    const [jwk] = issuer.jwks().keys;
    assert.deepEqual([jwk?.kty, jwk?.crv, jwk?.use, jwk?.alg], ['EC', 'P-256', 'sig', 'ES256']);
    const twin = issuerAt({ keys: issuer.exportKeys() }).issuer;
    await verify(issuer, (await twin.issueToken(order)).token);
    await assert.rejects(verify(issuerAt().issuer, (await issuer.issueToken(order)).token), /no applicable key/);
  });

  it('WID-005 tokens are ES256 JWTs with exactly the nine claims', async () => {
    const { issuer } = issuerAt();
    const { token, jti, expiresAt } = await issuer.issueToken({ ...order, lifetimeSeconds: 300 });
    assert.deepEqual(decodeProtectedHeader(token), { alg: 'ES256', kid: issuer.jwks().keys[0]?.kid, typ: 'JWT' });
    const iat = now / second;
    assert.deepEqual(decodeJwt(token), {
      iss: issuerUrl,
      sub: 't:acme:instance:i-1',
      aud: 'https://api.example.com',
      iat,
      nbf: iat,
      exp: iat + 300,
      jti,
      tenant_id: 'acme',
      instance_id: 'i-1',
    });
    assert.equal(expiresAt, now + 300 * second);
    const { payload } = await verify(issuer, token);
    assert.equal(payload.jti, jti);
    assert.notEqual((await issuer.issueToken(order)).jti, jti);
  });

  it('WID-006 the subject is t:<tenant>:instance:<instance>, of ids that cannot hold its separators', async () => {
    const { issuer } = issuerAt();
    assert.equal(decodeJwt((await issuer.issueToken({ tenantId: 'T.1_a-b', instanceId: 'x' })).token).sub, 't:T.1_a-b:instance:x');
    for (const tenantId of ['', 'a:instance:b', 'a b', '-a', 'a'.repeat(129), 'ä'])
      await assert.rejects(issuer.issueToken({ ...order, tenantId }), refusal('INVALID_INPUT', 'tenant-id', /is no tenant id/));
    await assert.rejects(
      issuer.issueToken({ ...order, instanceId: 'i:1' }),
      refusal('INVALID_INPUT', 'instance-id', /"i:1" is no instance id/),
    );
  });

  it('WID-007 the audience is the default one unless the request names one that is allowed', async () => {
    const { issuer } = issuerAt({ audiences: ['https://db.example.com'] });
    const audOf = async (audience?: string) =>
      decodeJwt((await issuer.issueToken({ ...order, ...(audience === undefined ? {} : { audience }) })).token).aud;
    assert.equal(await audOf(), 'https://api.example.com');
    assert.equal(await audOf(''), 'https://api.example.com');
    assert.equal(await audOf('https://db.example.com'), 'https://db.example.com');
    await assert.rejects(
      audOf('https://evil.example.com'),
      refusal('PERMISSION_DENIED', 'audience', /"https:\/\/evil\.example\.com" is not one/),
    );
    for (const audiences of [['a b'], ['x'.repeat(257)], Array.from({ length: 64 }, (_, at) => `a${at}`)])
      assert.throws(() => issuerAt({ audiences }), refusal('INVALID_CONFIG', 'audiences', /audience/));
  });

  it('WID-008 tokens live 60 to 900 s', async () => {
    const { issuer } = issuerAt();
    for (const lifetimeSeconds of [60, 900]) {
      const { exp, iat } = decodeJwt((await issuer.issueToken({ ...order, lifetimeSeconds })).token);
      assert.equal((exp as number) - (iat as number), lifetimeSeconds);
    }
    for (const lifetimeSeconds of [59, 901])
      await assert.rejects(
        issuer.issueToken({ ...order, lifetimeSeconds }),
        refusal('INVALID_INPUT', 'token-lifetime', /lives 60 to 900 s/),
      );
  });

  it('WID-009 extra claims stand beside the standard ones and never in their place', async () => {
    const { issuer } = issuerAt();
    const { token } = await issuer.issueToken({ ...order, claims: { project: 'p-1', 'https://example.com/labels': { a: [1, null] } } });
    const claims = decodeJwt(token);
    assert.deepEqual([claims['project'], claims['https://example.com/labels']], ['p-1', { a: [1, null] }]);
    for (const name of ['iss', 'sub', 'aud', 'iat', 'nbf', 'exp', 'jti', 'tenant_id', 'instance_id'])
      await assert.rejects(
        issuer.issueToken({ ...order, claims: { [name]: 'x' } }),
        refusal('INVALID_INPUT', 'claim-shadows', new RegExp(`claim ${name} would shadow`)),
      );
    for (const claims of [
      { '': 1 },
      { 'a b': 1 },
      { a: 'x'.repeat(4_096) },
      Object.fromEntries(Array.from({ length: 33 }, (_, at) => [`c${at}`, at])),
    ])
      await assert.rejects(issuer.issueToken({ ...order, claims }), refusal('INVALID_INPUT', 'claims', /claim/));
  });

  it('WID-010 the issuer is https on port 443 without a query, in one spelling', () => {
    for (const text of ['https://id.example.com', issuerUrl]) assert.equal(parseIssuerUrl(text).issuer, text);
    const bad: [string, RegExp][] = [
      ['http://id.example.com', /must be https/],
      ['https://id.example.com:8443', /port 443, not 8443/],
      ['https://id.example.com/?x=1', /must not have a query/],
      ['https://id.example.com/?', /must not have a query/],
      ['https://id.example.com/#a', /must not have a fragment/],
      ['https://olga@id.example.com', /must not name a user/],
      ['https://id.example.com/', /write it as https:\/\/id\.example\.com$/],
      ['https://id.example.com/a/', /write it as https:\/\/id\.example\.com\/a$/],
      ['https://ID.example.com', /write it as https:\/\/id\.example\.com$/],
      ['https://id.example.com:443', /write it as https:\/\/id\.example\.com$/],
      ['https://id.example.com/a/../b', /write it as https:\/\/id\.example\.com\/b$/],
      ['id.example.com', /not a URL/],
      [`https://id.example.com/${'a'.repeat(600)}`, /not a URL of at most 512/],
    ];
    for (const [text, message] of bad) {
      assert.throws(() => parseIssuerUrl(text), refusal('INVALID_CONFIG', 'issuer-url', message));
      assert.throws(() => createWorkloadIssuer({ issuer: text, defaultAudience: 'a' }), refusal('INVALID_CONFIG', 'issuer-url', message));
    }
  });

  it('WID-017 WID-018 WID-019 WID-020 no token fails while the keys are exchanged: add, wait, promote, wait, retire', async () => {
    const { issuer, clock } = issuerAt();
    const tokens: { token: string; expiresAt: number }[] = [];
    // The oldest key set that the cache rule permits at each moment.
    let copy = { at: clock.now, jwks: issuer.jwks() };
    const pass = async (ms: number): Promise<void> => {
      for (let left = ms; left > 0; left -= minute) {
        tokens.push(await issuer.issueToken({ ...order, lifetimeSeconds: 900 }));
        for (const { token } of tokens.filter(({ expiresAt }) => expiresAt > clock.now))
          await jwtVerify(token, createLocalJWKSet(copy.jwks as never), { issuer: issuerUrl, currentDate: new Date(clock.now) });
        clock.now += minute;
        if (clock.now - copy.at >= 5 * minute) copy = { at: clock.now, jwks: issuer.jwks() };
      }
    };
    const old = issuer.jwks().keys[0]?.kid as string;
    await pass(2 * minute);
    const { kid } = issuer.addKey();
    assert.equal(kidOfToken((await issuer.issueToken(order)).token), old, 'the old key still signs');
    assert.deepEqual(
      issuer.jwks().keys.map((key) => key.kid),
      [old, kid],
    );
    assert.throws(() => issuer.promote(kid), refusal('INVALID_STATE', 'promote-too-early', /not promoting key/));
    await pass(5 * minute);
    issuer.promote(kid);
    assert.equal(kidOfToken((await issuer.issueToken(order)).token), kid);
    await pass(15 * minute);
    clock.now += minute - 1;
    assert.throws(() => issuer.retire(old), refusal('INVALID_STATE', 'retire-too-early', /not retiring key/));
    clock.now += 1;
    issuer.retire(old);
    await pass(2 * minute);
    assert.deepEqual(
      issuer.jwks().keys.map((key) => key.kid),
      [kid],
    );
    assert.equal(issuer.exportKeys().length, 1, 'the private half is gone too');
  });

  it('WID-021 exported keys make the same issuer again: same names, same states, PKCS#8 PEM', async () => {
    const { issuer, clock } = issuerAt();
    issuer.addKey();
    clock.now += 5 * minute;
    issuer.promote([...issuer.listKeys().keys()][1] as string);
    issuer.addKey();
    const exported = issuer.exportKeys();
    assert.deepEqual(
      exported.map((key) => key.state),
      ['former', 'signing', 'waiting'],
    );
    for (const { privateKey } of exported) {
      assert.match(privateKey, /^-----BEGIN PRIVATE KEY-----\n/);
      assert.equal(createPrivateKey(privateKey).asymmetricKeyDetails?.namedCurve, 'prime256v1');
    }
    const again = issuerAt({ keys: JSON.parse(JSON.stringify(exported)) as StoredWorkloadKey[] }).issuer;
    assert.deepEqual(again.listKeys(), issuer.listKeys());
    assert.deepEqual(again.jwks(), issuer.jwks());
    assert.deepEqual(again.exportKeys(), exported);
  });

  it('WID-042 no private key leaves but through exportKeys: not by logging the issuer, not in an error', async () => {
    const { issuer } = issuerAt();
    const [stored] = issuer.exportKeys() as [StoredWorkloadKey];
    const scalar = createPrivateKey(stored.privateKey).export({ format: 'jwk' }).d as string;
    const inside = stored.privateKey.split('\n')[1] as string;
    const seen = [
      inspect(issuer, { depth: 9, showHidden: true }),
      JSON.stringify([issuer, issuer.jwks(), issuer.discovery(), [...issuer.listKeys()]]),
    ];
    const damaged = [
      { ...stored, privateKey: stored.privateKey.slice(0, -40) },
      { ...stored, kid: 'x' },
      { ...stored, state: 'other' as never },
    ];
    for (const key of damaged)
      assert.throws(
        () => issuerAt({ keys: [key] }),
        (error: Error) => seen.push(inspect(error, { depth: 9 })) > 0,
      );
    assert.equal(seen.length, 5);
    for (const text of seen) for (const part of [scalar, inside, 'BEGIN PRIVATE']) assert.ok(!text.includes(part), text);
  });

  it('refuses stored keys that are none, naming the entry and the field', () => {
    const [stored] = issuerAt().issuer.exportKeys() as [StoredWorkloadKey];
    const p384 = generateKeyPairSync('ec', { namedCurve: 'P-384' }).privateKey.export({ type: 'pkcs8', format: 'pem' }) as string;
    const bad: [StoredWorkloadKey[], RegExp][] = [
      [[{ ...stored, privateKey: 'x' }], /^workload key 1: privateKey is not one PKCS#8 PEM$/],
      [[{ ...stored, privateKey: p384 }], /^workload key 1: privateKey is not on P-256$/],
      [[{ ...stored, privateKey: `${stored.privateKey}${stored.privateKey}` }], /^workload key 1: privateKey is not one/],
      [[{ ...stored, kid: 'other' }], /^workload key 1: kid is not the thumbprint/],
      [[stored, stored], /^workload key 2: kid stands twice$/],
      [[{ ...stored, state: 'former' }], /^workload key 1: stoppedAt is missing$/],
      [[{ ...stored, stoppedAt: 1 }], /^workload key 1: stoppedAt is not for a key that is signing$/],
      [[{ ...stored, state: 'new' as never }], /^workload key 1: state is none of/],
    ];
    for (const [keys, message] of bad) assert.throws(() => issuerAt({ keys }), refusal('INVALID_CONFIG', 'workload-keys', message));
    assert.throws(() => issuerAt({ keys: [{ ...stored, state: 'waiting' }] }), refusal('INVALID_INPUT', 'key-ring', /0 of its keys sign/));
  });
});
