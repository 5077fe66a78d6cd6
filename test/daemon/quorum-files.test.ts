import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { underPins } from '../../daemon/config.ts';
import { findIdentity, getIdentity, identityPath, saveIdentity } from '../../daemon/state/identity.ts';
import { encodeJoinBundle, encodePinsFile, joinBundleUnder, parseJoinBundle, parsePinsFile } from '../../pki/enroll/index.ts';
import { approverSetDigest, noQuorum, type QuorumFields } from '../../pki/trust/index.ts';
import { decodeMessage, JoinRequestSchema } from '../../proto/index.ts';
import { createApprover, quorumOfApprovers, signedSet } from '../harness/approvers.ts';
import { commandOf, createDeployment, joinBundleOf, joinedNode, type TestDeployment, trustMessage } from '../harness/deployment.ts';
import { type FakeGateway, startFakeGateway } from '../harness/fake-gateway.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { bcdHere, type Ran } from './bcd-here.ts';
import { grantJoin } from './join-stage.ts';
import { type QuorumMachine, startBcdMachine, type Verdict } from './quorum-machine.ts';
import { type Cast, createCast } from './quorum-scenarios.ts';

describe('the approver set in a machine’s files', function () {
  this.timeout(20_000);
  let deployment: TestDeployment;
  let cast: Cast;
  let machine: QuorumMachine | undefined;
  let gateway: FakeGateway;
  /** What the control plane answers a join with. */
  let offered: QuorumFields;
  before(async () => {
    deployment = await createDeployment();
    cast = createCast(deployment);
    gateway = await startFakeGateway({
      deployment,
      onJoin: (bytes) => {
        const trust = trustMessage(deployment, { version: 3, roots: [deployment.rootA], quorum: offered });
        return grantJoin(deployment, decodeMessage(JoinRequestSchema, bytes, 'joinRequest'), { granted: { trust } });
      },
    });
  });
  beforeEach(() => {
    offered = noQuorum;
  });
  afterEach(async () => {
    await machine?.stop();
    machine = undefined;
  });
  after(async () => {
    await gateway.close();
    removeScratchFolders();
  });

  const set = (): QuorumFields => cast.trust.quorum as QuorumFields;
  const word = ({ kind, reject, reason }: Verdict): string => (kind === 'accepted' ? kind : `${reject} ${reason}`);

  const bcd = (...args: string[]): Promise<Ran> => bcdHere(args);

  describe('that cannot be read', () => {
    const damageTrust = async (dataDir: string): Promise<void> => {
      const path = identityPath(dataDir);
      const stored = JSON.parse(await readFile(path, 'utf8')) as { trust: { approverKeys?: unknown } };
      stored.trust.approverKeys = [{ kid: 7 }];
      await writeFile(path, JSON.stringify(stored));
    };

    it('DMN-034 destructive commands are refused, the others run, and no bundle puts another set in its place', async () => {
      const dataDir = scratchFolder();
      let isDamaged = false;
      const tamper = async (): Promise<void> => {
        if (!isDamaged) await damageTrust(dataDir);
        isDamaged = true;
      };
      machine = await startBcdMachine(deployment, { trust: cast.trust, dataDir, tamper });
      const batch = await cast.batch();
      const refused = await machine.deliver(await cast.member(batch));
      assert.equal(word(refused), 'BATCH_UNAPPROVED no-bundle');
      assert.match(refused.detail ?? '', /identity\.json is damaged: the approver set in trust does not read back; join again/);
      assert.equal(word(await machine.deliver(await commandOf(deployment))), 'accepted');
      const hostile = quorumOfApprovers({ approvers: [createApprover()], approverThreshold: 1, approverSetEpoch: 9 });
      const reported = await machine.offerTrust({ version: 2, roots: [deployment.rootA], quorum: hostile });
      assert.deepEqual(reported, { version: 2n, epoch: 0n, digest: '' }, 'DMN-024 the bundle is taken, its set is not');
      assert.equal(word(await machine.deliver(await commandOf(deployment, { kind: 'node.reboot' }))), 'BATCH_UNAPPROVED no-bundle');
      await machine.restart();
      assert.equal(word(await machine.deliver(await cast.member(batch))), 'BATCH_UNAPPROVED no-bundle', 'a restart is no way out');
      assert.match((await bcd('status', '--data-dir', dataDir)).out, /^quorum: +UNREADABLE, destructive commands are refused: /m);
    });

    it('DMN-034 a set that does not read back beside a good bundle is no empty set; a bundle without roots still stops the daemon', async () => {
      const dataDir = scratchFolder();
      await saveIdentity(dataDir, await joinedNode(deployment, { gatewayUrl: gateway.url, trust: cast.trust }));
      const path = identityPath(dataDir);
      const stored = JSON.parse(await readFile(path, 'utf8')) as { quorum: { keys: unknown }; trust: unknown };
      await writeFile(path, JSON.stringify({ ...stored, quorum: { ...stored.quorum, keys: 'none' } }));
      assert.equal((await getIdentity(dataDir)).identity.quorum.kind, 'unreadable');
      await writeFile(path, JSON.stringify({ ...stored, trust: { version: 'x' } }));
      await assert.rejects(findIdentity(dataDir), { code: 'DATA_CORRUPT' });
    });

    it('a file of a daemon that knew no quorum holds what its bundle says', async () => {
      const dataDir = scratchFolder();
      await saveIdentity(dataDir, await joinedNode(deployment, { gatewayUrl: gateway.url, trust: cast.trust }));
      const path = identityPath(dataDir);
      const { quorum: _quorum, approverSetPin: _pin, ...older } = JSON.parse(await readFile(path, 'utf8')) as Record<string, unknown>;
      await writeFile(path, JSON.stringify(older));
      const { identity } = await getIdentity(dataDir);
      assert.equal(identity.quorum.kind === 'held' && approverSetDigest(identity.quorum.fields), approverSetDigest(set()));
      assert.deepEqual([identity.quorum.kind === 'held' && identity.quorum.epoch, identity.approverSetPin], [1, null]);
    });
  });

  describe('pinned', () => {
    const digest = (): string => approverSetDigest(set());
    const text = (approverSetSha256?: string): string =>
      encodeJoinBundle({ ...joinBundleOf(deployment, gateway.url), ...(approverSetSha256 === undefined ? {} : { approverSetSha256 }) });

    const pinnedBy: [what: string, args: (dataDir: string) => Promise<string[]>][] = [
      ['the flag', async () => [text(), '--approver-set-sha256', digest()]],
      ['the join string', async () => [text(digest())]],
      [
        'the pins of the machine',
        async (dataDir) => {
          const { token, ...pins } = joinBundleOf(deployment, gateway.url);
          await writeFile(`${dataDir}.pins`, encodePinsFile({ ...pins, approverSetSha256: digest() }));
          return [token, '--pins', `${dataDir}.pins`];
        },
      ],
    ];
    for (const [what, args] of pinnedBy) {
      it(`PIN-001 PIN-007 by ${what}: another set and none are passed over, the pinned one is taken`, async () => {
        const cases: [QuorumFields, RegExp, boolean][] = [
          [noQuorum, /destructive commands are refused until the approver set [0-9a-f]{64} comes: none is published/, false],
          [quorumOfApprovers({ approvers: [createApprover()], approverThreshold: 1 }), /comes: another one is published/, false],
          [set(), new RegExp(`approver set ${digest()} of epoch 1 taken, as pinned`), true],
        ];
        for (const [quorum, said, isTaken] of cases) {
          offered = quorum;
          const dataDir = scratchFolder();
          const joined = await bcd('join', ...(await args(dataDir)), '--data-dir', dataDir);
          assert.equal(joined.code, 0, joined.err);
          assert.match(joined.err, said);
          const { identity } = await getIdentity(dataDir);
          assert.equal(identity.approverSetPin, digest());
          assert.equal(identity.quorum.kind === 'held' && identity.quorum.fields.approverKeys.length, isTaken ? 3 : 0);
          assert.equal(identity.trust.version, 3n, 'the rest of the bundle is taken');
          const { out } = await bcd('status', '--data-dir', dataDir);
          assert.match(
            out,
            isTaken
              ? /^quorum: +2 of 3 approvers, epoch 1, set [0-9a-f]{12}, pinned to [0-9a-f]{12}, 0 unbatched an hour$/m
              : /^quorum: +destructive commands are refused until the pinned approver set comes, pinned to/m,
          );
        }
      });
    }

    it('two places that name different sets are an error, and so is what is no digest', async () => {
      const other = 'b'.repeat(64);
      const both = await bcd('join', text(digest()), '--approver-set-sha256', other, '--data-dir', scratchFolder());
      assert.deepEqual(
        [both.code, /--approver-set-sha256 b+ is not the approver set [0-9a-f]{64} that the join string/.test(both.err)],
        [2, true],
      );
      const none = await bcd('join', text(), '--approver-set-sha256', 'B'.repeat(64), '--data-dir', scratchFolder());
      assert.deepEqual([none.code, /It must be 64 lower-case hex digits/.test(none.err)], [2, true]);
      const pins = parsePinsFile(encodePinsFile({ ...joinBundleOf(deployment, gateway.url), approverSetSha256: other }));
      assert.throws(() => joinBundleUnder(pins, text(digest())), /another control plane than this machine's pins: approverSetSha256/);
      assert.equal(joinBundleUnder(pins, text()).approverSetSha256, other);
      assert.equal(parseJoinBundle(text(digest())).approverSetSha256, digest());
      assert.throws(
        () => underPins({ restartableUnits: [], logFiles: {}, approverSetSha256: digest() }, pins, 'pins.json'),
        /approverSetSha256 is [0-9a-f]{64} in the configuration and b+ in pins\.json: they must agree/,
      );
    });

    it('PIN-005 PIN-008 by the configuration of a machine that has joined: nothing destructive until the set comes', async () => {
      const { quorum: _quorum, ...without } = cast.trust;
      machine = await startBcdMachine(deployment, { trust: without, config: { approverSetSha256: digest() } });
      assert.equal(
        word(await machine.deliver(await commandOf(deployment, { kind: 'node.reboot' }))),
        'BATCH_UNAPPROVED awaiting-pinned-set',
      );
      await machine.offerTrust({ ...cast.trust, version: 2 });
      assert.equal(word(await machine.deliver(await cast.member(await cast.batch()))), 'accepted');
    });

    it('APPR-018 joining again with the pin of a later set is the way for a machine that missed too many changes', async () => {
      offered = set();
      const dataDir = scratchFolder();
      assert.equal((await bcd('join', text(), '--data-dir', dataDir)).code, 0);
      const later = quorumOfApprovers({ approvers: [createApprover(), createApprover()], approverSetEpoch: 7 });
      offered = later;
      const again = await bcd('join', text(approverSetDigest(later)), '--replace', '--data-dir', dataDir);
      assert.equal(again.code, 0, again.err);
      assert.match(
        again.err,
        new RegExp(`approver set ${approverSetDigest(later)} of epoch 7 taken, as pinned\n.*enforced the approver set ${digest()} before`),
      );
      offered = noQuorum;
      const emptied = await bcd('join', text(), '--replace', '--data-dir', dataDir);
      assert.equal(emptied.code, 6, emptied.err);
      assert.match(emptied.err, /names no approver, and this machine enforced an approver set in this deployment/);
    });
  });

  it('shows in bcd status that the bundle names another set than the one it enforces', async () => {
    const dataDir = scratchFolder();
    machine = await startBcdMachine(deployment, { trust: cast.trust, dataDir });
    const next = quorumOfApprovers({ approvers: [cast.anna], approverThreshold: 1, approverSetEpoch: 2 });
    await machine.offerTrust({ version: 2, roots: [deployment.rootA], quorum: next });
    const { out } = await bcd('status', '--data-dir', dataDir);
    assert.match(
      out,
      /^quorum: +2 of 3 approvers, epoch 1, set [0-9a-f]{12}, 0 unbatched an hour; LAGS: the bundle names another set, of epoch 2$/m,
    );
    const json = JSON.parse((await bcd('--json', 'status', '--data-dir', dataDir)).out) as { quorum: Record<string, unknown> };
    assert.deepEqual(
      [json.quorum['approverSetEpoch'], json.quorum['approverSetSha256'], json.quorum['lags'], json.quorum['approverSetPin']],
      [1, approverSetDigest(set()), true, null],
    );
    const signed = await signedSet({ ...next, approverSetEpoch: 3 }, [cast.anna, cast.ben], deployment.trustDomain);
    await machine.offerTrust({ version: 3, roots: [deployment.rootA], quorum: signed });
    assert.match(
      (await bcd('status', '--data-dir', dataDir)).out,
      /^quorum: +1 of 1 approvers, epoch 3, set [0-9a-f]{12}, 0 unbatched an hour$/m,
    );
  });
});
