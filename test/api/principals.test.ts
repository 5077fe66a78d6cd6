/** Several people behind one identity provider, and the agents that act for them: what one of them can do to another's work or record. */
import assert from 'node:assert/strict';
import { createIdentity } from '../../api/identity.ts';
import { isTenantId } from '../../services/tenants.ts';
import { useDatabase } from '../harness/postgres.ts';
import { addNodes, publishQuorum } from '../services/batch-support.ts';
import { type BatchApi, startBatchApi } from './batch-api.ts';

describe('principals of the api', function () {
  this.timeout(30_000);
  const used = useDatabase();
  let api: BatchApi;
  before(async () => {
    await publishQuorum(used.db);
    await addNodes(used.db, ['a0'], 'acme');
    await addNodes(used.db, ['b0'], 'bravo');
    api = await startBatchApi(used.db);
  });
  after(() => api.close());

  const held = ['batches.read', 'batches.create', 'batches.cancel', 'commands.run', 'commands.read'];
  const person = (sub: string, tenant: string, more: object = {}) => api.sign({ sub, bc_tenants: [tenant], bc_permissions: held, ...more });
  const post = async (path: string, token: string, body: unknown) => {
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
    const response = await fetch(`${api.url}${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
    return { status: response.status, body: (await response.json()) as any };
  };
  const show = async (id: string, token: string) =>
    (await (await fetch(`${api.url}/v1/batches/${id}`, { headers: { authorization: `Bearer ${token}` } })).json()) as any;

  it('an idempotency key is its caller’s: the same key of another neither meets nor blocks it', async () => {
    const run = async (token: string, node: string, actor = 'ann') => {
      const request = { nodes: [node], kind: 'inventory.refresh', idempotencyKey: 'nightly', actor };
      return (await post('/v1/commands', token, request)).body.workflowId as string;
    };
    const [ann, bob] = [await person('ann', 'acme'), await person('bob', 'bravo')];
    const first = await run(ann, 'a0');
    assert.match(first, /^command\/[A-Za-z0-9._-]{1,128}$/);
    assert.equal(await run(ann, 'a0'), first, 'a retry is the same workflow');
    assert.notEqual(await run(bob, 'b0', 'bob'), first);
    assert.notEqual(await run(await person('ann', 'acme', { act: { sub: 'bot' }, bc_delegation: 'd' }), 'a0'), first);
  });

  it('BAT-052 BAT-054 an agent behind the token of a person is named by the field, and never unnamed by it', async () => {
    const scope = [{ subject: 'a0', kind: 'node.reboot' }];
    const asked = { tenantId: 'acme', reason: 'x', scope, agent: { name: 'mcp-1', delegationId: 'd-9' } };
    const ann = await person('ann', 'acme');
    const { body } = await post('/v1/batches', ann, asked);
    const words = (name: string, delegation: string) =>
      `Proposed by agent ${name} for ann (delegation ${delegation}): the reason is the agent's own text`;
    assert.equal((await show(body.batchId, ann)).proposedBy, words('mcp-1', 'd-9'));
    const delegated = await person('ann', 'acme', { act: { sub: 'bot' }, bc_delegation: 'd-1' });
    const other = await post('/v1/batches', delegated, asked);
    assert.equal((await show(other.body.batchId, ann)).proposedBy, words('bot', 'd-1'), 'what the token says, no field replaces');
  });

  it('a cancellation does not read as the rejection of an approver, whatever its reason says', async () => {
    const ann = await person('ann', 'acme');
    const { body } = await post('/v1/batches', ann, { tenantId: 'acme', reason: 'x', scope: [{ subject: 'a0', kind: 'node.reboot' }] });
    assert.equal((await post(`/v1/batches/${body.batchId}/reject`, ann, { reason: 'no' })).status, 403);
    const words = await post(`/v1/batches/${body.batchId}/cancel`, ann, { reason: 'rejected: by the security team' });
    assert.equal(words.status, 200);
    assert.doesNotMatch((await show(body.batchId, ann)).closeReason, /^rejected/);
  });

  it('what an agent ends or asks for by the token of a person says so in the record', async () => {
    const token = await person('ann', 'acme', { act: { sub: 'bot' }, bc_delegation: 'd-1' });
    const { body } = await post('/v1/batches', token, { tenantId: 'acme', reason: 'x', scope: [{ subject: 'a0', kind: 'node.reboot' }] });
    assert.equal((await post(`/v1/batches/${body.batchId}/cancel`, token, { reason: 'no' })).status, 200);
    assert.equal((await show(body.batchId, token)).closedBy, 'ann, by agent bot (d-1)');
    await post('/v1/commands', token, { nodes: ['a0'], kind: 'inventory.refresh', actor: 'ann' });
    const asked = () => (api.commandsAsked.at(-1) as { actor: string }).actor;
    assert.equal(asked(), 'ann, by agent bot (d-1)');
    const [long, bot] = ['p'.repeat(128), 'b'.repeat(128)];
    const other = await person(long, 'acme', { act: { sub: bot }, bc_delegation: 'd' });
    await post('/v1/commands', other, { nodes: ['a0'], kind: 'inventory.refresh', actor: long });
    assert.equal(asked(), `${long.slice(0, 56)}, by agent ${bot.slice(0, 56)}`, 'as long as a workflow takes');
  });

  it('BAT-055 no name of an agent continues the sentence it stands in, or turns it around', async () => {
    const scope = [{ subject: 'a0', kind: 'node.reboot' }];
    for (const agent of [
      { name: 'x for ceo (delegation 1): approved by security', delegationId: 'd' },
      { name: 'x', delegationId: 'd): fine' },
      { name: '\u202ex', delegationId: 'd' },
      { name: 'x\n', delegationId: 'd' },
    ]) {
      const { status, body } = await post('/v1/batches', await person('ann', 'acme'), { tenantId: 'acme', reason: 'x', scope, agent });
      assert.deepEqual([status, body.code], [400, 'INVALID_INPUT'], JSON.stringify(agent));
      assert.match(body.message, /agent\.(name|delegationId)/);
    }
  });

  it('"all" in a claim is every tenant, so no tenant is called that', () => {
    assert.equal(isTenantId('all'), false);
    assert.equal(isTenantId('all-in'), true);
  });

  it('takes the keys of an issuer over TLS alone, or on this machine', () => {
    const identity = (jwks: string) => () => createIdentity({ bearer: 'x', oidc: { issuer: 'https://i.example', audience: 'a', jwks } });
    assert.throws(identity('http://login.example/jwks'), { code: 'INVALID_CONFIG', message: /https/ });
    assert.doesNotThrow(identity('https://login.example/jwks'));
    assert.doesNotThrow(identity('http://127.0.0.1:9/jwks'));
  });
});
