/** doctor: every finding by its id, the whole with everything down, and the whole over a real database. */
import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { doctorRun } from '../../cli/commands/doctor.ts';
import { examine } from '../../cli/doctor/examine.ts';
import { type AskedSigner, examineSigners, judgeSigners, slowAfterMs } from '../../cli/doctor/examine-signers.ts';
import type { Finding } from '../../cli/doctor/finding.ts';
import { type BundleFacts, judgeBundle } from '../../cli/doctor/judge-bundle.ts';
import { judgeFreshness, judgeProcesses, judgeSections, judgeTemporal, judgeTrust } from '../../cli/doctor/judge-deployment.ts';
import { judgeClock, judgeGatewayFiles, judgeNode } from '../../cli/doctor/judge-host.ts';
import { QuietExit } from '../../cli/exit.ts';
import { createSettings } from '../../cli/settings.ts';
import { writeTlsFiles } from '../../cli/stack/tls-files.ts';
import { ControlError } from '../../domain/errors.ts';
import { day, hour, minute } from '../../domain/time.ts';
import { createAuthorities } from '../../pki/authority/index.ts';
import { addCommandRoot, createBundle, encodeBundle, type PkiBundle, readPublicBundle, switchCommandRoot } from '../../pki/bundle/index.ts';
import { encodePem, signerFromPrivateKey, spkiOf } from '../../pki/x509/index.ts';
import { recordHeartbeat } from '../../services/processes.ts';
import { useDatabase } from '../harness/postgres.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { createTestIo, createTestPorts } from './support.ts';

const secret = 'a secret of at least thirty-two characters';
const now = Date.UTC(2030, 0, 1);

const brief = (findings: readonly Finding[]): string[] =>
  findings.filter(({ severity }) => severity !== 'ok').map(({ id, severity }) => `${severity} ${id}`);
const only = (findings: readonly Finding[], id: string): Finding => {
  const found = findings.find((finding) => finding.id === id);
  assert.ok(found, `no ${id} in ${brief(findings).join(', ')}`);
  return found;
};

describe('doctor, the keys that are kept elsewhere', function () {
  this.timeout(30_000);
  const program = fileURLToPath(new URL('../runtime/fixtures/signer-program.mjs', import.meta.url));
  const asked = (over: Partial<AskedSigner>): AskedSigner => ({
    name: 'the root CA',
    reference: 'external:root',
    spki: new Uint8Array([1]),
    answer: new Uint8Array([1]),
    tookMs: 5,
    ...over,
  });
  const judged = (over: Partial<AskedSigner>): string[] => brief(judgeSigners([asked(over)]));

  it('KEY-039 says of each signer whether it is slow, down or has another key', () => {
    assert.deepEqual(judged({}), []);
    assert.deepEqual(judged({ answer: new Uint8Array([2]) }), ['error pki.signer-wrong-key']);
    assert.deepEqual(judged({ tookMs: slowAfterMs + 1 }), ['warning pki.signer-slow']);
    const fault = (code: 'UNAVAILABLE' | 'MISSING_ENV', reason: string) =>
      judged({ answer: new ControlError(code, 'the signer ended', { details: { reason, variable: 'BETTER_COMPUTE_SIGNER_COMMAND' } }) });
    assert.deepEqual(fault('UNAVAILABLE', 'signer-down'), ['error pki.signer-down']);
    assert.deepEqual(fault('UNAVAILABLE', 'signer-deadline'), ['error pki.signer-slow']);
    assert.deepEqual(fault('MISSING_ENV', 'signer-not-configured'), ['warning pki.signer-unasked']);
  });

  it('KEY-039 asks a real signer program: its key is another one now, for it was started anew', async () => {
    const external = {
      rootCa: { reference: 'external:root', signer: signerFromPrivateKey(generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey) },
    };
    const bundle = readPublicBundle(encodeBundle(await createBundle({ trustDomain: 'compute.example.com', now, external }), { secret }));
    const env = { PATH: process.env['PATH'] };
    const [wrong, ...more] = await examineSigners(bundle, { ...env, BETTER_COMPUTE_SIGNER_COMMAND: program });
    assert.deepEqual([wrong?.id, more], ['pki.signer-wrong-key', []]);
    assert.match(wrong?.message ?? '', /^the root CA is kept by external:root, which answers another public key than the bundle has$/);
    assert.deepEqual(brief(await examineSigners(bundle, { ...env, BETTER_COMPUTE_SIGNER_COMMAND: '/bin/false' })), [
      'error pki.signer-down',
    ]);
    const [unasked] = await examineSigners(bundle, env);
    assert.deepEqual(
      [unasked?.id, unasked?.fix],
      ['pki.signer-unasked', 'set BETTER_COMPUTE_SIGNER_COMMAND as for the signing worker, and run doctor again'],
    );
    assert.deepEqual(
      await examineSigners(readPublicBundle(encodeBundle(await createBundle({ trustDomain: 'a.example', now }), { secret })), env),
      [],
    );
  });
});

