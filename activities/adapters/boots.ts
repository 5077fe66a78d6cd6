/** What was told to boot servers, over PostgreSQL (services/metal/boot-told.ts). Instants are the database's. */
import { randomBytes } from 'node:crypto';
import type { Database } from '../../drizzle/client.ts';
import { databaseNow } from '../../drizzle/queries/clock.ts';
import { bootOrders, tellingsOf } from '../../services/metal/boot-told.ts';
import type { BootControlPorts, BootSigningPorts } from '../boots.ts';

export const createBoots = ({ db }: { readonly db: Database }): BootControlPorts['boots'] & BootSigningPorts['boots'] => ({
  look: async ({ limit }) => tellingsOf(db, { now: await databaseNow(db), limit, turn: randomBytes(8).toString('hex') }),
  orders: async (judged) => bootOrders(db, judged, await databaseNow(db)),
});
