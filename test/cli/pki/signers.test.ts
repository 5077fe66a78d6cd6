/** The rotation of a command root that lies in a token: every stage, over SoftHSM 2. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { day, minute } from '../../../domain/time.ts';
import { openBundle, withExternalSigners } from '../../../pki/bundle/index.ts';
import { createWorkerKey, signCommand, verifyIntent } from '../../../pki/envelope/index.ts';
import { createSerial } from '../../../pki/x509/index.ts';
import { rawFromDerSignature, verifyRaw } from '../../../pki/x509/signature.ts';
import { openExternalSigners, readSignerEnvironment } from '../../../runtime/signers/external-signers.ts';
import { removeScratchFolders } from '../../harness/scratch.ts';
import { createSoftHsm, type SoftHsm, softHsmMissing } from '../../harness/softhsm.ts';
import { now, secret, trustDomain } from '../../pki/support.ts';
import { deploymentOf, openFacts } from './facts.ts';
import { type Bench, createBench, type Run } from './harness.ts';

const place = (object: string): string => `pkcs11:token=compute;object=${object}`;

describe('SoftHSM 2: better-compute pki with keys in a token (skipped where it is not installed)', function () {
  this.timeout(120_000);
  let hsm: SoftHsm;
  let bench: Bench;
  before(async function () {
    if ((await softHsmMissing()) !== null) return this.skip();
    hsm = createSoftHsm();
  });
  beforeEach(() => {
    bench = createBench();
    Object.assign(bench.env, { PATH: process.env['PATH'], ...hsm.env });
  });
  afterEach(() => bench.close());
  after(removeScratchFolders);

  const init = (...flags: string[]): Promise<Run> => bench.run('pki', 'init', '--trust-domain', trustDomain, ...flags);
  const stage = (name: string, ...flags: string[]): Promise<Run> => bench.run('pki', 'rotate-command-root', '--stage', name, ...flags);
  const succeeds = async (run: Promise<Run>): Promise<Run> => {
    const done = await run;
    assert.equal(done.exitCode, 0, done.err);
    return done;
  };

  /** Whether a worker under the present root signs commands that machines with these roots take. */
  const signsUnderPresentRoot = async (roots: readonly Uint8Array[]): Promise<string | undefined> => {
    const signers = openExternalSigners(readSignerEnvironment(bench.env), bench.env);
    try {
      const root = withExternalSigners(bench.bundle(), signers).commandSigning;
      assert.ok(root !== undefined);
      const ca = { certificate: root.certificate.der, signer: root.signer() };
      const worker = await createWorkerKey({ root: ca, now, lifetimeMs: 3_600_000, serial: createSerial() });
      const body = Buffer.from('a command');
      return verifyIntent({ purpose: 'command', body, signature: await signCommand(worker, body), roots, now, required: true })?.rootId;
    } finally {
      signers.close();
    }
  };

  it('KEY-039 ROT-006 ROT-007 ROT-008 add, switch and drop; each root is a key of the token, and none is in the bundle', async () => {
    await succeeds(init('--command-root-signer', place('command-root'), '--create-signer-keys'));
    const [old] = bench.bundle().commandRootsById.values();
    assert.equal(await signsUnderPresentRoot([old?.certificate.der ?? new Uint8Array()]), old?.id);

    await succeeds(stage('add'));
    const added = [...bench.bundle().commandRootsById.values()].at(-1);
    assert.match(added?.signerReference ?? '', /^pkcs11:token=compute;object=command-root-cli-/);
    const facts = openFacts(bench.bundle(), 7);
    bench.deployment = deploymentOf(facts, bench.now);
    await succeeds(stage('switch'));
    assert.equal(await signsUnderPresentRoot([added?.certificate.der ?? new Uint8Array()]), added?.id);

    bench.at(now + minute + day);
    facts.processes = facts.processes.map((process) => ({ ...process, lastSeenAt: now + minute + day }));
    await succeeds(stage('drop'));
    const text = readFileSync(bench.path('pki.json'), 'utf8');
    assert.deepEqual([...bench.bundle().commandRootsById.keys()], [added?.id]);
    assert.equal(openBundle(text, { secret }).commandSigning?.privateKey, undefined);
    assert.equal(
      hsm.tool('--list-objects', '--type', 'privkey').match(/label:\s+command-root/g)?.length,
      2,
      'the dropped key stays in the token',
    );
  });

  it('KEY-039 ROT-006 --stage add --signer moves a command root from the bundle into the token', async () => {
    await succeeds(init());
    await succeeds(stage('add', '--signer', place('moved'), '--create-signer-keys'));
    assert.deepEqual(
      [...bench.bundle().commandRootsById.values()].map((root) => root.signerReference),
      [undefined, place('moved')],
    );
  });

  it('KEY-039 pki init keeps the root CA and the audit key in the token; pki renew-ca signs with it', async () => {
    await succeeds(init('--root-ca-signer', place('root-ca'), '--audit-signer', place('audit'), '--create-signer-keys'));
    bench.at(now + day);
    await succeeds(bench.run('pki', 'renew-ca', '--ca', 'internal'));
    const { rootCa, internalCa, auditSigning } = bench.bundle();
    assert.deepEqual([rootCa.privateKey, auditSigning?.privateKey, auditSigning?.signerReference], [undefined, undefined, place('audit')]);
    assert.equal(internalCa.certificates.length, 2);
    assert.ok(verifyRaw(rootCa.publicKey, internalCa.certificate.tbs, rawFromDerSignature(internalCa.certificate.signature)));
  });

  const refused: readonly [string, string[], number, RegExp][] = [
    [
      'a key that is not there',
      ['--command-root-signer', place('nobody-made-it')],
      5,
      /^error: the PKCS #11 library \S+ refused: the token has no private key of this name\nhint: make the key first, or let it be made: --create-signer-keys/,
    ],
    ['a reference that is none', ['--audit-signer', 'file:/etc/key'], 2, /^error: signer reference "file:\/etc\/key" begins neither/],
    [
      'one key for two jobs',
      ['--audit-signer', place('both'), '--command-root-signer', place('both'), '--create-signer-keys'],
      3,
      /uses the key of auditSigning/,
    ],
    [
      'a root key in two places',
      ['--root-ca-signer', place('r'), '--offline-root', '/nowhere/root.key'],
      2,
      /--offline-root and --root-ca-signer exclude each other/,
    ],
  ];
  for (const [what, flags, exitCode, message] of refused) {
    it(`KEY-039 pki init refuses ${what}, and no bundle is left behind`, async () => {
      const run = await init(...flags);
      assert.match(run.err, message);
      assert.equal(run.exitCode, exitCode);
      assert.throws(() => readFileSync(bench.path('pki.json')));
    });
  }

  it('KEY-039 a token that is away fails the step and leaves the bundle as it was', async () => {
    await succeeds(init('--command-root-signer', place('away'), '--create-signer-keys'));
    const before = readFileSync(bench.path('pki.json'), 'utf8');
    bench.env['BETTER_COMPUTE_PKCS11_MODULE'] = '/nowhere/lib.so';
    const run = await stage('add');
    assert.deepEqual([run.exitCode, /\/nowhere\/lib\.so does not load/.test(run.err)], [8, true], run.err);
    delete bench.env['BETTER_COMPUTE_PKCS11_MODULE'];
    assert.match((await stage('add')).err, /BETTER_COMPUTE_PKCS11_MODULE is not set/);
    assert.match((await stage('switch', '--signer', place('x'))).err, /--signer and --create-signer-keys belong to --stage add/);
    assert.equal(readFileSync(bench.path('pki.json'), 'utf8'), before);
  });

  it('KEY-039 nothing of the PIN is in any output', async () => {
    const runs = [
      await init('--command-root-signer', place('quiet'), '--create-signer-keys'),
      await bench.run('pki', 'show'),
      await stage('add', '--json'),
    ];
    for (const run of runs) assert.ok(!`${run.out}${run.err}`.includes(hsm.pin));
  });
});
