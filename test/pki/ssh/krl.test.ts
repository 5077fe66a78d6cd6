import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import fc from 'fast-check';
import {
  createKrl,
  findRevocation,
  type KrlContent,
  parseKrl,
  parseSshCertificateLine,
  parseSshKeyLine,
  type SshCertificate,
  type SshPublicKey,
} from '../../../pki/ssh/index.ts';
import { refusedWith } from '../x509/authorities.ts';
import { createPair, now, user } from './support.ts';

const u32 = (value: number): Buffer => Buffer.of(value >>> 24, value >>> 16, value >>> 8, value);
const u64 = (value: bigint): Buffer => {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64BE(value);
  return bytes;
};
const text = (value: string | Uint8Array): Buffer => Buffer.concat([u32(Buffer.from(value).length), Buffer.from(value)]);
const section = (type: number, ...parts: Uint8Array[]): Buffer => Buffer.concat([Buffer.of(type), text(Buffer.concat(parts))]);
const head = (change: { flags?: bigint; reserved?: string; comment?: string; format?: number } = {}): Buffer =>
  Buffer.concat([
    Buffer.from('SSHKRL\n\0', 'latin1'),
    u32(change.format ?? 1),
    u64(7n),
    u64(BigInt(now / 1_000)),
    u64(change.flags ?? 0n),
    text(change.reserved ?? ''),
    text(change.comment ?? 'ours'),
  ]);
const list = (...sections: Uint8Array[]): Buffer => Buffer.concat([head(), ...sections]);

const ca = parseSshKeyLine(createPair().line);
const otherCa = parseSshKeyLine(createPair().line);
const of = (authority: SshPublicKey, serial: bigint, keyId = 'ada'): SshCertificate =>
  ({ authority, serial, keyId, publicKey: parseSshKeyLine(user.line) }) as unknown as SshCertificate;
const certificates = (...parts: Uint8Array[]): Buffer => section(1, text(ca.blob), text(''), ...parts);
const content = (change: Partial<KrlContent>): KrlContent => ({
  version: 1n,
  generatedAt: now,
  comment: '',
  certificates: [],
  keys: [],
  ...change,
});

