import { Argument, Command } from 'commander';
import { profileCommandKinds } from '../../../domain/metal/profile.ts';
import { ownStepsOf } from '../../../domain/metal/profile-steps.ts';
import { stepsOf } from '../../../domain/metal/steps.ts';
import { type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import { facts } from '../../format.ts';
import { writeJson } from '../../io.ts';
import { readProfileFile } from '../../machines/profile-file.ts';
import type { Ports } from '../../ports.ts';

export interface ProfileValidateOptions extends CommonOptions {
  readonly path: string;
}

export function newProfileValidate(run: (options: ProfileValidateOptions) => Promise<void>): Command {
  const command = new Command('validate')
    .description('Check a profile, offline: everything that is wrong with it at once, by line and field; what a run of it would send')
    .addArgument(new Argument('<file>', 'the profile (YAML)'))
    .action((path: string) => run({ ...commonOptions(command), path }));
  return withExamples(command, [
    'better-compute profile validate profiles/gpu-worker.yaml',
    'better-compute profile validate gpu-worker.yaml --json',
  ]);
}

export async function profileValidateRun({ path, json }: ProfileValidateOptions, { io }: Pick<Ports, 'io'>): Promise<void> {
  const profile = readProfileFile(path);
  const kinds = profileCommandKinds(profile, stepsOf.provision);
  if (json) return writeJson(io, { profile, kinds });
  const { image } = profile.deploy;
  io.out(
    facts([
      ['profile', `${profile.name}${profile.description === '' ? '' : `: ${profile.description}`}`],
      [
        'boots',
        `${profile.boot.kernel.name}, ${profile.boot.initramfs.name}${profile.boot.graceful ? ', after a shutdown where a system runs' : ''}`,
      ],
      ['wipes', profile.wipe.keep.length === 0 ? 'every disk' : `every disk but those that ${profile.wipe.keep.length} rule(s) keep`],
      ['writes', `${image.url} (${image.format}${image.compression === 'none' ? '' : `, ${image.compression}`})`],
      ['starts', profile.start.by],
      ...ownStepsOf(profile).map(({ name, after, kind }): [string, string] => ['step', `${name}, behind ${after}: ${kind}`]),
      ['sends', kinds.join(', ')],
    ]),
  );
}
