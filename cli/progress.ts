/** How far a running command is, for people: how much of how much, how fast, how long still. */
import { type CommandProgress, countsBytes, ratePerSecond, remainingMs, staleProgressMs } from '../domain/commands/progress.ts';
import { about } from '../domain/rotation/gates.ts';
import { agoText } from './format.ts';

const prefixes = ['', 'k', 'M', 'G', 'T', 'P', 'E'];

/** Powers of a thousand, three digits: "1.21 GB". */
export function bytesText(bytes: number): string {
  const power = Math.min(prefixes.length - 1, Math.max(0, Math.floor(Math.log10(Math.max(1, bytes)) / 3)));
  const value = bytes / 1_000 ** power;
  return `${power === 0 ? String(bytes) : value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0)} ${prefixes[power]}B`;
}

/** "48.2 GB of 1.00 TB (4 %), 210 MB/s, 1 h 15 min left: writing". */
export function progressText(kind: string, progress: CommandProgress, now: number): string {
  const amount = countsBytes(kind) ? bytesText : String;
  const rate = ratePerSecond(progress);
  const left = remainingMs(progress, now);
  const parts = [
    progress.total === 0 ? amount(progress.done) : `${amount(progress.done)} of ${amount(progress.total)}${percent(progress)}`,
    ...(rate === null || !countsBytes(kind) ? [] : [`${bytesText(Math.round(rate))}/s`]),
    ...(left === null ? [] : [`${about(left)} left`]),
    ...(now - progress.at > staleProgressMs ? [`last heard ${agoText(progress.at, now)}`] : []),
  ];
  return `${parts.join(', ')}${progress.note === '' ? '' : `: ${progress.note}`}`;
}

const percent = ({ done, total }: CommandProgress): string => (done > total ? '' : ` (${Math.floor((done / total) * 100)} %)`);
