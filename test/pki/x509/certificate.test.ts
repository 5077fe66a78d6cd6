import assert from 'node:assert/strict';
import {
  type Certificate,
  type CertificateTemplate,
  createCertificate,
  encodeDer,
  encodeDerBoolean,
  encodeDerOid,
  encodeDerSequence,
  encodePem,
  issueLeaf,
  type NameAttribute,
  oids,
  parseCertificate,
  parsePemCertificates,
  roleAttribute,
  tags,
} from '../../../pki/x509/index.ts';
import { type Authorities, createAuthorities, createKey, type Key, now, refusedWith, trustDomain } from './authorities.ts';
import { at, extension, node, resigned, signed, withChangedExtension, withExtension } from './tampering.ts';

const hex = (text: string): Buffer => Buffer.from(text.replace(/ /g, ''), 'hex');
const utf8 = (text: string): Uint8Array => encodeDer(tags.utf8String, Buffer.from(text, 'utf8'));
const san = '551d11';
const keyUsage = '551d0f';
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
    const wrongly = await withChangedExtension(leaf.der, ca, san, (entry) => ({
      ...entry,
      children: [...(entry.children ?? []).slice(0, 1), node(encodeDerBoolean(true)), ...(entry.children ?? []).slice(1)],
    }));
    assert.throws(
      () => parseCertificate(wrongly),
      refusedWith('MALFORMED', 'extension-criticality', /critical exactly when the subject is empty/),
    );
    const missing = await withChangedExtension(empty, ca, san, (entry) => ({
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

  it('ID-027 nothing that is issued carries an identifier under 2.25', async () => {
    const all = await createAuthorities();
    const arc = encodeDerOid('2.25.1').subarray(2, 3);
    for (const der of [leaf.der, await make(), ...Object.values(all).map(({ certificate }) => certificate)])
      assert.ok(!oidsIn(der).some((content) => content[0] === arc[0]), 'an OID begins with 2.25');
  });

  const tampered: ReadonlyArray<readonly [name: string, make: () => Promise<Uint8Array>, reason: string, message: RegExp]> = [
    ['trailing bytes', async () => Buffer.concat([leaf.der, Buffer.of(0)]), 'der-trailing', /left over/],
    ['a long-form length that could be short', async () => Buffer.concat([hex('3083 00'), leaf.der.subarray(2)]), 'der-length', /shortest/],
    ['more bytes than any certificate has', async () => new Uint8Array(16_385), 'too-large', /at most 16384 bytes/],
    ['version 1', () => resigned(leaf.der, ca, [at.version], () => null), 'der-tag', /tag 0xa0 expected/],
    ['version 2', () => resigned(leaf.der, ca, [at.version, 0], () => node(hex('020101'))), 'version', /version 2, not 3/],
    ['serial zero', () => resigned(leaf.der, ca, [at.serial], () => node(hex('020100'))), 'serial', /not positive/],
    ['a negative serial', () => resigned(leaf.der, ca, [at.serial], () => node(hex('0201ff'))), 'serial', /not positive/],
    [
      'a serial of 21 octets',
      () => resigned(leaf.der, ca, [at.serial], () => node(encodeDer(2, new Uint8Array(21).fill(1)))),
      'serial',
      /longer than 20/,
    ],
    [
      'NULL parameters of the signature algorithm',
      () => resigned(leaf.der, ca, [at.algorithm], () => node(hex('300c06082a8648ce3d0403020500'))),
      'signature-algorithm',
      /ecdsa-with-SHA256 without parameters/,
    ],
    [
      'another algorithm outside than inside',
      async () => signed(tbsOf(leaf.der), ca, hex('300a06082a8648ce3d040303')),
      'signature-algorithm',
      /ecdsa-with-SHA256/,
    ],
    ['an empty issuer', () => resigned(leaf.der, ca, [at.issuer], () => node(hex('3000'))), 'name', /issuer is empty/],
    ['no names at all', () => withoutNames(), 'name', /subject is empty/],
    [
      'an end before its beginning',
      () => resigned(leaf.der, ca, [at.validity], (found) => ({ ...found, children: [...(found.children ?? [])].reverse() })),
      'validity',
      /ends before it begins/,
    ],
    ['no extensions', () => resigned(leaf.der, ca, [at.extensions], () => null), 'der-tag|der-truncated', /cut short|expected/],
    [
      'a duplicate extension',
      () => withExtension(leaf.der, ca, extension('0603551d0e', hex('0414' + '00'.repeat(20)))),
      'duplicate-extension',
      /2\.5\.29\.14 stands twice/,
    ],
    [
      'an unknown critical extension',
      () => withExtension(leaf.der, ca, extension('06032a0304', hex('0500'), true)),
      'unknown-critical-extension',
      /1\.2\.3\.4 is critical and not known/,
    ],
    [
      'name constraints, even when not critical',
      () => withExtension(leaf.der, ca, extension('0603551d1e', hex('3000'))),
      'name-constraints',
      /not taken/,
    ],
    [
      'FALSE written out as criticality',
      () => withExtension(leaf.der, ca, encodeDerSequence(hex('06032a0304'), encodeDerBoolean(false), hex('04020500'))),
      'der-default',
      /writes out a default/,
    ],
    [
      'FALSE written out as the CA flag',
      () => withExtension(leaf.der, ca, extension('0603551d13', hex('3003010100'), true)),
      'der-default',
      /write out a default/,
    ],
    [
      'a path length without the CA flag',
      () => withExtension(leaf.der, ca, extension('0603551d13', hex('3003020100'), true)),
      'der-trailing',
      /left over/,
    ],
    [
      'key usage with trailing zeros',
      () => withChangedExtension(leaf.der, ca, keyUsage, () => node(extension('0603551d0f', hex('03020080'), true))),
      'key-usage',
      /shortest/,
    ],
    [
      'key usage without a bit',
      () => withChangedExtension(leaf.der, ca, keyUsage, () => node(extension('0603551d0f', hex('030100'), true))),
      'key-usage',
      /empty/,
    ],
    [
      'key usage with a tenth bit',
      () => withChangedExtension(leaf.der, ca, keyUsage, () => node(extension('0603551d0f', hex('0303060040'), true))),
      'key-usage',
      /no name/,
    ],
    [
      'a critical subject key identifier',
      () => withChangedExtension(leaf.der, ca, '551d0e', () => node(extension('0603551d0e', hex('040101'), true))),
      'extension-criticality',
      /2\.5\.29\.14 is critical/,
    ],
    [
      'an authority key identifier by issuer and serial',
      () => withChangedExtension(leaf.der, ca, '551d23', () => node(extension('0603551d23', hex('3003820101')))),
      'der-tag',
      /tag 0x80 expected/,
    ],
    [
      'an empty extended key usage',
      () => withChangedExtension(leaf.der, ca, '551d25', () => node(extension('0603551d25', hex('3000')))),
      'extended-key-usage',
      /empty/,
    ],
    [
      'a repeated extended key usage',
      () =>
        withChangedExtension(leaf.der, ca, '551d25', () =>
          node(extension('0603551d25', hex('301406082b0601050507030206082b06010505070302'))),
        ),
      'extended-key-usage',
      /repeats/,
    ],
    ['NUL in a URI', () => withSan(hex('8608 613a622f00 2f6378')), 'alternative-name', /not a URI/],
    ['a URI that is not ASCII', () => withSan(hex('8604 613a62e9')), 'alternative-name', /not a URI/],
    ['a blank in a URI', () => withSan(hex('8604 613a6220')), 'alternative-name', /not a URI/],
    ['an underscore in a DNS name', () => withSan(encodeDer(0x82, Buffer.from('a_b.example'))), 'alternative-name', /not a DNS name/],
    ['a wildcard', () => withSan(encodeDer(0x82, Buffer.from('*.example'))), 'alternative-name', /not a DNS name/],
    ['an address as a DNS name', () => withSan(encodeDer(0x82, Buffer.from('192.0.2.1'))), 'alternative-name', /not a DNS name/],
    ['an address of five bytes', () => withSan(hex('8705 0102030405')), 'alternative-name', /4 or 16 bytes/],
    ['an e-mail address', () => withSan(encodeDer(0x81, Buffer.from('a@b.example'))), 'alternative-name', /kind 0x81 is not taken/],
    ['no alternative name in the extension', () => withSan(new Uint8Array()), 'alternative-name', /empty/],
    [
      'NUL in the subject',
      () => resigned(leaf.der, ca, [at.subject], () => subject(encodeDer(tags.ia5String, hex('610062')))),
      'name',
      /characters that its type does not have/,
    ],
    [
      'a non-ASCII IA5String',
      () => resigned(leaf.der, ca, [at.subject], () => subject(encodeDer(tags.ia5String, hex('61e9')))),
      'name',
      /characters/,
    ],
    ['bad UTF-8', () => resigned(leaf.der, ca, [at.subject], () => subject(encodeDer(tags.utf8String, hex('61ff')))), 'name', /characters/],
    [
      'an asterisk in a PrintableString',
      () => resigned(leaf.der, ca, [at.subject], () => subject(encodeDer(tags.printableString, Buffer.from('a*')))),
      'name',
      /characters/,
    ],
    ['a BMPString', () => resigned(leaf.der, ca, [at.subject], () => subject(encodeDer(0x1e, hex('0061')))), 'name', /string type/],
    [
      'two attributes in one',
      () => resigned(leaf.der, ca, [at.subject, 0], (set) => ({ ...set, children: [...(set.children ?? []), ...(set.children ?? [])] })),
      'der-trailing',
      /left over/,
    ],
    [
      'a compressed key',
      () => resigned(leaf.der, ca, [at.spki], () => node(hex(`3039301306072a8648ce3d020106082a8648ce3d03010703220002${'11'.repeat(32)}`))),
      'spki',
      /91 bytes/,
    ],
    [
      'a signature that is not DER',
      async () =>
        encodeDerSequence(tbsOf(leaf.der), hex('300a06082a8648ce3d040302'), encodeDer(3, Buffer.of(0), new Uint8Array(64).fill(1))),
      'der-tag',
      /tag 0x30 expected/,
    ],
    [
      'unused bits in the signature',
      async () => encodeDerSequence(tbsOf(leaf.der), hex('300a06082a8648ce3d040302'), encodeDer(3, Buffer.of(1), new Uint8Array(64))),
      'der-bit-string',
      /bit string/,
    ],
  ];
  const tbsOf = (der: Uint8Array): Uint8Array => parseCertificate(der).tbs;
  const subject = (value: Uint8Array): ReturnType<typeof node> =>
    node(encodeDerSequence(encodeDer(tags.set, encodeDerSequence(hex('060355040b'), value))));
  const withSan = (names: Uint8Array): Promise<Uint8Array> =>
    withChangedExtension(leaf.der, ca, san, () => node(extension('0603551d11', encodeDerSequence(names))));
  const withoutNames = async (): Promise<Uint8Array> =>
    resigned(await withChangedExtension(leaf.der, ca, san, () => null), ca, [at.subject], () => node(hex('3000')));
  for (const [name, build, reason, message] of tampered)
    it(`H-19 refuses ${name}`, async () => {
      const der = await build();
      assert.throws(
        () => parseCertificate(der),
        (error) =>
          refusedWith(
            'MALFORMED',
            reason.split('|').find((one) => one === (error as { details?: { reason?: string } }).details?.reason) ?? reason,
            message,
          )(error),
      );
    });

  it('ignores an unknown extension that is not critical', async () => {
    assert.equal(parseCertificate(await withExtension(leaf.der, ca, extension('06032a0304', hex('0500')))).role, 'node');
  });

  it('refuses a CA whose basic constraints are not critical', async () => {
    const der = await withChangedExtension(ca.certificate, ca, basicConstraints, (entry) => ({
      ...entry,
      children: (entry.children ?? []).filter((_, i) => i !== 1),
    }));
    assert.throws(() => parseCertificate(der), refusedWith('MALFORMED', 'basic-constraints', /not critical/));
  });

  it('a point that is off the curve is refused when the key is made', async () => {
    const der = await resigned(leaf.der, ca, [at.spki, 1], (bits) => ({
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
