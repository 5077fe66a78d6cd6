import assert from 'node:assert/strict';
import { CommandOutcome } from '../../proto/index.ts';
import { nodeLeaf, openAgent, type TestLeaf } from '../harness/agent.ts';
import { digestOf, trustOf } from './memory-store.ts';
import { type RunningGateway, startGateway } from './start-gateway.ts';

describe('a session over real TLS', () => {
  let running: RunningGateway;
  let leaf: TestLeaf;
  before(async () => {
    running = await startGateway();
    leaf = await nodeLeaf(running.authorities, 'node-1');
  });
  after(() => running.gateway.close());

  it('FRM-002, ROT-026 welcomes with the published bundle before any command, and brings the result back', async () => {
    const { store, port } = running;
    const command = store.enqueue('node-1', { id: 'first' });
    const { agent, welcome } = await openAgent({ port, leaf });
    assert.equal(welcome.protocolVersion, 1);
    assert.equal(welcome.epoch, 1n);
    assert.equal(new TextDecoder().decode(welcome.trust?.body), 'trust-1');
    const received = await agent.expect('command');
    assert.deepEqual(Buffer.from(received.body), Buffer.from(command.body));
    assert.equal(received.epoch, 1n);
    agent.send({ frame: { case: 'commandAck', value: { commandId: 'first', seq: received.seq } } });
    agent.send({
      frame: {
        case: 'commandResult',
        value: { commandId: 'first', seq: received.seq, outcome: CommandOutcome.SUCCEEDED, bodySha256: digestOf(command.body) },
      },
    });
    assert.equal((await agent.expect('resultReceipt')).commandId, 'first');
    assert.equal(store.stateOf('first'), 2);
    agent.send({ frame: { case: 'heartbeat', value: { sequence: 9n } } });
    assert.equal((await agent.expect('heartbeatAck')).sequence, 9n);
    store.trust = trustOf(2);
    assert.equal(new TextDecoder().decode((await agent.expect('welcome')).trust?.body), 'trust-2');
    agent.call.halfClose();
    assert.equal((await agent.ended).status, 0);
    agent.close();
  });
});
