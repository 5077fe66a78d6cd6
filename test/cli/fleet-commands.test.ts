/** Second table for everything that talks to the operator API: options and a real server's answers → output. */
import assert from 'node:assert/strict';
import { createServer } from 'node:http';

import { joinsDecideRun } from '../../cli/commands/joins/decide.ts';
import { joinsListRun } from '../../cli/commands/joins/list.ts';
import { nodesListRun } from '../../cli/commands/nodes/list.ts';

import { type NodesRebootOptions, nodesRebootRun } from '../../cli/commands/nodes/reboot.ts';
import { setCredentialRun } from '../../cli/commands/nodes/set-credential.ts';
import { nodesShowRun } from '../../cli/commands/nodes/show.ts';
import { nodesDeleteRun, nodesRevokeRun } from '../../cli/commands/nodes/take-away.ts';
import { stuckRun } from '../../cli/commands/stuck.ts';
import { tokensCreateRun } from '../../cli/commands/tokens/create.ts';
import { runCli } from '../../cli/program.ts';
import { ControlError } from '../../domain/errors.ts';
import { encodeJoinBundle, parseJoinBundle } from '../../pki/enroll/index.ts';
import type { JoinRequestView } from '../../services/join/approvals.ts';
import {
  aJoin,
  aNode,
  closeServer,
  createDeployment,
  type FakeDeployment,
  listen,
  now,
  type RunningApi,
  startApi,
} from '../api/support.ts';
import { createDeployment as createTestDeployment, joinBundleOf } from '../harness/deployment.ts';
import { createTestIo, createTestPorts, envFor, type TestIo, type TestIoOptions } from './support.ts';

const list = { json: false, state: null, limit: 1_000, after: '' };

