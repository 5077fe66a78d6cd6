/**
 * How many events a rotation writes when a fleet of 2,000 takes its time: nodes come over in waves, a node that stays behind
 * is excluded by hand, and a day is waited. The waits are the server's, so the fleet's size and slowness write nothing.
 */

import { exclude } from '../../workflows/rotate-command-root/messages.ts';
import { startTestTemporal } from '../harness/temporal.ts';
import { countEvents, runRotationWorkers, startRotation, untilStatus } from '../workflows/rotation-rig.ts';
import { RotationWorld } from '../workflows/rotation-world.ts';

const sessions = 2_000;
const wave = 250;
const goal = 120;

function slowFleet(): RotationWorld {
  const names = Array.from({ length: sessions }, (_, i) => `node-${String(i).padStart(5, '0')}`);
  const world = new RotationWorld(Object.fromEntries(names.map((name) => [name, { obedient: false }])));
  let over = 0;
  world.before = (call) => {
    if (call !== 'facts.fleet') return;
    const version = world.published?.version ?? 0;
    // The last one never comes over by itself.
    over = Math.min(over + wave, sessions * 2);
    const upTo = version === 2 ? Math.min(over, sessions - 1) : over - sessions;
    for (const name of names.slice(0, Math.max(0, upTo))) Object.assign(world.nodes.get(name) ?? {}, { trustVersion: version });
  };
  return world;
}

export async function figure(): Promise<{ figure: string; ratio: number; goal: number; holds: boolean; detail: unknown }> {
  const temporal = await startTestTemporal();
  const world = slowFleet();
  const workers = await runRotationWorkers(temporal, world);
  try {
    const handle = await startRotation(temporal.skipping);
    await untilStatus(handle, (status) => status.phase === 'waiting-fleet' && status.behind?.count === 1);
    await handle.executeUpdate(exclude, {
      args: [{ node: `node-${String(sessions - 1).padStart(5, '0')}`, actor: 'bench', reason: 'never comes over' }],
    });
    const result = await handle.result();
    const { total, types } = await countEvents(handle);
    const detail = { sessions, outcome: result.outcome, overrides: result.overrides, skipsOfTheTestClock: types['60'] ?? 0 };
    return { figure: 'rotation-history', ratio: total, goal, holds: total <= goal, detail };
  } finally {
    await workers.stop();
    await temporal.stop();
  }
}
