/**
 * The record of a program that was put in place and has not proven itself (`upgrade.json`). It is durable before the program is
 * replaced, and goes when the new program has had a session; until then every start counts.
 */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { readJsonFile, writeJsonFile } from '../state/json-file.ts';

const schema = z.strictObject({
  commandId: z.string(),
  versionBefore: z.string(),
  versionAfter: z.string(),
  /** Of the new program's file, hex. */
  sha256: z.string(),
  program: z.string(),
  state: z.enum(['trial', 'rolled-back']),
  /** Why it was taken back; empty on trial. */
  why: z.string(),
  starts: z.int(),
});

export type Trial = Readonly<z.infer<typeof schema>>;

const pathIn = (dataDir: string): string => join(dataDir, 'upgrade.json');

/** undefined: nothing is on trial. @throws DATA_CORRUPT */
export const readTrial = (dataDir: string): Promise<Trial | undefined> => readJsonFile(pathIn(dataDir), schema, 16 * 1024);

export const writeTrial = (dataDir: string, trial: Trial): Promise<void> => writeJsonFile(pathIn(dataDir), trial);

export const endTrial = (dataDir: string): Promise<void> => rm(pathIn(dataDir), { force: true });
