import assert from 'node:assert/strict';
import { sign } from 'node:crypto';
import fc from 'fast-check';
import {
  assertSoundCertificate,
  forever,
  parseSshCertificate,
  parseSshCertificateLine,
  parseSshKeyLine,
  type SshCertificate,
} from '../../../pki/ssh/index.ts';
import { refusedWith } from '../x509/authorities.ts';
import { describeVectors, hasVectors, listVectors, readVectors } from '../x509/vectors.ts';
import { createPair, user } from './support.ts';

const authority = createPair();
const p256 = createPair('p256');

const u32 = (value: number): Buffer => Buffer.of(value >>> 24, value >>> 16, value >>> 8, value);
const u64 = (value: bigint): Buffer => {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64BE(value);
  return bytes;
};
const text = (value: string | Uint8Array): Buffer => Buffer.concat([u32(Buffer.from(value).length), Buffer.from(value)]);
const option = (name: string, ...data: (string | Uint8Array)[]): Buffer => Buffer.concat([text(name), text(Buffer.concat(data.map(text)))]);

interface Parts {
  readonly type: Buffer;
  readonly nonce: Buffer;
  readonly key: Buffer;
  readonly serial: Buffer;
  readonly kind: Buffer;
  readonly keyId: Buffer;
  readonly principals: Buffer;
  readonly after: Buffer;
  readonly before: Buffer;
  readonly critical: Buffer;
  readonly extensions: Buffer;
  readonly reserved: Buffer;
  readonly ca: Buffer;
}

const good: Parts = {
  type: text('ssh-ed25519-cert-v01@openssh.com'),
  nonce: text(Buffer.alloc(32, 1)),
  key: text(parseSshKeyLine(user.line).blob.subarray(-32)),
  serial: u64(2n ** 53n + 1n),
  kind: u32(1),
  keyId: text('ada'),
  principals: text(text('root@n1')),
  after: u64(0n),
  before: u64(forever),
  critical: text(''),
  extensions: text(Buffer.concat([option('permit-X11-forwarding'), option('permit-pty')])),
  reserved: text(''),
  ca: text(parseSshKeyLine(authority.line).blob),
};

/** A certificate of these parts, properly signed. */
const built = (change: Partial<Parts> = {}, trailing = Buffer.alloc(0)): Buffer => {
  const body = Buffer.concat(Object.values({ ...good, ...change }));
  return Buffer.concat([body, text(Buffer.concat([text('ssh-ed25519'), text(sign(null, body, authority.privateKey))])), trailing]);
};

