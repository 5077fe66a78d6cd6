/** Column types that the tables share. */
import { bigint, customType, timestamp } from 'drizzle-orm/pg-core';

export const bytea = customType<{ data: Buffer; driverData: Buffer }>({ dataType: () => 'bytea' });
export const instantColumn = (name: string) => timestamp(name, { withTimezone: true });
export const int8 = (name: string) => bigint(name, { mode: 'number' });
