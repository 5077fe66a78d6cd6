/** What the gateway lets through: callers without a good ticket, machines that were not asked, and what becomes of tunnels when one side leaves. */
import assert from 'node:assert/strict';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { newSigningKey } from '../../pki/bundle/create.ts';
import { ExecTicketIssuer, encodeTicketKeys } from '../../pki/exec/index.ts';
import {
  DesiredStateBodySchema,
  decodeMessage,
  encodeMessage,
  NodeSpecSchema,
  type TunnelFrame,
  TunnelFrameSchema,
} from '../../proto/index.ts';
import { ManualScheduler, turns } from '../gateway/manual-scheduler.ts';
import { MemoryStore, signatureBytes } from '../gateway/memory-store.ts';
import { type RunningGateway, startGateway } from '../gateway/start-gateway.ts';
import {
  createAuthorities,
  dial,
  nodeLeaf,
  openAgent,
  servicePath,
  type TestAgent,
  type TestAuthorities,
  TestCall,
  type TestLeaf,
} from '../harness/agent.ts';

const issuerUrl = 'https://compute.example.com';

describe('the gateway of a tunnel', function () {
  this.timeout(60_000);
  const issuer = new ExecTicketIssuer({ current: newSigningKey('execTicketKey') }, { issuer: issuerUrl });
  let authorities: TestAuthorities;
  const leaves = new Map<string, TestLeaf>();
  const closing: (() => unknown)[] = [];
  before(async () => {
    authorities = await createAuthorities();
    for (const nodeId of ['node-1', 'node-2']) leaves.set(nodeId, await nodeLeaf(authorities, nodeId));
  });
  afterEach(async () => {
    for (const close of closing.splice(0).toReversed()) await close();
  });

  const started = async (over: Parameters<typeof startGateway>[0] = {}): Promise<RunningGateway> => {
    const store = over.store ?? new MemoryStore();
    for (const nodeId of leaves.keys()) {
      const access = { jwks: [...encodeTicketKeys(issuer.jwks())], ticketIssuer: issuerUrl };
      const spec = encodeMessage(NodeSpecSchema, { access }, 'desiredStateBody');
      const body = encodeMessage(DesiredStateBodySchema, { nodeId, generation: 1n, spec }, 'desiredStateBody');
      store.desired.set(nodeId, { generation: 1, body, signature: signatureBytes });
    }
    const running = await startGateway({ authorities, ...over, store });
    closing.push(() => running.gateway.close());
    return running;
  };
  const leafOf = (nodeId: string): TestLeaf => leaves.get(nodeId) as TestLeaf;
  const agentAt = async (port: number, nodeId = 'node-1'): Promise<TestAgent> => {
    const { agent } = await openAgent({ port, leaf: leafOf(nodeId) });
    closing.push(() => agent.close());
    return agent;
  };
  const ticketFor = async (nodeId = 'node-1', by = issuer, lifetimeSeconds = 60): Promise<string> =>
    (await by.issue({ nodeId, sessionId: 's-1', operation: 'node.ssh', actor: 'ada', lifetimeSeconds })).ticket;

  const bytesOf = (frame: MessageInitShape<typeof TunnelFrameSchema>): Uint8Array => encodeMessage(TunnelFrameSchema, frame, 'tunnelFrame');
  const frameOf = (message: Buffer | null): TunnelFrame['frame'] =>
    decodeMessage(TunnelFrameSchema, message ?? new Uint8Array(), 'tunnelFrame').frame;
  const data = (text: string) => ({ frame: { case: 'data' as const, value: { data: Buffer.from(text) } } });
  /** A caller: no client certificate, a ticket. */
  const callAt = (port: number, ticket: string): TestCall => {
    const session = dial({ port });
    closing.push(() => session.destroy());
    const call = new TestCall(session, '/bettercompute.agent.v1.TunnelGateway/Connect');
    call.send(bytesOf({ frame: { case: 'ticket', value: { ticket } } }));
    return call;
  };
  /** A machine's answer, on the connection of its session unless another is given. */
  const answerOn = (session: TestAgent['session'], tunnelId: string): TestCall => {
    const call = new TestCall(session, `${servicePath}/Tunnel`);
    call.send(bytesOf({ frame: { case: 'opened', value: { tunnelId } } }));
    return call;
  };
  const spliced = async () => {
    const running = await started();
    const agent = await agentAt(running.port);
    const caller = callAt(running.port, await ticketFor());
    const { tunnelId } = await agent.until('openTunnel');
    const machine = answerOn(agent.session, tunnelId);
    assert.equal(frameOf(await caller.next()).case, 'opened');
    return { ...running, agent, caller, machine };
  };

  it('TUN-003 asks the machine for nothing when the ticket is not good, and tells strangers nothing more', async () => {
    const { port } = await started();
    const agent = await agentAt(port);
    const other = new ExecTicketIssuer({ current: newSigningKey('execTicketKey') }, { issuer: issuerUrl });
    const elsewhere = new ExecTicketIssuer({ current: newSigningKey('execTicketKey') }, { issuer: 'https://other.example.com' });
    const late = new ExecTicketIssuer({ current: newSigningKey('execTicketKey') }, { issuer: issuerUrl, now: () => 0 });
    const bad: readonly string[] = [
      await ticketFor('node-1', other),
      await ticketFor('node-1', elsewhere),
      await ticketFor('node-1', late),
      await ticketFor('node-2'),
      await ticketFor('node-9'),
      `${(await ticketFor()).slice(0, -3)}AAA`,
      'x',
      '',
    ];
    for (const ticket of bad) {
      const { status, reason, message } = await callAt(port, ticket).ended;
      assert.deepEqual([status, reason, message], [7, 'ticket-refused', 'the ticket opens nothing here']);
    }
    const good = await ticketFor();
    callAt(port, good);
    const first = await agent.until('openTunnel');
    assert.equal(first.ticket, good, 'the first that the machine hears of');
    assert.equal((await callAt(port, good).ended).reason, 'ticket-refused', 'and none twice');
  });

  it('TUN-001 hands the ticket on as it came, splices the two streams, and passes on what either says', async () => {
    const { caller, machine, gateway } = await spliced();
    caller.send(bytesOf(data('to the machine')));
    machine.send(bytesOf(data('to the caller')));
    const [down, up] = [frameOf(await caller.next()), frameOf(await machine.next())];
    assert.deepEqual(
      [down, up].map((frame) => frame.case === 'data' && Buffer.from(frame.value.data).toString()),
      ['to the caller', 'to the machine'],
    );
    assert.equal(gateway.connections.size, 2);
  });

  it('a machine cannot answer for another one, nor by another connection than the one that was asked', async () => {
    const { port } = await started();
    const [asked, other] = [await agentAt(port), await agentAt(port, 'node-2')];
    const caller = callAt(port, await ticketFor());
    const { tunnelId } = await asked.until('openTunnel');
    assert.equal((await answerOn(other.session, tunnelId).ended).reason, 'no-such-tunnel');
    const second = dial({ port, leaf: leafOf('node-1') });
    closing.push(() => second.destroy());
    assert.equal((await answerOn(second, tunnelId).ended).reason, 'no-such-tunnel');
    assert.equal((await answerOn(asked.session, 'guessed').ended).reason, 'no-such-tunnel');
    answerOn(asked.session, tunnelId);
    assert.equal(frameOf(await caller.next()).case, 'opened', 'the one that was asked still can');
    assert.equal((await answerOn(asked.session, tunnelId).ended).reason, 'no-such-tunnel', 'once');
  });

  it('TRN-014 a Tunnel stream needs the certificate of a node; a caller’s stream needs none', async () => {
    const { port } = await started();
    const session = dial({ port });
    closing.push(() => session.destroy());
    assert.equal((await answerOn(session, 't').ended).reason, 'no-client-certificate');
    assert.equal((await callAt(port, 'x').ended).reason, 'ticket-refused');
  });

  it('TUN-010 tells the caller in time that the machine opened nothing', async () => {
    const scheduler = new ManualScheduler(Date.now());
    const { port } = await started({ scheduler });
    const agent = await agentAt(port);
    const caller = callAt(port, await ticketFor());
    await agent.until('openTunnel');
    const before = Date.now();
    for (let passed = 0; passed < 11; passed += 1) {
      scheduler.advance(1_000);
      await turns(2);
    }
    const { reason, status } = await caller.ended;
    assert.deepEqual([status, reason], [14, 'tunnel-not-opened']);
    assert.ok(Date.now() - before < 10_000, 'by its own clock');
  });

  it('ends the machine’s stream when the caller leaves, and the caller’s when the machine does', async () => {
    for (const leaver of ['caller', 'machine'] as const) {
      const { caller, machine } = await spliced();
      const [leaving, staying] = leaver === 'caller' ? [caller, machine] : [machine, caller];
      leaving.send(bytesOf(data('goodbye')));
      leaving.halfClose();
      assert.equal(frameOf(await staying.next()).case, 'data', 'what was said before is passed on');
      assert.deepEqual([(await staying.ended).status, (await leaving.ended).status], [0, 0]);
    }
  });

  it('SBX-018 ends the tunnels of a node when its session ends: revoked, it has none', async () => {
    const { caller, machine, agent, store, gateway } = await spliced();
    const { issuer: by, serial } = leafOf('node-1');
    store.revoke(by, serial);
    await gateway.revocations.poll();
    await Promise.all([caller.ended, machine.ended, agent.ended]);
  });

  it('opens none while it drains, and ends those that are open when it goes', async () => {
    const { caller, machine, gateway, port } = await spliced();
    const late = callAt(port, await ticketFor());
    const closing = gateway.close();
    await Promise.all([closing, caller.ended, machine.ended]);
    assert.notEqual((await late.ended).status, 0);
  });

  it('a caller that says nothing, too much or something else is told so, and costs no question', async () => {
    const scheduler = new ManualScheduler(Date.now());
    const { port } = await started({ scheduler });
    const raw = (bytes: Buffer): TestCall => {
      const session = dial({ port });
      closing.push(() => session.destroy());
      const call = new TestCall(session, '/bettercompute.agent.v1.TunnelGateway/Connect');
      if (bytes.length > 0) call.write(bytes);
      return call;
    };
    assert.equal((await raw(Buffer.from([0, 0, 1, 0, 0])).ended).reason, 'frame-too-large');
    assert.equal((await raw(Buffer.from([1, 0, 0, 0, 1, 0])).ended).reason, 'compressed');
    assert.equal((await raw(Buffer.from([0, 0, 0, 0, 2, 0x0a, 0xff])).ended).reason, 'undecodable-frame');
    const silent = raw(Buffer.from([0, 0]));
    await turns(20);
    for (let passed = 0; passed < 11; passed += 1) {
      scheduler.advance(1_000);
      await turns(2);
    }
    assert.equal((await silent.ended).reason, 'no-message');
  });
});
