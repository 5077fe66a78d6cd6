/** One test per row of the table (TRN-044): each refusal is provoked over real TLS and read off the wire. */
import assert from 'node:assert/strict';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { ControlError, errorTable } from '../../domain/errors.ts';
import { refusalTrailers } from '../../gateway/grpc/metadata.ts';
import { type RefusalReason, type RefusalRow, refusal, refusalTable, toWireRefusal } from '../../gateway/grpc/refusals.ts';
import { peerChainOf } from '../../gateway/tls/peer.ts';
import { newSigningKey } from '../../pki/bundle/create.ts';
import { ExecTicketIssuer, encodeTicketKeys } from '../../pki/exec/index.ts';
import { DesiredStateBodySchema, encodeMessage, NodeSpecSchema, RenewRequestSchema, TunnelFrameSchema } from '../../proto/index.ts';
import {
  type CallEnd,
  createAuthorities,
  dial,
  helloFrame,
  nodeLeaf,
  openAgent,
  servicePath,
  TestAgent,
  type TestAuthorities,
  TestCall,
  type TestLeaf,
} from '../harness/agent.ts';
import { ManualScheduler, turns } from './manual-scheduler.ts';
import { MemoryStore, signatureBytes } from './memory-store.ts';
import { type RunningGateway, startGateway } from './start-gateway.ts';

const day = 24 * 3_600_000;

interface Scene {
  readonly authorities: TestAuthorities;
  readonly leaf: TestLeaf;
  /** Closed when the test ends. */
  gateway(over?: Parameters<typeof startGateway>[0]): Promise<RunningGateway>;
}

const tunnelFrame = (frame: MessageInitShape<typeof TunnelFrameSchema>): Uint8Array =>
  encodeMessage(TunnelFrameSchema, frame, 'tunnelFrame');
const ticketFrame = (ticket: string) => ({ frame: { case: 'ticket' as const, value: { ticket } } });

/** A caller's stream: no client certificate. */
async function connectEnd(port: number, frame: MessageInitShape<typeof TunnelFrameSchema>): Promise<CallEnd> {
  const session = dial({ port });
  const call = new TestCall(session, '/bettercompute.agent.v1.TunnelGateway/Connect');
  call.send(tunnelFrame(frame));
  const end = await call.ended;
  session.destroy();
  return end;
}

/** A store whose node takes tickets of a key, and one by it. */
async function ticketFor(nodeId: string): Promise<{ store: MemoryStore; ticket: string }> {
  const issuer = new ExecTicketIssuer({ current: newSigningKey('execTicketKey') }, { issuer: 'https://compute.example.com' });
  const store = new MemoryStore();
  const spec = encodeMessage(
    NodeSpecSchema,
    { access: { jwks: [...encodeTicketKeys(issuer.jwks())], ticketIssuer: issuer.issuer } },
    'desiredStateBody',
  );
  const body = encodeMessage(DesiredStateBodySchema, { nodeId, generation: 1n, spec }, 'desiredStateBody');
  store.desired.set(nodeId, { generation: 1, body, signature: signatureBytes });
  return { store, ticket: (await issuer.issue({ nodeId, sessionId: 's', operation: 'node.ssh', actor: 'ada' })).ticket };
}

type Provoke = (scene: Scene) => Promise<CallEnd>;

async function sessionEnd(
  port: number,
  leaf: TestLeaf | null,
  act: (agent: TestAgent) => unknown = (agent) => agent.hello(),
): Promise<CallEnd> {
  const agent = new TestAgent({ port, leaf });
  await act(agent);
  const end = await agent.ended;
  agent.close();
  return end;
}

async function unaryEnd(
  port: number,
  {
    leaf = null,
    path = 'Join',
    act = (call) => call.send(Buffer.from('x')),
  }: { leaf?: TestLeaf | null; path?: string; act?: (call: TestCall) => void },
): Promise<CallEnd> {
  const session = dial({ port, leaf });
  const call = new TestCall(session, `${servicePath}/${path}`);
  act(call);
  call.halfClose();
  const end = await call.ended;
  session.destroy();
  return end;
}

