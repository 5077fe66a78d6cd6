/** Approver keys: made, kept in a token, and used for approver sets and overrides. */
import assert from 'node:assert/strict';
import { createPrivateKey, createPublicKey } from 'node:crypto';
import { statSync } from 'node:fs';
import { readApprovalFiles } from '../../../cli/approvals-file.ts';
import { readApproverPublicKey } from '../../../cli/batch/approver-key.ts';
import { hour } from '../../../domain/time.ts';
import { countApprovers, countSigners, signersOfSet } from '../../../pki/quorum/index.ts';
import { approverSetDigest, noQuorum, type QuorumFields } from '../../../pki/trust/index.ts';
import { kidOf, spkiOf } from '../../../pki/x509/index.ts';
import { signingInput } from '../../../proto/index.ts';
import { readApproverFiles } from '../../../runtime/approver-files.ts';
import { quorumOfFiles } from '../../../services/approvers.ts';
import { now } from '../../api/support.ts';
import { removeScratchFolders } from '../../harness/scratch.ts';
import { createSoftHsm, type SoftHsm, softHsmMissing } from '../../harness/softhsm.ts';
import { createDesk, createHostileApi, type Desk, type HostileApi, type Run, succeeds, trustDomain } from './hostile-api.ts';

const bytes = (sig: string): Buffer => Buffer.from(sig, 'base64url');

