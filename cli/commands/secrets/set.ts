import { readFileSync, statSync } from 'node:fs';
import { Command } from 'commander';
import { ControlError } from '../../../domain/errors.ts';
import { maxSecretBytes, secretRef } from '../../../domain/secrets/reference.ts';
import { actorOption, type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import { type CliIo, writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';

export interface SecretsSetOptions extends CommonOptions {
  readonly path: string;
  /** null: standard input. */
  readonly file: string | null;
  readonly actor: string;
}

/** A value is no argument: those stand in the list of processes and in the shell's history. */
export function newSecretsSet(ports: Ports, run: (options: SecretsSetOptions) => Promise<void>): Command {
  const command = new Command('set')
    .description('Keep a value, read from standard input or a file, as the next version of a secret; every byte of it counts')
    .argument('<path>', 'what stands behind secret://')
    .option('--file <file>', 'take the value from here instead of standard input')
    .addOption(actorOption(ports.io))
    .action((path: string, flags: { file?: string; actor: string }) =>
      run({ ...commonOptions(command), path, file: flags.file ?? null, actor: flags.actor }),
    );
  return withExamples(command, [
    'better-compute secrets set bmc/gpu-0117 --file credential.json',
    "pass show site/berlin | tr -d '\\n' | better-compute secrets set site/berlin/header",
  ]);
}

export async function secretsSetRun({ path, file, actor, json }: SecretsSetOptions, { io, api }: Ports): Promise<void> {
  const value = file === null ? await readPiped(io) : readFile(file);
  if (value.length === 0 || value.length > maxSecretBytes) throw wrongSize(value.length, file ?? 'standard input');
  const set = await api().setSecret({ path, value: Buffer.from(value).toString('base64'), actor });
  if (value.at(-1) === lineEnd) io.err('the value ends with a line end, which belongs to it now');
  if (json) return writeJson(io, set);
  io.out(`${secretRef(set.path)} version ${set.version}`);
}

const lineEnd = 0x0a;

async function readPiped(io: Pick<CliIo, 'readInput'>): Promise<Uint8Array> {
  const piped = await io.readInput(maxSecretBytes);
  if (piped !== null) return piped;
  throw new ControlError(
    'INVALID_INPUT',
    'no value was given: it is read from standard input or from --file, never from the command line',
    {
      details: { reason: 'no-value', hint: 'pipe it in, or name a file with --file' },
    },
  );
}

/** A file that is too large is not read. */
function readFile(file: string): Uint8Array {
  try {
    const { size } = statSync(file);
    if (size > maxSecretBytes) throw wrongSize(size, file);
    return readFileSync(file);
  } catch (cause) {
    if (cause instanceof ControlError) throw cause;
    throw new ControlError('NOT_FOUND', `${file} cannot be read`, {
      details: { reason: 'no-file', path: file, hint: 'name a file that is there and that you may read' },
      cause,
    });
  }
}

const wrongSize = (size: number, where: string): ControlError =>
  new ControlError(
    'INVALID_INPUT',
    `a secret has 1 to ${maxSecretBytes} bytes, and ${where} has ${size > maxSecretBytes ? 'more' : 'none'}`,
    { details: { reason: 'secret-size' } },
  );