const withSession =
  (act: (agent: TestAgent) => unknown): Provoke =>
  async ({ gateway, leaf }) =>
    sessionEnd((await gateway()).port, leaf, act);

const withLeaf =
  (make: (authorities: TestAuthorities) => Promise<TestLeaf>): Provoke =>
  async ({ gateway, authorities }) =>
    sessionEnd((await gateway()).port, await make(authorities));

/** The database refuses the node, in the words of the queries. */
const refusedByStore =
  (code: ControlError['code'], reason: string): Provoke =>
  async ({ gateway, leaf }) => {
    const store = new MemoryStore();
    store.inactive.set('node-1', new ControlError(code, `refused as ${reason}`, { details: { reason } }));
    return sessionEnd((await gateway({ store })).port, leaf);
  };

const refusedByServices =
  (error: unknown): Provoke =>
  async ({ gateway }) => {
    const fail = async (): Promise<never> => {
      throw error;
    };
    return unaryEnd((await gateway({ services: { join: fail, renew: fail } })).port, {});
  };

/** Time passes after the session was opened (or not). */
const afterTime =
  (ms: number, act: (agent: TestAgent) => Promise<unknown>): Provoke =>
  async ({ gateway, leaf, authorities }) => {
    const scheduler = new ManualScheduler(authorities.now + day);
    const { port } = await gateway({ scheduler });
    return sessionEnd(port, leaf, async (agent) => {
      await act(agent);
      for (let passed = 0; passed < ms; passed += 1_000) {
        scheduler.advance(1_000);
        await turns(1);
      }
    });
  };

const renewRequest = (leaf: TestLeaf): Buffer => Buffer.from(encodeMessage(RenewRequestSchema, { chain: [...leaf.chain] }, 'renewRequest'));

