import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { toBinary } from '@bufbuild/protobuf';
import { day, hour, minute } from '../../../domain/time.ts';
import { signEnvelope } from '../../../pki/envelope/index.ts';
import { trustBundleOf } from '../../../pki/trust/index.ts';
import { TrustBundleSchema } from '../../../proto/index.ts';
import { type Approver, alice, bob, carol, setOf } from '../../pki/quorum/support.ts';
import { now } from '../../pki/support.ts';
import { type Facts, processOf, publishedOf } from './facts.ts';
import type { Run } from './harness.ts';
import { useRotationBench } from './rotation-bench.ts';

const stateHint = 'hint: look at the current state first; the message names the step that comes next';

describe('the gates of better-compute pki rotate-command-root', () => {
  const test = useRotationBench();
  const { stage, added, switched } = test;
  const refused = (run: Run, exitCode: number, lines: string): void =>
    assert.deepEqual(run, { exitCode, out: '', err: `error: ${lines.includes('\n') ? lines : `${lines}\n${stateHint}`}\n` });

  describe('the gates of switch', () => {
    it('ROT-027 without a database it refuses: MISSING_ENV', async () => {
      await added();
      test.facts = null;
      const run = await stage('switch');
      refused(
        run,
        2,
        "the switch asks the deployment's database: BETTER_COMPUTE_DATABASE_URL is not set and no stack runs from this state folder" +
          '\nhint: set BETTER_COMPUTE_DATABASE_URL; or answer for it yourself: --force --reason TEXT',
      );
    });

    it('ROT-023 while the deployment publishes something else', async () => {
      const before = test.bench.bundle();
      await added();
      (test.facts as Facts).published = publishedOf(before, 6);
      refused(await stage('switch'), 4, 'Not switching: the deployment still publishes trust version 6 without the new root');
      (test.facts as Facts).published = null;
      refused(await stage('switch'), 4, 'no process has published a trust bundle yet');
    });

    it('H-02 C09 while a process runs another bundle, or a gateway hands out an older version', async () => {
      const before = test.bench.bundle();
      const bundle = await added();
      const behind = 'trust version 7 is published, but 1 of 2 process(es) do not run this bundle yet';
      (test.facts as Facts).processes = [processOf(bundle), processOf(before, { id: 'worker@host:2', kind: 'worker-signing' })];
      refused(await stage('switch'), 4, `${behind} (worker-signing worker@host:2)`);
      (test.facts as Facts).processes = [processOf(bundle), processOf(null, { id: 'gw-2', kind: 'gateway', publishedVersionSeen: 6 })];
      refused(await stage('switch'), 4, `${behind} (gateway gw-2)`);
      (test.facts as Facts).processes = [];
      refused(
        await stage('switch'),
        4,
        'trust version 7 is published, but no live process that holds the key bundle has reported which one it runs',
      );
    });

    it('ROT-020 ROT-021 ROT-022 C01 while a connected node is behind the published version, naming it', async () => {
      await added();
      const sample = [{ nodeId: 'node_old', trustVersion: 1, daemonVersion: '0.1.0' }];
      (test.facts as Facts).fleet = { ...(test.facts as Facts).fleet, behind: 1, sample };
      refused(await stage('switch'), 4, 'trust version 7 is published, but 1 of 2 connected node(s) have not applied it (node_old at 1)');
      (test.facts as Facts).fleet = {
        ...(test.facts as Facts).fleet,
        sample: [{ nodeId: 'node_old', trustVersion: null, daemonVersion: '0.0.9' }],
      };
      refused(
        await stage('switch'),
        4,
        'trust version 7 is published, but 1 of 2 connected node(s) have not applied it (node_old does not report (daemon 0.0.9))',
      );
    });

    it('H-03 records the switch by the clock of the database, which the drop is judged by', async () => {
      await added();
      (test.facts as Facts).clock = now + hour;
      (test.facts as Facts).fleet = { ...(test.facts as Facts).fleet, lastPresenceWriteAt: now + hour };
      (test.facts as Facts).processes = (test.facts as Facts).processes.map((process) => ({ ...process, lastSeenAt: now + hour }));
      test.bench.at(now - 9 * hour);
      assert.equal((await stage('switch')).exitCode, 0);
      assert.equal(test.bench.bundle().commandRoots.rotation?.switchedAt, now + hour);
    });

    it('H-01 C08 with no connected node, or a stalled session writer', async () => {
      await added();
      (test.facts as Facts).fleet = { ...(test.facts as Facts).fleet, connected: 0 };
      refused(await stage('switch'), 4, 'trust version 7 is published, but no connected daemon confirms trust version 7 (3 known node(s))');
      (test.facts as Facts).fleet = { ...(test.facts as Facts).fleet, connected: 2, lastPresenceWriteAt: now - 121_000 };
      assert.match((await stage('switch')).err, /no gateway has written a session row for 2 minutes/);
    });

    it('ROT-024 asks for the publication first, then processes, then the fleet without excluded nodes', async () => {
      await added();
      (test.facts as Facts).excluded = ['node-9'];
      assert.equal((await stage('switch')).exitCode, 0);
      assert.deepEqual(test.facts?.asked, ['published', 'processes', 'excluded', 'fleet without node-9']);
    });

    it('A-PKI-19 judges beside the quorum that is published', async () => {
      const bundle = await added();
      const { digest } = publishedOf(bundle, 7);
      (test.facts as Facts).published = { ...publishedOf(bundle, 7), digest: `${digest.slice(1)}0` };
      assert.match((await stage('switch')).err, /still publishes trust version 7/);
    });
  });

  describe('the gate of drop', () => {
    it('ROT-008 H-03 before 24 h it names the time, also for the last worker key', async () => {
      await switched();
      test.bench.at(now + day - 1000);
      refused(await stage('drop'), 4, 'the old root can be dropped from 2026-01-16T12:00:00Z (in 1 s)');
      (test.facts as Facts).lastWorkerNotAfter = now + 27 * hour;
      test.bench.at(now + day);
      refused(await stage('drop'), 4, 'the old root can be dropped from 2026-01-16T15:02:00Z (in 3 h 2 min)');
      test.bench.at(now + 27 * hour + 2 * minute);
      assert.equal((await stage('drop')).exitCode, 0);
    });

    it('H-03 by the clock of the database: one of this host that is days ahead drops nothing early, one behind holds nothing back', async () => {
      await switched();
      (test.facts as Facts).clock = now + day - 1000;
      test.bench.at(now + 5 * day);
      refused(await stage('drop'), 4, 'the old root can be dropped from 2026-01-16T12:00:00Z (in 1 s)');
      (test.facts as Facts).clock = now + day;
      test.bench.at(now);
      assert.equal((await stage('drop')).exitCode, 0);
      assert.equal(test.bench.bundle().commandRoots.removed[0]?.removedAt, now + day);
    });

    it('H-05 while something is still signed under the old root', async () => {
      await switched();
      (test.facts as Facts).signedUnder = 3;
      test.bench.at(now + day);
      refused(
        await stage('drop'),
        4,
        'not dropping: 3 command(s) or desired state(s) are still signed under the old root' +
          '\nhint: they are signed again within minutes; better-compute stuck says who is waited for',
      );
    });

    it('H-03 without a database it cannot know the worker keys: MISSING_ENV', async () => {
      await switched();
      test.facts = null;
      test.bench.at(now + 2 * day);
      assert.match((await stage('drop')).err, /^error: the drop asks the deployment's database: BETTER_COMPUTE_DATABASE_URL is not set/);
    });

    it('shortens the overlap only by the spelled-out demonstration setting', async () => {
      await switched();
      test.bench.at(now + 2000);
      test.bench.env['BETTER_COMPUTE_DEMONSTRATION_ONLY_ROTATION_TIMES'] = 'yes-for-demonstrations-only:1000,1000,60000';
      assert.equal((await stage('drop')).exitCode, 0);
    });
  });

  describe('--force', () => {
    const force = ['--force', '--reason', 'rack 7 is being scrapped'];

    it('ROT-028 H-08 A-PKI-20 skips the gates of switch and writes who, why and whom it leaves behind', async () => {
      await added();
      (test.facts as Facts).published = null;
      (test.facts as Facts).fleet = {
        ...(test.facts as Facts).fleet,
        behind: 1,
        sample: [{ nodeId: 'node_old', trustVersion: 1, daemonVersion: '0.1.0' }],
      };
      assert.equal((await stage('switch', ...force, '--actor', 'grace')).exitCode, 0);
      assert.deepEqual(test.facts?.forced, [
        {
          rotationId: test.bench.bundle().commandRoots.rotation?.id,
          stage: 'switch',
          actor: 'grace',
          reason: 'rack 7 is being scrapped',
          details: { version: 0, connected: 2, behind: 1, leftBehind: ['node_old'], approvers: [] },
        },
      ]);
    });

    it('H-08 asks the published approvers first, over exactly this step', async () => {
      const bundle = await added();
      const quorum = setOf([alice, bob, carol], 2);
      const facts = test.facts as Facts;
      facts.published = {
        ...publishedOf(bundle, 2),
        body: toBinary(TrustBundleSchema, trustBundleOf(bundle, 2, { ...quorum, changes: [] })),
      };
      const rotationId = bundle.commandRoots.rotation?.id ?? '';
      const approvedBy = async (name: string, subject: string, ...people: Approver[]): Promise<string> => {
        const words = await Promise.all(
          people.map(async ({ signer }) => {
            const { kid, sig } = await signEnvelope(signer, 'rotation-override', [
              rotationId,
              'force',
              subject,
              'rack 7 is being scrapped',
              bundle.trustDomain,
            ]);
            return { kid, sig: Buffer.from(sig).toString('base64url') };
          }),
        );
        writeFileSync(test.bench.path(name), JSON.stringify(words));
        return test.bench.path(name);
      };
      const refusedWith = async (message: RegExp, ...flags: string[]): Promise<void> => {
        const run = await stage('switch', ...force, ...flags);
        assert.match(run.err, message);
        assert.deepEqual([test.bench.bundle().commandRoots.rotation?.stage, facts.forced], ['added', []]);
      };
      await refusedWith(/^error: force needs the signatures of 2 approver\(s\), 0 hold\nhint: .*batch sign-override/);
      await refusedWith(/2 approver\(s\), 1 hold/, '--approvals', await approvedBy('one.json', 'switch', alice));
      await refusedWith(/2 approver\(s\), 0 hold/, '--approvals', await approvedBy('drop.json', 'drop', alice, bob));
      assert.equal((await stage('switch', ...force, '--approvals', await approvedBy('two.json', 'switch', alice, bob))).exitCode, 0);
      assert.deepEqual(facts.forced[0]?.details['approvers'], [alice.kid, bob.kid]);
    });

    it('A-PKI-21 skips the wait of drop, and the bundle keeps the reason for the daemons', async () => {
      const { commandRoots } = await switched();
      assert.equal((await stage('drop', ...force)).exitCode, 0);
      const [removed] = test.bench.bundle().commandRoots.removed;
      assert.deepEqual([removed?.id, removed?.forcedReason], [commandRoots.rotation?.oldRoot, 'rack 7 is being scrapped (ada)']);
      assert.equal(test.facts?.forced[0]?.actor, 'ada');
    });

    it('works without a database, and says that the audit trail lacks it', async () => {
      await added();
      test.facts = null;
      const run = await stage('switch', ...force);
      assert.equal(run.exitCode, 0);
      assert.match(run.err, /^warning: no database is known, so the audit trail does not hold this decision\nnext: /);
    });
  });
});
