/**
 * The jump behind boot.kexec, in an order that loses no answer (M11):
 *
 *   loaded → noted on disk → answered → confirmed by the control plane → jump
 *
 * A daemon that was killed in between finds its note and goes on where it stood. An answer that is not a success jumps nowhere.
 */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { fromBinary } from '@bufbuild/protobuf';
import { z } from 'zod';
import { CommandOutcome, CommandResultSchema } from '../../../proto/index.ts';
import type { AgentLog } from '../../agent/log.ts';
import type { Journal } from '../../state/journal.ts';
import { readJsonFile, writeJsonFile } from '../../state/json-file.ts';
import type { Jump, JumpTarget } from '../ports.ts';

/** How a boot is left. */
export interface JumpDoer {
  load(wanted: JumpTarget, signal: AbortSignal): Promise<string>;
  /** Never resolves where it works. @throws when this boot goes on all the same */
  go(wanted: JumpTarget): Promise<void>;
}

export interface JournaledJumpOptions {
  readonly folder: string;
  readonly readBootId: () => Promise<string>;
  readonly journal: Pick<Journal, 'find'>;
  readonly doer: JumpDoer;
  readonly log: AgentLog;
}

export interface JournaledJump extends Jump {
  /** The answer of a command was confirmed. */
  receipted(commandId: string): void;
  /** After a start: jumps when an earlier one was confirmed and cut before its jump. */
  takeUp(): Promise<void>;
}

const schema = z.strictObject({
  commandId: z.string(),
  bootId: z.string(),
  wanted: z.strictObject({ diskPath: z.string(), partition: z.number().int(), kernelArgs: z.string(), reboot: z.boolean() }),
});

export function journaledJump({ folder, readBootId, journal, doer, log }: JournaledJumpOptions): JournaledJump {
  const path = join(folder, 'jump.json');
  let noted: z.infer<typeof schema> | undefined;
  const jumpIfConfirmed = async (): Promise<void> => {
    const entry = noted === undefined ? undefined : journal.find(noted.commandId);
    if (noted === undefined || entry?.state !== 'receipted') return;
    const { commandId, wanted } = noted;
    noted = undefined;
    if (fromBinary(CommandResultSchema, entry.result).outcome !== CommandOutcome.SUCCEEDED) return;
    log.info({ commandId, reboot: wanted.reboot }, 'the answer was confirmed: leaving this boot');
    try {
      await doer.go(wanted);
    } catch (error) {
      log.error({ err: error, commandId }, 'the jump did not happen; this ramdisk goes on');
      await rm(path, { force: true });
    }
  };
  return {
    readBootId,
    load: (wanted, signal) => doer.load(wanted, signal),
    async afterReceipt(commandId, wanted) {
      const note = { commandId, bootId: await readBootId(), wanted };
      await writeJsonFile(path, note);
      noted = note;
    },
    receipted(commandId) {
      if (noted?.commandId === commandId) void jumpIfConfirmed();
    },
    async takeUp() {
      const found = await readJsonFile(path, schema, 16 * 1024).catch(() => undefined);
      if (found === undefined) return;
      if (found.bootId !== (await readBootId())) return rm(path, { force: true });
      noted = found;
      await jumpIfConfirmed();
    },
  };
}
