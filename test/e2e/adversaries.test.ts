/**
 * Every part between the approvers and a machine, hostile in turn, on one whole stack with real daemons: what each of them gets ends at the
 * machine, which refuses with the word of its rule and does not boot. The tables of docs/threat-model.md say the same in words.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type LiveStack, startLiveStack } from '../harness/live-stack.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { dishonestApprovers } from './adversaries/approvers.ts';
import { databaseWriter } from './adversaries/database-writer.ts';
import { lyingApi } from './adversaries/lying-api.ts';
import { lyingGateway } from './adversaries/lying-gateway.ts';
import { namespaceWriter } from './adversaries/namespace-writer.ts';
import { Scene } from './adversaries/scene.ts';
import { forgottenAndMoved } from './adversaries/time.ts';

const times = { overlapMs: 60_000, marginMs: 1_000, workerLifetimeMs: 86_400_000 };

describe('adversaries of batch approval', function () {
  this.timeout(420_000);
  let stack: LiveStack | undefined;
  let scene: Scene;
  let clock: string;

  before(async function () {
    if (process.platform !== 'linux') this.skip();
    clock = join(scratchFolder(), 'clock');
    writeFileSync(clock, '0');
    const preload = new URL('../harness/moved-clock.mjs', import.meta.url).href;
    stack = await startLiveStack(times, { NODE_OPTIONS: `--import=${preload}`, BC_TEST_CLOCK: clock });
    scene = new Scene(stack, clock);
    await scene.begin();
  });
  after(async () => {
    await stack?.stop();
    removeScratchFolders();
  });

  databaseWriter(() => scene);
  namespaceWriter(() => scene);
  lyingApi(() => scene);
  dishonestApprovers(() => scene);
  lyingGateway(() => scene);
  forgottenAndMoved(() => scene);
});
