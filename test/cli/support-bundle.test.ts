import assert from 'node:assert/strict';
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type DoctorOptions, doctorRun, newDoctor } from '../../cli/commands/doctor.ts';
import { createSupportBundle } from '../../cli/doctor/support-bundle.ts';
import { toExit } from '../../cli/exit.ts';
import { createSettings } from '../../cli/settings.ts';
import { writeTlsFiles } from '../../cli/stack/tls-files.ts';
import { addCommandRoot, createBundle, encodeBundle, type PkiBundle, switchCommandRoot } from '../../pki/bundle/index.ts';
import { deriveCodecKey } from '../../runtime/codec-key.ts';
import { recordAudit } from '../../services/audit.ts';
import { useDatabase } from '../harness/postgres.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { secret, trustDomain } from '../pki/support.ts';
import { createTestIo, createTestPorts, parseWith } from './support.ts';

const operatorToken = 'operator-token-of-forty-characters-000000';
const databasePassword = 'pass%word-of-the-database';
const joinToken = 'bcj1.QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo';

describe('the support bundle of doctor', function () {
  this.timeout(30_000);
  const used = useDatabase();
  let home: string;
  let bundle: PkiBundle;
  let privateValues: [string, string][];
  const url = (): string => used.url.replace(/:\/\/([^:@/]*)(?::[^@/]*)?@/, `://$1:${encodeURIComponent(databasePassword)}@`);

  /** Every private half, by name, in every spelling in which it could leave. */
  function spellings(name: string, key: { export(options: object): unknown } | undefined): [string, string][] {
    if (key === undefined) return [];
    const der = key.export({ type: 'pkcs8', format: 'der' }) as Buffer;
    const { d } = key.export({ format: 'jwk' }) as { d: string };
    const number = Buffer.from(d, 'base64url');
    const pem = String(key.export({ type: 'pkcs8', format: 'pem' }));
    return [
      [name, pem],
      ...pem
        .split('\n')
        .filter((line) => line.length > 20 && !line.startsWith('-'))
        .map((line): [string, string] => [`${name}, a line`, line]),
      ...(['base64', 'base64url', 'hex'] as const).flatMap((encoding): [string, string][] => [
        [`${name}, ${encoding}`, der.toString(encoding)],
        [`${name}, number, ${encoding}`, number.toString(encoding)],
      ]),
    ];
  }

  before(async () => {
    home = scratchFolder();
    const at = Date.now();
    const added = await addCommandRoot(await createBundle({ trustDomain, now: at }), { rotationId: 'r', now: at });
    bundle = switchCommandRoot(added.bundle, { rotationId: 'r', now: at }).bundle;
    writeFileSync(join(home, 'pki.json'), encodeBundle(bundle, { secret }));
    writeFileSync(join(home, 'secret'), secret, { mode: 0o600 });
    writeFileSync(join(home, 'operator.token'), operatorToken, { mode: 0o600 });
    await writeTlsFiles(join(home, 'tls'), { bundle, names: { dns: ['localhost'], ips: [] }, now: at });
    const { sshCa, sandboxSshCa, commandRootsById, ...rest } = bundle;
    const named = Object.entries({ ...rest, sshCa, sandboxSshCa, ...Object.fromEntries(commandRootsById) });
    privateValues = [
      ...named.flatMap(([name, value]) => spellings(name, (value as { privateKey?: never } | null)?.privateKey)),
      ...readdirSync(join(home, 'tls'))
        .filter((name) => name.endsWith('.key'))
        .flatMap((name) =>
          readFileSync(join(home, 'tls', name), 'utf8')
            .split('\n')
            .filter((line) => line.length > 20 && !line.startsWith('-'))
            .map((line): [string, string] => [name, line]),
        ),
      ['BETTER_COMPUTE_SECRET', secret],
      ['the operator token', operatorToken],
      ['the codec key', deriveCodecKey(secret)],
      ["the database's password", databasePassword],
      ["the database's password, encoded", encodeURIComponent(databasePassword)],
      ['a join token', joinToken],
      ['the key of Temporal', 'a-key-of-temporal'],
      ['a workload token', `eyJhbGciOiJFUzI1NiJ9.${'c'.repeat(40)}.${'s'.repeat(86)}`],
    ];
    // A log in which somebody printed everything that must never be printed, and one line worth reading.
    mkdirSync(join(home, 'logs'));
    writeFileSync(
      join(home, 'logs/api.log'),
      `{"msg":"the gateway said no"}\n${privateValues.map(([name, value]) => `${name}=${value}`).join('\n')}\n`,
    );
    await recordAudit(used.db, { key: 'k', actor: 'ann', action: 'a.b', subject: 's', details: {} }, at);
  });
  after(removeScratchFolders);

  const env = (): NodeJS.ProcessEnv => ({
    BETTER_COMPUTE_HOME: home,
    BETTER_COMPUTE_SECRET: secret,
    BETTER_COMPUTE_DATABASE_URL: url(),
    BETTER_COMPUTE_OPERATOR_TOKEN: operatorToken,
    BETTER_COMPUTE_API_PORT: '8400',
    BETTER_COMPUTE_MISSPELT: 'who knows what this is',
    TEMPORAL_API_KEY: 'a-key-of-temporal',
    TEMPORAL_ADDRESS: '127.0.0.1:1',
    HOME: '/home/ann',
  });

  it('holds findings, settings by an allowlist, pins, counts, files and logs', async () => {
    const io = createTestIo({ env: env() });
    const out = join(home, 'support.json');
    const options = await parseWith<DoctorOptions>(newDoctor, ['--support-bundle', out]);
    await assert.rejects(doctorRun(options, createTestPorts(io)), (error) => toExit(error).exitCode === 1);
    assert.equal(io.stderr(), `wrote ${out}: findings, settings, pins, counts and the ends of the logs; read it before you send it\n`);
    assert.equal(statSync(out).mode & 0o777, 0o600);
    const support = JSON.parse(readFileSync(out, 'utf8')) as Record<string, unknown>;
    assert.deepEqual(Object.keys(support), [
      'format',
      'version',
      'madeAt',
      'program',
      'findings',
      'settings',
      'keys',
      'database',
      'files',
      'logs',
    ]);
    assert.deepEqual(support['settings'], {
      BETTER_COMPUTE_API_PORT: '8400',
      BETTER_COMPUTE_DATABASE_URL: '(set)',
      BETTER_COMPUTE_HOME: home,
      BETTER_COMPUTE_MISSPELT: '(set)',
      BETTER_COMPUTE_OPERATOR_TOKEN: '(set)',
      BETTER_COMPUTE_SECRET: '(set)',
      TEMPORAL_ADDRESS: '127.0.0.1:1',
      TEMPORAL_API_KEY: '(set)',
    });
    const keys = support['keys'] as { authenticated: boolean; servingCaPin: string };
    assert.deepEqual([keys.authenticated, keys.servingCaPin.startsWith('sha256/')], [true, true]);
    const findings = support['findings'] as { id: string }[];
    assert.ok(findings.some(({ id }) => id === 'pki.rotation'));
    const files = support['files'] as { name: string; mode: string }[];
    assert.deepEqual(files.find(({ name }) => name === 'operator.token')?.mode, '0600');
    assert.match((support['logs'] as Record<string, string[]>)['api.log']?.[0] ?? '', /the gateway said no/);
  });

  it('no private value is in it, though a log printed them all', async () => {
    const text = await createSupportBundle({
      settings: createSettings(env()),
      env: env(),
      pki: null,
      findings: [{ id: 'database.unreachable', severity: 'error', message: `cannot reach ${url()}`, fix: joinToken }],
      program: { version: '0', node: '20', platform: 'linux', arch: 'x64' },
      now: Date.now(),
    });
    assert.ok(privateValues.length > 100, String(privateValues.length));
    for (const [name, value] of privateValues) {
      assert.ok(!text.includes(value) && !text.includes(JSON.stringify(value).slice(1, -1)), `${name} is in the support bundle`);
    }
    assert.ok(text.includes('the gateway said no') && text.includes('[redacted]'));
    assert.ok(!text.includes('who knows what this is') && !text.includes('a-key-of-temporal'));
  });

  it('is made when everything is down, and says so', async () => {
    const empty = { BETTER_COMPUTE_HOME: join(home, 'nowhere'), BETTER_COMPUTE_DATABASE_URL: 'postgres://u:password@127.0.0.1:1/none' };
    const options = { settings: createSettings(empty), env: empty, pki: null, findings: [], now: 0 };
    const text = await createSupportBundle({ ...options, program: { version: '0', node: '20', platform: 'linux', arch: 'x64' } });
    const { keys, database, files } = JSON.parse(text) as { keys: unknown; database: { counts: { problem: string } }; files: unknown[] };
    assert.deepEqual([keys, files], [{ problem: 'the key bundle cannot be read' }, []]);
    assert.match(database.counts.problem, /database/);
    assert.ok(!text.includes('u:password'));
  });

  it('never overwrites a file', async () => {
    const out = join(home, 'mine.json');
    writeFileSync(out, 'precious');
    const ports = createTestPorts(createTestIo({ env: env() }), { examine: async () => [] });
    await assert.rejects(
      doctorRun({ json: false, pki: null, supportBundle: out }, ports),
      /mine\.json already exists: it is never overwritten/,
    );
    assert.equal(readFileSync(out, 'utf8'), 'precious');
  });
});