const provocations: Readonly<Record<Exclude<RefusalReason, 'session-resumed' | 'send-budget' | 'too-many-resets'>, Provoke>> = {
  'no-client-certificate': async ({ gateway }) => sessionEnd((await gateway()).port, null),
  'client-certificate-invalid': withLeaf(async ({ now }) =>
    nodeLeaf(await createAuthorities(now), 'node-1', { lifetimeMs: day, now: now + day - 60_000 }),
  ),
  'client-certificate-expired': withLeaf((authorities) => nodeLeaf(authorities, 'node-1', { lifetimeMs: 3_600_000 })),
  'client-certificate-not-yet-valid': withLeaf((authorities) =>
    nodeLeaf(authorities, 'node-1', { lifetimeMs: day, now: Date.now() + 2 * 3_600_000 }),
  ),
  'wrong-trust-domain': withLeaf((authorities) =>
    nodeLeaf(authorities, 'node-1', { trustDomain: 'other.example', lifetimeMs: day, now: authorities.now + day - 60_000 }),
  ),
  'wrong-role': refusedByStore('PERMISSION_DENIED', 'wrong-role'),
  'node-not-active': refusedByStore('PERMISSION_DENIED', 'node-not-active'),
  'generation-superseded': refusedByStore('INVALID_STATE', 'generation-superseded'),
  revoked: async ({ gateway, leaf }) => {
    const store = new MemoryStore();
    store.revoke(leaf.issuer, leaf.serial);
    return sessionEnd((await gateway({ store })).port, leaf);
  },
  'bad-proof': refusedByServices(refusal('bad-proof')),
  'join-refused': refusedByServices(refusal('join-refused')),
  'services-unavailable': refusedByServices(refusal('services-unavailable')),
  internal: refusedByServices(new Error('a secret detail')),
  'other-node': async ({ gateway, leaf, authorities }) => {
    const other = await nodeLeaf(authorities, 'node-2');
    return unaryEnd((await gateway()).port, { leaf, path: 'Renew', act: (call) => call.send(renewRequest(other)) });
  },
  'renew-rate-limit': async ({ gateway, leaf }) => {
    const { port } = await gateway();
    const renew = (): Promise<CallEnd> => unaryEnd(port, { leaf, path: 'Renew', act: (call) => call.send(renewRequest(leaf)) });
    for (let time = 0; time < 6; time += 1) assert.equal((await renew()).status, 0);
    return renew();
  },
  'first-frame-not-hello': withSession((agent) => agent.send({ frame: { case: 'heartbeat', value: { sequence: 1n } } })),
  'first-frame-not-ticket': async ({ gateway }) =>
    connectEnd((await gateway()).port, { frame: { case: 'data', value: { data: Buffer.from('x') } } }),
  'ticket-refused': async ({ gateway }) => connectEnd((await gateway()).port, ticketFrame('x.y.z')),
  'no-such-tunnel': async ({ gateway, leaf }) => {
    const opened = { frame: { case: 'opened' as const, value: { tunnelId: 'nobody asked' } } };
    return unaryEnd((await gateway()).port, { leaf, path: 'Tunnel', act: (call) => call.send(tunnelFrame(opened)) });
  },
  'tunnel-not-opened': async ({ gateway, leaf }) => {
    const { store, ticket } = await ticketFor('node-1');
    const { port } = await gateway({ store });
    const { agent } = await openAgent({ port, leaf });
    const end = connectEnd(port, ticketFrame(ticket));
    await agent.until('openTunnel');
    // It leaves, which is as good an answer as none in time.
    agent.close();
    return end;
  },
  'second-hello': withSession(async (agent) => {
    agent.hello();
    await agent.expect('welcome');
    agent.hello();
  }),
  'undecodable-frame': withSession((agent) => agent.call.send(Buffer.from([0x0a, 0xff]))),
  'invalid-protocol-range': withSession((agent) => agent.hello({ protoMin: 2, protoMax: 1 })),
  'protocol-too-new': withSession((agent) => agent.hello({ protoMin: 2, protoMax: 3 })),
  compressed: withSession((agent) => agent.call.send(Buffer.from('x'), 1)),
  'frame-too-large': withSession((agent) => agent.call.write(Buffer.from([0, 0, 0x40, 0, 1]))),
  'no-message': async ({ gateway }) => unaryEnd((await gateway()).port, { act: () => undefined }),
  'more-than-one-message': async ({ gateway }) =>
    unaryEnd((await gateway()).port, {
      act: (call) => {
        call.send(Buffer.from('a'));
        call.send(Buffer.from('b'));
      },
    }),
  'unknown-method': async ({ gateway }) => unaryEnd((await gateway()).port, { path: 'Nope' }),
  superseded: async ({ gateway, leaf }) => {
    const { port } = await gateway();
    return sessionEnd(port, leaf, async (agent) => {
      agent.hello();
      await agent.expect('welcome');
      (await openAgent({ port, leaf })).agent.call.stream.on('close', () => undefined);
    });
  },
  'hello-deadline': afterTime(11_000, async () => turns(200)),
  'heartbeat-lost': afterTime(52_000, async (agent) => {
    agent.hello();
    await agent.expect('welcome');
  }),
  draining: async ({ gateway, leaf }) => {
    const running = await gateway();
    return sessionEnd(running.port, leaf, async (agent) => {
      agent.hello();
      await agent.expect('welcome');
      await running.gateway.close();
    });
  },
  overloaded: async ({ gateway, leaf }) => {
    const store = new MemoryStore();
    let open: () => void = () => undefined;
    store.gates.set('openSession', new Promise((resolve) => void (open = resolve)));
    const { port } = await gateway({ store });
    const end = await sessionEnd(port, leaf, (agent) => {
      const frames = [
        helloFrame(),
        ...Array.from({ length: 33 }, () => ({ frame: { case: 'heartbeat' as const, value: { sequence: 1n } } })),
      ];
      agent.call.stream.cork();
      for (const frame of frames) agent.send(frame);
      agent.call.stream.uncork();
    });
    open();
    return end;
  },
  'database-unavailable': async ({ gateway, leaf, authorities }) => {
    const scheduler = new ManualScheduler(authorities.now + day);
    const { port, store } = await gateway({ scheduler });
    store.takeAway();
    for (let second = 0; second < 13; second += 1) {
      scheduler.advance(1_000);
      await turns();
    }
    return sessionEnd(port, leaf);
  },
};

