import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { toBinary } from '@bufbuild/protobuf';
import type { NodeTrust } from '../../../cli/commands/pki/deployment.ts';
import { second } from '../../../domain/time.ts';
import { addCommandRoot, type PkiBundle } from '../../../pki/bundle/index.ts';
import {
  approverSetDigest,
  noQuorum,
  type QuorumFields,
  trustBundleOf,
  trustContentDigest,
  trustContentOf,
} from '../../../pki/trust/index.ts';
import { encodePem } from '../../../pki/x509/index.ts';
import { TrustBundleSchema } from '../../../proto/index.ts';
import { type Approver, createApprover, quorumOfApprovers } from '../../harness/approvers.ts';
import { scratchFolder } from '../../harness/scratch.ts';
import { now, trustDomain } from '../../pki/support.ts';
import { deploymentOf, type Facts, openFacts, publishedOf } from './facts.ts';
import { type Bench, createBench, flagsOf } from './harness.ts';

const node = (nodeId: string, trustVersion: number | null, change: Partial<NodeTrust> = {}): NodeTrust => ({
  nodeId,
  trustVersion,
  lastSeenAt: now - second,
  approverSetEpoch: null,
  approverSetSha256: null,
  ...change,
});

const emptySet = approverSetDigest(noQuorum);

