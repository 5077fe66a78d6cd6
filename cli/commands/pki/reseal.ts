import { Command } from 'commander';
import { ControlError } from '../../../domain/errors.ts';
import {
  assertSealingSecret,
  authenticateBundle,
  type BundlePins,
  describePins,
  encodeBundle,
  nextGeneration,
  openBundle,
  readPublicBundle,
} from '../../../pki/bundle/index.ts';
import { type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import type { Ports } from '../../ports.ts';
import { writePins } from './pins-view.ts';
import { type BundleSource, pkiOption, secretOf, withSource } from './source.ts';

export interface PkiResealOptions extends CommonOptions {
  readonly pki: string | null;
  readonly acceptUnauthenticated: boolean;
}

export function newPkiReseal(run: (options: PkiResealOptions) => Promise<void>): Command {
  const command = new Command('reseal')
    .description('Seal the key bundle with BETTER_COMPUTE_SECRET in the current form; no key changes')
    .option('--accept-unauthenticated', 'vouch for the pins of a bundle that nothing vouches for, after comparing them', false)
    .addOption(pkiOption())
    .action((flags: { pki?: string; acceptUnauthenticated: boolean }) =>
      run({ ...commonOptions(command), ...flags, pki: flags.pki ?? null }),
    );
  return withExamples(command, ['better-compute pki reseal', 'better-compute pki reseal --accept-unauthenticated']);
}

/** CLI-037 to CLI-047. */
export async function pkiResealRun(options: PkiResealOptions, ports: Ports): Promise<void> {
  const secret = secretOf(ports);
  assertSealingSecret(secret);
  const resealed = await withSource(options.pki, ports, (source) => reseal(source, { secret, options, ports }));
  writePins(describePins(readPublicBundle(resealed), true), ports, options.json);
}

interface ResealInput {
  readonly secret: string;
  readonly options: PkiResealOptions;
  readonly ports: Ports;
}

async function reseal(source: BundleSource, { secret, options: { json, acceptUnauthenticated }, ports }: ResealInput): Promise<string> {
  const { text, revision } = await source.read();
  const { unauthenticated } = authenticateBundle(text, secret);
  if (unauthenticated && !acceptUnauthenticated) throw refusal(describePins(readPublicBundle(text), false), ports, json);
  const resealed = encodeBundle(nextGeneration(openBundle(text, { secret, allowUnauthenticated: unauthenticated })), { secret });
  await source.replace(resealed, revision);
  ports.io.err(`sealed ${source.name}`);
  return resealed;
}

/** For people the pins stand above the error; for machines they are in it. */
function refusal(pins: BundlePins, ports: Ports, json: boolean): ControlError {
  if (!json) writePins(pins, ports, false);
  return new ControlError('INVALID_STATE', 'not sealing: nothing vouches for the pins above', {
    details: {
      reason: 'unauthenticated',
      ...(json ? { pins } : {}),
      hint: 'compare them, and the certificates digests, with your install scripts, join tokens and pinned CAs; then: better-compute pki reseal --accept-unauthenticated',
    },
  });
}
