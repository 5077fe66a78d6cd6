import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  type Certificate,
  formatSpiffeId,
  isNodeKeyStatement,
  issueLeaf,
  isTrustDomain,
  nodeIdentityOf,
  nodeSpiffeIdOf,
  parseSpiffeId,
  parseTpmAkUri,
  tpmAkUri,
} from '../../../pki/x509/index.ts';
import { type Authorities, createAuthorities, createKey, now, refusedWith, trustDomain } from './authorities.ts';
import { describeVectors, readJsonVectors } from './vectors.ts';

const spiffeId = 'spiffe://fleet.example/site/fra1/node/n-0001';
const statement = `urn:bc:tpm-ak:000b:${'ab'.repeat(32)}`;

describe('pki/x509 identity', () => {
  it('ID-002 reads and writes spiffe://<trust-domain>/site/<siteId>/node/<nodeId>', () => {
    assert.deepEqual({ ...parseSpiffeId(spiffeId) }, { trustDomain: 'fleet.example', siteId: 'fra1', nodeId: 'n-0001' });
    assert.equal(formatSpiffeId(parseSpiffeId(spiffeId)), spiffeId);
  });

  const wrongIds = [
    'spiffe://fleet.example/site/fra1/node/',
    'spiffe://fleet.example/site//node/n',
    'spiffe://fleet.example/site/fra1/node/n/',
    'spiffe://fleet.example/node/n',
    'spiffe://fleet.example/site/fra1/node/n/x',
    'spiffe://fleet.example/site/./node/n',
    'spiffe://fleet.example/site/../node/n',
    'spiffe://fleet.example/site/fra1/node/..',
    'Spiffe://fleet.example/site/fra1/node/n',
    'spiffe://Fleet.example/site/fra1/node/n',
    'spiffe://fleet.example:8443/site/fra1/node/n',
    'spiffe://u@fleet.example/site/fra1/node/n',
    'spiffe://fleet.example/site/fra1/node/n?x',
    'spiffe://fleet.example/site/fra1/node/n#x',
    'spiffe://fleet.example/site/fra%31/node/n',
    'spiffe:///site/fra1/node/n',
    'spiffe://fleet.example/Site/fra1/node/n',
    ' spiffe://fleet.example/site/fra1/node/n',
    'spiffe://fleet.example/site/fra1/node/n\n',
    'spiffe://fleet.example/site/fra1/node/ñ',
    '',
    `spiffe://${'a'.repeat(256)}/site/fra1/node/n`,
    `spiffe://fleet.example/site/fra1/node/${'n'.repeat(2_048)}`,
  ];
  for (const uri of wrongIds)
    it(`ID-002 refuses ${JSON.stringify(uri.slice(0, 60))}`, () => {
      assert.throws(() => parseSpiffeId(uri), refusedWith('MALFORMED', 'spiffe-id', /not of the form/));
    });

  it('ID-002 writes nothing that would not read back as itself', () => {
    for (const identity of [
      { trustDomain: 'a', siteId: 's/node/x', nodeId: 'n' },
      { trustDomain: 'a', siteId: '..', nodeId: 'n' },
      { trustDomain: 'A', siteId: 's', nodeId: 'n' },
      { trustDomain: 'a', siteId: 's', nodeId: '' },
    ])
      assert.throws(() => formatSpiffeId(identity), refusedWith('INVALID_INPUT', 'spiffe-id', /cannot hold/));
  });

  it('property: what formatSpiffeId writes, parseSpiffeId reads back', () => {
    const part = fc.string({ maxLength: 30 });
    fc.assert(
      fc.property(part, part, part, (td, siteId, nodeId) => {
        const identity = { trustDomain: td, siteId, nodeId };
        try {
          assert.deepEqual({ ...parseSpiffeId(formatSpiffeId(identity)) }, identity);
        } catch (error) {
          assert.equal((error as { code?: string }).code, 'INVALID_INPUT');
        }
      }),
    );
  });

  it('ID-003 and ID-004 a trust domain is 1 to 255 of a-z, 0-9, dot, dash and underscore', () => {
    for (const text of ['a', 'fleet.example', 'a_b-c.9', 'a'.repeat(255)]) assert.ok(isTrustDomain(text), text);
    for (const text of ['', 'A', 'a b', 'a/b', 'ä', 'a\n', 'a'.repeat(256)]) assert.equal(isTrustDomain(text), false, text);
  });

  it('ID-011 a statement is urn:bc:<kind>:<value> in printable ASCII', () => {
    for (const uri of ['urn:bc:a:b', statement, 'urn:bc:x-9:~!"#']) assert.ok(isNodeKeyStatement(uri), uri);
    for (const uri of [
      'urn:bc:',
      'urn:bc:a:',
      'urn:bc::b',
      'urn:bc:a',
      'urn:bd:a:b',
      'urn:bc:a:b c',
      'urn:bc:a:\u0007',
      'urn:bc:a:é',
      'URN:bc:a:b',
      spiffeId,
      `urn:bc:a:${'b'.repeat(600)}`,
    ])
      assert.equal(isNodeKeyStatement(uri), false, uri);
  });

  it('ID-018 and ID-021 nodeSpiffeIdOf takes the one URI that is not a statement, and none when there are two or none', () => {
    assert.equal(nodeSpiffeIdOf([spiffeId]), spiffeId);
    assert.equal(nodeSpiffeIdOf([spiffeId, statement]), spiffeId);
    assert.equal(nodeSpiffeIdOf([]), null);
    assert.equal(nodeSpiffeIdOf([statement]), null, 'ID-008');
    assert.equal(nodeSpiffeIdOf([spiffeId, 'spiffe://fleet.example/site/fra1/node/other']), null);
  });

  it('ID-014, ID-015 and ID-016 tpmAkUri and parseTpmAkUri round-trip names with digests of 20 to 64 bytes', () => {
    for (const digest of [20, 32, 64]) {
      const name = Buffer.concat([Buffer.from('000b', 'hex'), Buffer.alloc(digest, 0xcd)]);
      assert.equal(tpmAkUri(name), `urn:bc:tpm-ak:000b:${'cd'.repeat(digest)}`);
      assert.deepEqual(Buffer.from(parseTpmAkUri(tpmAkUri(name)) as Uint8Array), name);
    }
    for (const digest of [0, 19, 65]) {
      assert.throws(() => tpmAkUri(new Uint8Array(digest + 2)), refusedWith('INVALID_INPUT', 'tpm-ak', /22 to 66 bytes/));
      assert.throws(
        () => parseTpmAkUri(`urn:bc:tpm-ak:000b:${'cd'.repeat(digest)}`),
        refusedWith('MALFORMED', 'tpm-ak', /not of the form/),
      );
    }
    for (const uri of [
      `urn:bc:tpm-ak:0b:${'cd'.repeat(20)}`,
      `urn:bc:tpm-ak:000B:${'cd'.repeat(20)}`,
      `urn:bc:tpm-ak:000b:${'cd'.repeat(20)}c`,
    ])
      assert.throws(() => parseTpmAkUri(uri), refusedWith('MALFORMED', 'tpm-ak', /not of the form/));
    assert.equal(parseTpmAkUri('urn:bc:other:1'), null);
  });
});

