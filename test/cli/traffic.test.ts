/** The demonstration's traffic: on its own daemons, and counted by how each command ended. */
import assert from 'node:assert/strict';
import type { Client } from '@temporalio/client';
import { startTraffic } from '../../cli/stack/demonstration/traffic.ts';

type Answer = { states: Record<string, number>; failures: { nodeId: string; state: string; error: string }[] };

/** As much of a Temporal client as runs a workflow. */
const clientThat = (answer: () => Promise<Answer>): { client: Client; inputs: unknown[] } => {
  const inputs: unknown[] = [];
  const execute = (_type: string, { args }: { args: unknown[] }): Promise<Answer> => (inputs.push(...args), answer());
  const withAbortSignal = <T>(_signal: AbortSignal, run: () => Promise<T>): Promise<T> => run();
  return { client: { connection: { withAbortSignal }, workflow: { execute } } as unknown as Client, inputs };
};

const going = new AbortController().signal;

describe('the traffic of the demonstration', () => {
  it('does not wait for commands that hang once the end is asked for, before or while it waits', async () => {
    for (const asked of ['before', 'meanwhile']) {
      const { client } = clientThat(() => new Promise(() => undefined));
      const traffic = startTraffic(client, { run: 'r', nodes: ['node-1'] });
      const end = new AbortController();
      if (asked === 'before') end.abort(new Error('ended'));
      const finished = traffic.finish(end.signal);
      end.abort(new Error('ended'));
      await assert.rejects(finished, { message: 'ended' });
    }
  });

  it('goes to the daemons it is told, not to every machine of the fleet, so that one that is away holds nothing up', async () => {
    const { client, inputs } = clientThat(async () => ({ states: { done: 2 }, failures: [] }));
    const traffic = startTraffic(client, { run: 'r', nodes: ['node-1', 'node-2'] });
    await traffic.finish(going);
    assert.deepEqual(inputs, [{ kind: 'inventory.refresh', nodes: ['node-1', 'node-2'], actor: 'demonstration' }]);
    assert.deepEqual(traffic.count, { workflows: 1, run: 2, rejected: 0, failed: 0, failures: [] });
  });

  it('counts what was rejected and what failed, and a workflow that did not end well', async () => {
    const failures = [{ nodeId: 'node-1', state: 'rejected', error: 'deadline' }];
    const rejecting = startTraffic(clientThat(async () => ({ states: { rejected: 1, expired: 1 }, failures })).client, {
      run: 'r',
      nodes: [],
    });
    await rejecting.finish(going);
    assert.deepEqual(rejecting.count, { workflows: 1, run: 0, rejected: 1, failed: 1, failures: ['node-1: rejected deadline'] });
    const failing = startTraffic(clientThat(() => Promise.reject(new Error('no worker'))).client, { run: 'r', nodes: [] });
    await failing.finish(going);
    assert.deepEqual(failing.count, { workflows: 1, run: 0, rejected: 0, failed: 1, failures: ['no worker'] });
  });
});