describe('doctor, the key bundle', () => {
  let bundle: PkiBundle;
  let text: string;
  before(async () => {
    bundle = await createBundle({ trustDomain: 'compute.example.com', now });
    text = encodeBundle(bundle, { secret });
  });

  const judge = (over: Partial<BundleFacts> = {}): readonly Finding[] =>
    judgeBundle({ source: '/etc/pki.json', text, secret, now: now + hour, fleet: null, ...over }).findings;

  it('finds nothing wrong with a good one', () => assert.deepEqual(brief(judge()), []));

  it('DOC-002 pki.unreadable: it cannot be parsed, or is not there', () => {
    assert.deepEqual(brief(judge({ text: text.slice(0, 500) })), ['error pki.unreadable']);
    assert.match(
      only(judge({ text: new Error('ENOENT: no such file') }), 'pki.unreadable').message,
      /^the key bundle \/etc\/pki.json cannot be read: ENOENT/,
    );
  });

  it('DOC-003 pki.unseal: it does not open with this secret, or was changed behind its seal', () => {
    assert.deepEqual(brief(judge({ secret: 'another secret of more than thirty-two' })), ['error pki.unseal']);
    const edited = text.replace('compute.example.com', 'compute.example.org');
    assert.deepEqual(brief(judge({ text: edited })), ['error pki.unseal']);
  });

  it('says when nothing was checked', () => assert.deepEqual(brief(judge({ secret: null })), ['warning pki.unchecked']));

  it('C33 DOC-004, DOC-005 pki.ca-expired and pki.ca-expiring, 30 days ahead', () => {
    const end = bundle.nodeCa.certificate.notAfter;
    const ids = (at: number): string[] => brief(judge({ now: at }));
    assert.deepEqual(ids(end - 31 * day), []);
    assert.deepEqual(ids(end - 29 * day), ['warning pki.ca-expiring', 'warning pki.ca-expiring', 'warning pki.ca-expiring']);
    for (const before of [30 * day, day, 0, -999]) assert.equal(ids(end - before)[0], 'warning pki.ca-expiring', String(before));
    assert.deepEqual(ids(end - 30 * day - 1), []);
    assert.equal(ids(end + 1_000)[0], 'error pki.ca-expired');
    assert.deepEqual(ids(end + 2 * minute), ['error pki.ca-expired', 'error pki.ca-expired', 'error pki.ca-expired']);
    const finding = only(judge({ now: end + 2 * minute }), 'pki.ca-expired');
    assert.match(finding.message, /^the node CA expired at 2032-01-01T00:00:00Z$/);
    assert.equal(finding.fix, 'better-compute pki renew-ca --ca node');
  });

  it('ROT-014 ROT-029 DOC-006, DOC-007, DOC-014 pki.rotation after the add, with how many nodes have the version', async () => {
    const added = await addCommandRoot(bundle, { rotationId: 'r1', now });
    const rotating = encodeBundle(added.bundle, { secret });
    const finding = only(judge({ text: rotating, fleet: { version: 7, connected: 5, behind: 2 } }), 'pki.rotation');
    assert.equal(finding.severity, 'info');
    assert.match(finding.message, /a new root is published but not signing yet; 3 of 5 connected node\(s\) have trust version 7$/);
    assert.match(finding.fix, /run --stage switch once every daemon has the trust version$/);
    assert.match(
      only(judge({ text: rotating }), 'pki.rotation').message,
      /how many nodes hold it is not known, the database does not answer$/,
    );
  });

  it('ROT-014 DOC-008 pki.rotation after the switch', async () => {
    const added = await addCommandRoot(bundle, { rotationId: 'r1', now });
    const switched = switchCommandRoot(added.bundle, { rotationId: 'r1', now: now + minute });
    const finding = only(judge({ text: encodeBundle(switched.bundle, { secret }) }), 'pki.rotation');
    assert.match(finding.message, /a former root is still trusted, switched 59 min 0 s ago$/);
    assert.match(finding.fix, /run --stage drop at least 24 hours after the switch$/);
  });
});

