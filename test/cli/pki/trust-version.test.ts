import assert from 'node:assert/strict';
import { toBinary } from '@bufbuild/protobuf';
import type { NodeTrust } from '../../../cli/commands/pki/deployment.ts';
import { second } from '../../../domain/time.ts';
import { addCommandRoot, type PkiBundle } from '../../../pki/bundle/index.ts';
import { approverSetDigest, noQuorum, trustBundleOf, trustContentDigest, trustContentOf } from '../../../pki/trust/index.ts';
import { TrustBundleSchema } from '../../../proto/index.ts';
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
        'approverSetBehind: 0',
        'quorumChanged: false',
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

  it('CLI-065 CLI-066 CLI-067 CLI-068 CLI-069 CLI-070 a published quorum that this configuration does not have', async () => {
    const quorum = { ...noQuorum, approverKeys: [{ kid: 'k1', spki: new Uint8Array([1]) }], approverThreshold: 1, approverSetEpoch: 3 };
    const published = approverSetDigest(quorum);
    facts.published = {
      version: 4,
      digest: trustContentDigest({ ...trustContentOf(bundle), quorum }),
      body: toBinary(TrustBundleSchema, trustBundleOf(bundle, 4, quorum)),
    };
    facts.nodes = [
      node('n1', 4, { approverSetSha256: published, approverSetEpoch: 3 }),
      node('n2', 4, { approverSetSha256: 'ab', approverSetEpoch: 2 }),
      node('n3', 4),
    ];
    const { version: _version, connected: _connected, behind: _behind, versions: _versions, oldest: _oldest, ...rest } = await report();
    assert.deepEqual(rest, {
      configurationMatches: false,
      nextVersion: 5,
      approverSetEpoch: 3,
      approverSetSha256: emptySet,
      publishedApproverSetSha256: published,
      approverSetBehind: 2,
      approverSetSample: [
        { nodeId: 'n2', epoch: 2 },
        { nodeId: 'n3', epoch: 0 },
      ],
      quorumChanged: true,
      signQuorumForEpoch: 4,
    });
  });

  it('A-PKI-33 without published keys, a node that still holds a set counts', async () => {
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
