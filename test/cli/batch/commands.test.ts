/** The commands around the approval: lists, trees, files for machines without a network, asking and ending. */
import assert from 'node:assert/strict';
import { readApproverPublicKey } from '../../../cli/batch/approver-key.ts';
import { hour } from '../../../domain/time.ts';
import { countApprovers } from '../../../pki/quorum/index.ts';
import { noQuorum, type QuorumFields } from '../../../pki/trust/index.ts';
import { parseApproval } from '../../../workflows/approve-batch/messages.ts';
import { now } from '../../api/support.ts';
import { createDesk, createHostileApi, type Desk, type HostileApi, type Run, reboot, succeeds, trustDomain } from './hostile-api.ts';

const bytes = (sig: string): Buffer => Buffer.from(sig, 'base64url');

describe('batch commands', function () {
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

  describe('list and show', () => {
    it('BATCLI-047 shows a batch, and whose words its reason is', async () => {
      const person = await succeeds(desk.run('show', 'bat_1', '--json'));
      assert.equal('proposedBy' in (JSON.parse(person.out) as object), false);
      assert.match((await succeeds(desk.run('show', 'bat_1'))).out, /to approve it: better-compute batch approve bat_1 --key KEY/);
    });

    it("BATCLI-037 BATCLI-047 an agent's proposal says so in the same words", async () => {
      const words = "Proposed by agent rack-bot for ann (delegation d-1): the reason is the agent's own text";
      api.batch = { ...api.batch, proposedBy: words };
      assert.equal((JSON.parse((await succeeds(desk.run('show', 'bat_1', '--json'))).out) as { proposedBy: string }).proposedBy, words);
      assert.ok((await succeeds(desk.run('show', 'bat_1'))).out.includes(words));
    });

    it('draws the scope as a tree: kinds, payloads, machines with the places of their leaves', async () => {
      const { out } = await succeeds(desk.run('show', 'bat_1', '--tree'));
      const digest = reboot('x').payloadSha256.slice(0, 12);
      const tree = out
        .slice(out.indexOf(`\n${String(api.batch['root'])}`) + 1)
        .trim()
        .split('\n');
      assert.equal(tree[0], `${String(api.batch['root'])}  root of 3`);
      assert.equal(tree[1], '└─ node.reboot  3');
      assert.equal(tree[2], `   └─ ${digest}  reason: "kernel", delaySeconds: 5`);
      assert.match(tree[3] ?? '', /^ {6}├─ node_\d {2}#0 [0-9a-f]{12}$/);
      assert.match(tree[5] ?? '', /^ {6}└─ node_\d {2}#2 [0-9a-f]{12}$/);
    });

    it('BATCLI-004 draws no tree of other leaves than the root is of', async () => {
      api.leaves.pop();
      const done = await desk.run('show', 'bat_1', '--tree');
      assert.equal(done.exitCode, 9);
      assert.match(done.err, /the control plane answered two different batches/);
      assert.equal(done.out, '');
    });

    it('BAT-056 lists batches through the filter', async () => {
      api.batch = { ...api.batch, reason: 'x\u001b[2K' };
      const { out, err } = await succeeds(desk.run('list', '--state', 'pending'));
      assert.match(out, /^bat_1 +pending +3 +0 of 2 +20.*Z +x\\u\{1b\}\[2K$/m);
      assert.match(err, /better-compute batch show bat_1/);
    });
  });

  describe('sign and submit', () => {
    const exported = async (): Promise<string> => {
      await succeeds(desk.run('show', 'bat_1', '--export', desk.path('bat.json')));
      return desk.path('bat.json');
    };
    const sign = async (...flags: string[]): Promise<Run> => desk.run('sign', '--key', desk.path('alice.pem'), '--yes', ...flags);

    it('BATCLI-044 A-PKI-30 signs an exported batch without a network, and submit hands it over', async () => {
      await keygen('alice.pem');
      const document = await exported();
      const asked = api.pages.length;
      delete desk.env['BETTER_COMPUTE_API_URL'];
      await succeeds(sign('--document', document, '--out', desk.path('a.json')));
      assert.deepEqual([api.pages.length, api.sent], [asked, []], 'nobody was asked');
      const approval = JSON.parse(desk.read('a.json')) as { kid: string; sig: string };
      const facts = {
        batchId: 'bat_1',
        root: Buffer.from(String(api.batch['root']), 'hex'),
        size: 3,
        notAfterMs: now + 24 * hour,
        trustDomain,
      };
      assert.deepEqual(
        countApprovers({ quorum: setOf('alice.pem'), facts, signatures: [{ kid: approval.kid, sig: bytes(approval.sig) }] }).kids,
        [approval.kid],
      );
      desk.env['BETTER_COMPUTE_API_URL'] = api.url;
      assert.match(
        (await succeeds(desk.run('submit', desk.path('a.json')))).out,
        /batch bat_1 approved by key [0-9a-f]{16}: 1 of 2 approvals/,
      );
      assert.deepEqual(api.approvals, [{ batch: 'bat_1', kid: approval.kid, sig: approval.sig }]);
    });

    it('BATCLI-044 its file is what the workflow’s update approve takes', async () => {
      await keygen('alice.pem');
      await succeeds(sign('bat_1', '--out', desk.path('a.json')));
      const approval = JSON.parse(desk.read('a.json')) as { kid: string; sig: string };
      assert.deepEqual(parseApproval(approval, 'bat_1'), { kid: approval.kid, sig: approval.sig });
      assert.throws(() => parseApproval(approval, 'bat_2'), /made for another batch/);
    });

    it('BATCLI-044 BATCLI-048 the same review stands before the signature', async () => {
      await keygen('alice.pem');
      const document = await exported();
      const text = desk.read('bat.json');
      const wrong: readonly [string, string[], RegExp, number][] = [
        [text.replace('"node_2"', '"node_9"'), [], /the control plane answered two different batches/, 9],
        [text.replace('"pending"', '"expired"'), [], /is expired, not pending/, 4],
        [text, ['--root', 'ab'.repeat(32)], /that was reviewed/, 4],
        [text, ['--trust-domain', 'prod.example.com'], /not in prod\.example\.com/, 4],
        [text, ['--max-hours', '23'], /at most 23 h are allowed/, 4],
        [text, ['--expect', desk.write('e', 'node_1')], /not expected: /, 4],
        [text.replace('better-compute-batch', 'something'), [], /is no exported batch/, 2],
        [text.slice(0, 50), [], /is no exported batch/, 2],
        [text.replace(/"root":"[0-9a-f]+"/, '"root":"zz"'), [], /root is not 64/, 9],
      ];
      for (const [content, flags, message, exitCode] of wrong) {
        const done = await sign('--document', desk.write('bent.json', content), ...flags);
        assert.match(done.err, message);
        assert.equal(done.exitCode, exitCode, done.err);
        assert.equal(done.out, '');
      }
      await succeeds(sign('--document', document, '--operations-out', desk.path('ops.json')));
      assert.match(desk.read('ops.json'), /"kernel"/);
      assert.match((await sign('bat_2', '--document', document)).err, /is of batch bat_1, not bat_2/);
      assert.match((await sign()).err, /neither a batch nor --document is named/);
    });

    it('BATCLI-014 BATCLI-035 without --yes, or signed before, there is no signature', async () => {
      await keygen('alice.pem');
      const document = await exported();
      const done = await succeeds(desk.run('sign', '--key', desk.path('alice.pem'), '--document', document));
      assert.equal(done.out.trim(), api.batch['root']);
      api.batch = { ...api.batch, approvals: [{ kid: keyOf('alice.pem').kid, at: now }] };
      const again = await sign('bat_1');
      assert.equal(again.exitCode, 4);
      assert.match(again.err, /has already approved batch bat_1; nothing was signed/);
    });

    it('submit reads every file before it sends the first', async () => {
      await keygen('alice.pem');
      await succeeds(sign('bat_1', '--out', desk.path('a.json')));
      for (const bad of ['{}', 'x', JSON.stringify({ batchId: 'bat_1', kid: 'ab'.repeat(32), sig: 'AAAA' })]) {
        const done = await desk.run('submit', desk.path('a.json'), desk.write('b.json', bad));
        assert.equal(done.exitCode, 2);
        assert.match(done.err, /b\.json is no approval/);
      }
      assert.deepEqual(api.sent, []);
    });
  });

  describe('create and cancel', () => {
    const sent = (): { scope: unknown[]; [name: string]: unknown } => api.sent[0]?.body as never;

    it('asks for a batch of one kind, its payload encoded here', async () => {
      const subjects = desk.write('s', 'node_1\nnode_2\n');
      const { out } = await succeeds(
        desk.run(
          'create',
          '--kind',
          'node.reboot',
          '--subjects',
          subjects,
          '--payload',
          '{"reason":"kernel","delaySeconds":5}',
          '--reason',
          'change 4711',
          '--for',
          '2h',
          '--idempotency-key',
          'k',
        ),
      );
      assert.equal(out.trim(), 'bat_new');
      const { payload } = reboot('node_1');
      assert.deepEqual(sent(), {
        tenantId: 'default',
        reason: 'change 4711',
        scope: ['node_1', 'node_2'].map((subject) => ({ subject, kind: 'node.reboot', payload })),
        notAfterSeconds: 7_200,
        idempotencyKey: 'k',
      });
    });

    it('or of whatever leaves a file lists, let go in waves', async () => {
      const scope = desk.write('scope.json', '[{"subject":"node_1","kind":"node.reboot"}]');
      const waves = { size: 5, maxFailures: 0, pauseMs: 1000, healthGate: true };
      await succeeds(desk.run('create', '--scope', scope, '--reason', 'x', '--waves', JSON.stringify(waves)));
      assert.deepEqual(
        [sent().scope, sent()['waves'], sent()['notAfterSeconds']],
        [[{ subject: 'node_1', kind: 'node.reboot' }], waves, 86_400],
      );
    });

    it('BAT-041 says what is wrong before it asks', async () => {
      const subjects = desk.write('s', 'node_1');
      const wrong: readonly [string[], RegExp][] = [
        [['--kind', 'node.reboot', '--subjects', subjects, '--reason', 'x'.repeat(501)], /has 501 characters, at most 500/],
        [['--kind', 'node.reboot', '--subjects', subjects, '--reason', 'a\u202eb'], /holds U\+202E at position 1/],
        [['--kind', 'node.reboot', '--reason', 'x'], /--kind needs --subjects/],
        [['--reason', 'x'], /from --scope or from --kind/],
        [['--kind', 'node.dance', '--subjects', subjects, '--payload', '{}', '--reason', 'x'], /no command kind "node\.dance"/],
        [
          ['--kind', 'node.reboot', '--subjects', subjects, '--payload', '{"speed":1}', '--reason', 'x'],
          /--payload is no bettercompute\.agent\.v1\.NodeReboot/,
        ],
        [['--scope', desk.write('e', '[]'), '--reason', 'x'], /is no array of 1 to 50000 leaves/],
      ];
      for (const [flags, message] of wrong) {
        const done = await desk.run('create', ...flags);
        assert.match(done.err, message);
        assert.equal(done.exitCode, 2);
      }
      assert.deepEqual(api.sent, []);
    });

    it('ends a batch, or says no to it, when somebody says so', async () => {
      assert.match((await desk.run('cancel', 'bat_1', '--reason', 'wrong rack')).err, /needs --yes/);
      assert.deepEqual(api.sent, []);
      await succeeds(desk.run('cancel', 'bat_1', '--reason', 'wrong rack', '--yes'));
      await succeeds(desk.run('cancel', 'bat_1', '--reject', '--reason', 'not on a Friday', '--yes'));
      assert.deepEqual(api.sent, [
        { path: '/v1/batches/bat_1/cancel', body: { actor: 'ann', reason: 'wrong rack' } },
        { path: '/v1/batches/bat_1/reject', body: { actor: 'ann', reason: 'not on a Friday' } },
      ]);
    });
  });

  const flags: Readonly<Record<string, readonly string[]>> = {
    keygen: ['--out', '--encrypt', '--key'],
    list: ['--state', '--limit'],
    show: ['--tree', '--export', '--operations-out'],
    approve: [
      '--key',
      '--yes',
      '--root',
      '--expect',
      '--allow-unbound',
      '--allow-opaque',
      '--max-hours',
      '--operations-out',
      '--trust-domain',
    ],
    sign: [
      '--document',
      '--out',
      '--key',
      '--yes',
      '--root',
      '--expect',
      '--allow-unbound',
      '--allow-opaque',
      '--max-hours',
      '--operations-out',
      '--trust-domain',
    ],
    submit: [],
    'sign-approvers': ['--key', '--epoch', '--approvers', '--remove', '--threshold', '--tiers', '--unbatched', '--trust-domain', '--out'],
    'sign-override': ['--key', '--rotation', '--kind', '--subject', '--reason', '--trust-domain', '--out'],
    create: ['--scope', '--kind', '--subjects', '--payload', '--reason', '--for', '--tenant', '--idempotency-key', '--waves'],
    cancel: ['--reason', '--reject', '--actor', '--yes'],
  };
  for (const [name, names] of Object.entries(flags))
    it(`BATCLI-045 ${name} says in its help what it takes, with examples`, async () => {
      const { out, err } = await desk.run(name, '--help');
      const help = out + err;
      for (const flag of names) assert.ok(help.includes(`${flag} `) || help.includes(`${flag},`), `${name} ${flag}`);
      assert.match(help, /Examples:\n {2}\$ better-compute batch /);
    });
});
