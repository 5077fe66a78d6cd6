/** Tunnels end to end: the caller's program, the gateway's own code, the daemon's own code, over real TLS and HTTP/2. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { tunnelLimits } from '../../domain/tunnels/limits.ts';
import { setStage } from '../daemon/stage.ts';
import { eventually } from '../harness/eventually.ts';
import { echo, startCaller, startMachine, startService } from './stage.ts';

describe('tunnels', function () {
  this.timeout(60_000);
  const stage = setStage();
  const serving = async (onSocket: Parameters<typeof startService>[0] = echo) => {
    const service = await startService(onSocket);
    stage.running.push(service);
    return service;
  };
  const machineWith = async (onSocket = echo, limits = tunnelLimits) => {
    const service = await serving(onSocket);
    const machine = await startMachine(stage, { config: { operations: ['node.ssh'], sshPort: service.port }, limits });
    return { service, machine };
  };

  it('TRN-008 TUN-001 bytes go both ways, over the very connection of the session', async () => {
    const { machine } = await machineWith();
    const { gateway } = machine.gateway;
    const before = gateway.connections.size;
    assert.equal(before, 1);
    const caller = startCaller(stage, { ticket: await machine.ticket(), url: machine.gateway.url });
    caller.input.write('hello');
    await eventually('the echo', () => caller.received().toString() === 'hello');
    assert.equal(gateway.connections.size, 2, 'one of the machine, one of the caller');
    assert.equal(machine.member.agent.state.tunnels?.size, 1);
    caller.input.end(' and goodbye');
    assert.equal((await caller.done).toString(), 'hello and goodbye');
    await eventually('the tunnel is over', () => machine.member.agent.state.tunnels?.size === 0 && gateway.connections.size === 1);
  });

  it('B30 carries megabytes both ways at once without losing one', async () => {
    const { machine } = await machineWith();
    for (let time = 0; time < 2; time += 1) {
      const bytes = randomBytes(8 * 1024 * 1024);
      const caller = startCaller(stage, { ticket: await machine.ticket(), url: machine.gateway.url });
      caller.input.end(bytes);
      assert.ok((await caller.done).equals(bytes));
    }
  });
});
