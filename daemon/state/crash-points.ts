/**
 * Named moments at which a test may kill the daemon: between every two steps of a command's life, and of a join that replaces an identity. They are part of the
 * program so that the tested program is the shipped one, and they refuse to work unless two variables say that this is a test.
 */
import { ControlError } from '../../domain/errors.ts';

export const crashPointNames = [
  'before-received',
  'received-unsynced',
  'after-received',
  'before-claim',
  'claim-unsynced',
  'claim-unrenamed',
  'after-claim',
  'after-ack',
  'before-started',
  'started-unsynced',
  'after-started',
  'effect-done',
  'before-finished',
  'finished-unsynced',
  'after-finished',
  'after-result-sent',
  'before-receipted',
  'after-receipted',
  'before-compaction-rename',
  'before-compaction-cleanup',
  'join-unasked',
  'join-answered',
  'join-uninstalled',
  'join-installed',
  'enrolment-removed',
] as const;

export type CrashPoint = (typeof crashPointNames)[number];

/** Called at each point; returns unless this is the chosen one. */
export type CrashHook = (point: CrashPoint) => void;

export const neverCrash: CrashHook = () => undefined;

export const crashAtName = 'BETTER_COMPUTE_TEST_ONLY_CRASH_AT';
export const testOnlyName = 'BETTER_COMPUTE_TEST_ONLY';

/** @throws INVALID_CONFIG when a point is named without the word that this is a test, or the point does not exist */
export function crashHook(env: NodeJS.ProcessEnv): CrashHook {
  const wanted = env[crashAtName];
  if (wanted === undefined || wanted === '') return neverCrash;
  if (env[testOnlyName] !== 'yes') {
    throw new ControlError('INVALID_CONFIG', `${crashAtName} works in tests only: it needs ${testOnlyName}=yes`, {
      details: { reason: 'test-only' },
    });
  }
  if (!crashPointNames.includes(wanted as CrashPoint)) {
    throw new ControlError('INVALID_CONFIG', `${crashAtName} "${wanted}" must be one of ${crashPointNames.join(', ')}`, {
      details: { reason: 'test-only' },
    });
  }
  return (point) => {
    // SIGKILL to oneself: no handler, no flush, no exit hook runs.
    if (point === wanted) process.kill(process.pid, 'SIGKILL');
  };
}
