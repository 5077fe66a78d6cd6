/** What a certificate may not be: one good one, with one thing about it changed and signed again. */
import assert from 'node:assert/strict';
import {
  type Certificate,
  encodeDer,
  encodeDerBoolean,
  encodeDerSequence,
  issueLeaf,
  parseCertificate,
  tags,
} from '../../../pki/x509/index.ts';
import { type Authorities, createAuthorities, createKey, now, refusedWith, trustDomain } from './authorities.ts';
import { at, extension, node, resigned, signed, withChangedExtension, withExtension } from './tampering.ts';

const hex = (text: string): Buffer => Buffer.from(text.replace(/ /g, ''), 'hex');
const san = '551d11';
const keyUsage = '551d0f';

describe('pki/x509 tampered certificates', () => {
  let ca: Authorities['nodeCa'];
  let leaf: Certificate;
  before(async () => {
    ca = (await createAuthorities()).nodeCa;
    leaf = await issueLeaf({ ca, profile: 'node', spki: createKey().spki, identity: { trustDomain, siteId: 'fra1', nodeId: 'n1' }, now });
  });

  const tampered: ReadonlyArray<readonly [name: string, make: () => Promise<Uint8Array>, reason: string, message: RegExp]> = [
    ['trailing bytes', async () => Buffer.concat([leaf.der, Buffer.of(0)]), 'der-trailing', /left over/],
    ['a long-form length that could be short', async () => Buffer.concat([hex('3083 00'), leaf.der.subarray(2)]), 'der-length', /shortest/],
    ['more bytes than any certificate has', async () => new Uint8Array(16_385), 'too-large', /at most 16384 bytes/],
    ['version 1', () => resigned([leaf.der, ca], [at.version], () => null), 'der-tag', /tag 0xa0 expected/],
    ['version 2', () => resigned([leaf.der, ca], [at.version, 0], () => node(hex('020101'))), 'version', /version 2, not 3/],
    ['serial zero', () => resigned([leaf.der, ca], [at.serial], () => node(hex('020100'))), 'serial', /not positive/],
    ['a negative serial', () => resigned([leaf.der, ca], [at.serial], () => node(hex('0201ff'))), 'serial', /not positive/],
    [
      'a serial of 21 octets',
      () => resigned([leaf.der, ca], [at.serial], () => node(encodeDer(2, new Uint8Array(21).fill(1)))),
      'serial',
      /longer than 20/,
    ],
    [
      'NULL parameters of the signature algorithm',
      () => resigned([leaf.der, ca], [at.algorithm], () => node(hex('300c06082a8648ce3d0403020500'))),
      'signature-algorithm',
      /ecdsa-with-SHA256 without parameters/,
    ],
    [
      'another algorithm outside than inside',
      async () => signed(tbsOf(leaf.der), ca, hex('300a06082a8648ce3d040303')),
      'signature-algorithm',
      /ecdsa-with-SHA256/,
    ],
    ['an empty issuer', () => resigned([leaf.der, ca], [at.issuer], () => node(hex('3000'))), 'name', /issuer is empty/],
    ['no names at all', () => withoutNames(), 'name', /subject is empty/],
    [
      'an end before its beginning',
      () => resigned([leaf.der, ca], [at.validity], (found) => ({ ...found, children: (found.children ?? []).toReversed() })),
      'validity',
      /ends before it begins/,
    ],
    ['no extensions', () => resigned([leaf.der, ca], [at.extensions], () => null), 'der-tag|der-truncated', /cut short|expected/],
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
      () => withChangedExtension([leaf.der, ca], keyUsage, () => node(extension('0603551d0f', hex('03020080'), true))),
      'key-usage',
      /shortest/,
    ],
    [
      'key usage without a bit',
      () => withChangedExtension([leaf.der, ca], keyUsage, () => node(extension('0603551d0f', hex('030100'), true))),
      'key-usage',
      /empty/,
    ],
    [
      'key usage with a tenth bit',
      () => withChangedExtension([leaf.der, ca], keyUsage, () => node(extension('0603551d0f', hex('0303060040'), true))),
      'key-usage',
      /no name/,
    ],
    [
      'a critical subject key identifier',
      () => withChangedExtension([leaf.der, ca], '551d0e', () => node(extension('0603551d0e', hex('040101'), true))),
      'extension-criticality',
      /2\.5\.29\.14 is critical/,
    ],
    [
      'an authority key identifier by issuer and serial',
      () => withChangedExtension([leaf.der, ca], '551d23', () => node(extension('0603551d23', hex('3003820101')))),
      'der-tag',
      /tag 0x80 expected/,
    ],
    [
      'an empty extended key usage',
      () => withChangedExtension([leaf.der, ca], '551d25', () => node(extension('0603551d25', hex('3000')))),
      'extended-key-usage',
      /empty/,
    ],
    [
      'a repeated extended key usage',
      () =>
        withChangedExtension([leaf.der, ca], '551d25', () =>
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
      () => resigned([leaf.der, ca], [at.subject], () => subject(encodeDer(tags.ia5String, hex('610062')))),
      'name',
      /characters that its type does not have/,
    ],
    [
      'a non-ASCII IA5String',
      () => resigned([leaf.der, ca], [at.subject], () => subject(encodeDer(tags.ia5String, hex('61e9')))),
      'name',
      /characters/,
    ],
    [
      'bad UTF-8',
      () => resigned([leaf.der, ca], [at.subject], () => subject(encodeDer(tags.utf8String, hex('61ff')))),
      'name',
      /characters/,
    ],
    [
      'an asterisk in a PrintableString',
      () => resigned([leaf.der, ca], [at.subject], () => subject(encodeDer(tags.printableString, Buffer.from('a*')))),
      'name',
      /characters/,
    ],
    ['a BMPString', () => resigned([leaf.der, ca], [at.subject], () => subject(encodeDer(0x1e, hex('0061')))), 'name', /string type/],
    [
      'two attributes in one',
      () => resigned([leaf.der, ca], [at.subject, 0], (set) => ({ ...set, children: [...(set.children ?? []), ...(set.children ?? [])] })),
      'der-trailing',
      /left over/,
    ],
    [
      'a compressed key',
      () =>
        resigned([leaf.der, ca], [at.spki], () => node(hex(`3039301306072a8648ce3d020106082a8648ce3d03010703220002${'11'.repeat(32)}`))),
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
    withChangedExtension([leaf.der, ca], san, () => node(extension('0603551d11', encodeDerSequence(names))));
  const withoutNames = async (): Promise<Uint8Array> =>
    resigned([await withChangedExtension([leaf.der, ca], san, () => null), ca], [at.subject], () => node(hex('3000')));
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
});