describe('pki/x509 node identity', () => {
  let authorities: Authorities;
  let leaf: Certificate;
  before(async () => {
    authorities = await createAuthorities();
    leaf = await issueLeaf({
      ca: authorities.nodeCa,
      profile: 'site',
      spki: createKey().spki,
      identity: { trustDomain, siteId: 'fra1', nodeId: 'n1' },
      sans: { uris: [statement] },
      now,
    });
  });
  const like = (change: Partial<Certificate>): Certificate => ({ ...leaf, ...change });

  it('ID-005 and ID-019 a certificate with a statement still is its node', () => {
    assert.deepEqual(
      { ...nodeIdentityOf(leaf, trustDomain) },
      { trustDomain, siteId: 'fra1', nodeId: 'n1', role: 'site', spiffeId: 'spiffe://fleet.example/site/fra1/node/n1' },
    );
  });

  it('ID-006 another trust domain is refused', () => {
    assert.throws(
      () => nodeIdentityOf(leaf, 'other.example'),
      refusedWith('PERMISSION_DENIED', 'wrong-trust-domain', /of trust domain fleet\.example, not other\.example/),
    );
  });

  it('ID-001, ID-008, ID-009 and ID-021 no identity without exactly one SPIFFE id, first, among at most four URIs', () => {
    const own = leaf.uriSans[0] as string;
    for (const uriSans of [[], [statement], [statement, own], [own, spiffeId], [own, statement, statement, statement, statement]])
      assert.throws(
        () => nodeIdentityOf(like({ uriSans }), trustDomain),
        refusedWith('PERMISSION_DENIED', 'no-identity', /exactly one SPIFFE id/),
      );
    assert.throws(
      () => nodeIdentityOf(like({ uriSans: ['https://fleet.example/'] }), trustDomain),
      refusedWith('PERMISSION_DENIED', 'no-identity', /not one of a node/),
    );
    assert.throws(
      () => nodeIdentityOf(like({ dnsSans: ['n1.example'] }), trustDomain),
      refusedWith('PERMISSION_DENIED', 'no-identity', /exactly one SPIFFE id/),
    );
  });

  it('ID-025 a role that is not an agent is refused', () => {
    for (const role of ['worker', 'gateway', 'internal', 'admin', null])
      assert.throws(
        () => nodeIdentityOf(like({ role }), trustDomain),
        refusedWith('PERMISSION_DENIED', 'wrong-role', /is not one of an agent/),
      );
    for (const role of ['node', 'site', 'ramdisk', 'node-tenant']) assert.equal(nodeIdentityOf(like({ role }), trustDomain).role, role);
  });
});

describeVectors('pki/x509 go-spiffe ids', ['go-spiffe', 'spiffe-id.json'], () => {
  it('takes no id that SPIFFE refuses, and of the valid ones those of our shape', () => {
    const { valid, invalid } = readJsonVectors('go-spiffe', 'spiffe-id.json') as { valid: { id: string }[]; invalid: { id: string }[] };
    const isTaken = ({ id }: { id: string }): boolean => {
      try {
        return formatSpiffeId(parseSpiffeId(id)) === id;
      } catch {
        return false;
      }
    };
    assert.deepEqual(invalid.filter(isTaken), []);
    const shape = /^spiffe:\/\/[^/]+\/site\/[^/]+\/node\/[^/]+$/;
    for (const { id } of valid) assert.equal(isTaken({ id }), shape.test(id), id);
    assert.ok(valid.length + invalid.length > 100);
  });
});
