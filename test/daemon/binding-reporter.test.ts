/** What a host says of the allocations on it: each until it is taken, and no longer than it runs. */
import assert from 'node:assert/strict';
import { BindingReporter } from '../../daemon/events/binding-reporter.ts';
import type { BoundAllocation } from '../../daemon/events/client.ts';
import type { RunningInstance } from '../../daemon/imds/runtime.ts';
import { ControlError } from '../../domain/errors.ts';

describe('the reporter of bound allocations', () => {
  const going = new AbortController().signal;
  let running: RunningInstance[] | Error;
  let said: BoundAllocation[];
  let refusal: string | null;
  let warnings: number;
  let reporter: BindingReporter;

  beforeEach(() => {
    running = [
      { instanceId: 'i-1', reservationId: 'r-1' },
      { instanceId: 'i-2', reservationId: null },
    ];
    [said, refusal, warnings] = [[], null, 0];
    reporter = new BindingReporter({
      runtime: { listRunning: async () => (running instanceof Error ? Promise.reject(running) : running) },
      report: async (bound) => {
        said.push(bound);
        if (refusal !== null) throw new ControlError('PERMISSION_DENIED', 'no', { details: { reason: refusal } });
      },
      log: { debug: () => undefined, info: () => undefined, warn: () => void (warnings += 1), error: () => undefined },
    });
  });

  it('SIGN-014 says each allocation of a reservation once it is taken, and anew when it runs again', async () => {
    await reporter.round(going);
    await reporter.round(going);
    assert.deepEqual(said, [{ reservationId: 'r-1', allocationId: 'i-1' }]);
    running = [];
    await reporter.round(going);
    running = [{ instanceId: 'i-1', reservationId: 'r-1' }];
    await reporter.round(going);
    assert.equal(said.length, 2);
  });

  it('SIGN-014 says it again while it is not taken, and complains once for each reason', async () => {
    refusal = 'not-bound';
    await reporter.round(going);
    await reporter.round(going);
    refusal = 'unavailable';
    await reporter.round(going);
    assert.deepEqual([said.length, warnings], [3, 2]);
    refusal = null;
    await reporter.round(going);
    await reporter.round(going);
    assert.deepEqual([said.length, warnings], [4, 2]);
  });

  it('says nothing while the runtime cannot be read, and nothing after the end', async () => {
    running = new Error('away');
    await reporter.round(going);
    running = [{ instanceId: 'i-1', reservationId: 'r-1' }];
    await reporter.round(AbortSignal.abort());
    assert.deepEqual(said, []);
    await reporter.round(going);
    assert.equal(said.length, 1);
  });
});
