/** Taking a whole inventory: every machine of it, or none, with the line and field of everything that stands against it. */
import { ControlError, isControlError } from '../../domain/errors.ts';
import type { Database } from '../../drizzle/client.ts';
import { type InventoryFormat, readInventory } from './inventory-text.ts';
import { addMachineIn } from './machines.ts';
import type { TextProblem } from './types.ts';
import { showProblems } from './yaml-text.ts';

export interface ImportInput {
  readonly text: string;
  readonly format: InventoryFormat;
  readonly actor: string;
  /** Judges everything and stores nothing. */
  readonly dryRun?: boolean;
  readonly now: number;
}

export interface Imported {
  readonly added: readonly string[];
  readonly dryRun: boolean;
}

const refuse = (problems: readonly TextProblem[]): ControlError<'INVALID_INPUT'> =>
  new ControlError('INVALID_INPUT', `the inventory cannot be taken, and nothing of it was:\n${showProblems(problems)}`, {
    details: { reason: 'bad-inventory', problems },
  });

/** What takes the transaction of a dry run back. */
const dryRunEnd = new ControlError('CANCELLED', 'a dry run stores nothing', { details: { reason: 'dry-run' } });

/**
 * Adds every machine of an inventory in one transaction.
 *
 * @throws INVALID_INPUT (bad-inventory) with every problem of the text (`details.problems`), or with the first one that the database knows of
 */
export async function importMachines(db: Database, { text, format, actor, dryRun = false, now }: ImportInput): Promise<Imported> {
  const { entries, problems } = readInventory(text, format);
  if (problems.length > 0) throw refuse(problems);
  const added = entries.map(({ machine }) => machine.id);
  try {
    await db.transaction(async (tx) => {
      const clashes: TextProblem[] = [];
      for (const { line, machine } of entries) {
        // Nothing of a refused inventory stays, so the others are judged too and all clashes told at once.
        await addMachineIn(tx, machine, { actor, now }).catch((error: unknown) => {
          if (!isControlError(error) || !clashCodes.has(error.code)) throw error;
          clashes.push({ line, field: columnOfClash(error), message: error.message });
        });
      }
      if (clashes.length > 0) throw refuse(clashes);
      if (dryRun) throw dryRunEnd;
    });
  } catch (error) {
    if (error !== dryRunEnd) throw error;
  }
  return { added, dryRun };
}

const clashCodes: ReadonlySet<string> = new Set(['CONFLICT', 'INVALID_STATE', 'NOT_FOUND', 'INVALID_INPUT']);

const columnsOfFields: Readonly<Record<string, string>> = Object.freeze({
  id: 'id',
  bmcAddress: 'bmc',
  serial: 'serial',
  uuid: 'uuid',
  macAddresses: 'macs',
});

const columnOfClash = ({ details }: ControlError): string =>
  columnsOfFields[String(details['field'])] ?? (details['reason'] === 'unknown-tenant' ? 'tenant' : '');
