/** The one clock that presence and heartbeats are written by, whatever the hosts of the processes think the time is. */
import type { Executor } from '../client.ts';

const read = { name: 'database-clock', text: 'select clock_timestamp() as at' };

/** The database's clock in Unix milliseconds. */
export async function databaseNow(db: Executor): Promise<number> {
  return ((await db.query<{ at: number }>(read))[0] as { at: number }).at;
}
