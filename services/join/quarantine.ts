/** What becomes of a machine whose boot token two machines hold (M68): it speaks for nobody, and its run lets nobody in any more. */
import { type Executor, instant } from '../../drizzle/client.ts';
import { endIdentity } from '../revocation.ts';
import type { Suspicion } from './types.ts';

const closeEntries = {
  name: 'boot-entries-close-all',
  text: 'update boot_entries set closed_at = $2 where node_id = $1 and closed_at is null',
};

export async function quarantineSuspect(tx: Executor, suspicion: Suspicion): Promise<void> {
  await endIdentity(tx, { ...suspicion, why: 'quarantine' });
  await tx.query(closeEntries, [suspicion.nodeId, instant(suspicion.now)]);
}
