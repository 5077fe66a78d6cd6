/** An agent's own client against the server of `better-compute mcp`, over a real api and a real database. */
import assert from 'node:assert/strict';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { InMemoryTransport } from '@modelcontextprotocol/sdk/inMemory.js';
import { createMcpServer } from '../../cli/mcp/server.ts';
import { type BatchApi, operatorToken, startBatchApi } from '../api/batch-api.ts';
import { useDatabase } from '../harness/postgres.ts';
import { addNodes, publishQuorum } from '../services/batch-support.ts';
import { createTestIo, createTestPorts, envFor } from './support.ts';

describe('better-compute mcp', function () {
  this.timeout(30_000);
  const used = useDatabase();
  let api: BatchApi;
  let client: Client;
  before(async () => {
    await publishQuorum(used.db);
    await addNodes(used.db, ['n0', 'n1']);
    api = await startBatchApi(used.db);
    const io = createTestIo({ env: { ...envFor(api.url), BETTER_COMPUTE_OPERATOR_TOKEN: operatorToken } });
    const server = createMcpServer(createTestPorts(io), { version: '0.1.0', actor: 'olga', agent: 'assistant-7', delegation: 'd-4711' });
    const [ours, theirs] = InMemoryTransport.createLinkedPair();
    await server.connect(ours);
    client = new Client({ name: 'test', version: '1' });
    await client.connect(theirs);
  });
  after(async () => {
    await client.close();
    await api.close();
  });

  const call = async (name: string, given: Record<string, unknown> = {}) => {
    const answer = await client.callTool({ name, arguments: given });
    const [content] = answer.content as [{ text: string }];
    return { isError: answer.isError === true, body: JSON.parse(content.text) };
  };
  const proposal = {
    reason: 'the kernel is old',
    scope: [
      { subject: 'n0', kind: 'node.reboot', payload: { reason: 'update' } },
      { subject: 'n1', kind: 'node.reboot' },
    ],
    idempotencyKey: 'k1',
  };

  it('BAT-054 BAT-052 an agent proposes a batch, which waits for people, with its name beside the person', async () => {
    const { isError, body } = await call('propose_command_batch', proposal);
    assert.equal(isError, false, JSON.stringify(body));
    assert.deepEqual([body.held, body.required, body.size], [true, 2, 2]);
    const shown = await call('show_batch', { id: body.batchId });
    assert.equal(shown.body.state, 'pending');
    assert.equal(shown.body.proposedBy, "Proposed by agent assistant-7 for olga (delegation d-4711): the reason is the agent's own text");
    const [row] = await used.db.query(
      { text: 'select created_by_agent as agent, created_by as person from command_batches where id = $1' },
      [body.batchId],
    );
    assert.deepEqual(row, { agent: 'assistant-7', person: 'olga' });
    assert.equal((await call('propose_command_batch', proposal)).body.batchId, body.batchId, 'the same key proposes once');
  });

  it('a proposal that cannot be one is answered with what is wrong', async () => {
    const unknown = await call('propose_command_batch', {
      ...proposal,
      scope: [{ subject: 'n9', kind: 'node.reboot' }],
      idempotencyKey: 'k2',
    });
    assert.deepEqual([unknown.isError, unknown.body.code], [true, 'NOT_FOUND']);
    const wrong = await call('propose_command_batch', {
      ...proposal,
      scope: [{ subject: 'n0', kind: 'node.reboot', payload: { nonsense: 1 } }],
      idempotencyKey: 'k3',
    });
    assert.deepEqual([wrong.isError, wrong.body.reason], [true, 'payload-malformed']);
  });

  it('it looks and proposes: no tool approves, cancels or runs', async () => {
    const { tools } = await client.listTools();
    const writing = tools.filter(({ annotations }) => annotations?.readOnlyHint !== true).map(({ name }) => name);
    assert.deepEqual(writing, ['propose_command_batch']);
    assert.equal((await call('list_batches')).body.length, 1);
    assert.equal((await call('list_nodes')).body.nodes.length, 2);
  });

  it('BAT-054 an agent that uses the access token of a person is named all the same', async () => {
    await addNodes(used.db, ['a0'], 'acme');
    const token = await api.sign({ sub: 'ann', bc_tenants: ['acme'], bc_permissions: ['batches.create', 'batches.read'] });
    const io = createTestIo({ env: { ...envFor(api.url), BETTER_COMPUTE_OPERATOR_TOKEN: token } });
    const server = createMcpServer(createTestPorts(io), { version: '0.1.0', actor: 'olga', agent: 'assistant-7', delegation: 'd-4711' });
    const [ours, theirs] = InMemoryTransport.createLinkedPair();
    const own = new Client({ name: 'test', version: '1' });
    await Promise.all([server.connect(ours), own.connect(theirs)]);
    const scope = [{ subject: 'a0', kind: 'node.reboot' }];
    const answer = await own.callTool({ name: 'propose_command_batch', arguments: { ...proposal, scope, tenantId: 'acme' } });
    await own.close();
    const { batchId } = JSON.parse((answer.content as [{ text: string }])[0].text) as { batchId: string };
    const [row] = await used.db.query(
      { text: 'select created_by_agent as agent, created_by as person, delegation_id as delegation from command_batches where id = $1' },
      [batchId],
    );
    assert.deepEqual(row, { agent: 'assistant-7', person: 'ann', delegation: 'd-4711' });
  });
});
