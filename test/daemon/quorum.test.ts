import assert from 'node:assert/strict';
import { createDeployment, type TestDeployment } from '../harness/deployment.ts';
import { removeScratchFolders } from '../harness/scratch.ts';
import { type MachineInit, type QuorumMachine, startBcdMachine, startFleetMachine } from './quorum-machine.ts';
import { type Cast, createCast, type Played, scenarios } from './quorum-scenarios.ts';
import { setScenarios } from './quorum-set-scenarios.ts';

type Start = (deployment: TestDeployment, init: MachineInit) => Promise<QuorumMachine>;

const daemons: Readonly<Record<string, Start>> = { bcd: startBcdMachine, 'the simulated fleet': startFleetMachine };

for (const [name, start] of Object.entries(daemons)) {
  describe(`DMN-001 PIN-009 the quorum as ${name} judges it`, function () {
    this.timeout(20_000);
    let cast: Cast;
    let machine: QuorumMachine | undefined;
    before(async () => {
      cast = createCast(await createDeployment());
    });
    afterEach(async () => {
      await machine?.stop();
      machine = undefined;
    });
    after(removeScratchFolders);

    for (const scenario of [...scenarios, ...setScenarios]) {
      it(scenario.title, async () => {
        machine = await start(cast.deployment, scenario.machine?.(cast) ?? { trust: cast.trust });
        await scenario.play(playedOn(machine, cast));
      });
    }
  });
}

function playedOn(machine: QuorumMachine, cast: Cast): Played {
  return {
    cast,
    machine,
    async accepts(command, why) {
      assert.deepEqual(await machine.deliver(command), { kind: 'accepted' }, why);
    },
    async refuses(command, reason, detail) {
      const verdict = await machine.deliver(command);
      assert.deepEqual([verdict.kind, verdict.reject, verdict.reason], ['rejected', 'BATCH_UNAPPROVED', reason], verdict.detail);
      if (detail !== undefined) assert.match(verdict.detail ?? '', detail);
    },
    async rejects(command, reject) {
      const verdict = await machine.deliver(command);
      assert.deepEqual([verdict.kind, verdict.reject], ['rejected', reject], verdict.detail);
      return verdict;
    },
    equal: (actual, expected, what) => assert.deepEqual(actual, expected, what),
  };
}
