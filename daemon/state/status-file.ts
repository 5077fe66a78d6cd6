/**
 * What `bcd run` tells a person who asks with `bcd status`: one small file, replaced as a whole at every change that matters. It
 * is a report, never read back by the daemon.
 */
import { join } from 'node:path';
import { z } from 'zod';
import { readJsonFile, writeJsonFile } from './json-file.ts';

const event = z.object({ atMs: z.number(), reason: z.string(), detail: z.string() });

const schema = z.object({
  format: z.literal('better-compute/status/1'),
  pid: z.number().int(),
  daemonVersion: z.string(),
  nodeId: z.string(),
  siteId: z.string(),
  role: z.string(),
  trustDomain: z.string(),
  generation: z.string(),
  gatewayUrl: z.string(),
  state: z.enum(['enrolling', 'connecting', 'connected', 'waiting', 'parked', 'stopped']),
  /** Why it is in this state; for `parked`, what a person must do. */
  stateDetail: z.string(),
  gatewayId: z.string().nullable(),
  connectedSinceMs: z.number().nullable(),
  nextDialAtMs: z.number().nullable(),
  epoch: z.string(),
  trustVersion: z.string(),
  commandRoots: z.array(z.string()),
  /** What the running daemon is pinned to, by whichever file; null: nothing. */
  approverSetPin: z.string().nullable().default(null),
  certificateSerial: z.string(),
  certificateNotAfterMs: z.number(),
  renewsAtMs: z.number(),
  clockOffsetMs: z.number().nullable(),
  runningCommands: z.number().int(),
  lastCommand: z.object({ id: z.string(), kind: z.string(), state: z.string(), atMs: z.number() }).nullable(),
  /** The last thing this daemon refused: a command, a bundle, an answer. */
  lastRefusal: event.nullable(),
  /** The last refusal by the control plane, or failure to reach it. */
  lastFailure: event.nullable(),
  updatedAtMs: z.number(),
});

export type StatusReportFile = z.infer<typeof schema>;
export type StatusContent = Omit<StatusReportFile, 'format'>;

export const statusPath = (folder: string): string => join(folder, 'status.json');

/** undefined when there is none yet. @throws DATA_CORRUPT when it does not read back */
export const findStatus = (folder: string): Promise<StatusReportFile | undefined> => readJsonFile(statusPath(folder), schema, 256 * 1024);

export interface StatusSink {
  update(change: Partial<StatusContent>): void;
  /** Resolves when the last update is written. */
  flush(): Promise<void>;
}

/** Writes one at a time; updates that come while one is being written go into the next. */
export function openStatusFile(
  folder: string,
  initial: StatusContent,
  options: { now: () => number; onError: (error: unknown) => void },
): StatusSink {
  let content = initial;
  let dirty = false;
  let writing: Promise<void> | undefined;
  const writeAll = async (): Promise<void> => {
    while (dirty) {
      dirty = false;
      try {
        await writeJsonFile(statusPath(folder), { format: 'better-compute/status/1', ...content, updatedAtMs: options.now() });
      } catch (error) {
        options.onError(error);
      }
    }
    writing = undefined;
  };
  const update = (change: Partial<StatusContent>): void => {
    content = { ...content, ...change };
    dirty = true;
    writing ??= writeAll();
  };
  update({});
  return { update, flush: () => writing ?? Promise.resolve() };
}
