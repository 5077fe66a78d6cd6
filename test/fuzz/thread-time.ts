/**
 * Time of the processor that this very thread has had. `process.cpuUsage` counts every thread of the process, and so the collector's helpers
 * and the compiler's: on a loaded machine they spin for longer than a decoder takes (an input of 25 ms was charged with 56). A clock on
 * the wall counts everybody.
 */
import { openSync, readSync } from 'node:fs';

const file = '/proc/thread-self/schedstat';
const buffer = Buffer.alloc(64);
/** Bound to the thread that opens it: each thread loads this module for itself. */
const descriptor = open();

function open(): number | null {
  try {
    return openSync(file, 'r');
  } catch {
    return null;
  }
}

/** Milliseconds since some moment. Of the whole process where the system does not tell by thread. */
export function spentMs(): number {
  if (descriptor === null) {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1_000;
  }
  const length = readSync(descriptor, buffer, 0, buffer.length, 0);
  return Number(buffer.toString('latin1', 0, length).split(' ', 1)[0]) / 1e6;
}
