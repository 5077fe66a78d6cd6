/**
 * Several fake controllers in one process, for a demonstration: their machines as one JSON object on the command line, their addresses as
 * one JSON line on standard output, then a line for each change of power. A line on standard input pulls the plug of one, or puts it back.
 * They show the captured trees by turns, each as a machine of its own, or the small tree where none was captured.
 */
import { createInterface } from 'node:readline';
import { asMachine, type OwnMachine, treesHere } from './own-machine.ts';
import { startFakeBmc } from './server.ts';
import type { FakeBmc, FakeBmcOptions, FakeTree } from './types.ts';

const tell = (line: Readonly<Record<string, unknown>>): void => void process.stdout.write(`${JSON.stringify(line)}\n`);

interface Wanted {
  readonly credential: FakeBmcOptions['credential'];
  readonly machines: readonly (OwnMachine & { readonly name: string })[];
}

const { credential, machines } = JSON.parse(process.argv[2] ?? '') as Wanted;
const trees = treesHere();
const rack = new Map<string, { readonly bmc: FakeBmc; readonly tree: FakeTree }>();
for (const [at, { name, ...machine }] of machines.entries()) {
  const tree = trees[at % trees.length] as FakeTree;
  const onPower = (power: 'On' | 'Off', boot: object): void => tell({ name, power, ...boot });
  rack.set(name, { bmc: await startFakeBmc({ ...asMachine(tree, machine), credential, power: 'Off', machine: { onPower } }), tree });
}
tell({
  ready: true,
  controllers: Object.fromEntries(
    [...rack].map(
      ([
        name,
        {
          bmc: { address, pinSha256 },
          tree,
        },
      ]) => [name, { address, pinSha256, tree }],
    ),
  ),
});

const lines = createInterface({ input: process.stdin });
lines.on('line', (line) => {
  const { name, plugged } = JSON.parse(line) as { name: string; plugged: boolean };
  const bmc = rack.get(name)?.bmc;
  void (plugged ? bmc?.accept() : bmc?.refuse());
});
// Whoever started it is gone.
lines.on('close', () => process.exit(0));
