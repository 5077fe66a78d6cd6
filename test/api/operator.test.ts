import assert from 'node:assert/strict';
import { ControlError } from '../../domain/errors.ts';
import { aCommand, aJoin, aNode, ask, createDeployment, type FakeDeployment, now, post, type RunningApi, startApi } from './support.ts';

describe('the operator API', () => {
  let deployment: FakeDeployment;
  let api: RunningApi;

  beforeEach(async () => {
    deployment = createDeployment();
    api = await startApi(deployment);
  });
  afterEach(() => api.close());

  describe('credentials', () => {
    it('refuses a request without a bearer before it reads anything', async () => {
      const { status, body, headers } = await ask(`${api.url}/v1/nodes`, { auth: null });
      assert.equal(status, 401);
      assert.equal(body['code'], 'UNAUTHENTICATED');
      assert.equal(body['message'], 'the request carries no bearer token (Authorization: Bearer …)');
      assert.equal(headers.get('content-type'), 'application/problem+json; charset=utf-8');
    });

    for (const auth of ['Bearer wrong', 'Basic Zm9vOmJhcg==', `Bearer ${'b'.repeat(42)}`]) {
      it(`refuses "${auth}"`, async () => {
        const { status, body } = await ask(`${api.url}/v1/nodes`, { auth });
        assert.equal(status, 401);
        assert.equal(body['code'], 'UNAUTHENTICATED');
      });
    }

    it('shows its own description to anyone', async () => {
      const { status, body } = await ask(`${api.url}/openapi.json`, { auth: null });
      assert.equal(status, 200);
      assert.equal(body['openapi'], '3.1.0');
    });
  });

  it('SSH-006 lists the certificates that were issued and takes one back by its serial, which must have been given out', async () => {
    const issued = { nodeId: 'node-1', account: 'root', principal: 'root@node-1', keyId: 'ada', publicKey: 'SHA256:x', issuedTo: 'ada' };
    deployment.sshCertificates.push({ serial: '9007199254740993', ...issued, issuedAt: now, validBefore: now + 1, revokedAt: null });
    const listed = await ask(`${api.url}/v1/ssh-certificates?node=node-1`);
    assert.deepEqual(listed.body, { certificates: deployment.sshCertificates });
    const path = `${api.url}/v1/ssh-certificates`;
    const words = JSON.stringify({ actor: 'ann', reason: 'laptop lost' });
    const taken = await post(`${path}/9007199254740993/revoke`, words);
    assert.deepEqual([taken.status, taken.body], [202, { workflowId: 'ssh/9007199254740993/revoke', runId: 'run-3' }]);
    assert.deepEqual(deployment.sshRevokesAsked, [{ serial: '9007199254740993', actor: 'ann', reason: 'laptop lost' }]);
    assert.deepEqual([(await post(`${path}/1/revoke`, words)).status, (await post(`${path}/1/revoke`, '{}')).status], [404, 400]);
  });

  it('SEC-007 names the secret that a unit of a known node gets, by reference alone', async () => {
    deployment.nodes.push(aNode('node-1'));
    const path = `${api.url}/v1/nodes/node-1/credentials`;
    const order = { name: 'k8s-join', ref: 'secret://k8s/eu-1/token', actor: 'ann', reason: 'joins eu-1' };
    const set = await post(path, JSON.stringify(order));
    assert.deepEqual([set.status, set.body], [202, { workflowId: 'node/node-1/credential/k8s-join', runId: 'run-5' }]);
    assert.equal((await post(path, JSON.stringify({ ...order, ref: null }))).status, 202);
    assert.deepEqual(deployment.credentialsAsked, [
      { nodeId: 'node-1', ...order },
      { nodeId: 'node-1', ...order, ref: null },
    ]);
    const bad = await post(path, JSON.stringify({ ...order, ref: 'abcdef.0123456789abcdef' }));
    assert.equal(bad.status, 400);
    assert.match(JSON.stringify(bad.body), /must be a reference: secret:/);
    assert.equal((await post(path, JSON.stringify({ ...order, name: 'access' }))).status, 400);
    assert.equal((await post(`${api.url}/v1/nodes/nobody/credentials`, JSON.stringify(order))).status, 404);
  });

  describe('bad input', () => {
    const cases: readonly { title: string; body: string; type?: string; status: number; code: string; message: RegExp }[] = [
      { title: 'text that is no JSON', body: '{"actor":', status: 400, code: 'MALFORMED', message: /^the body is not JSON: / },
      {
        title: 'another media type',
        body: '{}',
        type: 'text/plain',
        status: 400,
        code: 'UNSUPPORTED',
        message: /^the body is "text\/plain", not application\/json$/,
      },
      { title: 'a list', body: '[]', status: 400, code: 'INVALID_INPUT', message: /^the body does not fit: / },
      { title: 'an unknown field', body: '{"actor":"ann","admin":true}', status: 400, code: 'INVALID_INPUT', message: /admin/ },
      {
        title: 'a prototype key',
        body: '{"actor":"ann","__proto__":{"role":"site"}}',
        status: 400,
        code: 'INVALID_INPUT',
        message: /__proto__/,
      },
      {
        title: 'a lifetime above the bound',
        body: '{"actor":"ann","lifetimeMs":9e15}',
        status: 400,
        code: 'INVALID_INPUT',
        message: /lifetimeMs: .*7 days/,
      },
      { title: 'all problems at once', body: '{"role":"king"}', status: 400, code: 'INVALID_INPUT', message: /role: .*; actor: / },
      {
        title: 'nesting that would bury the parser',
        body: '['.repeat(100_000),
        status: 400,
        code: 'MALFORMED',
        message: /^the body nests deeper than 32 levels$/,
      },
      {
        title: 'a body above the bound',
        body: `"${'x'.repeat(1024 * 1024)}"`,
        status: 413,
        code: 'FRAME_TOO_LARGE',
        message: /^the body is larger than 1048576 bytes$/,
      },
    ];
    for (const { title, body, type = 'application/json', status, code, message } of cases) {
      it(`refuses ${title}`, async () => {
        const answer = await ask(`${api.url}/v1/tokens`, { method: 'POST', body, headers: { 'content-type': type } });
        assert.equal(answer.status, status);
        assert.equal(answer.body['code'], code);
        assert.match(String(answer.body['message']), message);
        assert.deepEqual(deployment.tokensAsked, []);
      });
    }

    it('refuses bytes that are not UTF-8', async () => {
      const answer = await ask(`${api.url}/v1/tokens`, {
        method: 'POST',
        body: new Uint8Array([0x22, 0xff, 0x22]),
        headers: { 'content-type': 'application/json' },
      });
      assert.equal(answer.body['message'], 'the body is not UTF-8');
    });

    it('refuses an unknown query name and a limit that is no number', async () => {
      const answer = await ask(`${api.url}/v1/nodes?limit=many&colour=red`);
      assert.equal(answer.status, 400);
      assert.match(String(answer.body['message']), /^the query does not fit: .*limit: must be a whole number/);
      assert.match(String(answer.body['message']), /colour/);
    });

    it('answers a path that is not there, and one that does not decode', async () => {
      const missing = await ask(`${api.url}/v1/nothing`);
      assert.deepEqual(
        [missing.status, missing.body['code'], missing.body['message']],
        [404, 'NOT_FOUND', 'nothing is at GET /v1/nothing'],
      );
      const broken = await ask(`${api.url}/v1/nodes/%E0%A4%A`);
      assert.deepEqual([broken.status, broken.body['code']], [400, 'INVALID_INPUT']);
    });
  });

  it('lists nodes in pages and says where the next begins', async () => {
    deployment.nodes = ['a', 'b', 'c'].map((id) => aNode(id));
    const first = await ask(`${api.url}/v1/nodes?limit=2`);
    assert.deepEqual(
      (first.body['nodes'] as { id: string }[]).map((node) => node.id),
      ['a', 'b'],
    );
    assert.equal(first.body['next'], 'b');
    const second = await ask(`${api.url}/v1/nodes?limit=2&after=b`);
    assert.deepEqual(
      (second.body['nodes'] as { id: string }[]).map((node) => node.id),
      ['c'],
    );
    assert.equal(second.body['next'], null);
  });

  it('creates a join token and fills in what was left out', async () => {
    const { status, body } = await post(`${api.url}/v1/tokens`, { actor: 'ann' });
    assert.equal(status, 201);
    assert.deepEqual(body, { tokenId: 'tok-1', token: 'bcj1.sealed', join: 'bcjoin1.all', expiresAt: now + 3_600_000 });
    assert.deepEqual(deployment.tokensAsked, [
      { tenantId: 'default', siteId: 'default', role: 'node', nodeId: null, lifetimeMs: 3_600_000, actor: 'ann' },
    ]);
  });

  it('revokes only a node that exists, with a reason, and once', async () => {
    deployment.nodes = [aNode('node-a')];
    const unknown = await post(`${api.url}/v1/nodes/node-b/revoke`, { actor: 'ann', reason: 'stolen' });
    assert.deepEqual([unknown.status, unknown.body['message']], [404, 'no node is called node-b']);
    const silent = await post(`${api.url}/v1/nodes/node-a/revoke`, { actor: 'ann', reason: '  ' });
    assert.equal(silent.body['message'], 'the body does not fit: reason: the reason is empty');
    const first = await post(`${api.url}/v1/nodes/node-a/revoke`, { actor: 'ann', reason: 'stolen' });
    assert.deepEqual([first.status, first.body], [202, { workflowId: 'node/node-a/revoke', runId: 'run-1' }]);
    const second = await post(`${api.url}/v1/nodes/node-a/revoke`, { actor: 'ann', reason: 'stolen' });
    assert.deepEqual([second.status, second.body['code']], [409, 'INVALID_STATE']);
    assert.deepEqual(deployment.revokesAsked, [{ nodeId: 'node-a', actor: 'ann', reason: 'stolen' }]);
  });

  it('runs a command of a known kind under the idempotency key', async () => {
    const bad = await post(`${api.url}/v1/commands`, { actor: 'ann', kind: 'node.explode', nodes: [] });
    assert.match(String(bad.body['message']), /nodes: .*; kind: .*inventory.refresh/);
    const { status, body } = await post(`${api.url}/v1/commands`, {
      actor: 'ann',
      kind: 'inventory.refresh',
      nodes: ['b', 'a'],
      idempotencyKey: 'once',
    });
    assert.deepEqual([status, body], [202, { workflowId: 'command/once', runId: 'run-2' }]);
    assert.deepEqual(deployment.commandsAsked, [
      { actor: 'ann', kind: 'inventory.refresh', nodes: ['b', 'a'], payload: {}, unique: 'once' },
    ]);
  });

  it('shows a command whose id holds slashes, and all of a workflow', async () => {
    deployment.commands = [aCommand('command/x/node-a'), aCommand('command/x/node-b'), aCommand('command/xy/node-c')];
    const one = await ask(`${api.url}/v1/commands/${encodeURIComponent('command/x/node-a')}`);
    assert.deepEqual(
      (one.body['commands'] as { id: string }[]).map((c) => c.id),
      ['command/x/node-a'],
    );
    const all = await ask(`${api.url}/v1/commands/${encodeURIComponent('command/x')}`);
    assert.deepEqual(
      (all.body['commands'] as { id: string }[]).map((c) => c.id),
      ['command/x/node-a', 'command/x/node-b'],
    );
  });

  describe('what is stuck', () => {
    it('M6 names who is waited for, since when, and what helps', async () => {
      deployment.waiting = [
        {
          id: 'command/x/node-a',
          nodeId: 'node-a',
          kind: 'inventory.refresh',
          state: 'acked',
          ageMs: 61_000,
          deadline: now - 1_000,
          overdue: true,
          requestedBy: 'ann',
          nodeState: 'active',
          session: 'silent',
          lastSeenAt: now - 200_000,
          gatewayId: 'gw-1',
        },
      ];
      deployment.joins = [aJoin('5f0c', { firstAskedAt: now - 30_000 }), aJoin('77aa', { state: 'approved' })];
      deployment.untoldBoots = [{ agentId: 'agent-a', connected: false, machineIds: ['m1', 'm2'], machines: 7, failed: 0, error: '' }];
      deployment.failedSections = [{ nodeId: 'node-e', section: 'k8s-join', detail: 'the secret is not there', generation: 4 }];
      deployment.absent = [{ id: 'node-b', seenAt: null, createdAt: now - 9_000, openCommands: 2 }];
      const sample = [
        { nodeId: 'node-c', epoch: 0 },
        { nodeId: 'node-d', epoch: 3 },
      ];
      deployment.setLag = { connected: 9, behind: 2, sample, epoch: 4, isPublished: true };
      const { body } = await ask(`${api.url}/v1/stuck`);
      deployment.setLag = null;
      deployment.failedSections = [];
      deployment.untoldBoots = [];
      deployment.joins = [];
      assert.deepEqual(body['stuck'], [
        {
          kind: 'node',
          subject: '2 of 9 connected node(s)',
          since: null,
          waitsFor: 'the approver set of epoch 4; they enforce another (node-c at none, node-d at 3)',
          help: 'better-compute doctor (pki.quorum-lag, pki.quorum-unsigned)',
        },
        {
          kind: 'command',
          subject: 'command/x/node-a',
          since: now - 61_000,
          waitsFor: 'node-a (silent) to finish inventory.refresh, past its deadline',
          help: 'better-compute nodes show node-a',
        },
        {
          kind: 'node',
          subject: 'node-b',
          since: now - 9_000,
          waitsFor: 'its first session; 2 command(s) wait for it',
          help: 'start bcd on node-b; if it is gone for good: better-compute nodes revoke node-b',
        },
        {
          kind: 'node',
          subject: 'agent-a',
          since: null,
          waitsFor: 'its boot server to be told what became of 7 machine(s) (m1, m2): it is not connected',
          help: 'start bcd on agent-a; if it is gone for good: better-compute nodes revoke agent-a; until then, turn off what must not start its disk',
        },
        {
          kind: 'node',
          subject: 'node-e',
          since: null,
          waitsFor: 'section k8s-join of its desired state (generation 4) to be applied: the secret is not there',
          help: 'better-compute nodes show node-e; the daemon tries again by itself once the cause is gone',
        },
        {
          kind: 'node',
          subject: 'join 5f0c',
          since: now - 30_000,
          waitsFor: 'an operator: a new machine of site eu-1 asks to join as node by join-token',
          help: 'better-compute joins list, then joins approve 5f0c --reason <why>, or joins refuse',
        },
      ]);
    });

    it('says what is missing when Temporal does not answer', async () => {
      deployment.stuckWorkflows = new ControlError('UNAVAILABLE', 'connection refused');
      const { status, body } = await ask(`${api.url}/v1/stuck`);
      assert.equal(status, 200);
      const [item] = body['stuck'] as { subject: string; waitsFor: string }[];
      assert.equal(item?.subject, 'temporal');
      assert.equal(item?.waitsFor, 'Temporal does not answer (connection refused): workflows are missing from this list');
    });
  });

  it('CLI-072 answers NOT_FOUND before any process has published a bundle', async () => {
    const { status, body } = await ask(`${api.url}/v1/trust`);
    assert.deepEqual([status, body['code'], body['message']], [404, 'NOT_FOUND', 'no process has published a trust bundle yet']);
  });

  it('tells the caller nothing about a fault of ours, and the log all of it', async () => {
    deployment.stuckWorkflows = [];
    Object.defineProperty(deployment, 'trust', {
      get: () => {
        throw new Error('password=hunter2 at host db');
      },
    });
    const { status, body } = await ask(`${api.url}/v1/trust`);
    assert.deepEqual([status, body['code'], body['message']], [500, 'INTERNAL', 'the request failed by a fault of ours']);
    assert.equal(JSON.stringify(body).includes('hunter2'), false);
    assert.equal(api.logged.length, 1);
  });

  it('describes every route in OpenAPI with its input and its problem', async () => {
    const { body } = await ask(`${api.url}/openapi.json`);
    const paths = body['paths'] as Record<string, Record<string, Record<string, unknown>>>;
    assert.deepEqual(Object.keys(paths).sort(), [
      '/v1/audit',
      '/v1/batches',
      '/v1/batches/{id}',
      '/v1/batches/{id}/approve',
      '/v1/batches/{id}/cancel',
      '/v1/batches/{id}/reject',
      '/v1/batches/{id}/scope',
      '/v1/commands',
      '/v1/commands/{id}',
      '/v1/enrolments',
      '/v1/enrolments/{id}',
      '/v1/enrolments/{id}/cancel',
      '/v1/fleet/reimage',
      '/v1/instances',
      '/v1/instances/{id}/end',
      '/v1/joins',
      '/v1/joins/{id}/approve',
      '/v1/joins/{id}/refuse',
      '/v1/machine-counts',
      '/v1/machines',
      '/v1/machines/import',
      '/v1/machines/{id}',
      '/v1/machines/{id}/cancel',
      '/v1/machines/{id}/forget',
      '/v1/machines/{id}/give-up',
      '/v1/machines/{id}/inspect',
      '/v1/machines/{id}/override',
      '/v1/machines/{id}/provision',
      '/v1/machines/{id}/readmit',
      '/v1/machines/{id}/release',
      '/v1/machines/{id}/retire',
      '/v1/machines/{id}/rotate-bmc',
      '/v1/nodes',
      '/v1/nodes/{id}',
      '/v1/nodes/{id}/credentials',
      '/v1/nodes/{id}/delete',
      '/v1/nodes/{id}/revoke',
      '/v1/profiles/validate',
      '/v1/reboots',
      '/v1/rotations',
      '/v1/rotations/{id}/evidence',
      '/v1/runs',
      '/v1/runs/{id}',
      '/v1/runs/{id}/evidence',
      '/v1/sandboxes/{id}/exec',
      '/v1/secrets',
      '/v1/secrets/delete',
      '/v1/sites',
      '/v1/sites/{id}',
      '/v1/ssh-certificates',
      '/v1/ssh-certificates/{serial}/revoke',
      '/v1/stuck',
      '/v1/tenants',
      '/v1/tenants/{id}/delete',
      '/v1/tokens',
      '/v1/trust',
      '/v1/tunnels',
      '/v1/workload/keys',
      '/v1/workload/keys/promote',
      '/v1/workload/keys/retire',
    ]);
    const revoke = paths['/v1/nodes/{id}/revoke']?.['post'] ?? {};
    assert.match(JSON.stringify(revoke['requestBody']), /"required":\["actor","reason"\],"additionalProperties":false/);
    assert.match(JSON.stringify(revoke['responses']), /#\/components\/schemas\/Problem/);
  });
});
