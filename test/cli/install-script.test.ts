import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { createHash, generateKeyPairSync } from 'node:crypto';
import { chmodSync, existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { type InstallScriptOptions, installScriptRun, newInstallScript } from '../../cli/commands/daemon/install-script.ts';
import { installScript } from '../../cli/commands/daemon/script.ts';
import { toExit } from '../../cli/exit.ts';
import { readReleaseKeys } from '../../daemon/upgrade/release-keys.ts';
import { describePins, encodeBundle, type PkiBundle, readPublicBundle } from '../../pki/bundle/index.ts';
import { encodePem } from '../../pki/bundle/pem.ts';
import { encodePinsFile, parsePinsFile } from '../../pki/enroll/index.ts';
import { decodeMessage, JoinRequestSchema } from '../../proto/index.ts';
import { shellQuoted } from '../../runtime/shell.ts';
import { systemdUnit } from '../../runtime/systemd-unit.ts';
import { grantJoin } from '../daemon/join-stage.ts';
import { createDeployment, joinBundleOf } from '../harness/deployment.ts';
import { startFakeGateway } from '../harness/fake-gateway.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { edited, secret, sharedBundle, trustDomain } from '../pki/support.ts';
import { createTestIo, createTestPorts, parseWith, type TestIo } from './support.ts';

const gateway = 'https://gw.eu-1.compute.example.com';
const root = new URL('../../', import.meta.url).pathname;
const loader = pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href;
const has = (program: string): boolean => spawnSync(program, ['--version']).status === 0;

describe('better-compute daemon install-script', () => {
  let home: string;
  let bundle: PkiBundle;
  before(async () => {
    bundle = await sharedBundle();
    home = scratchFolder();
    writeFileSync(join(home, 'pki.json'), encodeBundle(bundle, { secret }));
  });
  after(removeScratchFolders);

  interface Ran {
    readonly exitCode: number;
    readonly io: TestIo;
    readonly lines: readonly string[];
  }
  const run = async (argv: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<Ran> => {
    const io = createTestIo({ env: { BETTER_COMPUTE_HOME: home, BETTER_COMPUTE_SECRET: secret, ...env } });
    const options = await parseWith<InstallScriptOptions>(newInstallScript, [
      '--gateway',
      gateway,
      ...argv.filter((word) => word !== '--json'),
    ]);
    try {
      await installScriptRun({ ...options, json: argv.includes('--json') }, createTestPorts(io));
      return { exitCode: 0, io, lines: [] };
    } catch (error) {
      const { exitCode, lines } = toExit(error);
      return { exitCode, io, lines };
    }
  };
  const pinsIn = (script: string) => parsePinsFile(/<<'END_OF_PINS'\n(.*\n)END_OF_PINS\n/s.exec(script)?.[1] ?? '');

  it('CLI-020 writes the serving CA pin and the JoinService pin and key into the machine’s configuration', async () => {
    const { io } = await run([]);
    const pins = pinsIn(io.stdout());
    const shown = describePins(readPublicBundle(readFileSync(join(home, 'pki.json'), 'utf8')), true);
    assert.deepEqual(
      [pins.trustDomain, pins.gateway, pins.servingCaPin, Buffer.from(pins.joinKey).toString('base64')],
      [trustDomain, gateway, shown.servingCaPin, shown.joinSigningKey],
    );
    assert.ok(io.stdout().includes(`"joinSigningPin": "${shown.joinSigningPin}"`));
    const digest = createHash('sha256').update(io.stdout()).digest('hex');
    assert.equal(
      io.stderr(),
      `SHA-256 of the script: ${digest}; on the machine: sh install.sh @FILE with a token from better-compute tokens create\n`,
    );
  });

  it('CLI-020 into a file, whole, with its checksum; in JSON the same facts', async () => {
    const out = join(home, 'install.sh');
    const written = await run(['--out', out]);
    const digest = createHash('sha256').update(readFileSync(out)).digest('hex');
    assert.equal(written.io.stdout(), `out: ${out}\nsha256: ${digest}\n`);
    const { script, ...facts } = (await run(['--json'])).io.json() as { script: string; sha256: string; authenticated: boolean };
    assert.deepEqual([script, facts.sha256, facts.authenticated], [readFileSync(out, 'utf8'), digest, true]);
  });

  it('CLI-017 reads the bundle as pki show does: refused when it was changed, with a warning without the secret', async () => {
    const other = join(home, 'edited.json');
    writeFileSync(
      other,
      edited(encodeBundle(bundle, { secret }), (document) => document.generation++),
    );
    const changed = await run(['--pki', other]);
    assert.deepEqual([changed.exitCode, changed.io.stdout()], [3, '']);
    assert.match(changed.lines[0] ?? '', /was changed without the secret: restore it from a backup$/);
    const unchecked = await run(['--pki', other], { BETTER_COMPUTE_SECRET: '' });
    assert.equal(unchecked.exitCode, 0);
    assert.match(unchecked.io.stderr(), /^warning: nothing vouches for these pins: whoever can write .*edited\.json chooses them/);
  });

  it('SKEW-016 SKEW-017 pins release keys on request, and lets the unit replace the program then; without, neither', async () => {
    const keys = [generateKeyPairSync('ec', { namedCurve: 'P-256' }), generateKeyPairSync('ec', { namedCurve: 'P-256' })];
    const files = keys.map(({ publicKey }, n) => {
      const file = join(scratchFolder(), `release-${n}.pub`);
      writeFileSync(file, publicKey.export({ type: 'spki', format: 'pem' }));
      return file;
    });
    const pinning = (await run(['--bcd', '/usr/local/bin/bcd', '--release-key', ...files])).io.stdout();
    const written = join(scratchFolder(), 'release-keys.pem');
    writeFileSync(written, /<<'END_OF_KEYS'\n(.*\n)END_OF_KEYS\n/s.exec(pinning)?.[1] ?? '');
    assert.deepEqual(
      (await readReleaseKeys(written)).map((key) => Buffer.from(key)),
      keys.map(({ publicKey }) => publicKey.export({ type: 'spki', format: 'der' })),
    );
    assert.match(pinning, /^ExecStart=.* --release-keys \/etc\/better-compute\/release-keys\.pem$/m);
    assert.match(pinning, /^ReadWritePaths=-\/var\/lib\/better-compute\/bcd -\/usr\/local\/bin$/m);
    const without = (await run([])).io.stdout();
    assert.ok(!without.includes('release-keys') && /^ReadWritePaths=-\/var\/lib\/better-compute\/bcd$/m.test(without));
    const secretKey = join(scratchFolder(), 'release.pem');
    writeFileSync(secretKey, String(keys[0]?.privateKey.export({ type: 'pkcs8', format: 'pem' })));
    const refused = await run(['--release-key', secretKey]);
    assert.equal(refused.exitCode, 2);
    assert.match(refused.lines.join('\n'), /^error: .*release\.pem holds no P-256 public key in PEM\nhint: name the \.pub file/);
  });

  it('WS-031 has the unit reach the gateway over a WebSocket on request', async () => {
    const script = (await run(['--websocket-url', 'wss://gw.test:8444'])).io.stdout();
    assert.match(script, /^ExecStart=.* --websocket-url "wss:\/\/gw\.test:8444"$/m);
    assert.ok(!(await run([])).io.stdout().includes('--websocket-url'));
  });

  it('CLI-020 holds no secret', async () => {
    const { io } = await run([]);
    for (const key of [bundle.joinSigning, bundle.nodeCa, bundle.servingCa, bundle.joinEncryption]) {
      const der = key.privateKey?.export({ type: 'pkcs8', format: 'der' }).toString('base64') ?? 'absent';
      assert.ok(!io.stdout().includes(der));
    }
    assert.ok(!io.stdout().includes('PRIVATE KEY') && !io.stdout().includes(secret));
  });

  it('the unit passes systemd-analyze verify (skipped where the command is absent)', function () {
    if (!has('systemd-analyze')) return void this.skip();
    const folder = scratchFolder();
    const dataDir = join(folder, 'data with "marks" and 100%');
    mkdirSync(dataDir);
    const units = { 'bcd.service': '/var/lib/better-compute/bcd', 'bcd-marks.service': dataDir };
    for (const [name, data] of Object.entries(units)) {
      writeFileSync(
        join(folder, name),
        systemdUnit({
          program: '/bin/true',
          dataDir: data,
          trustDomain,
          pins: '/etc/better-compute/pins.json',
          releaseKeys: data === dataDir ? '/etc/better-compute/release-keys.pem' : null,
          websocketUrl: data === dataDir ? 'wss://gw.example:8444' : null,
        }),
      );
      const { status, stderr, stdout } = spawnSync('systemd-analyze', ['verify', '--man=no', join(folder, name)], { encoding: 'utf8' });
      const ours = `${stdout}${stderr}`.split('\n').filter((line) => line.includes('bcd'));
      assert.deepEqual([status, ours], [0, []], stderr);
    }
  });

  it('is a script that every sh reads, whatever stands in its values', () => {
    const nasty = `/opt/it's "$(touch /tmp/never)" \`x\`/bcd`;
    assert.equal(spawnSync('sh', ['-c', `printf %s ${shellQuoted(nasty)}`], { encoding: 'utf8' }).stdout, nasty);
    const text = installScript({
      trustDomain,
      pins: encodePinsFile({
        trustDomain,
        gateway,
        serverName: "gw'$(x)\nEOF",
        servingCaPin: describePins(bundle, true).servingCaPin,
        joinKey: bundle.joinSigning.spki,
      }),
      role: 'node',
      program: nasty,
      dataDir: nasty,
      download: { url: "https://x.test/it's$(x)", sha256: 'a'.repeat(64) },
      releaseKeys: encodePem('PUBLIC KEY', bundle.joinSigning.spki),
      websocketUrl: null,
    });
    const { status, stderr } = spawnSync('sh', ['-n'], { input: text, encoding: 'utf8' });
    assert.deepEqual([status, stderr], [0, '']);
    assert.equal(pinsIn(text).serverName, "gw'$(x)\nEOF");
  });

  describe('on a machine', function () {
    this.timeout(60_000);
    /** The script with its folders moved below `machine`, and tools of this test in front of the system's. */
    const machineOf = (
      script: string,
    ): { folder: string; sh(...argv: string[]): Promise<{ code: number | null; out: string; err: string }> } => {
      const folder = scratchFolder();
      const bin = join(folder, 'bin');
      mkdirSync(bin);
      const tool = (name: string, body: string): void => writeFileSync(join(bin, name), `#!/bin/sh\n${body}\n`, { mode: 0o755 });
      tool('id', 'echo 0');
      tool('systemctl', `echo "systemctl $*" >> ${folder}/systemctl.log`);
      tool('curl', `while [ "$1" != --output ]; do shift; done; cp ${folder}/published "$2"`);
      writeFileSync(
        join(folder, 'install.sh'),
        script
          .replaceAll("'/etc/", `'${folder}/etc/`)
          .replaceAll("'/usr/local/", `'${folder}/usr/`)
          .replaceAll("'/var/", `'${folder}/var/`),
      );
      const sh = (...argv: string[]): Promise<{ code: number | null; out: string; err: string }> =>
        new Promise((resolve) => {
          const env = { ...process.env, PATH: `${bin}:${process.env['PATH'] ?? ''}` };
          const child = spawn('sh', [join(folder, 'install.sh'), ...argv], { env, stdio: ['ignore', 'pipe', 'pipe'] });
          let [out, err] = ['', ''];
          child.stdout.on('data', (chunk) => (out += String(chunk)));
          child.stderr.on('data', (chunk) => (err += String(chunk)));
          child.once('close', (code) => resolve({ code, out, err }));
        });
      return { folder, sh };
    };

    it('CLI-020 XC-049 joins with the token alone, by the pins of the script, and is started then, at boot, and however it ends; a second time it leaves the identity be', async () => {
      const deployment = await createDeployment();
      const fake = await startFakeGateway({
        deployment,
        onJoin: (bytes) => grantJoin(deployment, decodeMessage(JoinRequestSchema, bytes, 'joinRequest')),
      });
      try {
        const { token, ...pins } = joinBundleOf(deployment, fake.url);
        const script = installScript({
          trustDomain: pins.trustDomain,
          pins: encodePinsFile(pins),
          role: 'node',
          program: '/usr/local/bin/bcd',
          dataDir: '/var/lib/bcd',
          download: null,
          releaseKeys: null,
          websocketUrl: null,
        });
        const { folder, sh } = machineOf(script);
        writeFileSync(join(folder, 'token'), token);
        const without = await sh(`@${folder}/token`);
        assert.deepEqual([without.code, /error: there is no program .*\/usr\/bin\/bcd\nhint: /.test(without.err)], [1, true]);
        mkdirSync(join(folder, 'usr/bin'), { recursive: true });
        const program = `#!/bin/sh\nexec ${process.execPath} --import ${loader} ${join(root, 'daemon/main.ts')} "$@"\n`;
        writeFileSync(join(folder, 'usr/bin/bcd'), program, { mode: 0o755 });
        const unjoined = await sh();
        assert.deepEqual([unjoined.code, /error: this machine has not joined yet\n/.test(unjoined.err)], [1, true]);
        const joined = await sh(`@${folder}/token`);
        assert.equal(joined.code, 0, joined.err);
        assert.match(joined.out, /^joined as node node-7 of site site-1 in test\.example\n/);
        assert.equal(
          readFileSync(join(folder, 'systemctl.log'), 'utf8'),
          'systemctl daemon-reload\nsystemctl enable bcd.service\nsystemctl restart bcd.service\n',
        );
        const unit = readFileSync(join(folder, 'etc/systemd/system/bcd.service'), 'utf8').split('\n');
        for (const line of ['Restart=always', 'StartLimitIntervalSec=0', 'WantedBy=multi-user.target'])
          assert.ok(unit.includes(line), line);
        assert.equal(statSync(join(folder, 'etc/better-compute/pins.json')).mode & 0o777, 0o644);
        const before = readFileSync(join(folder, 'var/lib/bcd/identity.json'));
        const again = await sh(`@${folder}/token`);
        assert.deepEqual([again.code, /has joined already: the token is not used/.test(again.err)], [0, true]);
        assert.deepEqual(readFileSync(join(folder, 'var/lib/bcd/identity.json')), before);
      } finally {
        await fake.close();
      }
    });

    it('PIN-005 PIN-006 pins the approver set that it names, where bcd reads it; an upgrade without one keeps it, one with another replaces it', async () => {
      const [first, second] = ['1'.repeat(64), '2'.repeat(64)];
      const { folder, sh } = machineOf((await run(['--approver-set-sha256', first])).io.stdout());
      mkdirSync(join(folder, 'usr/bin'), { recursive: true });
      writeFileSync(join(folder, 'usr/bin/bcd'), '#!/bin/sh\nexit 0\n', { mode: 0o755 });
      const pinsPath = join(folder, 'etc/better-compute/pins.json');
      const pinned = async (script: string | null, ...argv: string[]): Promise<string | undefined> => {
        if (script !== null)
          writeFileSync(
            join(folder, 'install.sh'),
            script
              .replaceAll("'/etc/", `'${folder}/etc/`)
              .replaceAll("'/usr/local/", `'${folder}/usr/`)
              .replaceAll("'/var/", `'${folder}/var/`),
          );
        const { code, err } = await sh(...argv);
        assert.equal(code, 0, err);
        return parsePinsFile(readFileSync(pinsPath, 'utf8')).approverSetSha256;
      };
      assert.equal(await pinned(null, '-'), first);
      const without = (await run([])).io.stdout();
      assert.equal(await pinned(without, '-'), first, 'kept');
      assert.equal(await pinned(without, '-'), first, 'and kept again');
      assert.equal(await pinned((await run(['--approver-set-sha256', second])).io.stdout(), '-'), second);
      assert.match(
        readFileSync(join(folder, 'etc/systemd/system/bcd.service'), 'utf8'),
        /^ExecStart=\/usr\/local\/bin\/bcd run --data-dir \S+ --pins \/etc\/better-compute\/pins\.json$/m,
      );
      const fresh = machineOf(without);
      mkdirSync(join(fresh.folder, 'usr/bin'), { recursive: true });
      writeFileSync(join(fresh.folder, 'usr/bin/bcd'), '#!/bin/sh\nexit 0\n', { mode: 0o755 });
      assert.equal((await fresh.sh('-')).code, 0);
      assert.equal(readFileSync(join(fresh.folder, 'etc/better-compute/pins.json'), 'utf8').includes('approverSet'), false);
    });

    it('CLI-020 takes a program only with the checksum it was made for', async () => {
      const program = '#!/bin/sh\necho "bcd $*"\n';
      const sha256 = createHash('sha256').update(program).digest('hex');
      const { io } = await run(['--bcd-url', 'https://downloads.example.com/bcd', '--bcd-sha256', sha256]);
      const { folder, sh } = machineOf(io.stdout());
      writeFileSync(join(folder, 'published'), `${program}# one byte more`);
      const wrong = await sh('-');
      assert.equal(wrong.code, 1);
      assert.match(wrong.err, /error: what https:\/\/downloads\.example\.com\/bcd gave is not the program: its SHA-256 is not /);
      assert.equal(existsSync(join(folder, 'usr/bin/bcd')), false);
      assert.equal(existsSync(join(folder, 'systemctl.log')), false);
      writeFileSync(join(folder, 'published'), program);
      const right = await sh('-');
      assert.equal(right.code, 0, right.err);
      assert.match(right.out, /^bcd join - --pins .*pins\.json --role node --data-dir /);
      assert.equal(statSync(join(folder, 'usr/bin/bcd')).mode & 0o777, 0o755);
      chmodSync(join(folder, 'published'), 0o000);
      writeFileSync(join(folder, 'published'), 'gone');
      assert.equal((await sh('-')).code, 0, 'the program that is there already is not fetched again');
    });
  });

  const good: readonly [string[], Partial<InstallScriptOptions>][] = [
    [[], { role: 'node', bcd: '/usr/local/bin/bcd', dataDir: '/var/lib/better-compute/bcd', bcdUrl: null, serverName: null, out: null }],
    [['--role', 'site', '--server-name', 'gw.test'], { role: 'site', serverName: 'gw.test' }],
    [['--bcd', '/opt/my bcd/bcd', '--data-dir', '/data'], { bcd: '/opt/my bcd/bcd', dataDir: '/data' }],
    [['--bcd-url', 'https://x.test/bcd', '--bcd-sha256', 'a'.repeat(64)], { bcdUrl: 'https://x.test/bcd', bcdSha256: 'a'.repeat(64) }],
  ];
  for (const [argv, expected] of good) {
    it(`CLI-020 takes ${argv.join(' ') || 'the gateway alone'}`, async () => {
      const options = await parseWith<InstallScriptOptions>(newInstallScript, ['--gateway', gateway, ...argv]);
      assert.deepEqual({ ...options, ...expected }, options);
    });
  }
  const bad: readonly [string[], RegExp][] = [
    [[], /required option '--gateway <url>' not specified/],
    [['--gateway', 'http://gw.test'], /It must be an https URL/],
    [['--gateway', 'https://user@gw.test'], /It must be an https URL without a user name/],
    [['--gateway', gateway, '--role', 'ramdisk'], /Allowed choices are node, site/],
    [['--gateway', gateway, '--bcd', 'bin/bcd'], /It must be an absolute path/],
    [['--gateway', gateway, '--bcd', '/opt/../etc/passwd'], /It must be an absolute path/],
    [['--gateway', gateway, '--data-dir', '/var\nExecStart=/bin/sh'], /It must be an absolute path of printable characters/],
    [['--gateway', gateway, '--bcd-sha256', 'abc'], /It must be 64 lower-case hex digits/],
    [['--gateway', gateway, '--approver-set-sha256', 'ABC'], /It must be 64 lower-case hex digits/],
    [['--gateway', gateway, '--bcd-url', 'ftp://x.test'], /It must be an https URL/],
    [['--gateway', gateway, '--websocket-url', 'https://gw.test'], /It must be a wss URL of host and port alone/],
    [['--gateway', gateway, '--websocket-url', 'wss://gw.test/v1/session'], /It must be a wss URL/],
    [['--gateway', gateway, '--websocket-url', 'wss://gw.test\nExecStart=/bin/sh'], /It must be a wss URL/],
    [['--gateway', gateway, '--token', 'x'], /unknown option '--token'/],
  ];
  for (const [argv, message] of bad) {
    it(`CLI-020 refuses ${JSON.stringify(argv.slice(-2).join(' '))}`, () => assert.rejects(parseWith(newInstallScript, argv), message));
  }
  it('CLI-020 refuses a download without a checksum, a checksum without a download, and a gateway with a path', async () => {
    for (const [argv, message] of [
      [['--bcd-url', 'https://x.test/bcd'], 'error: --bcd-url needs --bcd-sha256: a machine never runs what it could not check'],
      [['--bcd-sha256', 'a'.repeat(64)], 'error: --bcd-sha256 needs --bcd-url: a machine never runs what it could not check'],
      [['--gateway', 'https://gw.test/path'], 'error: the pins are not valid: its gateway must be an https URL without a path'],
    ] as const) {
      const { exitCode, lines, io } = await run(argv);
      assert.deepEqual([exitCode, lines[0], io.stdout()], [2, message, '']);
    }
  });
});
