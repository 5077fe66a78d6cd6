import assert from 'node:assert/strict';
import { site } from '../../proto/index.ts';
import type { FaultScript, Quirk } from '../fakes/bmc/server.ts';
import { setBmcStage, valueOf } from './bmc-stage.ts';

const { PowerAction, PowerState } = site;
type Result = site.BmcPowerResult;

describe('bmc.power', () => {
  const stage = setBmcStage();
  const power = (action: site.PowerAction) => ({ payload: { action } });

  it('turns a machine on and off, observes it, and leaves no session behind', async () => {
    const bmc = await stage.bmcWith({ machine: { looksInTransition: 2 } });
    const off = valueOf<Result>(await stage.perform('bmc.power', bmc, power(PowerAction.OFF_HARD)));
    assert.deepEqual([off.state, off.already, off.resetType], [PowerState.OFF, false, 'ForceOff']);
    const on = valueOf<Result>(await stage.perform('bmc.power', bmc, power(PowerAction.ON)));
    assert.deepEqual([on.state, on.already, on.resetType], [PowerState.ON, false, 'On']);
    assert.deepEqual(bmc.effects.resets, ['ForceOff', 'On']);
    assert.deepEqual([bmc.effects.sessionsOpen, bmc.effects.overlaps], [0, 0]);
  });
});
