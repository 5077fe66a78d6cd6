/** How far an image is, in bytes as they are delivered: said now and then. */
import { second } from '../../../domain/time.ts';
import type { KindContext } from '../../kinds/handler.ts';

const everyMs = 2 * second;

export interface DeployProgress {
  /** The same stream, counted. */
  counted(source: AsyncIterable<Buffer>, total: number): AsyncIterable<Buffer>;
  resumed(why: string, received: number): void;
  note(text: string): void;
}

export function createDeployProgress({ progress, now }: Pick<KindContext, 'progress' | 'now'>): DeployProgress {
  let [done, total, saidAtMs] = [0, 0, Number.NEGATIVE_INFINITY];
  const say = (note: string): void => {
    saidAtMs = now();
    progress({ done, total: Math.max(total, done), note });
  };
  return {
    async *counted(source, expected) {
      total = expected;
      for await (const chunk of source) {
        done += chunk.length;
        if (now() - saidAtMs >= everyMs) say('writing');
        yield chunk;
      }
      say('all of the image is here');
    },
    resumed: (why, received) => say(`${why}; taking up again at byte ${received}`),
    note: say,
  };
}