describe('doctor, the rest', () => {
  it('SKEW-038 names machines that do not apply a section of their desired state, and why', () => {
    assert.deepEqual(judgeSections([]), []);
    const failed = Array.from({ length: 7 }, (_, at) => ({
      nodeId: `n${at}`,
      section: 'telemetry',
      detail: at === 0 ? 'no room' : '',
      generation: 2,
    }));
    const [finding] = judgeSections(failed);
    assert.deepEqual(
      [finding?.severity, finding?.id, finding?.message, finding?.fix],
      [
        'warning',
        'nodes.section-failed',
        '7 section(s) of desired state are not applied: n0 telemetry (no room), n1 telemetry, n2 telemetry, n3 telemetry, n4 telemetry and 2 more',
        'better-compute nodes show n0',
      ],
    );
  });

  it('node.version', () => {
    assert.deepEqual(
      ['20.19.0', '20.20.2', '22.0.0', '20.18.9', '18.20.0'].map((version) => judgeNode(version).severity),
      ['ok', 'ok', 'ok', 'error', 'error'],
    );
  });

  it('clock.skew: half of what a renewal tolerates is a warning, all of it an error', () => {
    assert.deepEqual(
      [0, 29_999, 30_000, -59_999, 60_000].map((off) => judgeClock(now, now + off).severity),
      ['ok', 'ok', 'warning', 'warning', 'error'],
    );
  });

  it('tls: the gateway certificate and its key', async () => {
    const bundle = await createBundle({ trustDomain: 'compute.example.com', now });
    const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const issued = await createAuthorities(bundle).issueGateway({ spki: spkiOf(publicKey), now, dns: ['gw.example.com'] });
    const files = {
      folder: '/tls',
      certificate: issued.chain.map((der) => encodePem('CERTIFICATE', der)).join(''),
      key: String(privateKey.export({ type: 'pkcs8', format: 'pem' })),
    };
    const end = issued.certificate.notAfter;
    assert.deepEqual(brief(judgeGatewayFiles(files, now)), []);
    assert.deepEqual(brief(judgeGatewayFiles({ ...files, certificate: null }, now)), [], 'no gateway runs here');
    assert.deepEqual(brief(judgeGatewayFiles(files, end - 2 * day)), ['warning tls.expiring']);
    assert.deepEqual(brief(judgeGatewayFiles(files, end + minute)), ['error tls.expired']);
    assert.deepEqual(brief(judgeGatewayFiles({ ...files, key: null }, now)), ['error tls.mismatch']);
    assert.deepEqual(brief(judgeGatewayFiles({ ...files, certificate: 'x' }, now)), ['error tls.unreadable']);
  });

  it('process.missing and process.bundles-differ', () => {
    const process = (kind: string, over = {}) => ({
      id: kind,
      kind,
      bundleDigest: 'a',
      publishedVersionSeen: null,
      lastSeenAt: now,
      ...over,
    });
    const all = ['api', 'gateway', 'worker-control', 'worker-signing'].map((kind) => process(kind));
    assert.deepEqual(brief(judgeProcesses(all, now)), []);
    assert.deepEqual(brief(judgeProcesses([...all, process('api', { id: 'api2', bundleDigest: 'b' })], now)), [
      'warning process.bundles-differ',
    ]);
    assert.deepEqual(brief(judgeProcesses([], now)), Array(4).fill('error process.missing'));
    const silent = judgeProcesses([...all.slice(1), process('api', { lastSeenAt: now - 5 * minute })], now);
    assert.match(only(silent, 'process.missing').message, /^no api is alive \(last seen 5 min 0 s ago\): nobody can join/);
  });

  it('H-07 freshness: which side is the older one', () => {
    const level = { recorded: 4, connected: 5, ahead: 0, highest: 4 };
    const at = (generation: number, digest = 'a') => ({ generation, digest });
    assert.deepEqual(brief(judgeFreshness({ newest: at(3), bundle: at(3), fleet: level })), []);
    assert.deepEqual(brief(judgeFreshness({ newest: at(3), bundle: at(2), fleet: level })), ['error freshness.bundle']);
    assert.deepEqual(brief(judgeFreshness({ newest: at(3), bundle: at(3, 'b'), fleet: level })), ['error freshness.forked']);
    assert.deepEqual(brief(judgeFreshness({ newest: at(3), bundle: null, fleet: { ...level, ahead: 3, highest: 6 } })), [
      'error freshness.database',
    ]);
    assert.deepEqual(
      brief(judgeFreshness({ newest: null, bundle: at(1), fleet: { ...level, ahead: 1, highest: 6 } })),
      [],
      'one node that claims more is no proof',
    );
  });

  it('temporal: attributes, pollers, workflows that cannot run', () => {
    const good = {
      address: 'a',
      attributes: { BcPhase: '2' },
      wantedAttributes: ['BcPhase'],
      pollers: { 'bc-control': 1, 'bc-signing': 2 },
      problems: [],
    };
    assert.deepEqual(brief(judgeTemporal(good)), []);
    assert.deepEqual(brief(judgeTemporal({ ...good, attributes: {}, pollers: { 'bc-control': 0 }, problems: ['w'] })), [
      'error temporal.search-attributes',
      'error temporal.no-poller',
      'error temporal.workflow-problem',
    ]);
  });

  it('trust: what is published and who holds it', () => {
    assert.equal(judgeTrust(null).id, 'trust.unpublished');
    assert.deepEqual(
      [judgeTrust({ version: 2, connected: 5, behind: 1 }).id, judgeTrust({ version: 2, connected: 5, behind: 0 }).severity],
      ['trust.behind', 'ok'],
    );
  });
});