describe('pki/ssh certificates', () => {
  it('reads every field, 64-bit numbers as they are', () => {
    const certificate = parseSshCertificate(built());
    assertSoundCertificate(certificate);
    const { serial, kind, keyId, principals, validAfter, validBefore, extensions } = certificate;
    assert.deepEqual(
      { serial, kind, keyId, principals, validAfter, validBefore, extensions: [...extensions] },
      {
        serial: 9007199254740993n,
        kind: 'user',
        keyId: 'ada',
        principals: ['root@n1'],
        validAfter: 0n,
        validBefore: 18446744073709551615n,
        extensions: [
          ['permit-X11-forwarding', null],
          ['permit-pty', null],
        ],
      },
    );
  });

  const bad: ReadonlyArray<readonly [name: string, change: Partial<Parts>, code: string, message: RegExp]> = [
    [
      'an unknown type',
      { type: text('ssh-dss-cert-v01@openssh.com') },
      'UNSUPPORTED',
      /^certificate.type is "ssh-dss-cert-v01@openssh.com"/,
    ],
    ['a short nonce', { nonce: text(Buffer.alloc(15)) }, 'MALFORMED', /^certificate.nonce has 15 bytes, not 16 to 64$/],
    ['a long nonce', { nonce: text(Buffer.alloc(65)) }, 'MALFORMED', /^certificate.nonce has 65 bytes/],
    ['a short key', { key: text(Buffer.alloc(31)) }, 'MALFORMED', /^key has 31 bytes, not 32$/],
    ['another kind', { kind: u32(3) }, 'MALFORMED', /^certificate.kind is neither user nor host$/],
    ['a key id of two lines', { keyId: text('ada\nroot') }, 'MALFORMED', /^certificate.key_id holds a control character$/],
    ['a key id that is not UTF-8', { keyId: text(Buffer.of(0xc3)) }, 'MALFORMED', /^certificate.key_id is not UTF-8$/],
    ['a long key id', { keyId: text('a'.repeat(257)) }, 'MALFORMED', /^certificate.key_id has more than 256 bytes$/],
    [
      'an empty principal',
      { principals: text(text('')) },
      'MALFORMED',
      /^certificate.principals has a name that is empty or stands twice$/,
    ],
    ['a principal twice', { principals: text(Buffer.concat([text('a'), text('a')])) }, 'MALFORMED', /or stands twice$/],
    ['a principal of two lines', { principals: text(text('a\nb')) }, 'MALFORMED', /^certificate.principals holds a control character$/],
    ['half a principal', { principals: text(u32(5)) }, 'MALFORMED', /^certificate.principals.name is cut short$/],
    [
      'too many principals',
      { principals: text(Buffer.concat(Array.from({ length: 65 }, (_, i) => text(`p${i}`)))) },
      'MALFORMED',
      /has more than 64 names$/,
    ],
    [
      'an end before its beginning',
      { after: u64(5n), before: u64(5n) },
      'MALFORMED',
      /^certificate.valid_before is not after valid_after$/,
    ],
    [
      'extensions out of order',
      { extensions: text(Buffer.concat([option('permit-pty'), option('permit-X11-forwarding')])) },
      'MALFORMED',
      /^certificate.extensions is not in order, or names one twice$/,
    ],
    [
      'an extension twice',
      { extensions: text(Buffer.concat([option('permit-pty'), option('permit-pty')])) },
      'MALFORMED',
      /names one twice$/,
    ],
    [
      'a flag with data',
      { extensions: text(option('permit-pty', 'x')) },
      'MALFORMED',
      /^certificate.extensions.permit-pty is a flag and has data$/,
    ],
    [
      'a command without its second wrapping',
      { critical: text(Buffer.concat([text('force-command'), text('id')])) },
      'MALFORMED',
      /^certificate.critical_options.force-command.value is cut short$/,
    ],
    [
      'a command and more',
      { critical: text(option('force-command', 'id', 'more')) },
      'MALFORMED',
      /^certificate.critical_options.force-command has \d+ bytes left over$/,
    ],
    [
      'a command of two lines',
      { critical: text(option('force-command', 'id\nid')) },
      'MALFORMED',
      /force-command holds a control character$/,
    ],
    [
      'a source address that is none',
      { critical: text(option('source-address', 'xxxxx')) },
      'MALFORMED',
      /^certificate.critical_options.source-address is no list of addresses$/,
    ],
    ['a reserved field that is used', { reserved: text('x') }, 'MALFORMED', /^certificate.reserved is not empty$/],
    [
      'a certificate as its authority',
      { ca: text(text('ssh-ed25519-cert-v01@openssh.com')) },
      'UNSUPPORTED',
      /^certificate.signature_key.type is "ssh-ed25519-cert/,
    ],
    [
      'an authority key and more',
      { ca: text(Buffer.concat([parseSshKeyLine(authority.line).blob, Buffer.of(0)])) },
      'MALFORMED',
      /^certificate.signature_key has 1 bytes left over$/,
    ],
  ];
  for (const [name, change, code, message] of bad)
    it(`refuses a certificate with ${name}, however well it is signed`, () => {
      assert.throws(() => parseSshCertificate(built(change)), refusedWith(code, code === 'MALFORMED' ? 'ssh-form' : 'ssh-kind', message));
    });

  const unsound: ReadonlyArray<readonly [name: string, change: Partial<Parts>, code: string, reason: string, message: RegExp]> = [
    ['nobody named', { principals: text('') }, 'PERMISSION_DENIED', 'no-principals', /names nobody$/],
    [
      'a critical option that nobody enforces',
      { critical: text(option('blah@example.com')) },
      'UNSUPPORTED',
      'ssh-kind',
      /^certificate.critical_options has "blah@example.com", which is not known$/,
    ],
    [
      'a pattern for a host',
      { kind: u32(2), principals: text(text('*.example.com')), extensions: text('') },
      'PERMISSION_DENIED',
      'host-name',
      /is for "\*\.example\.com", which is no plain name$/,
    ],
    [
      'options for a host',
      { kind: u32(2), principals: text(text('n1')) },
      'PERMISSION_DENIED',
      'host-options',
      /^host certificate \d+ has options$/,
    ],
    [
      'another authority named than signed',
      { ca: text(parseSshKeyLine(createPair().line).blob) },
      'BAD_SIGNATURE',
      'bad-signature',
      /is not signed by the authority it names$/,
    ],
    [
      'a P-256 authority and an Ed25519 signature',
      { ca: text(parseSshKeyLine(p256.line).blob) },
      'MALFORMED',
      'ssh-form',
      /^signature.type is not ecdsa-sha2-nistp256, the kind of its key$/,
    ],
  ];
  for (const [name, change, code, reason, message] of unsound)
    it(`a certificate with ${name} is not sound`, () => {
      const certificate = parseSshCertificate(built(change));
      assert.throws(() => assertSoundCertificate(certificate), refusedWith(code, reason, message));
    });

  it('refuses bytes after its end, and more than 16 KiB', () => {
    assert.throws(
      () => parseSshCertificate(built({}, Buffer.of(0))),
      refusedWith('MALFORMED', 'ssh-form', /^certificate has 1 bytes left over$/),
    );
    assert.throws(
      () => parseSshCertificate(Buffer.alloc(16_385)),
      refusedWith('MALFORMED', 'ssh-form', /^certificate has more than 16384 bytes$/),
    );
  });

  it('a line is one line, and says what it holds', () => {
    const line = `ssh-ed25519-cert-v01@openssh.com ${built().toString('base64')} ada`;
    assert.equal(parseSshCertificateLine(`${line}\n`).comment, 'ada');
    const lines: ReadonlyArray<readonly [string, RegExp]> = [
      [`${line}\n\n`, /is not one line$/],
      [`${line}\n${line}`, /is not one line$/],
      [line.replace('ssh-ed25519-cert', 'ssh-rsa-cert'), /says "ssh-rsa-cert-v01@openssh.com" and holds ssh-ed25519-cert-v01@openssh.com$/],
      [line.replace(' ', '\t'), /is not one line$/],
      [`${line.split(' ').slice(0, 2).join(' ')}=`, /is not `type base64 comment`$/],
      ['', /is not `type base64 comment`$/],
    ];
    for (const [given, message] of lines)
      assert.throws(() => parseSshCertificateLine(given), refusedWith('MALFORMED', 'ssh-form', message));
  });

  it('no byte of it can be another', () => {
    const bytes = built();
    for (let at = 0; at < bytes.length; at++)
      assert.throws(
        () => assertSoundCertificate(parseSshCertificate(Uint8Array.from(bytes, (octet, i) => (i === at ? octet ^ 1 : octet)))),
        `byte ${at}`,
      );
  }).timeout(30_000);

  it('any bytes are a certificate or a refusal that names the field', () => {
    const bytes = built();
    const changed = fc
      .tuple(fc.nat(bytes.length - 1), fc.nat(255))
      .map(([at, value]) => Uint8Array.from(bytes, (octet, i) => (i === at ? value : octet)));
    fc.assert(
      fc.property(
        fc.oneof(
          changed,
          fc.uint8Array({ maxLength: 300 }),
          fc.nat(bytes.length - 1).map((end) => bytes.subarray(0, end)),
        ),
        (given) => {
          try {
            parseSshCertificate(given);
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
});

/** What `ssh-keygen -L` prints of a certificate, from our fields. */
const listingOf = (certificate: SshCertificate): string => {
  const instant = (seconds: bigint): string => new Date(Number(seconds) * 1_000).toISOString().slice(0, 19);
  const { validAfter, validBefore } = certificate;
  const valid = validAfter === 0n && validBefore === forever ? 'forever' : `from ${instant(validAfter)} to ${instant(validBefore)}`;
  return [
    certificate.type,
    certificate.kind,
    `"${certificate.keyId}"`,
    String(certificate.serial),
    valid,
    certificate.principals.join(' ') || '(none)',
  ].join(' | ');
};

const readListing = (listing: string): ReadonlyMap<string, string> =>
  new Map(
    listing
      .split(/^## /m)
      .slice(1)
      .map((entry) => {
        const [name = ''] = entry.split('\n');
        const field = (pattern: RegExp): string => pattern.exec(entry)?.[1] ?? '?';
        const principals = /Principals: (.*)\n((?: {16}.*\n)*)/.exec(entry);
        const names = principals?.[1] === '(none)' ? '(none)' : (principals?.[2] ?? '').trim().split(/\s+/).join(' ');
        const type = / {8}Type: (\S+) (user|host) certificate/.exec(entry);
        return [name.trim(), [type?.[1], type?.[2], field(/Key ID: (.*)/), field(/Serial: (.*)/), field(/Valid: (.*)/), names].join(' | ')];
      }),
  );

describeVectors('pki/ssh certificates that OpenSSH made', ['generated-ssh', 'LISTING.txt'], () => {
  it('have the fields that ssh-keygen lists', () => {
    const listed = readListing(readVectors('generated-ssh', 'LISTING.txt').toString('utf8'));
    const names = listVectors('generated-ssh', /\.cert$/).filter((name) => listed.has(name) && hasVectors('generated-ssh', name));
    assert.ok(names.length >= 10, `${names.length} listed`);
    for (const name of names)
      assert.equal(listingOf(parseSshCertificateLine(readVectors('generated-ssh', name).toString('utf8'))), listed.get(name), name);
  });
});