describe('TRN-044 refusals on the wire, one per row', () => {
  let scene: Scene;
  const started: RunningGateway[] = [];
  before(async () => {
    // A day old, so that an expired leaf can be one that was good.
    const authorities = await createAuthorities(Date.now() - day);
    const leaf = await nodeLeaf(authorities, 'node-1', { lifetimeMs: day, now: authorities.now + day - 60_000 });
    scene = {
      authorities,
      leaf,
      gateway: async (over = {}) => {
        const running = await startGateway({ authorities, ...over });
        started.push(running);
        return running;
      },
    };
  });
  afterEach(async () => {
    for (const { gateway, store } of started.splice(0)) {
      store.bringBack();
      await gateway.close();
    }
  });

  for (const [reason, provoke] of Object.entries(provocations)) {
    const row: RefusalRow = refusalTable[reason as RefusalReason];
    it(`${reason}: grpc-status ${errorTable[row.code].grpc}`, async () => {
      const end = await provoke(scene);
      assert.deepEqual(
        { status: end.status, reason: end.reason, http: end.http },
        { status: errorTable[row.code].grpc, reason, http: 200 },
      );
      assert.notEqual(end.message, '');
      if (row.pushbackMs === undefined) return;
      assert.ok(
        end.pushbackMs !== null && end.pushbackMs >= row.pushbackMs && end.pushbackMs <= 2 * row.pushbackMs,
        `pushback ${end.pushbackMs}`,
      );
      assert.equal(end.retryAfter, String(Math.ceil(end.pushbackMs / 1_000)));
    });
  }

  it('renew-rate-limit says exactly how long to wait', async () => {
    const end = await provocations['renew-rate-limit'](scene);
    assert.ok(end.pushbackMs !== null && end.pushbackMs > 3_590_000 && end.pushbackMs <= 3_600_000, String(end.pushbackMs));
    assert.match(end.message, /node node-1 renewed 6 times within an hour/);
  });

  it('internal says nothing of the cause', async () => {
    assert.equal((await provocations.internal(scene)).message, 'internal error');
  });

  it('session-resumed: a resumed TLS session is no identity', () => {
    const resumed = {
      isSessionReused: () => true,
      getPeerX509Certificate: () => assert.fail('the certificate of a resumed session is not even read'),
    };
    assert.throws(() => peerChainOf(resumed as unknown as Parameters<typeof peerChainOf>[0]), {
      code: 'UNAUTHENTICATED',
      message: 'a resumed TLS session proves no certificate',
    });
  });

  it('what comes from the control plane keeps its code and reason, and gets a wait when a retry can help', () => {
    const skew = toWireRefusal(
      new ControlError('CLOCK_SKEW', 'the clock is off', { details: { reason: 'clock-skew', serverTimeMs: 7 } }),
      () => 0.5,
    );
    assert.deepEqual(skew, { grpc: 16, http: 401, reason: 'clock-skew', message: 'the clock is off', pushbackMs: 3_000, serverTimeMs: 7 });
    assert.equal(refusalTrailers(skew)['x-bc-server-time-ms'], '7', 'H-14 the refusal tells the daemon what time it is');
    const odd = toWireRefusal(new ControlError('NOT_FOUND', 'no such token', { details: { reason: 'not A reason\r\n' } }), () => 0);
    assert.deepEqual({ reason: odd.reason, pushbackMs: odd.pushbackMs }, { reason: 'not-found', pushbackMs: null });
  });
});
