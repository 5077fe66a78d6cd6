import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import fc from 'fast-check';
import { isControlError } from '../../../domain/errors.ts';
import type { PkiBundle } from '../../../pki/bundle/index.ts';
import {
  encodeJoinBundle,
  type JoinBundle,
  type JoinTokenClaims,
  openJoinToken,
  parseJoinBundle,
  sealJoinToken,
} from '../../../pki/enroll/index.ts';
import { spkiPin } from '../../../pki/x509/index.ts';
import { now, refusal, sharedBundle, trustDomain } from '../support.ts';

const claims: JoinTokenClaims = { tokenId: 'tok_1', secret: new Uint8Array(32).fill(7), siteId: 'eu-1', role: 'node', expiresAt: now };

describe('join tokens', () => {
  let bundle: PkiBundle;
  let token: string;
  before(async () => {
    bundle = await sharedBundle();
    token = sealJoinToken(bundle.joinEncryption.spki, claims, { trustDomain });
  });
  const open = (text: string, change = {}) => openJoinToken(bundle.joinEncryption.privateKey, text, { trustDomain, ...change });

  it('JOIN-024 opens with the join encryption key, to what was sealed', () => {
    assert.match(token, /^bcj1\.[A-Za-z0-9_-]+$/);
    assert.deepEqual(open(token), claims);
    const bound = { ...claims, nodeId: 'node-1' };
    assert.deepEqual(open(sealJoinToken(bundle.joinEncryption.spki, bound, { trustDomain })), bound);
  });

  it('JOIN-024 does not open with another key or in another trust domain', () => {
    const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    for (const attempt of [() => openJoinToken(privateKey, token, { trustDomain }), () => open(token, { trustDomain: 'other' })]) {
      assert.throws(attempt, refusal('UNAUTHENTICATED', 'join-token', /was not made for this deployment, or was changed/));
    }
  });

  it('seals the same claims to other text every time, and shows nothing of them', () => {
    assert.notEqual(sealJoinToken(bundle.joinEncryption.spki, claims, { trustDomain }), token);
    assert.equal(Buffer.from(token.slice(5), 'base64url').includes('tok_1'), false);
  });

  it('H-19 any changed character is refused', () => {
    fc.assert(
      fc.property(fc.nat(token.length - 1), fc.integer({ min: 1, max: 127 }), (at, mask) => {
        const mutated = token.slice(0, at) + String.fromCharCode(token.charCodeAt(at) ^ mask) + token.slice(at + 1);
        assert.throws(
          () => open(mutated),
          (error) => isControlError(error) && (error.code === 'MALFORMED' || error.code === 'UNAUTHENTICATED'),
        );
      }),
      { numRuns: 200 },
    );
  });

  const texts: Readonly<Record<string, (text: string) => string>> = {
    'another beginning': (text) => text.replace('bcj1', 'bcj2'),
    padding: (text) => `${text}=`,
    'a blank at the end': (text) => `${text} `,
    'nothing sealed': () => 'bcj1.',
    'a few bytes': () => `bcj1.${Buffer.alloc(93).toString('base64url')}`,
    'a megabyte': () => `bcj1.${'A'.repeat(1 << 20)}`,
    'a point that is not on the curve': (text) =>
      `bcj1.${Buffer.concat([Buffer.alloc(65, 4), Buffer.from(text.slice(5), 'base64url').subarray(65)]).toString('base64url')}`,
  };
  for (const [name, change] of Object.entries(texts)) {
    it(`H-19 a token with ${name} is MALFORMED`, () => {
      assert.throws(() => open(change(token)), refusal('MALFORMED', 'join-token', /^the join token is not one: /));
    });
  }

  it('refuses to seal claims that could not be opened', () => {
    for (const change of [{ tokenId: '' }, { siteId: '' }, { role: '' }, { nodeId: '' }, { expiresAt: 1.5 }]) {
      assert.throws(
        () => sealJoinToken(bundle.joinEncryption.spki, { ...claims, ...change }, { trustDomain }),
        refusal('MALFORMED', 'join-token', /not the claims/),
        JSON.stringify(change),
      );
    }
    assert.throws(
      () => sealJoinToken(bundle.joinEncryption.spki, { ...claims, secret: new Uint8Array(31) }, { trustDomain }),
      refusal('INVALID_INPUT', 'join-secret', /31 bytes, not 32/),
    );
  });

  describe('the join bundle that a person carries', () => {
    const joinBundle = (): JoinBundle => ({
      gateway: 'https://gw.example.com:8443',
      serverName: 'gw.internal',
      servingCaPin: spkiPin(bundle.servingCa.spki),
      joinKey: bundle.joinSigning.spki,
      trustDomain,
      token,
    });

    it('JOIN-029 carries gateway, pins, trust domain and token through one line of text', () => {
      const text = encodeJoinBundle(joinBundle());
      assert.match(text, /^bcjoin1\.[A-Za-z0-9_-]+$/);
      assert.deepEqual(parseJoinBundle(`\n ${text} \n`), joinBundle());
      const { serverName: _name, ...bare } = joinBundle();
      assert.deepEqual(parseJoinBundle(encodeJoinBundle(bare)), bare);
    });

    const wrong: Readonly<Record<string, [Partial<Record<keyof JoinBundle, unknown>>, RegExp]>> = {
      http: [{ gateway: 'http://gw' }, /gateway must be an https URL/],
      'a path': [{ gateway: 'https://gw/x' }, /gateway must be an https URL/],
      'a user': [{ gateway: 'https://u@gw' }, /gateway must be an https URL/],
      'no URL': [{ gateway: 'gw' }, /gateway must be an https URL/],
      'a bad pin': [{ servingCaPin: 'sha256/abc' }, /servingCaPin must be/],
      'no key': [{ joinKey: new Uint8Array(91) }, /joinKey must be a P-256/],
      'a bad trust domain': [{ trustDomain: 'A' }, /trustDomain is not/],
      'no token': [{ token: 'secret' }, /token must start with bcj1\./],
    };
    for (const [name, [change, message]] of Object.entries(wrong)) {
      it(`is not made with ${name}`, () => {
        assert.throws(
          () => encodeJoinBundle({ ...joinBundle(), ...change } as JoinBundle),
          refusal('INVALID_INPUT', 'join-bundle', message),
        );
      });
    }

    it('H-19 is read strictly: cut short, unknown or missing fields, no JSON', () => {
      const of = (value: unknown): string => `bcjoin1.${Buffer.from(JSON.stringify(value)).toString('base64url')}`;
      const fields = JSON.parse(Buffer.from(encodeJoinBundle(joinBundle()).slice(8), 'base64url').toString()) as Record<string, unknown>;
      const cases: [string, RegExp][] = [
        ['bcjoin2.e30', /must start with bcjoin1\./],
        [encodeJoinBundle(joinBundle()).slice(0, -3), /was all of it copied\?/],
        [`${of(fields)}=`, /not base64url/],
        [of([]), /does not hold JSON/],
        [of({ ...fields, extra: 1 }), /unknown field extra/],
        [of({ ...fields, token: 7 }), /token must be text/],
        [of({ ...fields, gateway: undefined }), /gateway must be text/],
        [of({ ...fields, joinKey: 'AAAA' }), /joinKey must be a P-256/],
      ];
      for (const [text, message] of cases) {
        assert.throws(
          () => parseJoinBundle(text),
          (error: Error) => refusal('MALFORMED', 'join-bundle', message)(error) && !error.message.includes(token),
        );
      }
    });
  });
});
