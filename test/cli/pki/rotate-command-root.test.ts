import assert from 'node:assert/strict';
import { copyFileSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { day, minute } from '../../../domain/time.ts';
import { commandRootPins, openBundle, type PkiBundle } from '../../../pki/bundle/index.ts';
import { now, secret, trustDomain } from '../../pki/support.ts';
import { openFacts, processOf } from './facts.ts';
import { flagsOf, type Run } from './harness.ts';
import { useRotationBench } from './rotation-bench.ts';

describe('better-compute pki rotate-command-root', () => {
  const test = useRotationBench();
  const { stage, added, file } = test;
  const shown = (name: string, next: string): Run => {
    const bundle = test.bench.bundle();
    const roots = commandRootPins(bundle).map(
      (root) =>
        `commandRoot: ${root.id} ${root.pin} ${root.signing ? 'signing' : 'trusted'}, added ${root.addedAt}, until ${root.notAfter}`,
    );
    const { rotation, lastRotation } = bundle.commandRoots;
    const lines = [
      `stage: ${name}`,
      `rotation: ${(rotation ?? lastRotation)?.id}`,
      `trustVersion: ${bundle.trustVersion}`,
      `generation: ${bundle.generation}`,
    ];
    return { exitCode: 0, out: `${[...lines, `bundleDigest: ${digestLine(bundle)}`, ...roots].join('\n')}\n`, err: `next: ${next}\n` };
  };
  const digestLine = (bundle: PkiBundle): string => processOf(bundle).bundleDigest ?? '';

  it('ROT-001 ROT-006 ROT-007 ROT-008 ROT-009 ROT-010 the whole rotation, word for word', async () => {
    const rollOut = 'roll the bundle out to every process; ';
    const add = await stage('add');
    assert.deepEqual(
      add,
      shown('add', `${rollOut}daemons get the new version by themselves. Then: better-compute pki rotate-command-root --stage switch`),
    );
    assert.deepEqual([test.bench.bundle().trustVersion, test.bench.bundle().generation, test.bench.bundle().authenticated], [2, 2, true]);
    test.facts = openFacts(test.bench.bundle(), 7);
    test.bench.at(now + minute);
    test.facts.processes = test.facts.processes.map((process) => ({ ...process, lastSeenAt: now + minute }));
    const switching = await stage('switch');
    assert.deepEqual(
      switching,
      shown(
        'switch',
        `${rollOut}workers sign under the new root. At least 24 hours later: better-compute pki rotate-command-root --stage drop`,
      ),
    );
    assert.deepEqual([test.bench.bundle().trustVersion, test.bench.bundle().commandRootsById.size], [2, 2]);
    test.bench.at(now + minute + day);
    const drop = await stage('drop');
    assert.deepEqual(drop, shown('drop', `${rollOut}daemons get the new version by themselves. The rotation is done.`));
    assert.deepEqual(
      [test.bench.bundle().trustVersion, test.bench.bundle().generation, test.bench.bundle().commandRootsById.size],
      [3, 4, 1],
    );
    assert.deepEqual([test.facts.opened, test.facts.closed], [2, 2]);
  });

  it('ROT-010 --json prints the same for machines', async () => {
    const run = await stage('add', '--json');
    const report = JSON.parse(run.out) as Record<string, unknown>;
    assert.deepEqual(Object.keys(report), ['stage', 'rotation', 'trustVersion', 'generation', 'bundleDigest', 'commandRoots']);
    assert.equal(run.err, '');
    assert.deepEqual(report['commandRoots'], commandRootPins(test.bench.bundle()));
  });

  it('ROT-012 a step out of order is INVALID_STATE and leaves the file as it was', async () => {
    const untouched = async (name: string, message: RegExp, ...flags: string[]): Promise<void> => {
      const before = file();
      const run = await stage(name, ...flags);
      assert.match(run.err, message);
      assert.deepEqual([run.exitCode, run.out, file()], [4, '', before]);
    };
    const force = ['--force', '--reason', 'x'];
    await untouched('switch', /^error: switch without add: no rotation is in progress/);
    await untouched('drop', /^error: drop without add/);
    await added();
    await untouched('add', /^error: rotation cli-[0-9a-f-]+ is in progress \(stage added\)/);
    await untouched('drop', /^error: drop before switch/);
    await untouched('drop', /^error: drop before switch/, ...force);
    assert.equal((await stage('switch')).exitCode, 0);
    await untouched('switch', /^error: switch: this rotation is past that step/);
    await untouched('switch', /^error: switch: this rotation is past that step/, ...force);
    await untouched('add', /\(stage switched\)/);
  });

  it('CLI-058 ROT-013 is INVALID_STATE where unauthenticated bundles are allowed, naming pki reseal', async () => {
    const before = file();
    test.bench.env['BETTER_COMPUTE_PKI_ALLOW_UNAUTHENTICATED'] = '1';
    const run = await stage('add');
    assert.equal(run.exitCode, 4);
    assert.match(
      run.err,
      /writes the key bundle back, and BETTER_COMPUTE_PKI_ALLOW_UNAUTHENTICATED=1 lets it read one that nothing vouches for\nhint: .*pki reseal/,
    );
    assert.equal(file(), before);
  });

  it('A-PKI-10 never vouches: an unsealed bundle beside the secret is INVALID_CONFIG, a sealed one without it MISSING_ENV', async () => {
    copyFileSync(join(import.meta.dirname, '../../golden/bundles/plaintext.json'), test.bench.path('pki.json'));
    assert.match(
      (await stage('switch')).err,
      /^error: nothing vouches for the key bundle: it is not sealed although BETTER_COMPUTE_SECRET is set/,
    );
    copyFileSync(join(import.meta.dirname, '../../golden/bundles/former.json'), test.bench.path('pki.json'));
    assert.match((await stage('switch')).err, /^error: nothing vouches for the key bundle: it is sealed in the former form/);
    copyFileSync(join(import.meta.dirname, '../../golden/bundles/current.json'), test.bench.path('pki.json'));
    delete test.bench.env['BETTER_COMPUTE_SECRET'];
    assert.match((await stage('switch')).err, /^error: the key bundle is sealed and BETTER_COMPUTE_SECRET is not set/);
  });

  it('CLI-030 KEY-045 an unsealed bundle without a secret stays unsealed; an offline root stays out', async () => {
    delete test.bench.env['BETTER_COMPUTE_SECRET'];
    const flags = ['--pki', test.bench.path('plain.json')];
    await test.bench.run(
      'pki',
      'init',
      '--trust-domain',
      trustDomain,
      '--plaintext',
      '--offline-root',
      test.bench.path('root.key'),
      ...flags,
    );
    assert.equal((await stage('add', ...flags)).exitCode, 0);
    const bundle = openBundle(readFileSync(test.bench.path('plain.json'), 'utf8'));
    assert.deepEqual([bundle.seal, bundle.commandRootsById.size, bundle.rootCa.privateKey], ['plaintext', 2, undefined]);
  });

  it('ROT-032 has these flags', async () => {
    const { out } = await test.bench.run('pki', 'rotate-command-root', '--help');
    assert.deepEqual(flagsOf(out), [
      '--stage',
      '--force',
      '--reason',
      '--signer',
      '--approvals',
      '--create-signer-keys',
      '--actor',
      '--pki',
    ]);
  });

  const bad: readonly [string, string[], RegExp][] = [
    ['no stage', [], /required option '--stage <stage>' not specified/],
    ['another stage', ['--stage', 'abort'], /argument 'abort' is invalid\. Allowed choices are add, switch, drop/],
    ['--force without a reason', ['--stage', 'switch', '--force'], /--force needs --reason: it is kept for the audit trail/],
    ['--force with an empty reason', ['--stage', 'switch', '--force', '--reason', '  '], /--force needs --reason/],
    ['a reason without --force', ['--stage', 'switch', '--reason', 'x'], /--reason says why a gate is forced: it needs --force/],
    ['--force of add', ['--stage', 'add', '--force', '--reason', 'x'], /--force: add has no gate to skip/],
    ['an unknown flag', ['--stage', 'add', '--now'], /unknown option '--now'/],
  ];
  for (const [name, argv, message] of bad) {
    it(`ROT-032 refuses ${name}`, async () => {
      const before = file();
      const run = await test.bench.run('pki', 'rotate-command-root', ...argv);
      assert.match(run.err, message);
      assert.deepEqual([run.exitCode, file()], [2, before]);
    });
  }

  it('C16 of two that add at once, one is told', async () => {
    const runs = await Promise.all([stage('add'), stage('add')]);
    assert.deepEqual(
      runs.map(({ exitCode }) => exitCode).sort((a, b) => a - b),
      [0, 4],
    );
    assert.equal(openBundle(file(), { secret }).commandRootsById.size, 2);
  });
});