describe('pki/ssh revocation lists', () => {
  it('an empty one is 44 bytes, and revokes nothing', () => {
    const { bytes, krl } = createKrl(content({}));
    assert.equal(bytes.length, 44);
    assert.equal(findRevocation(krl, of(ca, 1n)), null);
    assert.deepEqual([krl.version, krl.generatedAt], [1n, BigInt(now / 1_000)]);
  });

  it('reads serials as list, range and bitmap, up to the last one there is', () => {
    const last = 0xffff_ffff_ffff_ffffn;
    const krl = parseKrl(
      list(
        certificates(
          section(0x20, u64(5n), u64(2n ** 53n + 1n), u64(last)),
          section(0x21, u64(100n), u64(199n)),
          // Bits 0 and 9 above 1000: 1000 and 1009.
          section(0x22, u64(1_000n), text(Buffer.of(0x02, 0x01))),
          section(0x22, u64(2_000n), text(Buffer.of(0x00, 0x80))),
        ),
      ),
    );
    for (const serial of [5n, 2n ** 53n + 1n, last, 100n, 150n, 199n, 1_000n, 1_009n, 2_007n])
      assert.equal(findRevocation(krl, of(ca, serial)), 'serial', String(serial));
    for (const serial of [0n, 1n, 4n, 6n, 2n ** 53n, 99n, 200n, 999n, 1_001n, 1_008n, 1_010n, 2_000n, 2_006n, 2_008n, last - 1n])
      assert.equal(findRevocation(krl, of(ca, serial)), null, String(serial));
    assert.equal(findRevocation(krl, of(otherCa, 5n)), null);
  });

  it('an empty authority stands for every one', () => {
    const krl = parseKrl(list(section(1, text(''), text(''), section(0x20, u64(5n)), section(0x23, text('mallory')))));
    assert.equal(findRevocation(krl, of(otherCa, 5n)), 'serial');
    assert.equal(findRevocation(krl, of(otherCa, 6n, 'mallory')), 'key-id');
    assert.equal(findRevocation(krl, of(ca, 6n)), null);
  });

  it('a certificate falls with its key, and with the key of its authority', () => {
    const key = parseSshKeyLine(user.line);
    for (const revoked of [section(2, text(key.blob)), section(2, text(otherCa.blob), text(key.blob))]) {
      const krl = parseKrl(list(revoked));
      assert.equal(findRevocation(krl, of(ca, 1n)), 'key');
      assert.equal(findRevocation(krl, key), 'key');
      assert.equal(findRevocation(krl, ca), null);
    }
    assert.equal(findRevocation(createKrl(content({ keys: [ca] })).krl, of(ca, 1n)), 'authority');
  });

  it('passes over what is not critical', () => {
    const extension = (critical: number): Buffer => Buffer.concat([text('x@example.com'), Buffer.of(critical), text('')]);
    assert.ok(parseKrl(list(section(255, extension(0)), certificates(section(0x39, extension(0)), section(0x20, u64(1n))))));
    for (const bytes of [list(section(255, extension(1))), list(certificates(section(0x39, extension(1))))])
      assert.throws(
        () => parseKrl(bytes),
        refusedWith('UNSUPPORTED', 'ssh-kind', /^krl.extension "x@example.com" is critical and not known$/),
      );
  });

  const bad: ReadonlyArray<readonly [name: string, bytes: Uint8Array, code: string, message: RegExp]> = [
    ['nothing', new Uint8Array(), 'MALFORMED', /^krl.magic is not that of a revocation list$/],
    ['text', Buffer.from('# a list of keys\nssh-ed25519 AAAA'), 'MALFORMED', /^krl.magic /],
    ['another version of the format', head({ format: 2 }), 'UNSUPPORTED', /^krl.format is version 2, not 1$/],
    ['flags', head({ flags: 1n }), 'UNSUPPORTED', /^krl.flags are not zero$/],
    ['a reserved field that is used', head({ reserved: 'x' }), 'MALFORMED', /^krl.reserved is not empty$/],
    ['a comment of two lines', head({ comment: 'a\nb' }), 'MALFORMED', /^krl.comment holds a control character$/],
    ['its end missing', head().subarray(0, -3), 'MALFORMED', /^krl.comment is cut short$/],
    ['a section cut short', list(certificates(section(0x20, u64(1n)))).subarray(0, -1), 'MALFORMED', /^krl.section is cut short$/],
    ['an unknown section', list(section(9)), 'UNSUPPORTED', /^krl.section has type 9/],
    ['a signature', list(section(4, text('key'))), 'UNSUPPORTED', /^krl.signature is there/],
    ['an empty section of keys', list(section(2)), 'MALFORMED', /^krl.section.item is cut short$/],
    [
      'a certificate among keys',
      list(section(2, text(text('ssh-ed25519-cert-v01@openssh.com')))),
      'MALFORMED',
      /^krl.key is not a plain key$/,
    ],
    [
      'a key of its kind that is none',
      list(section(2, text(Buffer.concat([text('ssh-ed25519'), text('short')])))),
      'MALFORMED',
      /^key has 5 bytes, not 32$/,
    ],
    ['a fingerprint of another length', list(section(5, text(Buffer.alloc(20)))), 'MALFORMED', /^krl.fingerprint has 20 bytes, not 32$/],
    [
      'fingerprints out of order',
      list(section(5, text(Buffer.alloc(32, 2)), text(Buffer.alloc(32, 1)))),
      'MALFORMED',
      /^krl.fingerprint is not in ascending order$/,
    ],
    [
      'one fingerprint twice',
      list(section(3, text(Buffer.alloc(20, 1)), text(Buffer.alloc(20, 1)))),
      'MALFORMED',
      /^krl.fingerprint is not in ascending order$/,
    ],
    ['an unknown section of certificates', list(certificates(section(0x30))), 'UNSUPPORTED', /^krl.certificates has a section of type 48/],
    ['serial zero', list(certificates(section(0x20, u64(0n)))), 'MALFORMED', /^krl.serial is zero$/],
    ['an empty list of serials', list(certificates(section(0x20))), 'MALFORMED', /^krl.certificates.serial is cut short$/],
    ['half a serial', list(certificates(section(0x20, u64(1n), Buffer.of(0)))), 'MALFORMED', /serial is cut short$/],
    ['a range from zero', list(certificates(section(0x21, u64(0n), u64(5n)))), 'MALFORMED', /^krl.serial is zero$/],
    ['a range backwards', list(certificates(section(0x21, u64(6n), u64(5n)))), 'MALFORMED', /^krl.range ends before it begins$/],
    ['a range and more', list(certificates(section(0x21, u64(1n), u64(2n), u64(3n)))), 'MALFORMED', /has 8 bytes left over$/],
    [
      'an empty bitmap',
      list(certificates(section(0x22, u64(1n), text('')))),
      'MALFORMED',
      /^krl.bitmap is empty, or goes beyond the last serial$/,
    ],
    [
      'a bitmap beyond the last serial',
      list(certificates(section(0x22, u64(0xffff_ffff_ffff_ffffn), text(Buffer.of(2))))),
      'MALFORMED',
      /^krl.bitmap is empty, or goes beyond/,
    ],
    ['a bitmap that holds zero', list(certificates(section(0x22, u64(0n), text(Buffer.of(1))))), 'MALFORMED', /^krl.serial is zero$/],
    ['a negative bitmap', list(certificates(section(0x22, u64(1n), text(Buffer.of(0x80))))), 'MALFORMED', /bitmap is negative$/],
    [
      'a padded bitmap',
      list(certificates(section(0x22, u64(1n), text(Buffer.of(0, 1))))),
      'MALFORMED',
      /bitmap is not in its shortest form$/,
    ],
    ['an empty list of key ids', list(certificates(section(0x23))), 'MALFORMED', /item is cut short$/],
    ['a key id of two lines', list(certificates(section(0x23, text('a\nb')))), 'MALFORMED', /^krl.key_id holds a control character$/],
    ['a key id that is not UTF-8', list(certificates(section(0x23, text(Buffer.of(0xff))))), 'MALFORMED', /^krl.key_id is not UTF-8$/],
    ['more than a megabyte', Buffer.alloc(1_048_577), 'MALFORMED', /^krl has more than 1048576 bytes$/],
  ];
  for (const [name, bytes, code, message] of bad)
    it(`refuses a list with ${name}`, () => {
      assert.throws(() => parseKrl(bytes), refusedWith(code, code === 'MALFORMED' ? 'ssh-form' : 'ssh-kind', message));
    });

  it('writes the same bytes for the same content, whatever its order', () => {
    const one = content({
      certificates: [
        { authority: ca, serials: [3n, 1n, 2n, 9n], keyIds: ['b', 'a'] },
        { authority: otherCa, serials: [1n], keyIds: [] },
      ],
      keys: [ca, otherCa],
    });
    const other = content({
      certificates: [
        { authority: otherCa, serials: [1n, 1n], keyIds: [] },
        { authority: ca, serials: [9n, 1n], keyIds: ['a'] },
        { authority: ca, serials: [2n, 3n], keyIds: ['b'] },
      ],
      keys: [otherCa, ca, ca],
    });
    assert.deepEqual(createKrl(one).bytes, createKrl(other).bytes);
  });

  it('a list that is gone on from 200 times is as long as one that is written at once, and revokes the same', () => {
    const serials = Array.from({ length: 200 }, (_, n) => BigInt(1 + n * 2));
    const keys = [parseSshKeyLine(user.line)];
    let krl = createKrl(content({ keys })).krl;
    let bytes: Uint8Array = new Uint8Array();
    for (const [n, serial] of serials.entries()) {
      const certificates = [{ authority: n % 2 === 0 ? ca : otherCa, serials: [serial], keyIds: [`ada-${n % 3}`] }];
      ({ krl, bytes } = createKrl(content({ base: krl, version: krl.version + 1n, certificates, keys })));
    }
    const at = (rest: number) => serials.filter((_, n) => n % 2 === rest);
    const once = createKrl(
      content({
        version: krl.version,
        keys,
        certificates: [
          { authority: ca, serials: at(0), keyIds: ['ada-0', 'ada-1', 'ada-2'] },
          { authority: otherCa, serials: at(1), keyIds: ['ada-0', 'ada-1', 'ada-2'] },
        ],
      }),
    );
    assert.deepEqual(Buffer.from(bytes), Buffer.from(once.bytes));
  });

  it('goes on from what it does not write itself: bitmaps, fingerprints of SHA-1, extensions, sections for every authority', () => {
    const extension = Buffer.concat([text('x@example.com'), Buffer.of(0), text('')]);
    const sha1 = createHash('sha1').update(parseSshKeyLine(user.line).blob).digest();
    const bitmap = section(0x22, u64(40n), text(Buffer.of(0b101)));
    const before = list(
      section(255, extension),
      certificates(bitmap, section(0x39, extension), section(0x21, u64(10n), u64(19n))),
      section(1, text(''), text(''), section(0x20, u64(99n))),
      section(3, text(sha1)),
    );
    const certificate = (authority: SshPublicKey, serial: bigint) => ({ ...of(authority, serial, 'nobody'), publicKey: otherCa });
    const more = [{ authority: ca, serials: [20n, 15n, 7n], keyIds: [] }];
    const { krl, bytes } = createKrl(content({ base: parseKrl(before), version: 8n, certificates: more }));
    for (const serial of [7n, 10n, 15n, 19n, 20n, 40n, 42n, 99n])
      assert.equal(findRevocation(krl, certificate(ca, serial) as SshCertificate), 'serial', String(serial));
    for (const serial of [9n, 21n, 41n, 98n])
      assert.equal(findRevocation(krl, certificate(ca, serial) as SshCertificate), null, String(serial));
    assert.equal(findRevocation(krl, certificate(otherCa, 99n) as SshCertificate), 'serial');
    assert.equal(findRevocation(krl, parseSshKeyLine(user.line)), 'key');
    assert.deepEqual([krl.extensions.length, krl.certificates.length], [1, 2]);
    assert.ok(Buffer.from(bytes).includes(section(0x21, u64(10n), u64(20n))), 'neighbours are one range');
    const again = createKrl(content({ base: krl, version: 9n }));
    assert.equal(again.bytes.length, bytes.length);
  });

  it('answers what was written, for any serials', () => {
    const serial = fc.oneof(fc.bigInt({ min: 1n, max: 300n }), fc.bigInt({ min: 1n, max: 2n ** 64n - 1n }));
    fc.assert(
      fc.property(fc.uniqueArray(serial, { maxLength: 60 }), fc.array(serial, { maxLength: 30 }), (serials, others) => {
        const krl = parseKrl(createKrl(content({ certificates: [{ authority: ca, serials, keyIds: [] }] })).bytes);
        for (const asked of [...serials, ...others])
          assert.equal(findRevocation(krl, of(ca, asked)), serials.includes(asked) ? 'serial' : null);
      }),
      { numRuns: 100 },
    );
  });

  it('refuses to write what no list can say', () => {
    const write = (change: { serials?: bigint[]; keyIds?: string[] }) =>
      createKrl(content({ certificates: [{ authority: ca, serials: [], keyIds: [], ...change }] }));
    for (const serial of [0n, -1n, 2n ** 64n])
      assert.throws(() => write({ serials: [serial] }), refusedWith('INVALID_INPUT', 'ssh-request', /^serials .* is no serial/));
    for (const keyId of ['', 'a\nb', 'x'.repeat(257)])
      assert.throws(() => write({ keyIds: [keyId] }), refusedWith('INVALID_INPUT', 'ssh-request', /^keyIds holds one that is not a line/));
    assert.throws(() => createKrl(content({ comment: 'a\nb' })), refusedWith('INVALID_INPUT', 'ssh-request', /^comment is not one line$/));
    assert.throws(
      () => write({ serials: Array.from({ length: 140_000 }, (_, i) => BigInt(2 * i + 1)) }),
      refusedWith('INVALID_INPUT', 'ssh-request', /^certificates make a list of more than 1048576 bytes$/),
    );
  });

  const many = (count: number, item: (at: number) => Uint8Array): Buffer =>
    Buffer.concat(Array.from({ length: count }, (_, at) => item(at)));
  const empty = section(1, text(''), text(''));
  const costly: readonly [string, () => Buffer, RegExp][] = [
    ['sections', () => list(many(8_193, () => empty)), /^krl has more than 8192 sections, key ids and keys$/],
    [
      'key ids',
      () =>
        list(
          certificates(
            section(
              0x23,
              many(8_192, (at) => text(`id ${at}`)),
            ),
          ),
        ),
      /^krl has more than 8192 sections/,
    ],
    ['ranges', () => list(certificates(many(8_192, () => section(0x21, u64(1n), u64(2n))))), /^krl has more than 8192 sections/],
    [
      'keys',
      () =>
        list(
          section(
            2,
            many(8_192, () => text(ca.blob)),
          ),
        ),
      /^krl has more than 8192 sections/,
    ],
    [
      'different keys',
      () =>
        list(
          section(
            2,
            many(1_025, (at) => text(Buffer.concat([ca.blob.subarray(0, -4), u32(at)]))),
          ),
        ),
      /^krl.key stands for one of more than 1024 keys: name them by their fingerprints$/,
    ],
    [
      'authorities',
      () => list(many(1_025, (at) => section(1, text(Buffer.concat([ca.blob.subarray(0, -4), u32(at)])), text('')))),
      /^krl.ca_key stands for one of more than 1024 keys/,
    ],
  ];
  for (const [what, bytes, message] of costly)
    it(`a list within its bytes that would hold up its reader is refused: ${what}`, () => {
      const given = bytes();
      assert.ok(given.length < 1_048_576);
      assert.throws(() => parseKrl(given), refusedWith('MALFORMED', 'ssh-form', message));
    });

  it('takes as many serials and fingerprints as its bytes hold, and an authority before each of its sections', () => {
    const serials = many(100_000, (at) => u64(BigInt(at) + 1n));
    assert.equal(findRevocation(parseKrl(list(certificates(section(0x20, serials)))), of(ca, 100_000n)), 'serial');
    const keys = many(20_000, (at) => text(Buffer.concat([Buffer.alloc(28), u32(at)])));
    assert.equal(parseKrl(list(section(5, keys))).keys.size, 20_000);
    const again = many(4_000, (at) => certificates(section(0x20, u64(BigInt(at) + 1n))));
    assert.equal(findRevocation(parseKrl(list(again)), of(ca, 4_000n)), 'serial');
  });

  it('any bytes are a list or a refusal that names the field', () => {
    const { bytes } = createKrl(content({ certificates: [{ authority: ca, serials: [1n, 5n, 6n], keyIds: ['a'] }], keys: [otherCa] }));
    const changed = fc
      .tuple(fc.nat(bytes.length - 1), fc.nat(255))
      .map(([at, value]) => Uint8Array.from(bytes, (octet, i) => (i === at ? value : octet)));
    fc.assert(
      fc.property(
        fc.oneof(
          changed,
          fc.uint8Array({ maxLength: 200 }),
          fc.nat(bytes.length).map((end) => bytes.subarray(0, end)),
        ),
        (given) => {
          try {
            parseKrl(given);
          } catch (error) {
            const { code, details } = error as { code: string; details: Record<string, unknown> };
            assert.ok(['MALFORMED', 'UNSUPPORTED'].includes(code), String(error));
            assert.equal(typeof details['field'], 'string');
          }
        },
      ),
      { numRuns: 1_000 },
    );
  });

  it('keeps certificates as they were read', () => {
    assert.throws(() => parseSshCertificateLine(user.line), refusedWith('UNSUPPORTED', 'ssh-kind', /^certificate.type is "ssh-ed25519"/));
  });
});
