/** What becomes of a machine whose boot token two machines hold (M68): it speaks for nobody, and its run lets nobody in any more. */
import type { Executor } from '../../drizzle/client.ts';
import { quarantineMachine } from '../metal/moves.ts';
import type { Suspicion } from './types.ts';

export async function quarantineSuspect(tx: Executor, suspicion: Suspicion): Promise<void> {
  await quarantineMachine(tx, suspicion);
}
