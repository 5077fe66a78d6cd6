/**
 * Loaded before a program (`node --import`): kills it before the step on files that KILL_AT_STEP names. Steps are counted as by
 * stop-at-step.ts.
 */
import fsPromises from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';

const at = Number(process.env.KILL_AT_STEP);
let steps = 0;

const counted =
  (work) =>
  (...args) => {
    steps += 1;
    if (steps === at) process.kill(process.pid, 'SIGKILL');
    return work(...args);
  };

const { open } = fsPromises;
const openCounted = counted(open);
for (const name of ['rename', 'link', 'unlink', 'mkdir', 'rm']) fsPromises[name] = counted(fsPromises[name]);
fsPromises.open = async (path, flags, ...rest) => {
  const file = await (flags === undefined || flags === 'r' ? open : openCounted)(path, flags, ...rest);
  for (const name of ['writeFile', 'sync', 'chmod']) file[name] = counted(file[name].bind(file));
  return file;
};
syncBuiltinESMExports();
