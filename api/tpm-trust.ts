/**
 * Whose TPMs are of this fleet, from two files that the environment names: the inventory of endorsement keys, and the roots of their
 * manufacturers. The inventory is looked at before each join by a TPM, so that a machine that is added joins without a restart; one that
 * does not read back is reported and changes nothing. Roots are read once: whom a deployment believes changes with a restart.
 */
import { readFileSync } from 'node:fs';
import { readFile, stat } from 'node:fs/promises';
import { z } from 'zod';
import { ControlError } from '../domain/errors.ts';
import { type EndorsementRoots, parseEndorsementRoots } from '../pki/tpm/index.ts';
import { readTpmInventory } from '../services/join/tpm-inventory.ts';
import type { TpmEnrolment, TpmTrust } from '../services/join/types.ts';
import type { ServiceLog } from '../services/log.ts';

const optional = z.string().min(1).optional();

export const tpmEnv = {
  BETTER_COMPUTE_TPM_INVENTORY: optional,
  BETTER_COMPUTE_TPM_ROOTS: optional,
};

export interface TpmSettings {
  readonly inventoryPath: string;
  readonly rootsPath: string | null;
}

type TpmEnvironment = { readonly [Name in keyof typeof tpmEnv]?: string | undefined };

/** null: nobody joins by a TPM. @throws MISSING_ENV for roots without an inventory */
export function tpmSettingsOf({
  BETTER_COMPUTE_TPM_INVENTORY: inventoryPath,
  BETTER_COMPUTE_TPM_ROOTS: rootsPath,
}: TpmEnvironment): TpmSettings | null {
  if (inventoryPath !== undefined) return { inventoryPath, rootsPath: rootsPath ?? null };
  if (rootsPath === undefined) return null;
  throw new ControlError(
    'MISSING_ENV',
    'BETTER_COMPUTE_TPM_INVENTORY must be set beside BETTER_COMPUTE_TPM_ROOTS: the roots say which TPMs are genuine, the inventory which are yours',
    { details: { reason: 'environment' } },
  );
}

const maxBytes = 32 * 1024 * 1024;

/** @throws INVALID_CONFIG naming the file and its first problems */
export async function openTpmTrust({ inventoryPath, rootsPath }: TpmSettings, log: ServiceLog): Promise<TpmTrust> {
  let seen = await markOf(inventoryPath);
  let known = await readInventory(inventoryPath);
  const look = async (): Promise<void> => {
    const mark = await markOf(inventoryPath).catch((error: unknown) => (error instanceof Error ? error.message : String(error)));
    if (mark === seen) return;
    // Once for each change, good or bad.
    seen = mark;
    try {
      known = await readInventory(inventoryPath);
      log.info({ listed: known.size }, 'the inventory of TPMs was read again');
    } catch (error) {
      log.error({ err: error, listed: known.size }, 'the inventory of TPMs does not read back: the one before counts');
    }
  };
  return {
    roots: rootsPath === null ? null : readRoots(rootsPath),
    async find(ekSha256) {
      await look();
      return known.get(ekSha256);
    },
  };
}

/** Changes with every write and every exchange of the file, whatever its time stamp is set to. */
async function markOf(path: string): Promise<string> {
  try {
    const { ino, ctimeMs, size } = await stat(path);
    return `${ino} ${ctimeMs} ${size}`;
  } catch (cause) {
    throw invalid('BETTER_COMPUTE_TPM_INVENTORY', `${path} cannot be read`, cause);
  }
}

const shownProblems = 5;

async function readInventory(path: string): Promise<ReadonlyMap<string, TpmEnrolment>> {
  const text = await readFile(path, 'utf8').catch((cause: unknown) => {
    throw invalid('BETTER_COMPUTE_TPM_INVENTORY', `${path} cannot be read`, cause);
  });
  if (text.length > maxBytes) throw invalid('BETTER_COMPUTE_TPM_INVENTORY', `${path} has more than ${maxBytes} bytes`);
  const { enrolments, problems } = readTpmInventory(text);
  if (problems.length === 0) return new Map(enrolments.map((one) => [one.ekSha256, one]));
  const shown = problems
    .slice(0, shownProblems)
    .map(({ line, field, message }) => `line ${line}: ${field === '' ? '' : `${field} `}${message}`);
  const more = problems.length > shownProblems ? `; and ${problems.length - shownProblems} more` : '';
  throw invalid('BETTER_COMPUTE_TPM_INVENTORY', `${path}: ${shown.join('; ')}${more}`);
}

function readRoots(path: string): EndorsementRoots {
  try {
    return parseEndorsementRoots(readFileSync(path, 'utf8'));
  } catch (cause) {
    throw invalid('BETTER_COMPUTE_TPM_ROOTS', `${path}: ${cause instanceof Error ? cause.message : String(cause)}`, cause);
  }
}

const invalid = (name: string, message: string, cause?: unknown): ControlError =>
  new ControlError('INVALID_CONFIG', `${name}: ${message}`, {
    details: { reason: 'environment', name },
    ...(cause === undefined ? {} : { cause }),
  });
