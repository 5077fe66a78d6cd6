import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import {
  type Certificate,
  type CertificateTemplate,
  createCertificate,
  encodeDer,
  encodeDerBoolean,
  encodeDerOid,
  encodeDerSequence,
  encodePem,
  grantedIdentityOf,
  issueLeaf,
  type NameAttribute,
  nodeIdentityOf,
  oids,
  parseCertificate,
  parsePemCertificates,
  roleAttribute,
  tags,
} from '../../../pki/x509/index.ts';
import { type Authorities, createAuthorities, createKey, type Key, now, refusedWith, trustDomain } from './authorities.ts';
import { at, extension, node, resigned, withChangedExtension, withExtension } from './tampering.ts';

const hex = (text: string): Buffer => Buffer.from(text.replace(/ /g, ''), 'hex');
const utf8 = (text: string): Uint8Array => encodeDer(tags.utf8String, Buffer.from(text, 'utf8'));
const san = '551d11';
const basicConstraints = '551d13';

describe('pki/x509 certificates', () => {
  let ca: Authorities['nodeCa'];
  let key: Key;
  let leaf: Certificate;
  const make = (change: Partial<CertificateTemplate> = {}): Promise<Uint8Array> =>
    createCertificate({
      template: {
        serial: '0a',
        subject: [roleAttribute('node')],
        notBefore: now,
        notAfter: now + 3_600_000,
        spki: key.spki,
        isCa: false,
        pathLen: null,
        keyUsage: ['digitalSignature'],
        ekus: [oids.clientAuth],
        uriSans: ['spiffe://fleet.example/site/a/node/b'],
        dnsSans: [],
        ipSans: [],
        ...change,
      },
      issuer: { certificate: ca.certificate },
      signer: ca.signer,
    });
  before(async () => {
    ca = (await createAuthorities()).nodeCa;
    key = createKey();
    leaf = await issueLeaf({ ca, profile: 'node', spki: key.spki, identity: { trustDomain, siteId: 'fra1', nodeId: 'n1' }, now });
  });

  it('reads every field, frozen, from a private copy', () => {
    const given = Uint8Array.from(leaf.der);
    const parsed = parseCertificate(given);
    given.fill(0);
    assert.deepEqual(Buffer.from(parsed.der), Buffer.from(leaf.der));
    assert.deepEqual(Buffer.from(parsed.spki), Buffer.from(key.spki));
    assert.deepEqual(
      {
        serial: parsed.serial,
        role: parsed.role,
        isCa: parsed.isCa,
        pathLen: parsed.pathLen,
        keyUsage: parsed.keyUsage,
        ekus: parsed.ekus,
        uriSans: parsed.uriSans,
        aki: parsed.aki,
      },
      {
        serial: leaf.serial,
        role: 'node',
        isCa: false,
        pathLen: null,
        keyUsage: ['digitalSignature'],
        ekus: [oids.clientAuth],
        uriSans: ['spiffe://fleet.example/site/fra1/node/n1'],
        aki: ca.parsed.ski,
      },
    );
    assert.deepEqual(parsed.issuer.attributes, ca.parsed.subject.attributes);
    assert.equal(parsed.publicKey.asymmetricKeyDetails?.namedCurve, 'prime256v1');
    assert.ok(Object.isFrozen(parsed) && Object.isFrozen(parsed.uriSans) && Object.isFrozen(parsed.subject.attributes));
  });

  it('writes a serial as lower-case hex of whole octets, without the sign octet', async () => {
    for (const serial of ['0a', '80', 'ff00', `7f${'ff'.repeat(19)}`])
      assert.equal(parseCertificate(await make({ serial })).serial, serial);
    for (const serial of ['a', '0A', '00', '000a', '', 'zz', `80${'00'.repeat(19)}`, '01'.repeat(21)])
      await assert.rejects(make({ serial }), refusedWith('INVALID_INPUT', 'serial', /not a serial number/));
  });

  it('the subject alternative name is critical exactly when the subject is empty', async () => {
    const empty = await make({ subject: [] });
    assert.deepEqual(parseCertificate(empty).subject.attributes, []);
    assert.ok(Buffer.from(empty).includes(hex('0603551d110101ff')));
    assert.ok(!Buffer.from(leaf.der).includes(hex('0603551d110101ff')));
    const wrongly = await withChangedExtension([leaf.der, ca], san, (entry) => ({
      ...entry,
      children: [...(entry.children ?? []).slice(0, 1), node(encodeDerBoolean(true)), ...(entry.children ?? []).slice(1)],
    }));
    assert.throws(
      () => parseCertificate(wrongly),
      refusedWith('MALFORMED', 'extension-criticality', /critical exactly when the subject is empty/),
    );
    const missing = await withChangedExtension([empty, ca], san, (entry) => ({
      ...entry,
      children: (entry.children ?? []).filter((_, i) => i !== 1),
    }));
    assert.throws(() => parseCertificate(missing), refusedWith('MALFORMED', 'extension-criticality', /critical exactly when/));
  });

  it('ID-022 and ID-023 the role is one OU of 1 to 32 characters', async () => {
    for (const role of ['a', 'node-tenant', `r${'-'.repeat(31)}`])
      assert.equal(parseCertificate(await make({ subject: [roleAttribute(role)] })).role, role);
    for (const role of ['', '1a', '-a', 'Node', 'a_b', `r${'a'.repeat(32)}`])
      await assert.rejects(make({ subject: [roleAttribute(role)] }), refusedWith('MALFORMED', 'role', /not one/));
    assert.equal(parseCertificate(await make({ subject: [{ oid: oids.organizationalUnit, value: 'machines' }] })).role, null);
  });

  it('ID-024 a subject with two roles is malformed, even twice the same one', async () => {
    for (const roles of [
      ['node', 'site'],
      ['node', 'node'],
    ])
      await assert.rejects(make({ subject: roles.map(roleAttribute) }), refusedWith('MALFORMED', 'two-roles', /names two roles/));
  });

  it('ID-028 and ID-029 the former role extension is read, and the OU wins when both are there', async () => {
    const formerRole = (role: string): Uint8Array =>
      encodeDerSequence(encodeDerOid(oids.formerRole), encodeDer(tags.octetString, utf8(role)));
    const plain = await make({ subject: [{ oid: oids.organizationalUnit, value: 'machines' }] });
    assert.equal(parseCertificate(await withExtension(plain, ca, formerRole('site'))).role, 'site');
    assert.equal(parseCertificate(await withExtension(leaf.der, ca, formerRole('site'))).role, 'node');
    await assert.rejects(
      async () => parseCertificate(await withExtension(plain, ca, formerRole('Site'))),
      refusedWith('MALFORMED', 'role', /former role extension/),
    );
  });

  it('ID-028 and A-PKI-41 a certificate from before the change, as it was kept, is still read', () => {
    const [der] = parsePemCertificates(readFileSync(new URL('former-role.pem', import.meta.url), 'utf8'));
    const former = parseCertificate(der as Uint8Array);
    assert.deepEqual({ role: former.role, subject: former.subject.attributes[0]?.value }, { role: 'site', subject: 'machines' });
    assert.equal(nodeIdentityOf(former, 'fleet.example').role, 'site');
  });

  it('ID-020 and ID-030 a daemon takes an identity whose role is in the subject, and none by the former extension', () => {
    const [der] = parsePemCertificates(readFileSync(new URL('former-role.pem', import.meta.url), 'utf8'));
    const former = parseCertificate(der as Uint8Array);
    assert.throws(
      () => grantedIdentityOf(former, 'fleet.example'),
      refusedWith('PERMISSION_DENIED', 'wrong-role', /subject names no role/),
    );
    assert.deepEqual(grantedIdentityOf(leaf, trustDomain), nodeIdentityOf(leaf, trustDomain));
    assert.throws(() => grantedIdentityOf(leaf, 'other.example'), refusedWith('PERMISSION_DENIED', 'wrong-trust-domain', /other\.example/));
  });

  it('ID-027 nothing that is issued carries an identifier under 2.25', async () => {
    const all = await createAuthorities();
    const arc = encodeDerOid('2.25.1').subarray(2, 3);
    for (const der of [leaf.der, await make(), ...Object.values(all).map(({ certificate }) => certificate)])
      assert.ok(!oidsIn(der).some((content) => content[0] === arc[0]), 'an OID begins with 2.25');
  });

  it('ignores an unknown extension that is not critical', async () => {
    assert.equal(parseCertificate(await withExtension(leaf.der, ca, extension('06032a0304', hex('0500')))).role, 'node');
  });

  it('refuses a CA whose basic constraints are not critical', async () => {
    const der = await withChangedExtension([ca.certificate, ca], basicConstraints, (entry) => ({
      ...entry,
      children: (entry.children ?? []).filter((_, i) => i !== 1),
    }));
    assert.throws(() => parseCertificate(der), refusedWith('MALFORMED', 'basic-constraints', /not critical/));
  });

  it('a point that is off the curve is refused when the key is made', async () => {
    const der = await resigned([leaf.der, ca], [at.spki, 1], (bits) => ({
      ...bits,
      content: Uint8Array.from(bits.content, (octet, i) => (i === 65 ? octet ^ 1 : octet)),
    }));
    assert.throws(() => parseCertificate(der).publicKey, refusedWith('MALFORMED', 'spki', /not on P-256/));
  });

  const contradictions: ReadonlyArray<readonly [name: string, change: Partial<CertificateTemplate>, reason: string, message: RegExp]> = [
    ['a leaf that signs certificates', { keyUsage: ['keyCertSign'] }, 'key-usage', /an authority signs certificates/],
    ['a CA that does not', { isCa: true }, 'key-usage', /an authority signs certificates/],
    ['a path length on a leaf', { pathLen: 0 }, 'path-length', /not a path length: 0/],
    ['fractions of a second', { notBefore: now + 1 }, 'validity', /whole seconds/],
    ['an end before its beginning', { notAfter: now - 1_000 }, 'validity', /whole seconds/],
    ['no name', { subject: [], uriSans: [] }, 'subject', /without names/],
    ['a URI with a blank', { uriSans: ['a:b c'] }, 'alternative-name', /not a URI/],
    ['a DNS name that is none', { dnsSans: ['-a.example'] }, 'alternative-name', /not a DNS name/],
    ['an address that is none', { ipSans: ['192.0.2.256'] }, 'alternative-name', /not an IP address/],
    ['an attribute of 65 characters', { subject: [{ oid: oids.commonName, value: 'a'.repeat(65) }] }, 'name-attribute', /1 to 64/],
    ['a lone surrogate', { subject: [{ oid: oids.commonName, value: '\ud800' }] }, 'name-attribute', /1 to 64/],
  ];
  for (const [name, change, reason, message] of contradictions)
    it(`a template with ${name} is not signed`, async () => {
      await assert.rejects(make(change), refusedWith('INVALID_INPUT', reason, message));
    });

  it('reads back names and addresses it writes', async () => {
    const subjectOf: NameAttribute[] = [
      { oid: oids.organization, value: 'Größe, "x" = y' },
      { oid: oids.commonName, value: '機械' },
    ];
    const parsed = parseCertificate(
      await make({
        subject: subjectOf,
        uriSans: [],
        dnsSans: ['gw.fleet.example', 'localhost'],
        ipSans: ['192.0.2.1', '::1', '2001:db8::5'],
      }),
    );
    assert.deepEqual(
      parsed.subject.attributes.map((attribute) => ({ ...attribute })),
      subjectOf,
    );
    assert.deepEqual(parsed.dnsSans, ['gw.fleet.example', 'localhost']);
    assert.deepEqual(parsed.ipSans, ['192.0.2.1', '::1', '2001:db8::5']);
  });

  it('reads PEM strictly', () => {
    const pem = encodePem('CERTIFICATE', leaf.der);
    assert.deepEqual(
      parsePemCertificates(pem + pem).map((der) => Buffer.from(der)),
      [Buffer.from(leaf.der), Buffer.from(leaf.der)],
    );
    for (const [text, message] of [
      ['', /holds no CERTIFICATE/],
      [`junk\n${pem}`, /something else/],
      [`${pem}junk`, /something else/],
      [pem.replaceAll('CERTIFICATE', 'PRIVATE KEY'), /something else/],
      [pem.replace(/=*\n-----END/, '!\n-----END'), /something else/],
    ] as const)
      assert.throws(() => parsePemCertificates(text), refusedWith('MALFORMED', 'pem', message));
  });
});

const oidsIn = (der: Uint8Array): Uint8Array[] => {
  const found: Uint8Array[] = [];
  const walk = (tree: ReturnType<typeof node>): void => {
    if (tree.tag === tags.oid) found.push(tree.content);
    for (const child of tree.children ?? []) walk(child);
  };
  walk(node(der));
  return found;
};
