import assert from 'node:assert/strict';
import { bodySizes } from '../../api/body-sizes.ts';
import { createScope } from '../../pki/quorum/index.ts';
import { useDatabase } from '../harness/postgres.ts';
import {
  addNodes,
  approvalOf,
  approve,
  enqueueAll,
  publishQuorum,
  rebootIn,
  rebootType,
  rebootValue,
  releaseAll,
  start,
  three,
} from '../services/batch-support.ts';
import { sha256 } from '../services/support.ts';
import { type BatchApi, operatorToken, startBatchApi } from './batch-api.ts';

interface Answer {
  readonly status: number;
  readonly body: any;
}

describe('batches over the api', function () {
  this.timeout(30_000);
  const used = useDatabase({ max: 10 });
  let api: BatchApi;
  before(async () => {
    await publishQuorum(used.db);
    await addNodes(used.db, ['n0', 'n1', 'n2']);
    await addNodes(used.db, ['a0', 'a1'], 'acme');
    api = await startBatchApi(used.db);
  });
  after(() => api.close());

  async function call(path: string, { token = operatorToken, body }: { token?: string; body?: unknown } = {}): Promise<Answer> {
    const response = await fetch(`${api.url}${path}`, {
      method: body === undefined ? 'GET' : 'POST',
      headers: { authorization: `Bearer ${token}`, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
      ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    });
    return { status: response.status, body: await response.json() };
  }
  const post = (path: string, body: unknown, token?: string) => call(path, { body, ...(token === undefined ? {} : { token }) });
  const scopeOf = (...ids: string[]) => ids.map((subject) => ({ subject, kind: 'node.reboot' }));
  const create = (over: object = {}, token?: string) =>
    post('/v1/batches', { reason: 'kernel update', scope: scopeOf('n0', 'n1'), ...over }, token);
  const person = (over: object = {}) =>
    api.sign({
      sub: 'olga',
      bc_tenants: ['acme'],
      bc_permissions: ['batches.read', 'batches.create', 'batches.approve', 'batches.cancel', 'commands.run', 'commands.read'],
      ...over,
    });
  const isRefused = ({ status, body }: Answer, expected: { status: number; code: string; reason?: string }): void => {
    assert.deepEqual([status, body.code], [expected.status, expected.code], JSON.stringify(body));
    if (expected.reason !== undefined) assert.equal(body.details.reason, expected.reason);
  };

  it('BAT-039 BAT-040 BAT-042 BAT-008 creates a batch, shows it and its scope, and starts its workflow', async () => {
    const value = Buffer.from(rebootValue('ok'));
    const payload = { typeUrl: rebootType, value: value.toString('base64') };
    const scope = [
      ...scopeOf('n0'),
      { subject: 'n1', kind: 'node.reboot', payload },
      { subject: 'n2', kind: 'node.reboot', payloadSha256: sha256(value).toString('hex') },
    ];
    const made = await create({
      scope,
      notAfterSeconds: 600,
      actor: 'olga',
      waves: { size: 1, maxFailures: 0, pauseMs: 0, healthGate: true },
    });
    assert.equal(made.status, 201, JSON.stringify(made.body));
    const { batchId, ...rest } = made.body;
    assert.deepEqual([rest.held, rest.required, rest.size, rest.created], [true, 2, 3, true]);
    assert.ok(api.started.includes(batchId));
    const { body: shown } = await call(`/v1/batches/${batchId}`);
    assert.deepEqual(
      [shown.state, shown.tenantId, shown.createdBy, shown.root, shown.reason],
      ['pending', 'default', 'olga', rest.root, 'kernel update'],
    );
    assert.deepEqual([shown.progress.members, shown.approvals, shown.waves.size, shown.proposedBy], [0, [], 1, undefined]);
    const { body: page } = await call(`/v1/batches/${batchId}/scope?limit=2`);
    assert.deepEqual([page.leaves.length, page.next, page.leaves[0].index], [2, 1, 0]);
    const { body: last } = await call(`/v1/batches/${batchId}/scope?after=${page.next}`);
    assert.equal(last.next, null);
    const leaves = [...page.leaves, ...last.leaves];
    const own = createScope(
      batchId,
      leaves.map((leaf) => ({ ...leaf, payloadSha256: Buffer.from(leaf.payloadSha256, 'hex') })),
    );
    assert.equal(own.root.toString('hex'), rest.root);
    assert.deepEqual(leaves.find((leaf) => leaf.subject === 'n1').payload, payload);
  });

  it('BAT-041 BAT-043 BAT-044 each bad request has its own clear answer and leaves nothing', async () => {
    const count = async () => (await used.db.query<{ n: number }>({ text: 'select count(*) as n from command_batches' }))[0]?.n;
    const before = await count();
    const leaf = (over: object) => ({ scope: [{ subject: 'n0', kind: 'node.reboot', ...over }] });
    const bad: readonly [object, string, RegExp][] = [
      [{ reason: 'r'.repeat(501) }, 'reason-too-long', /501 characters/],
      [{ scope: [] }, 'empty-scope', /at least one leaf/],
      [{ scope: [...scopeOf('n0', 'n0')] }, 'duplicate-leaf', /leaf 2 .* is leaf 1 again/],
      [{ notAfterSeconds: 59 }, 'batch-window', /60 s to 72 h/],
      [{ notAfterSeconds: 259_201 }, 'batch-window', /60 s to 72 h/],
      [leaf({ subject: 'n\u043e' }), 'bad-subject', /leaf 1: "n\\u043e" is no subject/],
      [leaf({ payloadSha256: 'AB' }), 'bad-input', /scope.0.payloadSha256: is 64 lower-case hex/],
      [leaf({ payload: { typeUrl: rebootType, value: 'not base64!' } }), 'bad-input', /scope.0.payload.value: is base64/],
      [leaf({ payload: { typeUrl: rebootType, value: Buffer.alloc(65_537).toString('base64') } }), 'payload-too-large', /65537 bytes/],
      [
        { scope: Array.from({ length: 50_001 }, (_, at) => ({ subject: `n${at}`, kind: 'node.reboot' })) },
        'too-many-leaves',
        /50001 leaves/,
      ],
      [{ surprise: 1 }, 'bad-input', /surprise/],
    ];
    for (const [over, reason, message] of bad) {
      const answer = await create(over);
      isRefused(answer, { status: 400, code: 'INVALID_INPUT', reason });
      assert.match(answer.body.message, message);
    }
    isRefused(await create({ scope: scopeOf('a0') }), { status: 404, code: 'NOT_FOUND', reason: 'unknown-machine' });
    isRefused(await post('/v1/batches', 'x'.repeat(bodySizes.batch + 1)), { status: 413, code: 'FRAME_TOO_LARGE', reason: 'too-large' });
    assert.equal(await count(), before);
  });

  it('BAT-051 BAT-057 every route of a batch is decided on its tenant, and a signature opens no door', async () => {
    const { body } = await create({ tenantId: 'acme', scope: scopeOf('a0') });
    const id = body.batchId;
    const signature = await approvalOf(used.db, id, three[0]!);
    const wire = { kid: signature.kid, sig: Buffer.from(signature.sig).toString('base64url') };
    const stranger = await person({ sub: 'eve', bc_tenants: ['other'] });
    const words = { reason: 'no' };
    const routes: readonly [string, unknown][] = [
      [`/v1/batches/${id}`, undefined],
      [`/v1/batches/${id}/scope`, undefined],
      [`/v1/batches/${id}/approve`, wire],
      [`/v1/batches/${id}/cancel`, words],
      [`/v1/batches/${id}/reject`, words],
    ];
    for (const [path, given] of routes) {
      isRefused(await call(path, { token: stranger, ...(given === undefined ? {} : { body: given }) }), {
        status: 404,
        code: 'NOT_FOUND',
        reason: 'unknown-batch',
      });
      const bare = await person({ bc_permissions: [] });
      isRefused(await call(path, { token: bare, ...(given === undefined ? {} : { body: given }) }), {
        status: 403,
        code: 'PERMISSION_DENIED',
        reason: 'permission',
      });
    }
    isRefused(await create({ tenantId: 'acme', scope: scopeOf('a0') }, stranger), {
      status: 403,
      code: 'PERMISSION_DENIED',
      reason: 'tenant',
    });
    assert.ok(!(await call('/v1/batches', { token: stranger })).body.batches.some((one: { id: string }) => one.id === id));
    assert.ok((await call('/v1/batches', { token: await person() })).body.batches.some((one: { id: string }) => one.id === id));
    // With every permission and no signature that counts: nothing is approved.
    isRefused(await post(`/v1/batches/${id}/approve`, { ...wire, sig: 'A'.repeat(86) }, await person()), {
      status: 401,
      code: 'BAD_SIGNATURE',
    });
    const recorded = await post(`/v1/batches/${id}/approve`, wire, await person());
    assert.deepEqual([recorded.status, recorded.body.have, recorded.body.required, recorded.body.released], [200, 1, 2, false]);
    assert.ok(api.nudged.includes(id));
    isRefused(await call('/v1/nodes', { token: await person({ bc_permissions: ['deployment.operate'] }) }), {
      status: 403,
      code: 'PERMISSION_DENIED',
    });
    isRefused(await call('/v1/tenants', { token: await person() }), { status: 403, code: 'PERMISSION_DENIED' });
    assert.equal(
      (await call('/v1/nodes', { token: await person({ bc_permissions: ['deployment.operate'], bc_tenants: 'all' }) })).status,
      200,
    );
  });

  it('takes access tokens of its own issuer and audience alone', async () => {
    const path = '/v1/batches';
    const refusedAs = async (token: string, reason: string) =>
      isRefused(await call(path, { token }), { status: 401, code: 'UNAUTHENTICATED', reason });
    assert.equal((await call(path, { token: await person() })).status, 200);
    await refusedAs(await api.sign({ sub: 'olga' }, { audience: 'another' }), 'bad-token');
    await refusedAs(await api.sign({ sub: 'olga' }, { issuer: 'https://evil.example' }), 'bad-token');
    await refusedAs(await api.sign({ sub: 'olga' }, { expiresIn: '-2m' }), 'token-expired');
    await refusedAs(`${(await person()).slice(0, -4)}AAAA`, 'bad-token');
    await refusedAs(
      `${Buffer.from('{"alg":"none"}').toString('base64url')}.${Buffer.from('{"sub":"olga"}').toString('base64url')}.`,
      'bad-token',
    );
    await refusedAs(await api.sign({ sub: 'ol ga' }), 'bad-subject');
    await refusedAs(await api.sign({ sub: 'olga', bc_tenants: 'acme' }), 'bad-claims');
    await refusedAs(await api.sign({ sub: 'olga', act: { sub: 'agent-7' } }), 'bad-delegation');
    await refusedAs('wrong', 'bad-credential');
  });

  it('BAT-052 BAT-053 an agent with a delegation is recorded beside the person, and announced in fixed words', async () => {
    const token = await person({ act: { sub: 'agent-7' }, bc_delegation: 'd-1' });
    const { body } = await create({ tenantId: 'acme', scope: scopeOf('a0'), reason: 'the agent says so' }, token);
    const { body: shown } = await call(`/v1/batches/${body.batchId}`);
    assert.equal(shown.createdBy, 'olga');
    assert.equal(shown.proposedBy, "Proposed by agent agent-7 for olga (delegation d-1): the reason is the agent's own text");
    const [row] = await used.db.query(
      { text: 'select created_by_agent as agent, delegation_id as delegation from command_batches where id = $1' },
      [body.batchId],
    );
    assert.deepEqual(row, { agent: 'agent-7', delegation: 'd-1' });
    isRefused(await create({ tenantId: 'acme', scope: scopeOf('a0'), actor: 'paul' }, await person()), {
      status: 400,
      code: 'INVALID_INPUT',
      reason: 'actor',
    });
  });

  it('BAT-045 BAT-047 a retry is the same batch; the same key for another request is a conflict', async () => {
    const first = await create({ idempotencyKey: 'k-1', actor: 'olga' });
    const again = await create({ idempotencyKey: 'k-1', actor: 'olga' });
    assert.deepEqual([again.body.batchId, again.body.created], [first.body.batchId, false]);
    isRefused(await create({ idempotencyKey: 'k-1', actor: 'olga', reason: 'another' }), {
      status: 409,
      code: 'CONFLICT',
      reason: 'idempotency-key-used',
    });
  });

  it('BAT-049 BAT-050 a destructive command needs a batch that is open and the caller’s', async () => {
    const run = (over: object, token?: string) =>
      post('/v1/commands', { nodes: ['n0'], kind: 'node.reboot', actor: 'olga', ...over }, token);
    isRefused(await run({}), { status: 409, code: 'INVALID_STATE', reason: 'batch-required' });
    isRefused(await run({ batchId: 'b-none' }), { status: 404, code: 'NOT_FOUND', reason: 'unknown-batch' });
    const { body } = await create();
    assert.equal((await run({ batchId: body.batchId })).status, 202);
    assert.equal((api.commandsAsked.at(-1) as { batchId: string }).batchId, body.batchId);
    const token = await person();
    isRefused(await run({ batchId: body.batchId, nodes: ['a0'] }, token), { status: 404, code: 'NOT_FOUND', reason: 'unknown-batch' });
    isRefused(await run({ kind: 'inventory.refresh', nodes: ['n0'] }, token), { status: 404, code: 'NOT_FOUND', reason: 'unknown-node' });
    isRefused(await run({ kind: 'inventory.refresh', nodes: 'all' }, token), { status: 403, code: 'PERMISSION_DENIED', reason: 'tenant' });
    assert.equal((await run({ kind: 'inventory.refresh', nodes: ['a0'] }, token)).status, 202);
    await post(`/v1/batches/${body.batchId}/cancel`, { reason: 'no', actor: 'olga' });
    isRefused(await run({ batchId: body.batchId }), { status: 409, code: 'INVALID_STATE', reason: 'not-pending' });
  });

  it('BAT-031 reboots are asked for without a batch, because they make one: of the caller’s own machines, in his name', async () => {
    const reboot = (over: object, token?: string) =>
      post('/v1/reboots', { nodes: ['n0'], actor: 'olga', reason: 'kernel', ...over }, token);
    const waves = { size: 1, maxFailures: 0, pauseMs: 1_000, healthGate: true };
    assert.equal((await reboot({ waves, delaySeconds: 5 })).status, 202);
    const asked = api.rebootsAsked.at(-1) as { unique: string };
    assert.deepEqual(asked, { nodes: ['n0'], actor: 'olga', reason: 'kernel', waves, delaySeconds: 5, unique: asked.unique });
    const token = await person();
    isRefused(await reboot({}, token), { status: 404, code: 'NOT_FOUND', reason: 'unknown-node' });
    isRefused(await reboot({ nodes: 'all' }, token), { status: 403, code: 'PERMISSION_DENIED', reason: 'tenant' });
    assert.equal((await reboot({ nodes: ['a0'] }, token)).status, 202);
    const reader = await person({ bc_permissions: ['batches.read'] });
    isRefused(await reboot({ nodes: ['a0'] }, reader), { status: 403, code: 'PERMISSION_DENIED' });
    for (const wrong of [{ reason: 'x'.repeat(501) }, { reason: '' }, { waves: { ...waves, sice: 1 } }, { windowMs: 1 }, { batchId: 'b' }])
      isRefused(await reboot(wrong), { status: 400, code: 'INVALID_INPUT' });
    assert.equal(api.rebootsAsked.length, 2);
  });

  it('BAT-017 BAT-018 a command says which batch it is of, and that it waits, until it is released', async () => {
    const { body } = await create();
    const { batchId } = body;
    const request = rebootIn('n0', { batchId });
    await enqueueAll(used.db, [request]);
    const show = async () => (await call(`/v1/commands/${encodeURIComponent(request.id)}`)).body.commands[0];
    const held = await show();
    assert.deepEqual([held.batchId, held.awaitingApproval, 'notBefore' in held], [batchId, true, false]);
    await approve(used.db, batchId);
    await releaseAll(used.db, batchId, { now: start });
    const sent = await show();
    assert.deepEqual([sent.batchId, 'awaitingApproval' in sent, 'notBefore' in sent], [batchId, false, false]);
    isRefused(await call(`/v1/commands/${encodeURIComponent(request.id)}`, { token: await person() }), {
      status: 404,
      code: 'NOT_FOUND',
      reason: 'unknown-command',
    });
  });

  it('a rejection is an approver’s, a cancellation whoever may; both say who', async () => {
    const { body } = await create();
    const answer = await post(`/v1/batches/${body.batchId}/reject`, { reason: 'wrong kernel', actor: 'ben' });
    assert.deepEqual(answer.body, { changed: true, cancelled: 0 });
    const { body: shown } = await call(`/v1/batches/${body.batchId}`);
    assert.deepEqual([shown.state, shown.closedBy, shown.closeReason], ['cancelled', 'ben', 'rejected: wrong kernel']);
  });

  it('tenants are made, listed and deleted by whoever operates the deployment', async () => {
    assert.equal((await post('/v1/tenants', { id: 'team-9', actor: 'olga' })).status, 201);
    isRefused(await post('/v1/tenants', { id: 'team-9', actor: 'olga' }), { status: 409, code: 'CONFLICT', reason: 'tenant-exists' });
    assert.ok((await call('/v1/tenants')).body.tenants.some(({ id }: { id: string }) => id === 'team-9'));
    assert.deepEqual((await post('/v1/tenants/team-9/delete', { actor: 'olga' })).body, { id: 'team-9', cancelledBatches: [] });
    const token = await post('/v1/tokens', { actor: 'olga', tenantId: 'team-9' });
    isRefused(token, { status: 409, code: 'INVALID_STATE', reason: 'tenant-deleted' });
    assert.equal((await post('/v1/tokens', { actor: 'olga', tenantId: 'acme' })).status, 201);
  });

  it('the console shows the batches that the bearer may see', async () => {
    const { body } = await create({ reason: 'shown on a page' });
    const page = (token: string) => fetch(`${api.url}/console/batches/${body.batchId}`, { headers: { cookie: `bc_console=${token}` } });
    const mine = await page(operatorToken);
    assert.equal(mine.status, 200);
    const text = await mine.text();
    assert.match(text, /shown on a page/);
    assert.match(text, /berlin/, 'its site');
    const theirs = await page(await person());
    assert.equal(theirs.status, 404);
  });

  it('the document of the api names every route of it', async () => {
    const { body } = await call('/openapi.json');
    const { paths } = body;
    for (const path of [
      '/v1/batches',
      '/v1/batches/{id}',
      '/v1/batches/{id}/scope',
      '/v1/batches/{id}/approve',
      '/v1/batches/{id}/cancel',
      '/v1/batches/{id}/reject',
      '/v1/tenants',
    ])
      assert.ok(path in paths, path);
  });
});
