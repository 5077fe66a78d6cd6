/** A short run over every decoder, the same each time; `npm run fuzz -- --seconds N` is the long one. */
import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { ControlError } from '../../domain/errors.ts';
import { eventually } from '../harness/eventually.ts';
import { fuzz, judge, limits, type Target } from './engine.ts';
import { byteMutators } from './mutate-bytes.ts';
import { createTargets } from './targets.ts';
import { spentMs } from './thread-time.ts';

const foundFolder = join(dirname(fileURLToPath(import.meta.url)), 'found');
const runs = 256;

describe('decoders under changed inputs', function () {
  this.timeout(240_000);
  let targets: readonly Target[];
  before(async () => {
    targets = await createTargets();
  });

  it('every target takes an input that nobody changed', () => {
    const takesNone = targets.filter((target) => !target.seeds.some((seed) => judge(target, seed).accepted));
    assert.deepEqual(
      takesNone.map(({ name }) => name),
      [],
    );
  });

  it('every decoder answers or throws a typed error, soon, and holds nothing', () => {
    const found = targets.flatMap((target) => fuzz(target, { seed: 20_260_115, coverage: null, goesOn: (count) => count < runs }).faults);
    assert.deepEqual(
      found.map(({ target, kind, what, input }) => `${target} ${kind}: ${what} (${Buffer.from(input).toString('hex').slice(0, 400)})`),
      [],
    );
  });

  it('what was found once stays mended', () => {
    const files = existsSync(foundFolder) ? readdirSync(foundFolder) : [];
    for (const file of files) {
      const target = targets.find(({ name }) => file.startsWith(`${name}--`));
      assert.ok(target, `${file} names no target`);
      const { fault } = judge(target, readFileSync(join(foundFolder, file)));
      assert.equal(fault, null, `${file}: ${fault?.kind} ${fault?.what}`);
    }
  });

  describe('the judge', () => {
    const targetOf = (run: Target['run']): Target => ({
      name: 'test',
      maxBytes: 10,
      seeds: [Uint8Array.of(1)],
      mutators: byteMutators,
      run,
    });
    const verdict = (run: Target['run']): string | undefined => judge(targetOf(run), Uint8Array.of(1)).fault?.kind;
    const busy = (ms: number): void => {
      for (const until = spentMs() + ms; spentMs() < until; );
    };
    const held: unknown[] = [];
    after(() => void held.splice(0));

    it('takes an answer and a typed error', () => {
      assert.equal(
        verdict(() => 1),
        undefined,
      );
      assert.equal(
        verdict(() => refuse('MALFORMED')),
        undefined,
      );
    });
    it('finds an error that is not typed, and one that says the fault is ours', () => {
      assert.equal(
        verdict(() => (undefined as unknown as { x: number }).x),
        'untyped',
      );
      assert.equal(
        verdict(() => refuse('INTERNAL')),
        'internal',
      );
    });
    it('finds what is slow each time, and forgives what was slow once', () => {
      let first = true;
      const once = () => {
        if (first) busy(limits.ms * 1.2);
        first = false;
      };
      assert.equal(verdict(once), undefined);
      assert.equal(
        verdict(() => busy(limits.ms * 1.2)),
        'slow',
      );
    });
    it('charges nothing to an input for what other threads and other programs do meanwhile (skipped where no thread has its own time)', async function () {
      if (!existsSync('/proc/thread-self/schedstat')) this.skip();
      const shared = new Int32Array(new SharedArrayBuffer(8));
      const other = new Worker(
        `const { workerData } = require('node:worker_threads');
         for (let at = 1; Atomics.load(workerData, 1) === 0; at += 1) Atomics.store(workerData, 0, at);`,
        { eval: true, workerData: shared },
      );
      try {
        await eventually('the other thread runs', () => Atomics.load(shared, 0) > 0);
        const before = process.cpuUsage();
        // Waits, doing nothing, until the process as a whole has had more than an input may take.
        const waits = (): void => {
          const used = process.cpuUsage();
          for (let spent = 0; spent < limits.ms * 1_200; ) {
            Atomics.wait(shared, 1, 0, 10);
            spent = process.cpuUsage(used).user;
          }
        };
        assert.equal(verdict(waits), undefined);
        assert.ok(process.cpuUsage(before).user > limits.ms * 1_200);
      } finally {
        Atomics.store(shared, 1, 1);
        await other.terminate();
      }
    });
    it('finds what holds on to memory', () => {
      assert.equal(
        verdict(() => void held.push(new ArrayBuffer(limits.bytes * 1.5))),
        'memory',
      );
    });
    it('finds a fault that only a changed input shows', () => {
      const target = targetOf((input) => {
        if (input.length > 1) throw new TypeError('longer');
      });
      const { faults } = fuzz(target, { seed: 1, coverage: null, goesOn: (count) => count < 200 });
      assert.deepEqual(
        faults.map(({ kind }) => kind),
        ['untyped'],
      );
    });
  });
});

const refuse = (code: 'MALFORMED' | 'INTERNAL'): never => {
  throw new ControlError(code, 'as it is');
};
