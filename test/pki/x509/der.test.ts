import assert from 'node:assert/strict';
import fc from 'fast-check';
import { isControlError } from '../../../domain/errors.ts';
import { encodeDerTime, readDerTime } from '../../../pki/x509/der-time.ts';
import { encodeDerNamedBits } from '../../../pki/x509/der-writer.ts';
import {
  type DerNode,
  DerReader,
  encodeDer,
  encodeDerBitString,
  encodeDerBoolean,
  encodeDerInteger,
  encodeDerNode,
  encodeDerOid,
  encodeDerSequence,
  encodeDerSet,
  parseCertificate,
  parseCsr,
  readDer,
  tags,
} from '../../../pki/x509/index.ts';
import { createAuthorities, now, refusedWith } from './authorities.ts';

const hex = (text: string): Buffer => Buffer.from(text.replace(/ /g, ''), 'hex');
const show = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

describe('pki/x509 DER', () => {
  const refused: ReadonlyArray<readonly [name: string, bytes: string, reason: string, message: RegExp]> = [
    ['nothing at all', '', 'der-truncated', /missing at byte 0/],
    ['a header without its length', '30', 'der-truncated', /cut short/],
    ['an indefinite length (BER)', '30 80 00 00', 'der-length', /not a definite one/],
    ['a long-form length below 128', '04 81 01 aa', 'der-length', /not the shortest/],
    ['a length with a leading zero', `04 82 00 80 ${'00'.repeat(128)}`, 'der-length', /not the shortest/],
    ['a length of five octets', '04 85 00 00 00 00 01 aa', 'der-length', /up to four/],
    ['a length beyond the end', '04 05 aa', 'der-truncated', /longer than what holds it/],
    ['bytes after the value', '05 00 00', 'der-trailing', /1 bytes are left over/],
    ['a child that sticks out of its parent', '30 03 04 04 aa', 'der-truncated', /longer than what holds it/],
    ['a tag of several bytes', '1f 81 01 00', 'der-tag', /more than one byte/],
    ['end-of-contents as a value', '00 00', 'der-tag', /reserved/],
    ['a constructed octet string (BER)', '24 03 04 01 aa', 'der-tag', /a form that DER does not have/],
    ['a primitive sequence', '10 00', 'der-tag', /a form that DER does not have/],
    ['TRUE as 01 (BER)', '01 01 01', 'der-boolean', /neither 00 nor ff/],
    ['an empty integer', '02 00', 'der-integer', /empty/],
    ['a padded positive integer', '02 02 00 01', 'der-integer', /shortest/],
    ['a padded negative integer', '02 02 ff 80', 'der-integer', /shortest/],
    ['a null with content', '05 01 00', 'der-null', /has content/],
    ['an object identifier with a padded arc', '06 03 55 80 01', 'der-oid', /shortest/],
    ['an object identifier that breaks off', '06 02 55 9d', 'der-oid', /cut short/],
    ['a bit string with eight unused bits', '03 02 08 00', 'der-bit-string', /unused bits/],
    ['a bit string with bits set among the unused', '03 02 07 c0', 'der-bit-string', /unused bits/],
    ['a set out of order', '31 06 02 01 02 02 01 01', 'der-set-order', /not in order/],
    ['nesting without end', nested(40), 'der-depth', /nest deeper/],
  ];
  for (const [name, bytes, reason, message] of refused)
    it(`H-19 refuses ${name}`, () => {
      assert.throws(() => readDer(hex(bytes)), refusedWith('MALFORMED', reason, message));
    });

  it('writes lengths in their shortest form at 127, 128, 255, 256 and 65536', () => {
    const heads = [0, 127, 128, 255, 256, 65_535, 65_536].map((length) =>
      show(encodeDer(0x04, new Uint8Array(length)).subarray(0, 6)).slice(0, 12),
    );
    assert.deepEqual(heads, ['0400', '047f00000000', '048180000000', '0481ff000000', '048201000000', '0482ffff0000', '048301000000']);
  });

  it('writes integers with a sign octet exactly when the top bit is set, and zero as 00', () => {
    const written = ['', '00', '01', '7f', '80', '0080', 'ff', '000001'].map((magnitude) => show(encodeDerInteger(hex(magnitude))));
    assert.deepEqual(written, ['020100', '020100', '020101', '02017f', '02020080', '02020080', '020200ff', '020101']);
  });

  it('writes named bits without trailing zeros', () => {
    assert.deepEqual(
      [[0], [5, 6], [8], []].map((bits) => show(encodeDerNamedBits(bits))),
      ['03020780', '03020106', '0303070080', '030100'],
    );
  });

  it('writes and reads object identifiers, arcs of 128 bits included', () => {
    const written = ['2.5.29.17', '1.2.840.10045.4.3.2', '2.25.340282366920938463463374607431768211455'].map(encodeDerOid);
    assert.deepEqual(written.map(show), ['0603551d11', '06082a8648ce3d040302', `06146983${'ff'.repeat(17)}7f`]);
    assert.equal(new DerReader(written[2] as Uint8Array).readOid(), '2.25.340282366920938463463374607431768211455');
    assert.equal(new DerReader(hex('06 01 27')).readOid(), '0.39');
    assert.equal(new DerReader(hex('06 01 4f')).readOid(), '1.39');
    assert.equal(new DerReader(hex('06 01 50')).readOid(), '2.0');
  });

  it('sorts the members of a set', () => {
    assert.equal(show(encodeDerSet(hex('020102'), hex('020101'))), '3106020101020102');
  });

  it('KEY-011 writes UTCTime through 2049 and GeneralizedTime from 2050', () => {
    const times = [Date.UTC(2049, 11, 31, 23, 59, 59), Date.UTC(2050, 0, 1)];
    assert.deepEqual(
      times.map((ms) => Buffer.from(encodeDerTime(ms)).toString('latin1').slice(2)),
      ['491231235959Z', '20500101000000Z'],
    );
    for (const ms of times) assert.equal(readDerTime(new DerReader(encodeDerTime(ms))), ms);
    assert.throws(() => encodeDerTime(Date.UTC(10_000, 0, 1)), refusedWith('INVALID_INPUT', 'time-range', /cannot hold/));
  });

  const times: ReadonlyArray<readonly [name: string, tag: number, text: string, message: RegExp]> = [
    ['no seconds', tags.utcTime, '2701010000Z', /not in the form/],
    ['an offset', tags.utcTime, '270101000000+0000', /not in the form/],
    ['a fraction', tags.generalizedTime, '20500101000000.5Z', /not in the form/],
    ['31 April', tags.utcTime, '270431000000Z', /does not exist/],
    ['29 February 2100', tags.generalizedTime, '21000229000000Z', /does not exist/],
    ['hour 24', tags.utcTime, '270101240000Z', /does not exist/],
    ['second 60', tags.utcTime, '270101000060Z', /does not exist/],
    ['a letter', tags.utcTime, '2701010000x0Z', /else than digits/],
    ['GeneralizedTime before 2050', tags.generalizedTime, '20270101000000Z', /before 2050/],
  ];
  for (const [name, tag, text, message] of times)
    it(`H-19 refuses a time with ${name}`, () => {
      assert.throws(
        () => readDerTime(new DerReader(encodeDer(tag, Buffer.from(text, 'latin1')))),
        refusedWith('MALFORMED', 'time', message),
      );
    });

  it('reads 29 February where there is one, and 50 as 1950', () => {
    const read = (text: string): string =>
      new Date(readDerTime(new DerReader(encodeDer(tags.utcTime, Buffer.from(text, 'latin1'))))).toISOString();
    assert.deepEqual(['280229120000Z', '500101000000Z', '491231235959Z'].map(read), [
      '2028-02-29T12:00:00.000Z',
      '1950-01-01T00:00:00.000Z',
      '2049-12-31T23:59:59.000Z',
    ]);
  });

  const primitive = fc.oneof(
    fc.uint8Array({ maxLength: 300 }).map((content) => encodeDer(tags.octetString, content)),
    fc.uint8Array({ maxLength: 40 }).map(encodeDerInteger),
    fc.boolean().map(encodeDerBoolean),
    fc.uint8Array({ minLength: 1, maxLength: 40 }).map(encodeDerBitString),
    fc
      .tuple(
        fc.integer({ min: 0, max: 2 }),
        fc.integer({ min: 0, max: 39 }),
        fc.array(fc.bigInt({ min: 0n, max: 2n ** 128n }), { maxLength: 3 }),
      )
      .map(([top, second, rest]) => encodeDerOid([top, second, ...rest].join('.'))),
    fc.uint8Array({ maxLength: 20 }).map((content) => encodeDer(tags.context(6), content)),
  );
  const { value } = fc.letrec<{ value: Uint8Array }>((tie) => ({
    value: fc.oneof(
      { maxDepth: 6, withCrossShrink: true },
      primitive,
      fc.array(tie('value'), { maxLength: 5 }).map((parts) => encodeDerSequence(...parts)),
      fc.array(tie('value'), { maxLength: 4 }).map((parts) => encodeDerSet(...parts)),
      fc.array(tie('value'), { maxLength: 3 }).map((parts) => encodeDer(tags.contextConstructed(3), ...parts)),
    ),
  }));

  it('property: whatever was written reads back, and is written again as the same bytes', () => {
    fc.assert(
      fc.property(value, (bytes) => assert.equal(show(encodeDerNode(readDer(bytes))), show(bytes))),
      { numRuns: 500 },
    );
  });

  it('property: one encoding only: bytes that read at all are written again as the same bytes', () => {
    const mutated = fc
      .tuple(value, fc.nat(), fc.integer({ min: 0, max: 255 }))
      .map(([bytes, at, octet]) => Uint8Array.from(bytes, (old, i) => (i === at % Math.max(1, bytes.length) ? octet : old)));
    fc.assert(
      fc.property(fc.oneof(fc.uint8Array({ maxLength: 60 }), mutated), (bytes) => {
        const tree = treeOrMalformed(bytes);
        if (tree !== null) assert.equal(show(encodeDerNode(tree)), show(bytes));
      }),
      { numRuns: 2_000 },
    );
  });

  it('property: the reader, parseCertificate and parseCsr throw nothing but MALFORMED on any bytes', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        for (const read of [readDer, parseCertificate, parseCsr]) assertMalformedOrFine(() => read(bytes));
      }),
      { numRuns: 1_000 },
    );
  });

  it('property: a certificate with any one byte changed is MALFORMED or another certificate, never a crash', async () => {
    const { nodeCa } = await createAuthorities();
    fc.assert(
      fc.property(fc.nat({ max: nodeCa.certificate.length - 1 }), fc.integer({ min: 1, max: 255 }), (at, flip) => {
        const changed = Uint8Array.from(nodeCa.certificate, (octet, i) => (i === at ? octet ^ flip : octet));
        assertMalformedOrFine(() => assert.notDeepEqual(parseCertificate(changed).der, nodeCa.certificate));
        assertMalformedOrFine(() => parseCertificate(changed.subarray(0, at)));
      }),
      { numRuns: 2_000 },
    );
    assert.equal(nodeCa.parsed.notBefore, now - 60_000);
  });
});

function nested(depth: number): string {
  let bytes: Uint8Array = new Uint8Array();
  for (let i = 0; i < depth; i++) bytes = encodeDerSequence(bytes);
  return show(bytes);
}

const treeOrMalformed = (bytes: Uint8Array): DerNode | null => {
  try {
    return readDer(bytes);
  } catch (error) {
    assert.ok(isControlError(error) && error.code === 'MALFORMED', String(error));
    return null;
  }
};

const assertMalformedOrFine = (read: () => unknown): void => {
  try {
    read();
  } catch (error) {
    assert.ok(isControlError(error) && error.code === 'MALFORMED', String(error));
  }
};
