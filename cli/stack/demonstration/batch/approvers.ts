/** Three people with a key each; two of them are enough. The keys lie in the state folder here, and on three desks in earnest. */
import { existsSync, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { ControlError } from '../../../../domain/errors.ts';
import { approverSet } from '../../../rotation-target.ts';
import { watchLine } from '../../../rotation-view.ts';
import { createSettings } from '../../../settings.ts';
import { connectAnyRotation } from '../../../temporal-rotation.ts';
import type { Stack } from '../../stack.ts';
import { pause } from '../watch-rotation.ts';
import { runOurs } from './programs.ts';

export interface Approvers {
  /** Files of private keys. */
  readonly keys: readonly string[];
  readonly folder: string;
}

interface Scene {
  readonly stack: Stack;
  readonly say: (line: string) => void;
  readonly signal: AbortSignal;
}

const names = ['alice', 'bob', 'carol'] as const;

/** Makes the keys and introduces the set, as `better-compute approvers rotate` does it; both are found again at the next start. */
export async function introduceApprovers(scene: Scene): Promise<Approvers> {
  const { stack, say } = scene;
  const folder = join(stack.home.root, 'approvers');
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const keys = names.map((name) => join(folder, `${name}.pem`));
  for (const key of keys) if (!existsSync(key)) await runOurs(stack, ['batch', 'keygen', '--out', key]);
  const shown = JSON.parse(await runOurs(stack, ['approvers', 'show', '--json'])) as { approvers: readonly string[] };
  if (shown.approvers.length > 0) {
    say('the approver set is published already: going on with it');
    return { keys, folder };
  }
  const signed = names.slice(0, 2).map((name) => join(folder, `${name}-set-1.json`));
  for (const [index, out] of signed.entries()) {
    rmSync(out, { force: true });
    const set = ['--approvers', keys.map((key) => `${key}.pub`).join(','), '--threshold', '2', '--epoch', '1'];
    await runOurs(stack, ['batch', 'sign-approvers', '--key', String(keys[index]), ...set, '--out', out]);
  }
  await runOurs(stack, ['approvers', 'rotate', '--file', signed.join(','), '--reason', 'two of three approve from now on']);
  await untilEnforced(scene);
  return { keys, folder };
}

async function untilEnforced({ stack, say, signal }: Scene): Promise<void> {
  const rotation = await connectAnyRotation(createSettings(stack.facts.env).temporalEnv(), approverSet);
  try {
    for (let last = ''; ; ) {
      signal.throwIfAborted();
      const run = await rotation.find();
      const line = watchLine(run);
      if (line !== last) say(`approvers: ${line}`);
      last = line;
      if (run.state === 'completed') return;
      if (run.state !== 'running')
        throw new ControlError('INVALID_STATE', `the change of the approvers ended as ${run.state}: ${run.failure ?? ''}`, {
          details: { reason: 'rotation-ended' },
        });
      await pause(300, signal);
    }
  } finally {
    await rotation.close();
  }
}
