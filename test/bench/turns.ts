/** Two pieces of work in turns, round by round, so that whatever else the machine does meets both; the median of the rounds counts. */
import type { Figure } from './main.ts';

type Work = () => unknown;

export interface Turns {
  /** Ours over bare, in time: 1 is no more than the bare work. */
  readonly timeRatio: number;
  /** Ours over bare, in work a second. */
  readonly rateRatio: number;
  readonly oursPerSecond: number;
  readonly barePerSecond: number;
}

export interface TurnsOptions {
  readonly ours: Work;
  readonly bare: Work;
  readonly perRound: number;
  readonly rounds?: number;
  /** Rounds that are not counted: until what a long-lived process runs has been compiled for good. Default 3. */
  readonly warmUps?: number;
}

/** Microseconds of the processor for one piece of work, whatever else the machine does. */
async function timeOf(work: Work, count: number): Promise<number> {
  const startedAt = process.cpuUsage();
  for (let i = 0; i < count; i += 1) await work();
  const { user, system } = process.cpuUsage(startedAt);
  return (user + system) / count;
}

const median = (values: readonly number[]): number => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] as number;

export async function inTurns({ ours, bare, perRound, rounds = 15, warmUps = 3 }: TurnsOptions): Promise<Turns> {
  const found: { ours: number; bare: number }[] = [];
  for (let round = -warmUps; round < rounds; round += 1) {
    const times = { bare: await timeOf(bare, perRound), ours: await timeOf(ours, perRound) };
    if (round >= 0) found.push(times);
  }
  const timeRatio = median(found.map((times) => times.ours / times.bare));
  return {
    timeRatio: rounded(timeRatio),
    rateRatio: rounded(1 / timeRatio),
    oursPerSecond: Math.round(1e6 / median(found.map((times) => times.ours))),
    barePerSecond: Math.round(1e6 / median(found.map((times) => times.bare))),
  };
}

const rounded = (value: number): number => Number(value.toFixed(3));

/** Work a second, of the bare work's: at least so much. */
export const atLeast = (figure: string, goal: number, turns: Turns & { readonly detail?: object }): Figure => ({
  figure,
  ratio: turns.rateRatio,
  goal: `>= ${goal}`,
  holds: turns.rateRatio >= goal,
  detail: turns,
});

/** Time, of the bare work's: at most so much. */
export const atMost = (figure: string, goal: number, turns: Turns & { readonly detail?: object }): Figure => ({
  figure,
  ratio: turns.timeRatio,
  goal: `<= ${goal}`,
  holds: turns.timeRatio <= goal,
  detail: turns,
});