describe('better-compute doctor', function () {
  this.timeout(30_000);
  afterEach(removeScratchFolders);

  const settingsOf = (env: NodeJS.ProcessEnv) => createSettings({ TEMPORAL_ADDRESS: '127.0.0.1:1', ...env });
  const look = (env: NodeJS.ProcessEnv, now: () => number = Date.now): Promise<Finding[]> =>
    examine({ settings: settingsOf(env), pki: null, nodeVersion: process.versions.node, env, now });

  it('runs when everything is down, and names each', async () => {
    const findings = await look({ BETTER_COMPUTE_HOME: scratchFolder(), BETTER_COMPUTE_DATABASE_URL: 'postgres://127.0.0.1:1/none' });
    assert.deepEqual(brief(findings), ['error database.unreachable', 'error pki.unreadable', 'error temporal.unreachable']);
    assert.deepEqual(brief(await look({ BETTER_COMPUTE_HOME: scratchFolder() })), [
      'error database.unknown',
      'error pki.unreadable',
      'error temporal.unreachable',
    ]);
  });

  it('DOC-001 looks at the bundle that --pki names, and at no other', async () => {
    const home = scratchFolder();
    writeFileSync(
      join(home, 'pki.json'),
      encodeBundle(await createBundle({ trustDomain: 'compute.example.com', now: Date.now() }), { secret }),
    );
    writeFileSync(join(home, 'broken.json'), '{"format": "better-comp');
    const lookAt = (pki: string | null): Promise<Finding[]> =>
      examine({
        settings: settingsOf({ BETTER_COMPUTE_HOME: home, BETTER_COMPUTE_SECRET: secret }),
        pki,
        nodeVersion: '20.20.0',
        env: {},
        now: Date.now,
      });
    assert.match(
      only(await lookAt(join(home, 'broken.json')), 'pki.unreadable').message,
      /broken\.json cannot be read: the key bundle is not JSON/,
    );
    assert.deepEqual(brief(await lookAt(null)), ['error database.unknown', 'error temporal.unreachable']);
  });

  it('exits 1 with an error, the worst first; 0 without', async () => {
    const findings: Finding[] = [
      { id: 'a', severity: 'ok', message: 'fine', fix: '' },
      { id: 'b', severity: 'error', message: 'broken', fix: 'mend it' },
    ];
    const io = createTestIo();
    await assert.rejects(
      doctorRun({ json: false, pki: null, supportBundle: null }, createTestPorts(io, { examine: async () => findings })),
      (error: QuietExit) => error instanceof QuietExit && error.exitCode === 1,
    );
    assert.equal(io.stdout(), 'error    b: broken\n         fix: mend it\nok       a: fine\n');
    const healthy = createTestIo();
    await doctorRun(
      { json: true, pki: null, supportBundle: null },
      createTestPorts(healthy, { examine: async () => findings.slice(0, 1) }),
    );
    assert.deepEqual(healthy.json(), { healthy: true, findings: findings.slice(0, 1) });
  });

  describe('over a database', () => {
    const used = useDatabase();

    it('judges what is there', async () => {
      const home = scratchFolder();
      const at = Date.now();
      const bundle = await createBundle({ trustDomain: 'compute.example.com', now: at });
      writeFileSync(join(home, 'pki.json'), encodeBundle(bundle, { secret }));
      writeFileSync(join(home, 'secret'), secret);
      await writeTlsFiles(join(home, 'tls'), { bundle, names: { dns: ['localhost'], ips: [] }, now: at });
      for (const kind of ['api', 'gateway', 'worker-control'] as const) {
        const process = {
          id: kind,
          kind,
          host: 'h',
          pid: 1,
          version: '0',
          bundleDigest: null,
          bundleGeneration: null,
          trustVersionSeen: null,
        };
        await recordHeartbeat(used.db, process, at);
      }
      const findings = await look({ BETTER_COMPUTE_HOME: home, BETTER_COMPUTE_DATABASE_URL: used.url });
      assert.deepEqual(brief(findings), ['warning trust.unpublished', 'error process.missing', 'error temporal.unreachable']);
      assert.match(only(findings, 'process.missing').message, /^no worker-signing is alive \(none has ever reported\)/);
      for (const id of ['database', 'clock', 'pki.bundle', 'freshness', 'tls', 'node.version']) only(findings, id);
      const rows = await used.db.query({ text: 'select * from bundle_freshness' });
      assert.deepEqual(rows, [], 'a look changes nothing');

      // What the database wrote is judged by its own clock: a host that is off learns that it is off, and nothing untrue beside.
      const askew = await look({ BETTER_COMPUTE_HOME: home, BETTER_COMPUTE_DATABASE_URL: used.url }, () => Date.now() + 3 * hour);
      assert.deepEqual(brief(askew), [
        'error clock.skew',
        'warning trust.unpublished',
        'error process.missing',
        'error temporal.unreachable',
      ]);
      assert.match(only(askew, 'process.missing').message, /^no worker-signing is alive/);
    });
  });
});
