/** The relay's outbox over PostgreSQL. */
import { createCommandLog } from '../activities/adapters/commands.ts';
import type { DatabasePorts } from '../activities/adapters/rotation.ts';
import { backOffCompletion, finishCompletions, readOpenWaits, sweepLostCompletions, takeDueCompletions } from '../services/outbox.ts';
import type { OutboxPort } from './relay.ts';

export function createOutbox({ db, now }: DatabasePorts): OutboxPort {
  const log = createCommandLog({ db, now });
  return {
    take: (limit) => takeDueCompletions(db, { now: now(), limit }),
    finish: (commandIds) => finishCompletions(db, commandIds),
    backOff: ({ commandId, attempts }) => backOffCompletion(db, { commandId, attempts, now: now() }),
    openWaits: (page) => readOpenWaits(db, { ...page, now: now() }),
    sweep: async () => (await sweepLostCompletions(db, { now: now(), limit: 500 })).length,
    find: log.find,
  };
}
