/** Which parts of our code ran: V8's own block coverage, asked for in this process. No instrumentation, no dependency. */
import { Session } from 'node:inspector';

interface Range {
  readonly startOffset: number;
  readonly endOffset: number;
  readonly count: number;
}

interface Script {
  readonly scriptId: string;
  readonly url: string;
  readonly functions: readonly { readonly ranges: readonly Range[] }[];
}

export interface Coverage {
  /** Whether a part ran since it was last asked that is not counted yet. It stays uncounted. */
  sawNew(): boolean;
  /** Counts the parts that ran since it was last asked; answers how many of them are new. */
  count(): number;
  /** Parts that ran so far. */
  readonly size: number;
  close(): void;
}

const ours = /\/(pki|proto|domain|gateway|daemon|runtime)\//;

export function openCoverage(): Coverage {
  const session = new Session();
  session.connect();
  const post = (method: string, params?: object): unknown => {
    let answer: unknown;
    let failure: Error | null = null;
    session.post(method, params, (error, result) => {
      failure = error;
      answer = result;
    });
    if (failure !== null) throw failure as Error;
    return answer;
  };
  post('Profiler.enable');
  post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });
  const seen = new Set<string>();
  const take = (): readonly Script[] =>
    (post('Profiler.takePreciseCoverage') as { result: Script[] }).result.filter(
      ({ url }) => ours.test(url) && !url.includes('node_modules'),
    );
  const ran = function* (): Generator<string> {
    for (const { scriptId, functions } of take())
      for (const { ranges } of functions)
        for (const { startOffset, endOffset, count } of ranges) if (count > 0) yield `${scriptId}:${startOffset}:${endOffset}`;
  };
  return {
    sawNew: () => [...ran()].some((part) => !seen.has(part)),
    count: () => {
      const before = seen.size;
      for (const part of ran()) seen.add(part);
      return seen.size - before;
    },
    get size() {
      return seen.size;
    },
    close: () => {
      post('Profiler.stopPreciseCoverage');
      session.disconnect();
    },
  };
}
