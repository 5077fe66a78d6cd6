import assert from 'node:assert/strict';
import {
  createCertificate,
  type IssueLeafOptions,
  issueLeaf,
  oids,
  parseCertificate,
  type Signer,
  verifyChain,
} from '../../../pki/x509/index.ts';
import { type Authorities, createAuthorities, createAuthority, createKey, now, refusedWith, trustDomain } from './authorities.ts';

const hour = 3_600_000;
const day = 24 * hour;
const identity = { trustDomain, siteId: 'fra1', nodeId: 'n1' };
const statement = (i: number): string => `urn:bc:tpm-ak:000b:${`${i}`.repeat(64).slice(0, 64)}`;

describe('pki/x509 the check of what was signed', () => {
  let all: Authorities;
  before(async () => {
    all = await createAuthorities();
  });
  const node = (change: Partial<IssueLeafOptions> = {}): ReturnType<typeof issueLeaf> =>
    issueLeaf({ ca: all.nodeCa, profile: 'node', spki: createKey().spki, identity, now, ...change });

  it('what is signed is checked: a signer of another key, and one that lies about its key', async () => {
    const other = createKey();
    await assert.rejects(
      issueLeaf({ ca: { certificate: all.nodeCa.certificate, signer: other.signer }, profile: 'node', spki: other.spki, identity, now }),
      refusedWith('INVALID_CONFIG', 'signer-mismatch', /not the issuer's/),
    );
    const lying: Signer = { spki: all.servingCa.spki, sign: (input) => other.signer.sign(input) };
    await assert.rejects(
      issueLeaf({
        ca: { certificate: all.servingCa.certificate, signer: lying },
        profile: 'gateway',
        spki: other.spki,
        sans: { dns: ['a.example'] },
        now,
      }),
      refusedWith('INTERNAL', 'signed-other', /another signature than was asked for/),
    );
    const garbled: Signer = { spki: all.servingCa.spki, sign: async () => new Uint8Array(64) };
    await assert.rejects(
      issueLeaf({
        ca: { certificate: all.servingCa.certificate, signer: garbled },
        profile: 'gateway',
        spki: other.spki,
        sans: { dns: ['a.example'] },
        now,
      }),
      refusedWith('MALFORMED', 'signature', /out of range/),
    );
  });

  it('a failing signer of agents is found at the first certificate of its kind, and again within 256', async () => {
    const ca = await createAuthority('nodeCa', { parent: all.root });
    let isBroken = false;
    const other = createKey();
    const signer: Signer = { spki: ca.spki, sign: (input) => (isBroken ? other : ca).signer.sign(input) };
    const issue = (): ReturnType<typeof issueLeaf> =>
      issueLeaf({ ca: { certificate: ca.certificate, signer }, profile: 'node', spki: other.spki, identity, now });
    await issue();
    isBroken = true;
    let taken = 0;
    await assert.rejects(
      (async () => {
        for (; taken < 1_000; taken++) await issue();
      })(),
      refusedWith('INTERNAL', 'signed-other', /another signature/),
    );
    assert.equal(taken, 255);
    await assert.rejects(issue(), refusedWith('INTERNAL', 'signed-other', /another signature/), 'a kind that failed is not trusted again');
  });

  it('agents checked by their kind are what the strict reader reads', async function () {
    this.timeout(60_000);
    for (let i = 0; i < 130; i++) {
      const spki = createKey().spki;
      const leaf = await node({
        spki,
        identity: { ...identity, nodeId: `n${i ** 3}` },
        sans: { uris: i % 3 === 0 ? [statement(i % 10)] : [] },
        lifetimeMs: hour + i * 1_000,
      });
      assert.deepEqual(leaf, parseCertificate(leaf.der));
      verifyChain([leaf.der], { anchors: [all.nodeCa.certificate], now, purpose: 'client' });
    }
  });

  it('createCertificate takes a whole template, self-signed too', async () => {
    const key = createKey();
    const der = await createCertificate({
      template: {
        serial: '01',
        subject: [{ oid: oids.commonName, value: 'alone' }],
        notBefore: now,
        notAfter: now + day,
        spki: key.spki,
        isCa: true,
        pathLen: null,
        keyUsage: ['keyCertSign'],
        ekus: [],
        uriSans: [],
        dnsSans: [],
        ipSans: [],
      },
      issuer: 'self',
      signer: key.signer,
    });
    const parsed = parseCertificate(der);
    assert.deepEqual({ aki: parsed.aki, isSelf: Buffer.compare(parsed.issuer.der, parsed.subject.der) === 0 }, { aki: null, isSelf: true });
  });
});
