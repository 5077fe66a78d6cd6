/**
 * Callers that append at the same time share a statement and its commit. The first goes at once; who comes while statements are
 * on their way waits for the next one and goes with everybody else who came. A lone caller loses nothing, many gain the
 * difference between a commit each and one for all.
 *
 * What fails together fails together: the statement refuses no single row (those it does not take it leaves out), so an error
 * is the database's and everybody's.
 */
import type { Database } from '../drizzle/client.ts';
import { appendCommands, type NewCommand } from '../drizzle/queries/commands.ts';

/** A few, so that one fills the time in which another waits for the disk or a busy server; with many, nobody would share. */
const maxOnTheirWay = 4;
/** Commands of one shared statement, at most. */
const maxTogether = 200;

interface Caller {
  readonly commands: readonly NewCommand[];
  readonly resolve: (appended: Set<string>) => void;
  readonly reject: (error: unknown) => void;
}

interface Line {
  onTheirWay: number;
  waiting: Caller[];
}

const lines = new WeakMap<Database, Line>();

function lineOf(db: Database): Line {
  const line = lines.get(db) ?? { onTheirWay: 0, waiting: [] };
  lines.set(db, line);
  return line;
}

/** @returns the ids that were appended, of these commands */
export function appendTogether(db: Database, commands: readonly NewCommand[]): Promise<Set<string>> {
  // A large batch is a statement of its own: nobody should wait for its rows.
  if (commands.length >= maxTogether) return appendCommands(db, commands);
  return new Promise((resolve, reject) => {
    const line = lineOf(db);
    line.waiting.push({ commands, resolve, reject });
    sendNext(db, line);
  });
}

function sendNext(db: Database, line: Line): void {
  while (line.onTheirWay < maxOnTheirWay && line.waiting.length > 0) {
    line.onTheirWay += 1;
    void send(db, takeTogether(line)).finally(() => {
      line.onTheirWay -= 1;
      sendNext(db, line);
    });
  }
}

/** From the front of the line; two callers with the same id never go together, so that each learns whose it was. */
function takeTogether(line: Line): Caller[] {
  const taken: Caller[] = [];
  const ids = new Set<string>();
  while (line.waiting.length > 0) {
    const next = line.waiting[0] as Caller;
    const fits = taken.length === 0 || (ids.size + next.commands.length <= maxTogether && next.commands.every(({ id }) => !ids.has(id)));
    if (!fits) break;
    for (const { id } of next.commands) ids.add(id);
    taken.push(next);
    line.waiting.shift();
  }
  return taken;
}

async function send(db: Database, callers: readonly Caller[]): Promise<void> {
  try {
    const appended = await appendCommands(
      db,
      callers.flatMap(({ commands }) => commands),
    );
    for (const { commands, resolve } of callers) resolve(new Set(commands.map(({ id }) => id).filter((id) => appended.has(id))));
  } catch (error) {
    for (const { reject } of callers) reject(error);
  }
}
