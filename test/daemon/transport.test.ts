import assert from 'node:assert/strict';
import type { AddressInfo } from 'node:net';
import { createServer } from 'node:net';
import { backoffLimits } from '../../daemon/transport/backoff.ts';
import { GrpcWire } from '../../daemon/transport/grpc-route.ts';
import { dialPinned } from '../../daemon/transport/pinned-connection.ts';
import { SessionStream, sessionTiming } from '../../daemon/transport/session-stream.ts';
import { minute, second } from '../../domain/time.ts';
import { commandOf, joinedNode } from '../harness/deployment.ts';
import { eventually } from '../harness/eventually.ts';
import { startTcpProxy } from '../harness/tcp-proxy.ts';

import { setStage } from './stage.ts';

const timersOfProcess = (): number => process.getActiveResourcesInfo().filter((one) => one === 'Timeout').length;

describe('the way to the gateway', () => {
  const stage = setStage();

  describe('noticing that nobody is there', () => {
    it('B26 B32 TRN-028 a path that swallows everything: two PINGs without an answer, and it dials anew', async () => {
      const gateway = await stage.gatewayWith();
      const proxy = await startTcpProxy(gateway.port);
      stage.running.push({ stop: () => proxy.close() });
      const member = await stage.daemonAt(`https://127.0.0.1:${proxy.port}`, {
        timing: { ...sessionTiming, pingEveryMs: 20 },
        dialWithinMs: 300,
      });
      await gateway.nextSession();
      await eventually('connected', () => member.agent.link.current !== undefined);
      proxy.swallow();
      await eventually('given up', () => member.agent.link.current === undefined);
      assert.equal(member.status().lastFailure?.reason, 'ping-lost');
      proxy.pass();
      await gateway.nextSession();
    });

    it('B46 a gateway that answers PING while its stream is dead: two heartbeats without an answer', async () => {
      const gateway = await stage.gatewayWith({ answersHeartbeats: false, welcome: () => ({ heartbeatIntervalMs: 10 }) });
      const member = await stage.daemonAt(gateway.url, { timing: { ...sessionTiming, leastHeartbeatMs: 10 } });
      await gateway.nextSession();
      await gateway.nextSession();
      assert.equal(member.status().lastFailure?.reason, 'heartbeat-lost');
    });

    it('a gateway that answers heartbeats is kept', async () => {
      const gateway = await stage.gatewayWith({ welcome: () => ({ heartbeatIntervalMs: 5 }) });
      await stage.daemonAt(gateway.url, { timing: { ...sessionTiming, leastHeartbeatMs: 5 } });
      const session = await gateway.nextSession();
      for (let n = 1n; n <= 20n; n++) assert.equal((await session.take('heartbeat')).sequence, n);
      assert.equal(gateway.attempts, 1);
    });

    it('B48 a gateway that says nothing at all', async () => {
      const gateway = await stage.gatewayWith({ welcome: () => null });
      const member = await stage.daemonAt(gateway.url, { timing: { ...sessionTiming, firstFrameWithinMs: 30 } });
      await gateway.nextSession();
      await gateway.nextSession();
      assert.equal(member.status().lastFailure?.reason, 'no-welcome');
    });

    it('a session that was closed while its welcome was worked on starts no heartbeat: it would keep the process for a beat', async () => {
      const gateway = await stage.gatewayWith();
      const { identity, key } = await joinedNode(stage.deployment, { gatewayUrl: gateway.url });
      const connection = await dialPinned({
        gateway: identity,
        client: { chain: identity.chain, key },
        now: Date.now(),
        timeoutMs: 10 * second,
      });
      let timers: number[] = [];
      const stream = new SessionStream(new GrpcWire(connection), {
        hello: { frame: { case: 'hello', value: {} } },
        timing: sessionTiming,
        random: () => 0.5,
        onFrame: async (_, from) => {
          from.close();
          const before = timersOfProcess();
          from.startHeartbeat(minute);
          timers = [before, timersOfProcess()];
        },
        heartbeat: (sequence) => ({ frame: { case: 'heartbeat', value: { sequence } } }),
      });
      assert.equal(await stream.ended, null);
      assert.equal(timers.length, 2);
      assert.equal(timers[1], timers[0]);
    });
  });

  describe('dialling again', () => {
    it('B28 a call that ends without a status is worth a retry, never a hang', async () => {
      const gateway = await stage.gatewayWith();
      const member = await stage.daemonAt(gateway.url);
      const first = await gateway.nextSession();
      await first.take('status');
      first.end({ 'x-other': '1' });
      const second = await gateway.nextSession();
      assert.equal(member.status().lastFailure?.reason, 'no-status');
      await second.take('status');
      second.stream.close(0);
      await gateway.nextSession();
      assert.match(member.status().lastFailure?.reason ?? '', /^(?:no-status|connection-lost)$/);
    });

    it('TRN-018 TRN-043 a refusal in trailers only is read with its reason and its words', async () => {
      const gateway = await stage.gatewayWith({
        refuseSession: (attempt) =>
          attempt === 1 ? { 'grpc-status': '14', 'grpc-message': 'der Dienst ist %C3%BCberlastet', 'x-bc-reason': 'overloaded' } : null,
      });
      const member = await stage.daemonAt(gateway.url);
      await gateway.nextSession();
      assert.deepEqual(
        [member.status().lastFailure?.reason, member.status().lastFailure?.detail],
        ['overloaded', 'der Dienst ist überlastet'],
      );
    });

    it('B51 being superseded is never fatal', async () => {
      const gateway = await stage.gatewayWith({
        refuseSession: (attempt) => (attempt <= 3 ? { 'grpc-status': '10', 'x-bc-reason': 'superseded' } : null),
      });
      const member = await stage.daemonAt(gateway.url);
      await gateway.nextSession();
      assert.equal(member.status().lastFailure?.reason, 'superseded');
    });

    it('B23 GOAWAY: the next session is opened at once, while the old stream drains, and then the old one is closed', async () => {
      const gateway = await stage.gatewayWith();
      const patient = { ...backoffLimits, baseMs: 3_600_000, capMs: 3_600_000 };
      await stage.daemonAt(gateway.url, { limits: patient });
      const first = await gateway.nextSession();
      await first.take('status');
      first.goaway();
      const second = await gateway.nextSession();
      await second.take('status');
      await first.closed;
      assert.equal(second.isClosed, false);
    });

    it('Drain: dials again in its slot, and a command sent meanwhile still runs', async () => {
      const gateway = await stage.gatewayWith();
      const member = await stage.daemonAt(gateway.url, { limits: { ...backoffLimits, baseMs: 3_600_000, capMs: 3_600_000 } });
      const first = await gateway.nextSession();
      await first.take('status');
      first.send({ frame: { case: 'drain', value: { afterMs: 150, windowMs: 50, reason: 'deploy' } } });
      first.send({ frame: { case: 'command', value: await commandOf(stage.deployment, { id: 'late' }) } });
      assert.equal((await first.take('commandResult')).commandId, 'late');
      await gateway.nextSession();
      await first.closed;
      assert.equal(member.effects.get('late'), 1);
    });

    it('Drain, then the end: the slot still counts, not the schedule for losses', async () => {
      const gateway = await stage.gatewayWith();
      await stage.daemonAt(gateway.url, { limits: { ...backoffLimits, baseMs: 3_600_000, capMs: 3_600_000 } });
      const first = await gateway.nextSession();
      await first.take('status');
      first.send({ frame: { case: 'drain', value: { afterMs: 50, windowMs: 1 } } });
      first.end({ 'grpc-status': '14', 'x-bc-reason': 'draining' });
      await gateway.nextSession();
    });

    it('a gateway that is not there is dialled until it is', async () => {
      const probe = createServer();
      await new Promise<void>((resolve) => probe.listen(0, '127.0.0.1', resolve));
      const { port } = probe.address() as AddressInfo;
      await new Promise((resolve) => probe.close(resolve));
      const member = await stage.daemonAt(`https://127.0.0.1:${port}`);
      await eventually('a failure is told', () => member.status().lastFailure?.reason === 'dial-failed');
      assert.match(member.status().stateDetail ?? '', /no connection to 127\.0\.0\.1|dialling/);
    });
  });
});
