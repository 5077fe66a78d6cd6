/**
 * A new program has some starts and some minutes to get a session; else the one before is put back, by the new program itself, before it
 * does anything else. A program that gets no further than its own start cannot do that: `--version` was tried before it was put in place,
 * and past that its owner has `<program>.previous`.
 */
import { minute } from '../../domain/time.ts';
import type { AgentLog } from '../agent/log.ts';
import { putBack } from './program-file.ts';
import { readTrial, type Trial, writeTrial } from './trial.ts';

export const probation = Object.freeze({ starts: 5, ms: 10 * minute });

export interface ProbationOptions {
  readonly dataDir: string;
  /** Of the program that runs. */
  readonly version: string;
  readonly log: AgentLog;
  /** Ends this process; the service manager starts what is in place then. */
  readonly leave: (why: string) => void;
  readonly withinMs?: number;
}

/** Called first at every start. @returns what ends the watch */
export async function watchTrial({ dataDir, version, log, leave, withinMs = probation.ms }: ProbationOptions): Promise<() => void> {
  const trial = await readTrial(dataDir);
  if (trial?.state !== 'trial' || trial.versionAfter !== version) return () => undefined;
  const back = async (why: string): Promise<void> => {
    await takeBack(dataDir, trial, why);
    log.error({ versionBefore: trial.versionBefore, versionAfter: trial.versionAfter }, `the new program is taken back: ${why}`);
    leave(`back to bcd ${trial.versionBefore}`);
  };
  if (trial.starts >= probation.starts) {
    await back(`it had no session in ${probation.starts} starts`);
    return () => undefined;
  }
  await writeTrial(dataDir, { ...trial, starts: trial.starts + 1 });
  const timer = setTimeout(() => {
    void readTrial(dataDir)
      .then((now) => (now?.state === 'trial' ? back(`it had no session within ${Math.round(withinMs / minute)} minutes`) : undefined))
      .catch((err: unknown) => log.error({ err }, 'the program before cannot be put back'));
  }, withinMs);
  return () => clearTimeout(timer);
}

/** In this order: a crash in between repeats it. */
async function takeBack(dataDir: string, trial: Trial, why: string): Promise<void> {
  await putBack(trial.program);
  await writeTrial(dataDir, { ...trial, state: 'rolled-back', why });
}
