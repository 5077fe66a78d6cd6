/** Words about runs, and the looks that wait for them: how many may, what is missed by none, and how they end. */
import assert from 'node:assert/strict';
import { MockActivityEnvironment } from '@temporalio/testing';
import { DefaultLogger } from '@temporalio/worker';
import { createMetalControlActivities, type Observed, type ObserveInput } from '../../activities/metal-control.ts';
import type { MetalControlPorts } from '../../activities/metal-ports.ts';
import { minute, second } from '../../domain/time.ts';
import { createRunWords, type LocalRunWords } from '../../workers/run-words.ts';

const heard = (): boolean => true;
const quiet = { logger: new DefaultLogger('ERROR') };

describe('words about runs', () => {
  it('wake who listens to that run, and nobody else', async () => {
    const words = createRunWords({ isHeard: heard, most: 9 });
    const [one, other] = [words.listen('r1'), words.listen('r2')];
    const waiting = one?.next(minute);
    words.say('r1');
    assert.equal(await waiting, true);
    assert.equal(await other?.next(1), false);
  });

  it('are not missed between a look and the wait behind it, and count once', async () => {
    const words = createRunWords({ isHeard: heard, most: 9 });
    const run = words.listen('r1');
    words.say('r1');
    words.say('r1');
    assert.equal(await run?.next(minute), true);
    assert.equal(await run?.next(1), false);
  });

  it('are for so many looks at once, and only where they arrive', () => {
    const arriving = { yes: true };
    const words = createRunWords({ isHeard: () => arriving.yes, most: 2 });
    const first = words.listen('r1');
    assert.ok(words.listen('r1') !== null && words.listen('r2') === null);
    first?.end();
    first?.end();
    assert.ok(words.listen('r2') !== null && words.listen('r3') === null);
    arriving.yes = false;
    words.listen('r1')?.end();
    assert.equal(words.listen('r4'), null);
  });

  it('wake everybody where some may have been lost', async () => {
    const words = createRunWords({ isHeard: heard, most: 9 });
    const waits = ['r1', 'r2'].map(async (id) => words.listen(id)?.next(minute));
    words.sayAll();
    assert.deepEqual(await Promise.all(waits), [true, true]);
  });

  it('end with the worker: who waits is let go, and nobody waits any more', async () => {
    const words = createRunWords({ isHeard: heard, most: 9 });
    const run = words.listen('r1');
    const waiting = run?.next(minute);
    words.close();
    assert.equal(await waiting, false);
    assert.equal(await run?.next(minute), false);
    assert.equal(words.listen('r2'), null);
  });
});

describe('a look that waits for a word', () => {
  interface Rig {
    readonly words: LocalRunWords;
    looks: number;
    look(input?: Partial<ObserveInput>): Promise<Observed>;
  }

  /** A machine whose ramdisk is connected from the look with that number on. */
  function rig(
    seenAt: number,
    { isHeard = true, onLook = () => undefined }: { isHeard?: boolean; onLook?: (words: LocalRunWords) => void } = {},
  ): Rig {
    const words = createRunWords({ isHeard: () => isHeard, most: 9 });
    const clock = { now: 1_000_000 };
    const run: Rig = {
      words,
      looks: 0,
      look: (input = {}) =>
        new MockActivityEnvironment({ scheduledTimestampMs: 0, currentAttemptScheduledTimestampMs: 0 }, quiet).run(() =>
          createMetalControlActivities(ports).observeMachine({
            runId: 'r1',
            what: 'ramdisk-joined',
            sent: {},
            records: [],
            patienceMs: minute,
            ...input,
          }),
        ),
    };
    const ports = {
      now: () => clock.now,
      words: {
        // The clock goes on by what was waited in vain.
        listen: (id: string) => {
          const one = words.listen(id);
          const next = async (ms: number): Promise<boolean> => {
            const said = (await one?.next(5)) ?? false;
            if (!said) clock.now += ms;
            return said;
          };
          return one === null ? null : { ...one, next };
        },
      },
      runs: {
        record: async () => undefined,
        read: async () => {
          run.looks += 1;
          const role = run.looks >= seenAt ? 'ramdisk' : null;
          onLook(words);
          return {
            run: { id: 'r1', workflowId: 'w' },
            machine: { id: 'm1', state: 'provisioning', stateReason: '' },
            bootEntry: role === null ? null : { attempt: 1, usedAt: 1 },
            node: { certificateRole: role, connectedRole: role, generation: 2 },
          };
        },
      },
    } as unknown as MetalControlPorts;
    return run;
  }

  it('looks again at the word, and answers in the same attempt', async () => {
    const run = rig(2, { onLook: (words) => words.say('r1') });
    assert.deepEqual(await run.look(), { kind: 'reached', detail: 'boot 1 joined as ramdisk, generation 2' });
    assert.equal(run.looks, 2);
  });

  it('gives the worker back after some seconds without a word, and comes again in one', async () => {
    const run = rig(9);
    await assert.rejects(run.look(), { type: 'NOT_YET', message: 'no ramdisk has joined as m1', nextRetryDelay: second });
    assert.equal(run.looks, 1);
  });

  it('looks when its time is over, and is late', async () => {
    const run = rig(9);
    assert.deepEqual(await run.look({ patienceMs: 3 * second }), { kind: 'late', detail: 'no ramdisk has joined as m1' });
    assert.equal(run.looks, 2);
  });

  it('comes back by the clock where nothing is heard', async () => {
    const run = rig(9, { isHeard: false });
    await assert.rejects(run.look(), { type: 'NOT_YET', nextRetryDelay: second });
    assert.equal(run.looks, 1);
  });

  it('listens no more once it has answered', async () => {
    const run = rig(1);
    await run.look();
    const free = Array.from({ length: 9 }, () => run.words.listen('r1'));
    assert.ok(free.every((one) => one !== null));
  });
});
