/** `batch approve` against an api that lies: every inconsistency is found before a key is used. */
import assert from 'node:assert/strict';
import { chmodSync, existsSync, statSync } from 'node:fs';
import { readApproverPublicKey } from '../../../cli/batch/approver-key.ts';
import { ControlError } from '../../../domain/errors.ts';
import { hour } from '../../../domain/time.ts';
import { countApprovers } from '../../../pki/quorum/index.ts';
import { noQuorum } from '../../../pki/trust/index.ts';
import { now } from '../../api/support.ts';
import { type Approver, createApprover } from './approver.ts';
import { type Run, reboot, trustDomain, type WireLeaf } from './hostile-api.ts';

describe('batch approve', function () {
  this.timeout(20_000);
  let alice: Approver;
  let { api, desk, approve, bend, tell, refuses } = {} as Approver;
  beforeEach(async () => {
    alice = await createApprover();
    ({ api, desk, approve, bend, tell, refuses } = alice);
  });
  afterEach(() => alice.close());

  function signedBy(facts: Record<string, unknown>): readonly string[] {
    const { kid, spki } = readApproverPublicKey(desk.path('alice.pem.pub'));
    const [approval] = api.approvals;
    assert.ok(approval !== undefined && approval.kid === kid);
    return countApprovers({
      quorum: { ...noQuorum, approverKeys: [{ kid, spki }], approverThreshold: 1 },
      facts: {
        batchId: 'bat_1',
        root: Buffer.from(String(api.batch['root']), 'hex'),
        size: 3,
        notAfterMs: now + 24 * hour,
        trustDomain,
        ...facts,
      },
      signatures: [{ kid, sig: Buffer.from(approval.sig, 'base64url') }],
    }).kids;
  }

  it('BATCLI-012 signs batch id, root, size, end and trust domain, and nothing else', async () => {
    const done = await approve();
    assert.equal(done.exitCode, 0, done.err);
    assert.match(done.out, /batch bat_1 approved by key [0-9a-f]{16}: 1 of 2 approvals/);
    assert.equal(signedBy({}).length, 1);
    for (const other of [
      { batchId: 'bat_2' },
      { size: 4 },
      { notAfterMs: 1 },
      { trustDomain: 'staging.example.com' },
      { root: Buffer.alloc(32) },
    ])
      assert.deepEqual(signedBy(other), []);
  });

  it('BATCLI-014 without --yes it shows, prints the root, and signs nothing', async () => {
    const done = await desk.run('approve', 'bat_1', '--key', desk.path('alice.pem'));
    assert.equal(done.exitCode, 0);
    assert.equal(done.out.trim(), api.batch['root']);
    assert.match(done.err, /nothing is signed yet/);
    assert.deepEqual(api.sent, []);
  });

  it('BATCLI-009 BATCLI-011 shows why, who asked, who approved and until when, before the signature', async () => {
    bend({ approvals: [{ kid: 'ab'.repeat(32), at: now - hour }] });
    const { err } = await approve();
    assert.match(err, /^reason +kernel update, change 4711$/m);
    assert.match(err, /^asked for by +ann$/m);
    assert.match(err, /^approvals +1 of 2$/m);
    assert.match(err, /^approved by abababababababab at 20/m);
    assert.match(err, /^window +until .*Z, .* from now$/m);
    assert.match(err, new RegExp(`^deployment +${trustDomain}$`, 'm'));
  });

  it("BATCLI-036 says first that the reason is an agent's own text", async () => {
    const words = "Proposed by agent rack-bot for ann (delegation d-1): the reason is the agent's own text";
    bend({ proposedBy: words });
    assert.ok((await approve()).err.includes(words));
    bend({ proposedBy: undefined, createdByAgent: 'rack-bot', delegationId: 'd-1' });
    assert.ok((await desk.run('approve', 'bat_1', '--key', desk.path('alice.pem'))).err.includes(words));
  });

  it('BATCLI-010 names twelve subjects of a kind and counts the rest', async () => {
    tell(Array.from({ length: 13 }, (_, i) => reboot(`node-${String.fromCodePoint(97 + i)}`)));
    const [line = ''] = /^node\.reboot .*$/m.exec((await approve()).err) ?? [];
    assert.match(line, /and 1 more$/);
    assert.equal(line.match(/node-[a-m]/g)?.length, 12);
  });

  it('BATCLI-002 BATCLI-013 refuses a batch that is not pending', async () => {
    for (const state of ['approved', 'cancelled', 'expired']) {
      bend({ state });
      await refuses(approve(), new RegExp(`batch bat_1 is ${state}, not pending`));
    }
    assert.deepEqual(api.pages, [], 'its scope is not even read');
  });

  it('BATCLI-003 reads the scope in pages of up to 5,000 leaves', async function () {
    this.timeout(60_000);
    tell(Array.from({ length: 12_000 }, (_, i) => ({ subject: `node-${i}`, kind: 'node.reboot', payloadSha256: '' })));
    assert.equal((await approve('--allow-unbound')).exitCode, 0);
    assert.equal(signedBy({ size: 12_000 }).length, 1);
    assert.deepEqual(api.pages, [
      { after: null, limit: '5000' },
      { after: '4999', limit: '5000' },
      { after: '9999', limit: '5000' },
    ]);
  });

  it('BATCLI-001 BATCLI-004 BATCLI-005 BATCLI-006 refuses leaves that are not the ones it is asked to sign', async () => {
    const same = /SCOPE_MISMATCH|the control plane answered two different batches/;
    const lies: readonly [string, () => void, RegExp][] = [
      [
        'another root',
        () => bend({ root: 'ab'.repeat(32) }),
        /the listed leaves have the root [0-9a-f]{64}, approvers are asked to sign (ab){32}/,
      ],
      ['a smaller size', () => bend({ size: 2 }), /more than the 2 leaves that approvers are asked to sign are listed/],
      ['a larger size', () => bend({ size: 4 }), /3 distinct leaves are listed, approvers are asked to sign 4/],
      ['a hidden leaf', () => void api.leaves.splice(1, 1), /2 distinct leaves are listed, approvers are asked to sign 3/],
      ['no leaf at all', () => void api.leaves.splice(0), /no leaf is listed, approvers are asked to sign 3/],
      ['a leaf too many', () => void api.leaves.push({ ...reboot('node_4'), index: 3 }), /more than the 3 leaves/],
      ['another machine', () => void Object.assign(api.leaves[0] as WireLeaf, { subject: 'node_9' }), /the listed leaves have the root/],
      [
        'another kind',
        () => void Object.assign(api.leaves[0] as WireLeaf, { kind: 'service.restart', payload: undefined }),
        /the listed leaves have the root/,
      ],
      [
        'one leaf twice instead of another',
        () => void Object.assign(api.leaves[0] as WireLeaf, { subject: (api.leaves[1] as WireLeaf).subject }),
        /2 distinct leaves/,
      ],
      [
        'other bytes under a digest',
        () => void Object.assign(api.leaves[0] as WireLeaf, { payload: reboot('x', 'wipe it').payload }),
        /the payload that is shown for node\.reboot on node_\d has the digest/,
      ],
    ];
    for (const [what, lie, message] of lies) {
      tell([reboot('node_1'), reboot('node_2'), reboot('node_3')]);
      lie();
      assert.match((await refuses(approve(), message, 9)).err, same, what);
    }
  });

  it('BATCLI-007 a page that does not advance ends it: no endless loop', async () => {
    const answers: readonly [unknown, RegExp][] = [
      [{ leaves: [], next: 2 }, /a page without leaves says that more follow/],
      [
        {
          leaves: [
            { ...reboot('node_1'), index: 1 },
            { ...reboot('node_2'), index: 1 },
          ],
          next: null,
        },
        /leaf 1 is listed after leaf 1/,
      ],
      [{ leaves: [{ ...reboot('node_1'), index: 0 }], next: 0 }, /leaf 0 is listed after leaf 0/],
      [{ leaves: [{ ...reboot('node_1'), index: 1 }], next: 0 }, /a page that ends with leaf 1 goes on after 0/],
      [{ leaves: [{ ...reboot('node_1'), index: 0 }], next: 7 }, /a page that ends with leaf 0 goes on after 7/],
    ];
    for (const [answer, message] of answers) {
      api.override = (path) => (path.endsWith('/scope') ? answer : undefined);
      await refuses(approve(), new RegExp(`the pages of the scope do not advance: ${message.source}`), 9);
    }
  });

  it('BATCLI-008 an answer without a usable root, size or end is no answer', async () => {
    const bad: readonly [Record<string, unknown>, RegExp][] = [
      [{ root: undefined }, /the answer about the batch is not usable: root/],
      [{ root: 'ab' }, /root is not 64 lower-case hex digits/],
      [{ root: 'AB'.repeat(32) }, /root is not/],
      [{ size: 1.5 }, /size/],
      [{ size: 0 }, /size/],
      [{ size: 50_001 }, /size/],
      [{ size: '3' }, /size/],
      [{ notAfterMs: 1e300 }, /notAfterMs/],
      [{ state: 'open' }, /state/],
      [{ trustDomain: 'a\u001b[2J' }, /trustDomain is no trust domain/],
      [{ id: 'bat_2' }, /batch bat_1 was asked for, bat_2 was answered/],
      [{ approvals: [{ kid: 'x', at: 1 }] }, /approvals.0.kid is not/],
    ];
    const batch = api.batch;
    for (const [change, message] of bad) {
      api.batch = { ...batch, ...change };
      await refuses(approve(), message, 9);
    }
    for (const body of ['[]', 'null', '"x"', '{', '<html>']) {
      api.override = () => body;
      await refuses(approve(), /not usable|not JSON/, 9);
    }
  });

  it('BATCLI-008 an endless answer does not fill the memory', async () => {
    api.override = (path) => (path.endsWith('/scope') ? `{"leaves":[],"x":"${'y'.repeat(16 * 2 ** 20)}"}` : undefined);
    await refuses(approve(), /the answer has more than \d+ bytes/, 9);
  });

  it('BATCLI-029 BATCLI-030 BATCLI-031 BATCLI-032 refuses a window that is closed, or open too long', async () => {
    bend({ notAfterMs: now - 1 });
    await refuses(approve(), /the window of batch bat_1 closed at/);
    bend({ notAfterMs: now + 72 * hour + 1 });
    await refuses(approve(), /stays open for 73 h, until .*: an approval admits its commands for all of it, at most 72 h are allowed/);
    bend({ notAfterMs: now + 720 * hour + 1 });
    await refuses(approve('--max-hours', '720'), /at most 720 h/);
    assert.match((await approve('--max-hours', '721')).err, /whole number from 1 to 720/);
    assert.equal((await approve('--max-hours', '721')).exitCode, 2);
    assert.deepEqual(api.sent, []);
    bend({ notAfterMs: now + 72 * hour });
    assert.equal((await approve()).exitCode, 0);
  });

  it('BATCLI-033 refuses a key file that others can read, as ssh does', async function () {
    if (process.platform === 'win32') return this.skip();
    for (const mode of [0o644, 0o640, 0o604]) {
      chmodSync(desk.path('alice.pem'), mode);
      await refuses(approve(), /alice\.pem can be read by others \(mode 06/);
    }
    chmodSync(desk.path('alice.pem'), 0o600);
    assert.equal((await approve()).exitCode, 0);
  });

  it('BATCLI-034 an encrypted key needs its passphrase', async () => {
    assert.equal((await desk.run('keygen', '--out', desk.path('bob.pem'), '--encrypt')).exitCode, 2);
    assert.ok(!existsSync(desk.path('bob.pem')));
    desk.env['BETTER_COMPUTE_APPROVER_PASSPHRASE'] = 'correct horse';
    assert.equal((await desk.run('keygen', '--out', desk.path('bob.pem'), '--encrypt')).exitCode, 0);
    assert.match(desk.read('bob.pem'), /BEGIN ENCRYPTED PRIVATE KEY/);
    const asBob = (): Promise<Run> => desk.run('approve', 'bat_1', '--key', desk.path('bob.pem'), '--yes');
    delete desk.env['BETTER_COMPUTE_APPROVER_PASSPHRASE'];
    await refuses(asBob(), /bob\.pem is encrypted and BETTER_COMPUTE_APPROVER_PASSPHRASE is not set/, 2);
    desk.env['BETTER_COMPUTE_APPROVER_PASSPHRASE'] = 'wrong';
    await refuses(asBob(), /does not open with the passphrase/, 2);
    desk.env['BETTER_COMPUTE_APPROVER_PASSPHRASE'] = 'correct horse';
    assert.equal((await asBob()).exitCode, 0);
  });

  it('BATCLI-035 a key that has approved is told so, and signs nothing', async () => {
    const { kid } = readApproverPublicKey(desk.path('alice.pem.pub'));
    bend({ approvals: [{ kid, at: now }] });
    const done = await approve();
    assert.equal(done.exitCode, 0);
    assert.match(done.out, new RegExp(`key ${kid.slice(0, 16)} has already approved batch bat_1; nothing was signed`));
    assert.deepEqual(api.sent, []);
  });

  it('BATCLI-046 needs a key, and one that is a P-256 private key', async () => {
    await refuses(desk.run('approve', 'bat_1', '--yes'), /required option '--key <key>'/, 2);
    await refuses(desk.run('approve', 'bat_1', '--yes', '--key', desk.path('alice.pem.pub')), /can be read by others|is a public key/);
    await refuses(desk.run('approve', 'bat_1', '--yes', '--key', desk.write('x', 'hello')), /holds no private key in PEM/, 2);
    await refuses(desk.run('approve', 'bat_1', '--yes', '--key', desk.path('nobody.pem')), /cannot be read/, 5);
    assert.equal(statSync(desk.path('alice.pem')).mode & 0o777, 0o600);
  });

  it('QUO-046 the deployment that the approver means is not the api’s to choose', async () => {
    await refuses(
      approve('--trust-domain', 'prod.example.com'),
      /asks for an approval in trust domain compute\.example\.com, not in prod\.example\.com/,
    );
    desk.env['BETTER_COMPUTE_TRUST_DOMAIN'] = 'prod.example.com';
    await refuses(approve(), /not in prod\.example\.com/);
    assert.equal((await approve('--trust-domain', trustDomain)).exitCode, 0);
  });

  it('BAT-056 nothing that the server says reaches the terminal as it would obey it', async () => {
    bend({ reason: 'harmless\u001b[2K\u001b[1A\u202egnp.exe\u0007', createdBy: 'ann\u200b\u009b31m' });
    tell([reboot('node_1', 'p\u0430ssword reset \u2066x')]);
    bend({ reason: 'harmless\u001b[2K\u001b[1A\u202egnp.exe\u0007\\u{1b}', createdBy: 'ann\u200b\u009b31m' });
    const { err } = await approve();
    assert.doesNotMatch(err, /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202e\u200b\u2066\u0430]/);
    assert.match(err, /reason +harmless\\u\{1b\}\[2K\\u\{1b\}\[1A\\u\{202e\}gnp\.exe\\u\{7\}\\\\u\{1b\}/);
    assert.match(err, /reason: "p\\u\{430\}ssword reset \\u\{2066\}x"/);
    assert.match(err, /^warning: the reason holds characters that a terminal does not show: U\+001B, U\+202E, U\+0007$/m);
    assert.match(err, /^warning: a text of node\.reboot [0-9a-f]{12} holds letters that look like others: U\+0430$/m);
    const { out } = await desk.run('approve', 'bat_1', '--key', desk.path('alice.pem'), '--json');
    assert.doesNotMatch(out, /[\u007f-\u009f\u202e\u200b\u2066]/);
    assert.equal((JSON.parse(out) as { reason: string }).reason, api.batch['reason'], 'and JSON reads back as it was');
  });

  it('BAT-056 a refusal in the server’s words goes through the filter too', async () => {
    api.override = () => {
      throw new ControlError('NOT_FOUND', 'no\u001b[2J batch', { details: { reason: 'x', hint: 'type\u202e this' } });
    };
    const { err } = await refuses(approve(), /error: no\\u\{1b\}\[2J batch/, 5);
    assert.match(err, /hint: type\\u\{202e\} this/);
  });

  it('BATCLI-001 a leaf that no scope can hold, and names that look alike, are told', async () => {
    tell([reboot('node_1'), reboot('node_l')]);
    assert.match((await approve()).err, /^warning: these differ, and hardly look it: node_1, node_l$/m);
    api.approvals.splice(0);
    api.sent.splice(0);
    Object.assign(api.leaves[0] as WireLeaf, { subject: 'n\u043ede_1' });
    await refuses(approve(), /a leaf is listed that no scope can hold: subject "n\\u043ede_1"/, 9);
  });
});