describe('better-compute pki trust-version', () => {
  let bench: Bench;
  let bundle: PkiBundle;
  let facts: Facts;
  before(async () => {
    bench = createBench();
    await bench.run('pki', 'init', '--trust-domain', trustDomain);
    bundle = bench.bundle();
  });
  beforeEach(() => {
    facts = openFacts(bundle, 4);
  });
  after(() => bench.close());

  const run = (...flags: string[]) => {
    bench.deployment = deploymentOf(facts, bench.now);
    return bench.run('pki', 'trust-version', ...flags);
  };
  const report = async (...flags: string[]): Promise<Record<string, unknown>> =>
    JSON.parse((await run('--json', ...flags)).out) as Record<string, unknown>;

  it('CLI-060 CLI-062 CLI-071 C40 prints the comparison and who holds what, word for word', async () => {
    facts.nodes = [
      node('n1', 4),
      node('n2', 4),
      node('n3', 2, { lastSeenAt: now - 90 * second }),
      node('n4', null),
      node('n5', 4),
      node('n6', 4),
    ];
    assert.deepEqual(await run(), {
      exitCode: 0,
      out: `${[
        'version: 4',
        'configurationMatches: true',
        'nextVersion: 4',
        'approverSetEpoch: 0',
        `approverSetSha256: ${emptySet}`,
        'quorumChanged: false',
        'approverSetBehind: 0',
        'connected: 6',
        'behind: 2',
        'versions: not reported on 1 node(s)',
        'versions: 2 on 1 node(s)',
        'versions: 4 on 4 node(s)',
        'oldest: n4 at none, last seen 2026-01-15T11:59:59Z',
        'oldest: n3 at 2, last seen 2026-01-15T11:58:30Z',
        'oldest: n1 at 4, last seen 2026-01-15T11:59:59Z',
        'oldest: n2 at 4, last seen 2026-01-15T11:59:59Z',
        'oldest: n5 at 4, last seen 2026-01-15T11:59:59Z',
      ].join('\n')}\n`,
      err: '',
    });
    const json = await report();
    assert.deepEqual(json['versions'], { '0': 1, '2': 1, '4': 4 });
    assert.deepEqual([facts.opened, facts.closed], [2, 2]);
  });

  it('CLI-061 CLI-063 CLI-064 CLI-073 another content: it does not match, and the next version is one above', async () => {
    const { bundle: next } = await addCommandRoot(bundle, { rotationId: 'r', now });
    facts.published = publishedOf(next, 4);
    const { configurationMatches, nextVersion } = await report();
    assert.deepEqual([configurationMatches, nextVersion], [false, 5]);
  });

  it('CLI-064 A-PKI-16 the floor lifts the next version; a replaced content goes back to its own', async () => {
    bench.env['BETTER_COMPUTE_TRUST_VERSION'] = '9';
    assert.equal((await report())['nextVersion'], 9);
    delete bench.env['BETTER_COMPUTE_TRUST_VERSION'];
    const { bundle: next } = await addCommandRoot(bundle, { rotationId: 'r', now });
    facts.published = publishedOf(next, 4);
    facts.history.set(trustContentDigest(trustContentOf(bundle)), 3);
    assert.equal((await report())['nextVersion'], 3);
  });

  const [anna, ben, cleo] = [createApprover(), createApprover(), createApprover()];
  const publish = (quorum: QuorumFields): void => {
    facts.published = {
      version: 4,
      digest: trustContentDigest({ ...trustContentOf(bundle), quorum }),
      body: toBinary(TrustBundleSchema, trustBundleOf(bundle, 4, quorum)),
    };
    facts.introduced = quorum;
  };
  /** As the api would be told: the public keys in files. */
  const configure = (approvers: readonly Approver[], threshold: number): void => {
    const folder = scratchFolder();
    const paths = approvers.map(({ kid, signer }) => {
      const path = join(folder, `${kid.slice(0, 8)}.pub`);
      writeFileSync(path, encodePem('PUBLIC KEY', signer.spki));
      return path;
    });
    bench.env['BETTER_COMPUTE_APPROVER_KEYS'] = paths.join(',');
    bench.env['BETTER_COMPUTE_APPROVER_THRESHOLD'] = String(threshold);
  };
  afterEach(() => {
    for (const name of ['KEYS', 'THRESHOLD']) delete bench.env[`BETTER_COMPUTE_APPROVER_${name}`];
  });

  it('CLI-065 CLI-066 CLI-067 CLI-068 CLI-069 CLI-070 PIN-002 PIN-003 PIN-004 a configured set beside another that is published', async () => {
    const quorum = quorumOfApprovers({ approvers: [anna, ben], approverSetEpoch: 3 });
    const own = approverSetDigest(quorumOfApprovers({ approvers: [anna, cleo] }));
    const published = approverSetDigest(quorum);
    publish(quorum);
    configure([anna, cleo], 2);
    facts.nodes = [
      node('n1', 4, { approverSetSha256: published, approverSetEpoch: 3 }),
      node('n2', 4, { approverSetSha256: 'ab', approverSetEpoch: 2 }),
      node('n3', 4),
    ];
    const { version: _version, connected: _connected, behind: _behind, versions: _versions, oldest: _oldest, ...rest } = await report();
    assert.deepEqual(rest, {
      // Its epoch is the default 1: what is published stays until the change is signed for epoch 4.
      configurationMatches: true,
      nextVersion: 4,
      approverSetEpoch: 3,
      approverSetSha256: own,
      publishedApproverSetSha256: published,
      approverSetBehind: 2,
      approverSetSample: [
        { nodeId: 'n2', epoch: 2 },
        { nodeId: 'n3', epoch: 0 },
      ],
      quorumChanged: true,
      signQuorumForEpoch: 4,
    });
    publish(quorumOfApprovers({ approvers: [ben, cleo], approverSetEpoch: 3 }));
    assert.equal((await report())['approverSetSha256'], own, 'whatever the database says');
  });

  it('CLI-063 CLI-067 CLI-070 PIN-004 the configured set is the published one: one digest, and nothing to sign', async () => {
    publish(quorumOfApprovers({ approvers: [anna, ben] }));
    configure([anna, ben], 2);
    const said = await report();
    assert.deepEqual(
      [said['configurationMatches'], said['approverSetSha256'], said['quorumChanged']],
      [true, approverSetDigest(quorumOfApprovers({ approvers: [anna, ben] })), false],
    );
    for (const name of ['publishedApproverSetSha256', 'signQuorumForEpoch']) assert.equal(Object.hasOwn(said, name), false, name);
  });

  it('CLI-063 CLI-064 the first set that is configured would be published next', async () => {
    configure([anna, ben], 2);
    const { configurationMatches, nextVersion, quorumChanged, signQuorumForEpoch } = await report();
    assert.deepEqual([configurationMatches, nextVersion, quorumChanged, signQuorumForEpoch], [false, 5, true, 1]);
  });

  it('a configuration that says nothing about approvers changes nothing: the set may come from rotateApproverSet', async () => {
    publish(quorumOfApprovers({ approvers: [anna, ben], approverSetEpoch: 3 }));
    const { configurationMatches, quorumChanged, approverSetSha256 } = await report();
    assert.deepEqual([configurationMatches, quorumChanged, approverSetSha256], [true, false, emptySet]);
  });

  it('LAG-007 LAG-008 LAG-009 LAG-014 a node lags without a set, with another, and with the same at another epoch', async () => {
    const quorum = quorumOfApprovers({ approvers: [anna, ben], approverSetEpoch: 3 });
    publish(quorum);
    const own = approverSetDigest(quorum);
    facts.nodes = [
      node('n1', 4, { approverSetSha256: own, approverSetEpoch: 3 }),
      node('n2', 4),
      node('n3', 4, { approverSetSha256: 'ab', approverSetEpoch: 3 }),
      node('n4', 4, { approverSetSha256: own, approverSetEpoch: 2 }),
    ];
    const { approverSetBehind, approverSetSample } = await report();
    assert.equal(approverSetBehind, 3);
    assert.deepEqual(approverSetSample, [
      { nodeId: 'n2', epoch: 0 },
      { nodeId: 'n3', epoch: 3 },
      { nodeId: 'n4', epoch: 2 },
    ]);
  });

  it('LAG-015 before the database records what nodes hold, the two keys are absent', async () => {
    facts.recordsSets = false;
    const said = await report();
    assert.deepEqual([Object.hasOwn(said, 'approverSetBehind'), Object.hasOwn(said, 'approverSetSample')], [false, false]);
    assert.doesNotMatch((await run()).out, /approverSetBehind/);
  });

  it('LAG-010 A-PKI-33 without published keys, a node that still holds a set counts', async () => {
    facts.nodes = [
      node('n1', 4, { approverSetSha256: 'ab', approverSetEpoch: 2 }),
      node('n2', 4, { approverSetSha256: emptySet }),
      node('n3', 4, { approverSetSha256: '' }),
    ];
    assert.deepEqual((await report())['approverSetSample'], [{ nodeId: 'n1', epoch: 2 }]);
  });

  it('CLI-072 before anything was published it is NOT_FOUND', async () => {
    facts.published = null;
    assert.deepEqual(await run(), {
      exitCode: 5,
      out: '',
      err: 'error: no process has published a trust bundle yet\nhint: it is published when the api starts: better-compute start\n',
    });
    assert.equal(facts.closed, 1);
  });

  it('CLI-060 without a database it is MISSING_ENV', async () => {
    bench.deployment = null;
    const answer = await bench.run('pki', 'trust-version');
    assert.equal(answer.exitCode, 2);
    assert.match(answer.err, /^error: trust-version asks the deployment's database: BETTER_COMPUTE_DATABASE_URL is not set/);
  });

  it('without the secret it compares all the same, with a warning', async () => {
    const secret = bench.env['BETTER_COMPUTE_SECRET'];
    delete bench.env['BETTER_COMPUTE_SECRET'];
    const answer = await run();
    assert.deepEqual([answer.exitCode, answer.err.startsWith('warning: nothing vouches for these pins')], [0, true]);
    bench.env['BETTER_COMPUTE_SECRET'] = secret;
  });

  it('CLI-073 has this flag, and refuses bad values', async () => {
    assert.deepEqual(flagsOf((await bench.run('pki', 'trust-version', '--help')).out), ['--pki']);
    assert.match((await run('--database', 'x')).err, /unknown option '--database'/);
    assert.equal((await run('--pki', bench.path('none.json'))).exitCode, 5);
    bench.env['BETTER_COMPUTE_TRUST_VERSION'] = '-1';
    const answer = await run();
    assert.deepEqual([answer.exitCode, /BETTER_COMPUTE_TRUST_VERSION "-1" must be a whole number/.test(answer.err)], [3, true]);
    delete bench.env['BETTER_COMPUTE_TRUST_VERSION'];
  });
});
