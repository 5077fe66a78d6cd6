import type { Database } from '../../drizzle/client.ts';
import { databaseNow } from '../../drizzle/queries/clock.ts';
import { endEnrolment, enrolmentProgress, getEnrolment } from '../../services/enrolments/index.ts';
import type { EnrolmentsPort } from '../host-ports.ts';

export const createEnrolments = ({ db }: { readonly db: Database }): EnrolmentsPort => ({
  get: (id) => getEnrolment(db, id),
  async progress(id) {
    const now = await databaseNow(db);
    return { ...(await enrolmentProgress(db, id, now)), now };
  },
  end: async (input) => endEnrolment(db, { ...input, now: await databaseNow(db) }),
});
