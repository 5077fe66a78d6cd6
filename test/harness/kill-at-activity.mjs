/**
 * Loaded before a worker (`node --import`): kills it, once for each of the points that KILL_POINTS names (`activity.before`,
 * `activity.after`, with commas). After: what the activity did is done, and nobody was told. Which points were met stands in the folder
 * KILL_FOLDER, a file each, so that the next process goes on behind it.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import sdk from '@temporalio/worker';

const points = new Set((process.env.KILL_POINTS ?? '').split(','));
const folder = process.env.KILL_FOLDER ?? '';

function meet(point) {
  if (!points.has(point)) return;
  try {
    writeFileSync(join(folder, point), `${process.pid}`, { flag: 'wx' });
  } catch {
    return;
  }
  process.kill(process.pid, 'SIGKILL');
}

const killing = ([name, activity]) => [
  name,
  async (...args) => {
    meet(`${name}.before`);
    const answer = await activity(...args);
    meet(`${name}.after`);
    return answer;
  },
];

const create = sdk.Worker.create.bind(sdk.Worker);
sdk.Worker.create = (options) =>
  create({ ...options, activities: Object.fromEntries(Object.entries(options.activities ?? {}).map(killing)) });
