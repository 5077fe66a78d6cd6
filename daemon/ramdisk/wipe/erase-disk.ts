/** One disk: the ladder from the top, each method believed only with its exit status and its samples. Never throws for a drive's fault. */
import type { MessageInitShape } from '@bufbuild/protobuf';
import { type EraseMethod, eraseLadder, eraseMethods } from '../../../domain/metal/erase.ts';
import type { ErasedDiskSchema, SampledRangeSchema } from '../../../proto/index.ts';
import type { DiskFacts, DiskHost } from '../disks/disk-host.ts';
import { diskMessage } from '../disks/disk-message.ts';
import { runEraseMethod } from './methods.ts';
import { judgeSamples, sampleRanges, takeSamples } from './samples.ts';

export interface EraseOptions {
  readonly disks: DiskHost;
  readonly random: (length: number) => Uint8Array;
  readonly now: () => number;
  readonly signal: AbortSignal;
  /** Allowed methods, best first; empty: all. */
  readonly allowed: readonly string[];
  readonly samples: number;
  readonly onBytes: (done: number, method: EraseMethod) => void;
}

export type ErasedDisk = MessageInitShape<typeof ErasedDiskSchema> & { readonly erased: boolean; readonly detail: string };

/** @throws the signal's reason alone */
export async function eraseDisk(disk: DiskFacts, options: EraseOptions): Promise<ErasedDisk> {
  const { signal, now } = options;
  const startedAtMs = instant(now());
  const failures: string[] = [];
  let samples: MessageInitShape<typeof SampledRangeSchema>[] = [];
  for (const method of await ladderOf(disk, options, failures)) {
    const end = await tryMethod(method, disk, options);
    signal.throwIfAborted();
    samples = end.samples;
    if (end.why !== null) {
      failures.push(`${method}: ${end.why}`);
      continue;
    }
    const detail = failures.length === 0 ? '' : `did not do: ${failures.join('; ')}`;
    return { ...common(disk, startedAtMs, now), method, passes: eraseMethods[method].passes, samples, erased: true, detail };
  }
  return { ...common(disk, startedAtMs, now), method: '', passes: 0, samples, erased: false, detail: `not erased: ${failures.join('; ')}` };
}

/** A drive that does not even say what it can do is not erased. */
async function ladderOf(disk: DiskFacts, { disks, signal, allowed }: EraseOptions, failures: string[]): Promise<readonly EraseMethod[]> {
  try {
    return eraseLadder(await disks.capabilities(disk, signal), allowed);
  } catch (error) {
    signal.throwIfAborted();
    failures.push(`it does not say what it can do: ${error instanceof Error ? error.message : String(error)}`);
    return [];
  }
}

const instant = (ms: number): bigint => BigInt(Math.max(0, Math.round(ms)));

const common = (disk: DiskFacts, startedAtMs: bigint, now: () => number) => ({
  disk: diskMessage(disk),
  startedAtMs,
  finishedAtMs: instant(now()),
});

interface Tried {
  /** null: erased, and proven. */
  readonly why: string | null;
  readonly samples: MessageInitShape<typeof SampledRangeSchema>[];
}

async function tryMethod(method: EraseMethod, disk: DiskFacts, options: EraseOptions): Promise<Tried> {
  const { disks, random, signal, onBytes } = options;
  let samples: Tried['samples'] = [];
  try {
    const taken = await takeSamples(options, disk, sampleRanges(disk, options.samples, random));
    await runEraseMethod(method, { disks, disk, signal, onBytes: (done) => onBytes(done, method) });
    samples = await judgeSamples(disks, disk, { method, taken });
  } catch (error) {
    return { why: error instanceof Error ? error.message : String(error), samples };
  }
  if (samples.length === 0) return { why: 'the disk is too small to be sampled', samples };
  const dirty = samples.filter(({ clean }) => clean !== true);
  if (dirty.length === 0) return { why: null, samples };
  const first = dirty[0]?.offset ?? 0n;
  return {
    why: `it claimed success, and ${dirty.length} of ${samples.length} samples are not erased, the first at byte ${first}`,
    samples,
  };
}