describe('approver keys', function () {
  this.timeout(20_000);
  let api: HostileApi;
  let desk: Desk;
  beforeEach(async () => {
    api = await createHostileApi();
    desk = createDesk(api);
  });
  afterEach(async () => {
    desk.close();
    await api.close();
  });

  const keygen = async (...names: string[]): Promise<void> => {
    for (const name of names) await succeeds(desk.run('keygen', '--out', desk.path(name)));
  };
  const keyOf = (name: string) => readApproverPublicKey(desk.path(`${name}.pub`));
  const setOf = (...names: string[]): QuorumFields => ({ ...noQuorum, approverKeys: names.map(keyOf), approverThreshold: 1 });

  describe('keygen', () => {
    it('BATCLI-038 QUO-067 makes a private PEM for its owner alone and the .pub that the control plane reads', async () => {
      const { out } = await succeeds(desk.run('keygen', '--out', desk.path('alice.pem')));
      const spki = spkiOf(createPrivateKey(desk.read('alice.pem')));
      assert.equal(out.trim(), kidOf(spki));
      if (process.platform !== 'win32') assert.equal(statSync(desk.path('alice.pem')).mode & 0o777, 0o600);
      assert.deepEqual(spkiOf(createPublicKey(desk.read('alice.pem.pub'))), spki);
      const read = readApproverFiles({ BETTER_COMPUTE_APPROVER_KEYS: desk.path('alice.pem.pub'), BETTER_COMPUTE_APPROVER_THRESHOLD: 1 });
      assert.deepEqual(
        read?.keys.map((key) => Buffer.from(key).toString('hex')),
        [Buffer.from(spki).toString('hex')],
      );
    });

    it('BATCLI-038 overwrites nothing', async () => {
      await keygen('alice.pem');
      const before = desk.read('alice.pem');
      const again = await desk.run('keygen', '--out', desk.path('alice.pem'));
      assert.equal(again.exitCode, 4);
      assert.match(again.err, /alice\.pem is there already/);
      assert.equal(desk.read('alice.pem'), before);
    });
  });

  describe('sign-approvers', () => {
    const signSet = (...flags: string[]): Promise<Run> =>
      desk.run('sign-approvers', '--key', desk.path('alice.pem'), '--epoch', '2', ...flags);
    const pubs = (...names: string[]): string => names.map((name) => desk.path(`${name}.pub`)).join(',');
    beforeEach(async () => {
      desk.env['BETTER_COMPUTE_TRUST_DOMAIN'] = trustDomain;
      await keygen('alice.pem', 'bob.pem', 'dave.pem');
    });

    it('BATCLI-039 BATCLI-040 BATCLI-041 BATCLI-042 BATCLI-043 signs the canonical set of an epoch', async () => {
      const approvers = pubs('alice.pem', 'bob.pem', 'dave.pem');
      const { out } = await succeeds(signSet('--approvers', approvers, '--threshold', '2', '--tiers', '5:1', '--unbatched', '3'));
      const document = JSON.parse(out) as {
        epoch: number;
        kid: string;
        sig: string;
        approverSetSha256: string;
        quorum: { tiers: unknown; approvers: unknown[]; threshold: number };
      };
      const quorum: QuorumFields = {
        ...setOf('alice.pem', 'bob.pem', 'dave.pem'),
        approverThreshold: 2,
        tiers: [{ maxScopeSize: 5, threshold: 1 }],
        unbatchedDestructivePerHour: 3,
      };
      assert.equal(document.approverSetSha256, approverSetDigest(quorum));
      assert.deepEqual(
        [document.epoch, document.quorum.tiers, document.quorum.approvers.length, document.quorum.threshold],
        [2, quorum.tiers, 3, 2],
      );
      const signatures = [{ kid: document.kid, sig: bytes(document.sig) }];
      assert.deepEqual(signersOfSet(setOf('alice.pem'), { epoch: 2, quorum, trustDomain }, signatures), [document.kid]);
      assert.deepEqual(signersOfSet(setOf('alice.pem'), { epoch: 2, quorum, trustDomain: 'staging.example.com' }, signatures), []);
    });

    it('BATCLI-043 APPR-029 its files are what BETTER_COMPUTE_APPROVER_SET_SIGNATURES reads', async () => {
      const flags = ['--approvers', pubs('alice.pem', 'bob.pem'), '--threshold', '2', '--unbatched', '1'];
      await succeeds(signSet(...flags, '--out', desk.path('alice-2.json')));
      await succeeds(desk.run('sign-approvers', '--key', desk.path('bob.pem'), '--epoch', '2', ...flags, '--out', desk.path('bob-2.json')));
      const files = readApproverFiles({
        BETTER_COMPUTE_APPROVER_KEYS: pubs('alice.pem', 'bob.pem'),
        BETTER_COMPUTE_APPROVER_THRESHOLD: 2,
        BETTER_COMPUTE_UNBATCHED_PER_HOUR: 1,
        BETTER_COMPUTE_APPROVER_SET_SIGNATURES: `${desk.path('alice-2.json')},${desk.path('bob-2.json')}`,
      });
      assert.ok(files !== null);
      const quorum = quorumOfFiles(files);
      assert.equal(quorum.approverSetEpoch, 2);
      assert.equal(signersOfSet(setOf('alice.pem', 'bob.pem'), { epoch: 2, quorum, trustDomain }, quorum.approverSetSignatures).length, 2);
    });

    it('BATCLI-041 QUO-061 refuses what could not be published, before a key is used', async () => {
      const two = pubs('alice.pem', 'bob.pem');
      const wrong: readonly [string[], RegExp][] = [
        [['--approvers', two, '--threshold', '3'], /threshold 3 is not a whole number from 1 to the number of keys, 2/],
        [['--approvers', two, '--threshold', '2', '--tiers', '5'], /maxScopeSize:threshold/],
        [['--approvers', two, '--threshold', '2', '--tiers', '5:2,3:1'], /sizes must ascend/],
        [['--approvers', `${two},${desk.path('alice.pem.pub')}`, '--threshold', '2'], /listed more than once/],
        [['--approvers', desk.path('alice.pem'), '--threshold', '1'], /holds a private key: name the \.pub file/],
        [['--threshold', '1'], /needs --approvers and --threshold/],
        [['--remove', '--threshold', '1'], /--remove ends the quorum/],
        [['--approvers', two, '--threshold', '2', '--unbatched', '-1'], /whole number from 0/],
      ];
      for (const [flags, message] of wrong) {
        const done = await signSet(...flags);
        assert.match(done.err, message);
        assert.deepEqual([done.exitCode, done.out], [2, '']);
      }
    });

    it('APPR-001 signs the end of the quorum', async () => {
      const document = JSON.parse((await succeeds(signSet('--remove'))).out) as {
        kid: string;
        sig: string;
        quorum: { approvers: unknown[] };
      };
      assert.deepEqual(document.quorum.approvers, []);
      assert.equal(
        signersOfSet(setOf('alice.pem'), { epoch: 2, quorum: noQuorum, trustDomain }, [{ kid: document.kid, sig: bytes(document.sig) }])
          .length,
        1,
      );
    });

    it('APPR-006 needs to know for which deployment', async () => {
      delete desk.env['BETTER_COMPUTE_TRUST_DOMAIN'];
      const done = await signSet('--remove');
      assert.equal(done.exitCode, 2);
      assert.match(done.err, /it is not said for which deployment to sign/);
      await succeeds(signSet('--remove', '--trust-domain', trustDomain));
    });
  });

  it('H-08 sign-override signs one override of one rotation, in the file that rotation reads', async () => {
    await keygen('alice.pem');
    const out = desk.path('force.json');
    await succeeds(
      desk.run(
        'sign-override',
        '--key',
        desk.path('alice.pem'),
        '--rotation',
        'rot_1',
        '--kind',
        'force',
        '--subject',
        'fleet',
        '--reason',
        'burnt',
        '--trust-domain',
        trustDomain,
        '--out',
        out,
      ),
    );
    const signatures = readApprovalFiles(out).map(({ kid, sig }) => ({ kid, sig: bytes(sig) }));
    const signed = (...parts: string[]): number =>
      countSigners({ quorum: setOf('alice.pem'), input: signingInput('rotation-override', parts), signatures }).kids.length;
    assert.equal(signed('rot_1', 'force', 'fleet', 'burnt', trustDomain), 1);
    assert.equal(signed('rot_2', 'force', 'fleet', 'burnt', trustDomain), 0);
    assert.equal(signed('rot_1', 'abort', 'fleet', 'burnt', trustDomain), 0);
  });

  describe('SoftHSM 2: an approver key in a token (skipped where it is not installed)', function () {
    this.timeout(120_000);
    let hsm: SoftHsm;
    before(async function () {
      if ((await softHsmMissing()) !== null) return this.skip();
      hsm = createSoftHsm();
    });
    after(removeScratchFolders);

    it('BATCLI-046 QUO-066 keygen makes it, approve signs with it, and it never lies in a file', async () => {
      Object.assign(desk.env, { PATH: process.env['PATH'], ...hsm.env });
      const key = 'pkcs11:token=compute;object=approver';
      await succeeds(desk.run('keygen', '--key', key, '--out', desk.path('token')));
      const { kid } = readApproverPublicKey(desk.path('token.pub'));
      await succeeds(desk.run('approve', 'bat_1', '--key', key, '--yes'));
      const [approval] = api.approvals;
      assert.equal(approval?.kid, kid);
      const facts = {
        batchId: 'bat_1',
        root: Buffer.from(String(api.batch['root']), 'hex'),
        size: 3,
        notAfterMs: now + 24 * hour,
        trustDomain,
      };
      assert.deepEqual(countApprovers({ quorum: setOf('token'), facts, signatures: [{ kid, sig: bytes(approval?.sig ?? '') }] }).kids, [
        kid,
      ]);
    });
  });
});
