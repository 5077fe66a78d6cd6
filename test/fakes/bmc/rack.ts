/**
 * Several fake controllers in one process, for a demonstration: their options as one JSON object on the command line, their addresses as
 * one JSON line on standard output, then a line for each change of power. A line on standard input pulls the plug of one, or puts it back.
 */
import { createInterface } from 'node:readline';
import { startFakeBmc } from './server.ts';
import type { FakeBmc, FakeBmcOptions } from './types.ts';

const tell = (line: Readonly<Record<string, unknown>>): void => void process.stdout.write(`${JSON.stringify(line)}\n`);

const wanted = JSON.parse(process.argv[2] ?? '{}') as Readonly<Record<string, FakeBmcOptions>>;
const rack = new Map<string, FakeBmc>();
for (const [name, options] of Object.entries(wanted))
  rack.set(name, await startFakeBmc({ ...options, machine: { onPower: (power, boot) => tell({ name, power, ...boot }) } }));
tell({
  ready: true,
  controllers: Object.fromEntries([...rack].map(([name, { address, pinSha256 }]) => [name, { address, pinSha256 }])),
});

const lines = createInterface({ input: process.stdin });
lines.on('line', (line) => {
  const { name, plugged } = JSON.parse(line) as { name: string; plugged: boolean };
  const bmc = rack.get(name);
  void (plugged ? bmc?.accept() : bmc?.refuse());
});
// Whoever started it is gone.
lines.on('close', () => process.exit(0));
