/**
 * A fake controller as a process of its own: its options as one JSON object on the command line, its address as one JSON line on standard
 * output. What its machine's power does is told there too, a line each: who started it plays the machine.
 */
import { startFakeBmc } from './server.ts';
import type { FakeBmcOptions } from './types.ts';

const tell = (line: Readonly<Record<string, unknown>>): void => void process.stdout.write(`${JSON.stringify(line)}\n`);

const options = JSON.parse(process.argv[2] ?? '{}') as FakeBmcOptions;
const bmc = await startFakeBmc({ ...options, machine: { ...options.machine, onPower: (power, boot) => tell({ power, ...boot }) } });
tell({ ready: true, address: bmc.address, pinSha256: bmc.pinSha256 });

const stop = (): void => void bmc.close().then(() => process.exit(0));
process.on('SIGTERM', stop);
process.on('SIGINT', stop);
// Whoever started it is gone.
process.stdin.on('end', stop).resume();