describe('commands over the operator API', () => {
  let deployment: FakeDeployment;
  let api: RunningApi;

  beforeEach(async () => {
    deployment = createDeployment();
    api = await startApi(deployment);
  });
  afterEach(() => api.close());

  const set = (options: TestIoOptions = {}): { io: TestIo; ports: ReturnType<typeof createTestPorts> } => {
    const io = createTestIo({ env: envFor(api.url), ...options });
    return { io, ports: createTestPorts(io) };
  };
  const refusal = (code: string, message: RegExp) => (error: ControlError) => {
    assert.equal(error.code, code, error.message);
    assert.match(error.message, message);
    return true;
  };

  describe('nodes reboot', () => {
    const reboot: NodesRebootOptions = {
      json: false,
      nodes: ['node-a'],
      all: false,
      reason: 'kernel',
      actor: 'ann',
      wave: { percent: 10 },
      maxFailures: 0,
      healthGate: true,
      yes: true,
    };

    it('BAT-031 asks for it with its waves, and says where it waits', async () => {
      const { io, ports } = set();
      await nodesRebootRun(
        { ...reboot, key: 'once', delay: 90_000, pause: 5_000, perLabel: { label: 'rack', count: 1 }, for: 7_200_000 },
        ports,
      );
      const waves = { percent: 10, maxFailures: 0, pauseMs: 5_000, healthGate: true, maxPerLabel: { label: 'rack', count: 1 } };
      assert.deepEqual(deployment.rebootsAsked, [
        { nodes: ['node-a'], actor: 'ann', reason: 'kernel', delaySeconds: 90, windowMs: 7_200_000, waves, unique: 'once' },
      ]);
      assert.equal(io.stdout(), 'rebooting: workflow reboot/once\n');
      assert.match(io.stderr(), /better-compute batch list\n.*better-compute commands show reboot\/once\n$/);
    });

    it('names machines or all of them, and is confirmed', async () => {
      for (const [over, message] of [
        [{ nodes: [] }, /^no node is named/],
        [{ all: true }, /^--all and node ids exclude each other$/],
        [{ nodes: [], all: true, yes: false }, /^this needs --yes where nobody can be asked: Reboot every active node\?$/],
      ] as const)
        await assert.rejects(nodesRebootRun({ ...reboot, ...over }, set().ports), refusal('INVALID_INPUT', message));
      assert.deepEqual(deployment.rebootsAsked, []);
    });
  });

  describe('nodes list', () => {
    it('shows one line a node', async () => {
      deployment.nodes = [aNode('node-a'), aNode('node-b', { connected: false, session: null, state: 'revoked', openCommands: 3 })];
      deployment.nodes.push(aNode('node-c', { connected: false, session: null, lastSeenAt: null }));
      const { io, ports } = set();
      await nodesListRun(list, ports);
      assert.equal(
        io.stdout(),
        `NODE    ROLE  STATE    SESSION  SEEN     TRUST  OPEN
node-a  node  active   gw-1     1 s ago  2      0
node-b  node  revoked  none     1 s ago  -      3
node-c  node  active   none     -        -      0
`,
      );
      assert.equal(io.stderr(), '');
    });

    it('reads page after page, and says what it left out', async () => {
      deployment.nodes = Array.from({ length: 2_500 }, (_, at) => aNode(`node-${String(at).padStart(4, '0')}`));
      const all = set();
      await nodesListRun({ ...list, json: true, limit: 10_000 }, all.ports);
      assert.equal((all.io.json() as { nodes: unknown[] }).nodes.length, 2_500);
      const some = set();
      await nodesListRun({ ...list, limit: 1_200 }, some.ports);
      assert.equal(some.io.stdout().trimEnd().split('\n').length, 1_201);
      assert.equal(some.io.stderr(), 'there are more: --after node-1199\n');
    });

    it('says how the first node joins', async () => {
      const { io, ports } = set();
      await nodesListRun(list, ports);
      assert.deepEqual([io.stdout(), io.stderr()], ['', 'no node; create a token with: better-compute tokens create\n']);
    });
  });

  it('SKEW-038 nodes show tells which sections of its desired state a node does not apply, and why', async () => {
    const whole = aNode('node-a');
    assert.ok(whole.session);
    const sections = [
      { section: 'access', state: 'unsupported', detail: 'the configuration of this daemon names no sshFolder' },
      { section: 'k8s-join', state: 'failed', detail: 'the secret is not there' },
    ] as const;
    deployment.nodes = [{ ...whole, session: { ...whole.session, sections } }];
    const { io, ports } = set();
    await nodesShowRun({ json: false, node: 'node-a' }, ports);
    assert.match(
      io.stdout(),
      /^desired state  generation 3\n {2}access +unsupported: the configuration of this daemon names no sshFolder\n {2}k8s-join +failed: the secret is not there$/m,
    );
  });

  it('nodes show tells all of one node, and NOT_FOUND of none', async () => {
    deployment.nodes = [aNode('node-a')];
    const { io, ports } = set();
    await nodesShowRun({ json: false, node: 'node-a' }, ports);
    assert.equal(
      io.stdout(),
      `node           node-a (node of site default, active, generation 1)
host           node-a.example
joined         2029-12-31T12:00:00Z
session        gw-1, epoch 3, since 2030-01-01T11:59:00Z
seen           1 s ago, daemon 0.1.0
trust version  2
certificate    01ab, until 2030-01-01T13:00:00Z
desired state  generation 3
open commands  0
`,
    );
    await assert.rejects(
      nodesShowRun({ json: false, node: '../v1/trust' }, ports),
      refusal('NOT_FOUND', /^no node is called \.\.\/v1\/trust$/),
    );
  });

  it('JOIN-013 joins shows who waits, approves one and refuses another, by name and reason', async () => {
    deployment.joins = [aJoin('a'), aJoin('b', { nodeId: 'gpu-1' }), aJoin('c', { state: 'refused', decidedBy: 'eve' })];
    const { io, ports } = set();
    await joinsListRun({ json: false, all: false }, ports);
    assert.match(io.stdout(), /^a +join-token +node +eu-1 +\(new\) +aaaaaaaaaaaaaaaa +host-a +1 min 30 s ago +5 s ago +waiting$/m);
    assert.doesNotMatch(io.stdout(), /eve/);
    const word = { json: false, actor: 'ann', reason: 'ticket 812', yes: true };
    const decided = set();
    await joinsDecideRun({ ...word, what: 'approve', id: 'b' }, decided.ports);
    await joinsDecideRun({ ...word, what: 'refuse', id: 'a' }, decided.ports);
    assert.equal(decided.io.stdout(), 'approved join b (join-token, node of site eu-1)\nrefused join a (join-token, node of site eu-1)\n');
    const all = set();
    await joinsListRun({ json: true, all: true }, all.ports);
    assert.deepEqual(
      (all.io.json() as { joins: JoinRequestView[] }).joins.map(({ id, state, decidedBy, reason }) => [id, state, decidedBy, reason]),
      [
        ['a', 'refused', 'ann', 'ticket 812'],
        ['b', 'approved', 'ann', 'ticket 812'],
        ['c', 'refused', 'eve', ''],
      ],
    );
    await assert.rejects(
      joinsDecideRun({ ...word, what: 'approve', id: 'z' }, ports),
      refusal('NOT_FOUND', /no join waits under the id z/),
    );
    await assert.rejects(
      joinsDecideRun({ ...word, yes: false, what: 'approve', id: 'c' }, ports),
      refusal('INVALID_INPUT', /needs --yes .*Approve join c/),
    );
    const none = set();
    deployment.joins = [];
    await joinsListRun({ json: false, all: false }, none.ports);
    assert.match(none.io.stderr(), /no join waits/);
  });

  it('SEC-007 nodes set-credential names a secret for a unit, or takes it away, and takes no value', async () => {
    deployment.nodes = [aNode('node-a')];
    const { io, ports } = set();
    const order = { json: false, node: 'node-a', name: 'k8s-join', actor: 'ann', reason: 'joins eu-1' } as const;
    await setCredentialRun({ ...order, ref: 'secret://k8s/eu-1/token' }, ports);
    await setCredentialRun({ ...order, ref: null }, ports);
    assert.equal(
      io.stdout(),
      `k8s-join of node-a from secret://k8s/eu-1/token: workflow node/node-a/credential/k8s-join
taking k8s-join away from node-a: workflow node/node-a/credential/k8s-join
`,
    );
    assert.deepEqual(
      deployment.credentialsAsked.map(({ nodeId, name, ref }) => [nodeId, name, ref]),
      [
        ['node-a', 'k8s-join', 'secret://k8s/eu-1/token'],
        ['node-a', 'k8s-join', null],
      ],
    );
    await assert.rejects(
      setCredentialRun({ ...order, ref: 'abcdef.0123456789abcdef' }, ports),
      refusal('INVALID_INPUT', /must be a reference/),
    );
    for (const [argv, err] of [
      [['k8s-join'], /either '--ref <reference>' or '--none' is needed/],
      [['k8s-join', '--ref', 'env://A', '--none'], /cannot be used with option/],
      [['access', '--none'], /'access' is invalid for argument 'name'\. Allowed choices are k8s-join, telemetry/],
    ] as const) {
      const refusedIo = createTestIo({ env: envFor(api.url) });
      assert.equal(await runCli(['nodes', 'set-credential', 'node-a', ...argv, '--reason', 'x'], refusedIo), 2);
      assert.match(refusedIo.stderr(), err);
    }
  });

  describe('nodes revoke', () => {
    const revoke = { json: false, node: 'node-a', actor: 'ann', reason: 'stolen' };

    it('revokes with who and why', async () => {
      deployment.nodes = [aNode('node-a')];
      const { io, ports } = set();
      await nodesRevokeRun({ ...revoke, yes: true }, ports);
      assert.equal(io.stdout(), 'revoking node-a: workflow node/node-a/revoke\n');
      assert.deepEqual(deployment.revokesAsked, [{ nodeId: 'node-a', actor: 'ann', reason: 'stolen' }]);
      await assert.rejects(nodesRevokeRun({ ...revoke, yes: true }, ports), refusal('INVALID_STATE', /is already running$/));
    });

    it('deletes with who and why', async () => {
      deployment.nodes = [aNode('node-a')];
      const { io, ports } = set();
      await assert.rejects(nodesDeleteRun({ ...revoke, yes: false }, ports), refusal('INVALID_INPUT', /needs --yes/));
      assert.deepEqual(deployment.revokesAsked, []);
      await nodesDeleteRun({ ...revoke, yes: true }, ports);
      assert.equal(io.stdout(), 'deleting node-a: workflow node/node-a/revoke\n');
      assert.deepEqual(deployment.revokesAsked, [{ nodeId: 'node-a', actor: 'ann', reason: 'stolen', retire: true }]);
    });

    it('does nothing without a yes', async () => {
      deployment.nodes = [aNode('node-a')];
      await assert.rejects(nodesRevokeRun({ ...revoke, yes: false }, set().ports), refusal('INVALID_INPUT', /needs --yes/));
      await assert.rejects(
        nodesRevokeRun({ ...revoke, yes: false }, set({ answers: [false] }).ports),
        refusal('CANCELLED', /^nothing was changed$/),
      );
      assert.deepEqual(deployment.revokesAsked, []);
    });
  });

  it('tokens create writes the token alone on standard output', async () => {
    const { io, ports } = set();
    const asked = {
      json: false,
      tenant: 'acme',
      site: 'eu-1',
      role: 'site',
      node: null,
      lifetimeMs: 900_000,
      actor: 'ann',
      approverSetSha256: null,
    } as const;
    await tokensCreateRun(asked, ports);
    assert.equal(io.stdout(), 'bcjoin1.all\n');
    assert.match(io.stderr(), /^token tok-1 works once, until 2030-01-01T12:15:00Z; on the machine: bcd join <token>$/m);
    assert.deepEqual(deployment.tokensAsked, [
      { tenantId: 'acme', siteId: 'eu-1', role: 'site', nodeId: null, lifetimeMs: 900_000, actor: 'ann' },
    ]);
  });

  it('PIN-001 tokens create puts the approver set into the join string on the operator’s host, whatever the api says', async () => {
    const approverSetSha256 = 'a'.repeat(64);
    const asked = {
      json: false,
      tenant: 'default',
      site: 'eu-1',
      role: 'site',
      node: null,
      lifetimeMs: 900_000,
      actor: 'ann',
      approverSetSha256,
    } as const;
    const answering = (join: string | null) => {
      const { io, ports } = set();
      const created = { tokenId: 'tok-1', token: 'bcj1.x', join, expiresAt: now };
      return { io, ports: { ...ports, api: () => ({ ...ports.api(), createToken: async () => created }) } };
    };
    const honest = joinBundleOf(await createTestDeployment(), 'https://gw.test');
    const { io, ports } = answering(encodeJoinBundle({ ...honest, approverSetSha256: 'b'.repeat(64) }));
    await tokensCreateRun(asked, ports);
    assert.equal(parseJoinBundle(io.stdout()).approverSetSha256, approverSetSha256);
    await assert.rejects(tokensCreateRun(asked, answering(null).ports), refusal('INVALID_STATE', /no join string that could carry/));
  });

  describe('stuck', () => {
    it('is one list', async () => {
      deployment.stuckWorkflows = [
        {
          kind: 'workflow',
          subject: 'rotate-command-root',
          since: now - 600_000,
          waitsFor: 'waiting-fleet: node-3 at 1',
          help: 'start the nodes named',
        },
      ];
      deployment.absent = [{ id: 'node-3', seenAt: now - 300_000, createdAt: 0, openCommands: 0 }];
      const { io, ports } = set();
      await stuckRun({ json: false }, ports);
      assert.equal(
        io.stdout(),
        `workflow rotate-command-root
  waits for  waiting-fleet: node-3 at 1
  since      10 min 0 s ago
  helps      start the nodes named
node node-3
  waits for  its next session
  since      5 min 0 s ago
  helps      start bcd on node-3; if it is gone for good: better-compute nodes revoke node-3
`,
      );
    });

    it('says when nothing waits', async () => {
      const { io, ports } = set();
      await stuckRun({ json: false }, ports);
      assert.equal(io.stdout(), 'nothing waits\n');
    });

    it('asks Temporal itself when the API is down, and says what is missing', async () => {
      const io = createTestIo({ env: envFor('http://127.0.0.1:1') });
      const item = { kind: 'workflow', subject: 'rotate-command-root', since: now, waitsFor: 'adding', help: 'x' } as const;
      await stuckRun({ json: true }, createTestPorts(io, { stuckWorkflows: async () => [item] }));
      const { stuck } = io.json() as { stuck: { subject: string }[] };
      assert.deepEqual(
        stuck.map(({ subject }) => subject),
        ['operator API', 'rotate-command-root'],
      );
    });

    it('still answers when everything is down', async () => {
      const io = createTestIo({ env: envFor('http://127.0.0.1:1') });
      const down = async (): Promise<never> => {
        throw new ControlError('UNAVAILABLE', 'Temporal at 127.0.0.1:7233 does not answer');
      };
      await stuckRun({ json: false }, createTestPorts(io, { stuckWorkflows: down }));
      assert.match(io.stdout(), /^source operator API$[\s\S]*^source temporal$/m);
    });
  });

  describe('what the API refuses', () => {
    it('arrives with its own code and message', async () => {
      const io = createTestIo({ env: { ...envFor(api.url), BETTER_COMPUTE_OPERATOR_TOKEN: 'wrong' } });
      await assert.rejects(
        nodesListRun(list, createTestPorts(io)),
        refusal('UNAUTHENTICATED', /^the bearer token is not the operator token of this deployment$/),
      );
    });

    it('is told apart from a server that is something else', async () => {
      const other = createServer(
        (_request, response) => void response.writeHead(200, { 'content-type': 'text/html' }).end('<h1>It works!</h1>'),
      );
      const url = await listen(other);
      try {
        const io = createTestIo({ env: envFor(url) });
        await assert.rejects(nodesListRun(list, createTestPorts(io)), refusal('UNAVAILABLE', /answered 200 and is no operator API$/));
      } finally {
        await closeServer(other);
      }
    });

    it('is told apart from no server at all', async () => {
      const io = createTestIo({ env: envFor('http://127.0.0.1:1') });
      await assert.rejects(
        nodesListRun(list, createTestPorts(io)),
        refusal('UNAVAILABLE', /^the operator API at http:\/\/127.0.0.1:1 does not answer$/),
      );
    });
  });
});
