/** The machine's end of tunnels, under a gateway that asks for what it likes. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import type { Socket } from 'node:net';
import { create, toBinary } from '@bufbuild/protobuf';
import { type TunnelConfig, tunnelSection } from '../../daemon/tunnel/config.ts';
import { day, minute } from '../../domain/time.ts';
import { tunnelLimits } from '../../domain/tunnels/limits.ts';
import { createBundle } from '../../pki/bundle/index.ts';
import { desiredStateFromStored, storedDesiredState } from '../../pki/envelope/index.ts';
import { encodeTicketKeys, execTicketIssuer } from '../../pki/exec/index.ts';
import { bounds, NodeSpecSchema } from '../../proto/index.ts';
import { setStage } from '../daemon/stage.ts';
import { eventually } from '../harness/eventually.ts';
import { type FakeTunnel, grpcPrefix } from '../harness/fake-gateway.ts';
import { echo, startService, ticketIssuer } from './stage.ts';

describe('the machine’s end of a tunnel', function () {
  this.timeout(60_000);
  const stage = setStage();

  interface Over {
    readonly config?: Partial<TunnelConfig>;
    readonly limits?: Partial<typeof tunnelLimits>;
    readonly onSocket?: (socket: Socket) => void;
    /** The machine's count of time, where the test moves it. */
    readonly steadyMs?: () => number;
  }

  /** A machine that has its desired state, behind a gateway that the test plays. */
  const machineWith = async ({ config, limits, onSocket = echo, steadyMs }: Over = {}) => {
    const service = await startService(onSocket);
    stage.running.push(service);
    const gateway = await stage.gatewayWith();
    const section = tunnelSection.parse({ operations: ['node.ssh'], sshPort: service.port, ...config });
    const member = await stage.daemonAt(gateway.url, {
      tunnels: { config: section, limits: { ...tunnelLimits, ...limits } },
      ...(steadyMs === undefined ? {} : { source: { wallMs: Date.now, steadyMs } }),
    });
    const session = await gateway.nextSession();
    const issuer = execTicketIssuer(stage.deployment.bundle, { issuer: ticketIssuer });
    const { workerA, trustDomain } = stage.deployment;
    const access = { jwks: encodeTicketKeys(issuer.jwks()), ticketIssuer };
    const spec = toBinary(NodeSpecSchema, create(NodeSpecSchema, { access }));
    const stored = await storedDesiredState(workerA, { nodeId: 'node-1', generation: 1, trustDomain, spec });
    session.send({ frame: { case: 'desiredState', value: desiredStateFromStored(stored) } });
    await eventually('the desired state is taken', () => member.agent.state.spec.current !== undefined);
    const subject = { nodeId: 'node-1', sessionId: 's-1', operation: 'node.ssh', actor: 'ada' };
    const ticket = async (change: Partial<Parameters<typeof issuer.issue>[0]> = {}) =>
      (await issuer.issue({ ...subject, ...change })).ticket;
    let count = 0;
    /** Asks for a tunnel; whether one comes, the test looks. */
    const ask = (text: string, tunnelId = `t-${(count += 1)}`): string => {
      session.send({ frame: { case: 'openTunnel', value: { tunnelId, ticket: text } } });
      return tunnelId;
    };
    const open = async (change: Parameters<typeof ticket>[0] = {}) => {
      const at = gateway.tunnels.length;
      const tunnelId = ask(await ticket(change));
      const tunnel = await gateway.tunnel(at);
      await eventually('opened', () => tunnel.frames.length > 0);
      return { tunnel, tunnelId };
    };
    return { service, gateway, member, session, issuer, ticket, ask, open };
  };

  const data = (bytes: Uint8Array, end = false) => ({ frame: { case: 'data' as const, value: { channel: 0, data: bytes, end } } });
  const ticketFrame = (ticket: string) => ({ frame: { case: 'ticket' as const, value: { ticket } } });

  it('TUN-001 TUN-006 TRN-008 opens a Tunnel stream on the connection of the session, and says opened first', async () => {
    const { session, open } = await machineWith();
    const { tunnel, tunnelId } = await open();
    assert.equal(tunnel.stream.session, session.stream.session);
    const [first] = tunnel.frames;
    assert.deepEqual([first?.case, first?.case === 'opened' && first.value.tunnelId], ['opened', tunnelId]);
  });

  it('TUN-007 TUN-009 carries data on channel 0, and says closed with its code when the other end is done', async () => {
    const { open } = await machineWith();
    const { tunnel } = await open();
    tunnel.send(data(Buffer.from('hello ')));
    tunnel.send(data(Buffer.from('there'), true));
    await tunnel.closed;
    assert.equal(tunnel.data().toString(), 'hello there');
    assert.deepEqual(tunnel.end(), { exitCode: 0, reason: 'ended' });
  });

  it('TUN-009 says closed with 255 when nothing answers where it leads', async () => {
    const { service, open } = await machineWith();
    await service.stop();
    stage.running.splice(stage.running.indexOf(service), 1);
    const { tunnel } = await open();
    await tunnel.closed;
    assert.deepEqual(tunnel.end(), { exitCode: 255, reason: 'unreachable' });
  });

  it('TUN-004 TUN-005 TUN-010 TUN-013 opens nothing for a ticket that is not good here, whatever the gateway thought of it', async () => {
    const { ask, ticket, gateway, service, member } = await machineWith();
    const other = execTicketIssuer(await createBundle({ trustDomain: 'test.example', now: Date.now() - day }), { issuer: ticketIssuer });
    const elsewhere = execTicketIssuer(stage.deployment.bundle, { issuer: 'https://other.example.com' });
    const late = execTicketIssuer(stage.deployment.bundle, { issuer: ticketIssuer, now: () => Date.now() - 2 * minute });
    const subject = { nodeId: 'node-1', sessionId: 's-1', operation: 'node.ssh', actor: 'ada' };
    const used = await ticket();
    ask(used);
    await gateway.tunnel(0);
    const bad: readonly (readonly [string, string])[] = [
      ['used', used],
      ['of an unknown key', (await other.issue(subject)).ticket],
      ['of another api', (await elsewhere.issue(subject)).ticket],
      ['that is over', (await late.issue(subject)).ticket],
      ['for another node', await ticket({ nodeId: 'node-2' })],
      ['for a word of no table', await ticket({ operation: 'node.root' })],
      ['for what the owner does not name', await ticket({ operation: 'instance.ssh', destination: 'i-1@127.0.0.1:22' })],
      ['for the machine, with a place of its own', await ticket({ destination: `i-1@127.0.0.1:${service.port}` })],
      ['changed', `${(await ticket()).slice(0, -4)}AAAA`],
      ['no ticket', 'x.y.z'],
      ['empty', ''],
    ];
    for (const [, text] of bad) ask(text);
    // Frames are handled in order: when the good one behind them has opened, nothing will come of the others.
    const last = ask(await ticket(), 'the good one');
    const tunnel = await gateway.tunnel(1);
    await eventually('opened', () => tunnel.frames.length > 0);
    assert.equal(tunnel.frames[0]?.case === 'opened' && tunnel.frames[0].value.tunnelId, last);
    assert.equal(gateway.tunnels.length, 2);
    assert.equal(member.agent.state.tunnels?.size, 2);
  });

  it('TUN-012 TUN-013 leads to instances only in the networks that the owner names, and advertises what he takes', async () => {
    const service = await startService(echo);
    stage.running.push(service);
    const config = { operations: ['instance.tcp', 'instance.ssh'] as const, instanceNetworks: ['127.1.0.0/16', '::1/128'] };
    const { ask, ticket, gateway, member, session } = await machineWith({ config: { ...config, operations: [...config.operations] } });
    assert.deepEqual(
      session.hello?.capabilities.filter((name) => name.startsWith('tunnel.')),
      ['tunnel.instance-dial'],
    );
    assert.ok(member.agent.state.capabilities.includes('tunnel.instance-dial'));
    const to = (destination: string, operation = 'instance.tcp') => ticket({ operation, destination });
    for (const destination of [
      'i-1@127.0.0.1:80',
      'i-1@10.0.0.1:80',
      'i-1@127.1.0.999:80',
      'i-1@[::2]:80',
      'i-1@127.1.0.1:0',
      'i-1@127.1.0.1:65536',
      '127.1.0.1:80',
    ])
      ask(await to(destination));
    ask(await ticket({ operation: 'instance.tcp' }));
    ask(await to('i-1@127.1.0.1:23', 'instance.ssh'));
    ask(await ticket({ operation: 'node.ssh' }));
    ask(await to('i-1@127.1.0.1:1'), 'the good one');
    const tunnel = await gateway.tunnel(0);
    await tunnel.closed;
    assert.equal(tunnel.frames[0]?.case === 'opened' && tunnel.frames[0].value.tunnelId, 'the good one');
    assert.equal(gateway.tunnels.length, 1);
  });

  it('TUN-010 a machine whose owner names no operation opens nothing, and advertises nothing', async () => {
    const gateway = await stage.gatewayWith();
    const member = await stage.daemonAt(gateway.url);
    const session = await gateway.nextSession();
    const issuer = execTicketIssuer(stage.deployment.bundle, { issuer: ticketIssuer });
    const { ticket } = await issuer.issue({ nodeId: 'node-1', sessionId: 's-1', operation: 'node.ssh', actor: 'ada' });
    session.send({ frame: { case: 'openTunnel', value: { tunnelId: 't', ticket } } });
    session.send({ frame: { case: 'openTunnel', value: { tunnelId: 't', ticket } } });
    // It goes on with the session: what comes behind is answered.
    session.send({ frame: { case: 'cancelCommand', value: { commandId: 'none', reason: 'none' } } });
    await eventually('a welcomed session', () => member.agent.link.current !== undefined);
    assert.equal(gateway.tunnels.length, 0);
    assert.deepEqual(
      session.hello?.capabilities.filter((name) => name.startsWith('tunnel.')),
      [],
    );
  });

  it('TUN-011 runs at most 16 at once: the 17th opens nothing, and its ticket may be shown again', async () => {
    assert.equal(tunnelLimits.atOnce, 16);
    const { open, ask, ticket, gateway, member } = await machineWith();
    const first = await open();
    for (let n = 1; n < tunnelLimits.atOnce; n += 1) await open();
    const refused = await ticket();
    ask(refused, 'one too many');
    first.tunnel.send(data(new Uint8Array(), true));
    await first.tunnel.closed;
    await eventually('room', () => member.agent.state.tunnels?.size === tunnelLimits.atOnce - 1);
    assert.equal(gateway.tunnels.length, tunnelLimits.atOnce);
    ask(refused, 'again');
    const tunnel = await gateway.tunnel(tunnelLimits.atOnce);
    await eventually('opened', () => tunnel.frames.length > 0);
    assert.equal(tunnel.frames[0]?.case === 'opened' && tunnel.frames[0].value.tunnelId, 'again');
  });

  describe('SBX-018 goes on only while tickets come', () => {
    const limits = { ticketCountsMs: 400 };

    it('without another ticket it ends, although bytes flow', async () => {
      const { open } = await machineWith({ limits });
      const { tunnel } = await open();
      const beat = setInterval(() => tunnel.send(data(Buffer.from('x'))), 20);
      await tunnel.closed;
      clearInterval(beat);
      assert.deepEqual(tunnel.end(), { exitCode: 255, reason: 'not-reauthorised' });
    });

    /** Frames are handled in order: when the echo is back, what was sent before it has been judged. */
    const settle = async (tunnel: FakeTunnel): Promise<void> => {
      const before = tunnel.data().length;
      tunnel.send(data(Buffer.from('x')));
      await eventually('echoed', () => tunnel.data().length > before || tunnel.end() !== undefined);
    };

    it('with other tickets for the same tunnel it goes on', async () => {
      let steady = 1_000;
      const { open, ticket } = await machineWith({ limits, steadyMs: () => steady });
      const { tunnel } = await open();
      for (let time = 0; time < 12; time += 1) {
        steady += 0.75 * limits.ticketCountsMs;
        tunnel.send(ticketFrame(await ticket()));
        await settle(tunnel);
      }
      assert.equal(tunnel.end(), undefined);
    });

    const others: Readonly<Record<string, Parameters<Awaited<ReturnType<typeof machineWith>>['ticket']>[0]>> = {
      'another caller': { actor: 'eve' },
      'another session': { sessionId: 's-2' },
      'another node': { nodeId: 'node-2' },
      'another operation': { operation: 'instance.tcp', destination: 'i-1@127.0.0.1:22' },
    };
    for (const [name, change] of [...Object.entries(others), ['a ticket that was used', null], ['what is no ticket', undefined]] as const)
      it(`${name} lengthens nothing`, async () => {
        let steady = 1_000;
        const { open, ticket } = await machineWith({ limits, steadyMs: () => steady });
        const { tunnel } = await open();
        const next = async (): Promise<string> => (change === undefined ? 'x' : ticket(change ?? {}));
        const first = await next();
        tunnel.send(ticketFrame(first));
        await settle(tunnel);
        steady += 0.75 * limits.ticketCountsMs;
        // A ticket that was good counts from when it was shown first.
        tunnel.send(ticketFrame(change === null ? first : await next()));
        await settle(tunnel);
        steady += 0.5 * limits.ticketCountsMs;
        await tunnel.closed;
        assert.equal(tunnel.end()?.reason, 'not-reauthorised');
      });
  });

  it('ends when nothing is sent for too long, and when it has lasted as long as one may, whatever tickets come', async () => {
    const idle = await machineWith({ limits: { idleMs: 200 } });
    const quiet = (await idle.open()).tunnel;
    await quiet.closed;
    assert.equal(quiet.end()?.reason, 'idle');
    const brief = await machineWith({ limits: { lifetimeMs: 300 } });
    const { tunnel } = await brief.open();
    const beat = setInterval(() => void brief.ticket().then((text) => tunnel.send(ticketFrame(text))), 50);
    await tunnel.closed;
    clearInterval(beat);
    assert.equal(tunnel.end()?.reason, 'lifetime');
  });

  it('ends a tunnel on frames that no client sends, and that tunnel alone', async () => {
    const { open, member } = await machineWith();
    const kept = (await open()).tunnel;
    const faults: readonly ((tunnel: typeof kept) => void)[] = [
      (tunnel) => tunnel.sendBytes(grpcPrefix(Buffer.from([0x0a, 0xff]))),
      (tunnel) => tunnel.sendBytes(Buffer.from([0, 0xff, 0xff, 0xff, 0xff])),
      (tunnel) => tunnel.sendBytes(Buffer.from([1, 0, 0, 0, 1, 0])),
      (tunnel) => tunnel.send(data(randomBytes(bounds.tunnelData + 1))),
      (tunnel) => tunnel.send({ frame: { case: 'data', value: { channel: 1, data: Buffer.from('x') } } }),
    ];
    for (const fault of faults) {
      const { tunnel } = await open();
      fault(tunnel);
      await tunnel.closed;
      assert.deepEqual(tunnel.end(), { exitCode: 255, reason: 'client-fault' });
    }
    await eventually('the others are gone', () => member.agent.state.tunnels?.size === 1);
    kept.send(data(Buffer.from('still here')));
    await eventually('echoed', () => kept.data().toString() === 'still here');
  });

  it('B30 holds the machine’s service back while the gateway takes nothing, and goes on when it does', async () => {
    let written = 0;
    let isStalled = false;
    const flood = (socket: Socket): void => {
      const more = (): void => {
        isStalled = false;
        while (!socket.destroyed && socket.write(Buffer.alloc(64 * 1024))) written += 64 * 1024;
        isStalled = true;
        socket.once('drain', more);
      };
      more();
    };
    const { open, member } = await machineWith({ onSocket: flood });
    const { tunnel } = await open();
    tunnel.stream.pause();
    let before = -1;
    await eventually('nothing moves', async () => {
      const now = written;
      await new Promise((resolve) => setTimeout(resolve, 150));
      const isStill = isStalled && written === now && now === before;
      before = now;
      return isStill;
    });
    assert.ok(written < 32 * 1024 * 1024, `${written} bytes`);
    tunnel.stream.resume();
    const held = written;
    await eventually('it moves again', () => written > held);
    tunnel.stream.close();
    await eventually('the machine lets go', () => member.agent.state.tunnels?.size === 0);
  });

  it('says so when the daemon stops', async () => {
    const { open, member } = await machineWith();
    const { tunnel } = await open();
    await Promise.all([member.stop(), tunnel.closed]);
    assert.equal(tunnel.end()?.reason, 'stopping');
  });
});

describe('what the owner of a machine lets tunnels lead to', () => {
  it('is nothing, unless he says so', () => {
    assert.deepEqual(tunnelSection.parse({}), { operations: [], sshPort: 22, instanceNetworks: [] });
  });

  const bad: readonly (readonly [string, object])[] = [
    ['an operation of no table', { operations: ['node.root'] }],
    ['instances without their networks', { operations: ['instance.ssh'] }],
    ['a network that is none', { instanceNetworks: ['10.0.0.0'] }],
    ['a prefix that is too long', { instanceNetworks: ['10.0.0.0/33'] }],
    ['a name for a network', { instanceNetworks: ['example.com/8'] }],
    ['a port that is none', { sshPort: 0 }],
    ['a setting that nobody knows', { shell: true }],
  ];
  for (const [name, section] of bad) it(`refuses ${name}`, () => assert.equal(tunnelSection.safeParse(section).success, false));
});
