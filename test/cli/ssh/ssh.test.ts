/** `better-compute ssh sign|krl`: exact output, files, and two tables of flags for each. */
import assert from 'node:assert/strict';
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { runCli } from '../../../cli/program.ts';
import { showInstant } from '../../../domain/time.ts';
import { parseKrl, parseSshCertificateLine, parseSshKeyLine, sshFingerprint, verifySshCertificate } from '../../../pki/ssh/index.ts';
import { useDatabase } from '../../harness/postgres.ts';
import { createPair } from '../../pki/ssh/support.ts';
import { trustDomain } from '../../pki/support.ts';
import { addNode } from '../../services/support.ts';
import { type Bench, createBench, flagsOf } from '../pki/harness.ts';
import { createTestIo } from '../support.ts';

describe('better-compute ssh', () => {
  const used = useDatabase();
  let bench: Bench;
  const pair = createPair('ed25519', 'ada@laptop');
  const clock = createTestIo().now();
  before(async () => {
    bench = createBench();
    assert.equal((await bench.run('pki', 'init', '--trust-domain', trustDomain)).exitCode, 0);
    file('ada.pub', `${pair.line}\n`);
    bench.env['BETTER_COMPUTE_DATABASE_URL'] = used.url;
    await addNode(used.db, 'node-17');
    await addNode(used.db, 'n');
  });
  after(() => bench.close());
  const file = (name: string, content: string | Uint8Array): string => {
    writeFileSync(bench.path(name), content);
    return bench.path(name);
  };
  const run = async (...argv: string[]): Promise<{ exitCode: number; out: string; err: string }> => {
    const io = createTestIo({ env: bench.env });
    const exitCode = await runCli(argv, io);
    return { exitCode, out: io.stdout(), err: io.stderr() };
  };
  const sign = (...flags: string[]) => run('ssh', 'sign', '--key', bench.path('ada.pub'), ...flags);
  const user = ['--account', 'root', '--node', 'node-17'];
  const caOf = (name: 'sshCa' | 'sandboxSshCa') => parseSshKeyLine(bench.bundle()[name]?.publicKey ?? '');

  describe('sign', () => {
    it('SSH-001 SSH-002 SSH-004 prints a certificate for one account on one node, and how to take it back', async () => {
      const { exitCode, out, err } = await sign(...user);
      const certificate = parseSshCertificateLine(out);
      const end = showInstant(clock + 3_600_000);
      assert.equal(exitCode, 0);
      assert.equal(
        err,
        `user certificate ${certificate.serial} for root@node-17, good until ${end}\nto take it back: better-compute ssh revoke ${certificate.serial} --reason "..."\n`,
      );
      verifySshCertificate(certificate, { authorities: [caOf('sshCa')], kind: 'user', principal: 'root@node-17', now: clock });
      assert.equal(certificate.keyId, 'ann');
      assert.equal(certificate.validBefore, BigInt(clock / 1_000 + 3_600));
    });

    it('writes the certificate to a file that only its owner reads, and names it', async () => {
      const path = bench.path('ada-cert.pub');
      const { exitCode, out } = await sign(...user, '--out', path);
      assert.deepEqual([exitCode, out], [0, `${path}\n`]);
      assert.equal(statSync(path).mode & 0o777, 0o600);
      assert.equal(parseSshCertificateLine(readFileSync(path, 'utf8')).principals[0], 'root@node-17');
    });

    it('tells everything as JSON', async () => {
      const { exitCode, out, err } = await sign(...user, '--json', '--for', '15m', '--actor', 'ada', '--reason', 'boot loop');
      const { certificate, ...facts } = JSON.parse(out) as Record<string, string>;
      const { serial } = parseSshCertificateLine(certificate ?? '');
      assert.deepEqual(facts, {
        kind: 'user',
        principals: ['root@node-17'],
        keyId: 'ada: boot loop',
        serial: String(serial),
        validBefore: showInstant(clock + 900_000),
        publicKey: sshFingerprint(parseSshKeyLine(pair.line).blob),
      });
      assert.deepEqual([exitCode, err], [0, '']);
    });

    it('SBX-019 SBX-020 certifies hosts, by either authority, without options', async () => {
      for (const [ca, name] of [
        ['break-glass', 'sshCa'],
        ['sandbox', 'sandboxSshCa'],
      ] as const) {
        const { exitCode, out, err } = await sign('--host', 'node-17', 'node-17.example.com', '--ca', ca);
        const certificate = parseSshCertificateLine(out);
        assert.equal(exitCode, 0);
        assert.equal(
          err,
          `host certificate ${certificate.serial} for node-17, node-17.example.com, good until ${showInstant(clock + 30 * 86_400_000)}\n`,
        );
        verifySshCertificate(certificate, { authorities: [caOf(name)], kind: 'host', principal: 'node-17', now: clock });
        assert.deepEqual([certificate.criticalOptions.size, certificate.extensions.size], [0, 0]);
      }
    });

    it('has these flags', async () => {
      const flags = '--key --account --node --host --ca --for --command --source --reason --actor --out --pki';
      assert.equal(flagsOf((await run('ssh', 'sign', '--help')).out).join(' '), flags);
    });

    const good: ReadonlyArray<
      readonly [name: string, flags: readonly string[], check: (certificate: ReturnType<typeof parseSshCertificateLine>) => void]
    > = [
      ['an hour', [...user, '--for', '1h'], ({ validBefore }) => assert.equal(validBefore, BigInt(clock / 1_000 + 3_600))],
      ['a second', [...user, '--for', '1s'], ({ validBefore }) => assert.equal(validBefore, BigInt(clock / 1_000 + 1))],
      [
        'a command',
        [...user, '--command', 'journalctl -b'],
        ({ criticalOptions }) => assert.equal(criticalOptions.get('force-command'), 'journalctl -b'),
      ],
      [
        'sources',
        [...user, '--source', '10.0.0.0/8', '::1'],
        ({ criticalOptions }) => assert.equal(criticalOptions.get('source-address'), '10.0.0.0/8,::1'),
      ],
      [
        'a week for a host',
        ['--host', 'h', '--for', '7d'],
        ({ validBefore }) => assert.equal(validBefore, BigInt(clock / 1_000 + 7 * 86_400)),
      ],
    ];
    for (const [name, flags, check] of good)
      it(`takes ${name}`, async () => {
        const { exitCode, out, err } = await sign(...flags);
        assert.equal(exitCode, 0, err);
        check(parseSshCertificateLine(out));
      });

    const bad: ReadonlyArray<readonly [name: string, argv: () => readonly string[], exitCode: number, err: RegExp]> = [
      ['no key', () => ['ssh', 'sign', ...user], 2, /^error: required option '--key <file>' not specified/],
      [
        'neither kind',
        () => ['ssh', 'sign', '--key', bench.path('ada.pub')],
        2,
        /^error: a user certificate needs --account and --node\nhint: or name --host for a host certificate\n$/,
      ],
      [
        'half a user',
        () => ['ssh', 'sign', '--key', bench.path('ada.pub'), '--account', 'root'],
        2,
        /^error: a user certificate needs --account and --node/,
      ],
      [
        'both kinds',
        () => ['ssh', 'sign', '--key', bench.path('ada.pub'), '--host', 'h', '--account', 'root'],
        2,
        /^error: --account is for a user certificate, and --host asks for a host's\n/,
      ],
      [
        'a command for a host',
        () => ['ssh', 'sign', '--key', bench.path('ada.pub'), '--host', 'h', '--command', 'id'],
        2,
        /^error: --command is for a user certificate/,
      ],
      [
        'SBX-001 a user by the sandbox authority',
        () => ['ssh', 'sign', '--key', bench.path('ada.pub'), ...user, '--ca', 'sandbox'],
        2,
        /^error: the sandbox authority certifies users in sandboxes only, never here\n/,
      ],
      [
        'another authority',
        () => ['ssh', 'sign', '--key', bench.path('ada.pub'), '--host', 'h', '--ca', 'root'],
        2,
        /argument 'root' is invalid\. Allowed choices are break-glass, sandbox/,
      ],
      [
        'more than an hour',
        () => ['ssh', 'sign', '--key', bench.path('ada.pub'), ...user, '--for', '61m'],
        2,
        /^error: --for must be 1s to 1h for a user certificate\n/,
      ],
      [
        'less than a second',
        () => ['ssh', 'sign', '--key', bench.path('ada.pub'), ...user, '--for', '999ms'],
        2,
        /^error: --for must be 1s to 1h/,
      ],
      [
        'SBX-022 more than 30 days',
        () => ['ssh', 'sign', '--key', bench.path('ada.pub'), '--host', 'h', '--for', '31d'],
        2,
        /^error: --for must be 1s to 30d for a host certificate\n/,
      ],
      [
        'a time without a unit',
        () => ['ssh', 'sign', '--key', bench.path('ada.pub'), ...user, '--for', '15'],
        2,
        /It must be a number with a unit/,
      ],
      [
        'a list of accounts',
        () => ['ssh', 'sign', '--key', bench.path('ada.pub'), '--account', 'root,ada', '--node', 'n'],
        2,
        /^error: account "root,ada" is no account name\n/,
      ],
      [
        'SBX-021 a pattern for a host',
        () => ['ssh', 'sign', '--key', bench.path('ada.pub'), '--host', '*.example.com'],
        2,
        /^error: principals "\*\.example\.com" is no plain name/,
      ],
      [
        'a source that is no address',
        () => ['ssh', 'sign', '--key', bench.path('ada.pub'), ...user, '--source', 'example.com'],
        2,
        /^error: sourceAddresses are not addresses or networks\n/,
      ],
      [
        'a long reason',
        () => ['ssh', 'sign', '--key', bench.path('ada.pub'), ...user, '--reason', 'x'.repeat(201)],
        2,
        /It must be one line of 1 to 200 characters/,
      ],
      [
        'a file that is not there',
        () => ['ssh', 'sign', '--key', bench.path('none.pub'), ...user],
        5,
        /^error: there is no file .*none\.pub\nhint: name a file such as ~\/\.ssh\/id_ed25519\.pub\n$/,
      ],
      [
        'a private key',
        () => ['ssh', 'sign', '--key', file('private', '-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n'), ...user],
        2,
        /^error: .*private holds a private key\nhint: name the public half, the file that ends in \.pub\n$/,
      ],
      [
        'two keys in one file',
        () => ['ssh', 'sign', '--key', file('two.pub', `${pair.line}\n${pair.line}\n`), ...user],
        2,
        /^error: .*two\.pub: key is not one line\n/,
      ],
      [
        'a certificate as a key',
        () => ['ssh', 'sign', '--key', file('c.pub', 'ssh-ed25519-cert-v01@openssh.com AAAA\n'), ...user],
        2,
        /^error: .*c\.pub: key\.type is cut short\n/,
      ],
      [
        'no bundle',
        () => ['ssh', 'sign', '--key', bench.path('ada.pub'), ...user, '--pki', bench.path('none.json')],
        5,
        /^error: there is no key bundle at /,
      ],
      [
        'an unknown flag',
        () => ['ssh', 'sign', '--key', bench.path('ada.pub'), ...user, '--principal', 'x'],
        2,
        /^error: unknown option '--principal'/,
      ],
    ];
    for (const [name, argv, code, err] of bad)
      it(`refuses ${name}`, async () => {
        const refused = await run(...argv());
        assert.match(refused.err, err);
        assert.deepEqual([refused.exitCode, refused.out], [code, '']);
      });

    it('never says anything of a private key', async () => {
      const secret = bench.bundle().sshCa?.privateKey.export({ format: 'jwk' }).d ?? '';
      assert.ok(secret.length > 40);
      for (const flags of [user, [...user, '--json'], ['--host', 'h']]) {
        const { out, err } = await sign(...flags);
        assert.equal(`${out}${err}`.includes(secret), false);
      }
    });
  });

  describe('krl', () => {
    it('makes a list, adds to it, and answers from it', async () => {
      const list = bench.path('revoked.krl');
      const cert = bench.path('to-revoke-cert.pub');
      await sign(...user, '--out', cert);
      const { serial } = parseSshCertificateLine(readFileSync(cert, 'utf8'));
      const made = showInstant(clock);
      assert.deepEqual(await run('ssh', 'krl', list, '--serial', '4711', '100-199', '--comment', 'ours'), {
        exitCode: 0,
        out: `${list}: version 1, made ${made}, ours\n`,
        err: 'sshd reads it at the next login, where RevokedKeys names it\n',
      });
      assert.deepEqual(await run('ssh', 'krl', list, '--check', cert), { exitCode: 0, out: `${cert}: not revoked\n`, err: '' });
      assert.deepEqual(await run('ssh', 'krl', list, '--serial', String(serial), '--json'), {
        exitCode: 0,
        out: `${JSON.stringify({ file: list, version: '2', generatedAt: made, comment: 'ours' }, null, 2)}\n`,
        err: 'sshd reads it at the next login, where RevokedKeys names it\n',
      });
      assert.deepEqual(await run('ssh', 'krl', list, '--check', cert), { exitCode: 6, out: `${cert}: revoked (serial)\n`, err: '' });
      assert.deepEqual(await run('ssh', 'krl', list, '--check', cert, '--json'), {
        exitCode: 6,
        out: `${JSON.stringify({ file: cert, revoked: true, by: 'serial' }, null, 2)}\n`,
        err: '',
      });
      assert.deepEqual(await run('ssh', 'krl', list), { exitCode: 0, out: `${list}: version 2, made ${made}, ours\n`, err: '' });
      assert.ok(parseKrl(readFileSync(list)).certificates.length >= 1);
    });

    it('revokes by key, and by key id', async () => {
      const list = bench.path('keys.krl');
      const cert = bench.path('mallory-cert.pub');
      await sign(...user, '--actor', 'mallory', '--out', cert);
      await run('ssh', 'krl', list, '--key-id', 'mallory');
      assert.equal((await run('ssh', 'krl', list, '--check', cert)).out, `${cert}: revoked (key-id)\n`);
      assert.equal((await run('ssh', 'krl', list, '--check', bench.path('ada.pub'))).out, `${bench.path('ada.pub')}: not revoked\n`);
      await run('ssh', 'krl', list, '--key', bench.path('ada.pub'));
      assert.equal((await run('ssh', 'krl', list, '--check', bench.path('ada.pub'))).out, `${bench.path('ada.pub')}: revoked (key)\n`);
      assert.equal((await run('ssh', 'krl', list, '--check', cert)).out, `${cert}: revoked (key)\n`);
    });

    it('has these flags', async () => {
      assert.deepEqual(flagsOf((await run('ssh', 'krl', '--help')).out), [
        '--serial',
        '--key-id',
        '--key',
        '--comment',
        '--check',
        '--pki',
      ]);
    });

    const bad: ReadonlyArray<readonly [name: string, argv: () => readonly string[], exitCode: number, err: RegExp]> = [
      ['no file', () => ['ssh', 'krl'], 2, /^error: missing required argument 'file'/],
      [
        'a list that is not there',
        () => ['ssh', 'krl', bench.path('none.krl')],
        5,
        /^error: there is no list .*none\.krl\nhint: name --serial, --key-id or --key, and it is made\n$/,
      ],
      [
        'to ask a list that is not there',
        () => ['ssh', 'krl', bench.path('none.krl'), '--check', bench.path('ada.pub')],
        5,
        /^error: there is no list /,
      ],
      [
        'serial zero',
        () => ['ssh', 'krl', bench.path('none.krl'), '--serial', '0'],
        2,
        /argument '0' is invalid\. It must be a serial, or a range of at most 10000 such as 100-199/,
      ],
      [
        'a serial that is too large',
        () => ['ssh', 'krl', bench.path('none.krl'), '--serial', '18446744073709551616'],
        2,
        /It must be a serial/,
      ],
      ['a range backwards', () => ['ssh', 'krl', bench.path('none.krl'), '--serial', '9-3'], 2, /It must be a serial/],
      ['a range of everything', () => ['ssh', 'krl', bench.path('none.krl'), '--serial', '1-99999'], 2, /a range of at most 10000/],
      ['words for a serial', () => ['ssh', 'krl', bench.path('none.krl'), '--serial', '0x10'], 2, /It must be a serial/],
      [
        'a key id of two lines',
        () => ['ssh', 'krl', bench.path('none.krl'), '--key-id', 'a\nb'],
        2,
        /^error: keyIds holds one that is not a line of 1 to 256 bytes\n/,
      ],
      [
        'a key that is none',
        () => ['ssh', 'krl', bench.path('none.krl'), '--key', file('bad.pub', 'ssh-ed25519 AAAA\n')],
        2,
        /^error: .*bad\.pub: key\.type is cut short\n/,
      ],
      [
        'a comment alone',
        () => ['ssh', 'krl', bench.path('none.krl'), '--comment', 'x'],
        2,
        /^error: --comment comes with what is revoked\n/,
      ],
      [
        'to ask and to change',
        () => ['ssh', 'krl', bench.path('none.krl'), '--serial', '1', '--check', bench.path('ada.pub')],
        2,
        /^error: --check asks, and the other flags change the list\n/,
      ],
      [
        'a file that is no list',
        () => ['ssh', 'krl', file('no.krl', 'ssh-ed25519 AAAA\n'), '--serial', '1'],
        2,
        /^error: .*no\.krl: krl\.magic is not that of a revocation list\n/,
      ],
      ['a folder', () => ['ssh', 'krl', bench.folder, '--serial', '1'], 2, /^error: .* cannot be read \(EISDIR\)\n/],
    ];
    for (const [name, argv, code, err] of bad)
      it(`refuses ${name}, and writes nothing`, async () => {
        const refused = await run(...argv());
        assert.match(refused.err, err);
        assert.deepEqual([refused.exitCode, refused.out], [code, '']);
        assert.equal(existsSync(join(bench.folder, 'none.krl')), false);
      });
  });
});
