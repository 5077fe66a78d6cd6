import assert from 'node:assert/strict';
import { create } from '@bufbuild/protobuf';
import { anyPack } from '@bufbuild/protobuf/wkt';
import { judgeEarlier, judgeTakenUp, planPower } from '../../daemon/site/bmc/power-plan.ts';
import { observedPower } from '../../daemon/site/redfish/system.ts';
import { EarlierAttemptSchema, site } from '../../proto/index.ts';
import type { FaultScript, Quirk } from '../fakes/bmc/server.ts';
import { credentialRef, payloadOf, setBmcStage, valueOf } from './bmc-stage.ts';

const { PowerAction, PowerState } = site;

const whenReset =
  (kind: 'cut-after' | 'cut-before'): FaultScript =>
  ({ method, path }) =>
    method === 'POST' && path.endsWith('ComputerSystem.Reset') ? { kind } : undefined;

describe('bmc.power', () => {
  const stage = setBmcStage();
  const power = (action: site.PowerAction, more = {}) => ({ payload: { action }, ...more });

  it('turns a machine off and on, observes it, and leaves no session behind', async () => {
    const bmc = await stage.bmcWith({ machine: { looksInTransition: 2 } });
    const off = valueOf(site.BmcPowerResultSchema, await stage.perform('bmc.power', bmc, power(PowerAction.OFF_HARD)));
    assert.deepEqual([off.state, off.already, off.resetType], [PowerState.OFF, false, 'ForceOff']);
    const on = valueOf(site.BmcPowerResultSchema, await stage.perform('bmc.power', bmc, power(PowerAction.ON)));
    assert.deepEqual([on.state, on.already, on.resetType], [PowerState.ON, false, 'On']);
    assert.deepEqual(bmc.effects.resets, ['ForceOff', 'On']);
    assert.deepEqual([bmc.effects.sessionsOpen, bmc.effects.overlaps], [0, 0]);
  });

  it('SEC-021 asks once, for the credential that the command names, by the command’s own step', async () => {
    const bmc = await stage.bmcWith();
    await stage.perform('bmc.power', bmc, power(PowerAction.CYCLE, { commandId: 'machine/m-1/provision/0a1b2c3d4e5f/power.2' }));
    assert.deepEqual(stage.asked, [[credentialRef, { workflowId: 'machine/m-1/provision/0a1b2c3d4e5f', stepId: 'power.2' }]]);
  });

  it('M15 knows what controllers call on and off; unknown is a state of its own and never off', async () => {
    const said: readonly (readonly [unknown, string])[] = [
      ['On', 'on'],
      ['Off', 'off'],
      ['PoweringOn', 'changing'],
      ['PoweringOff', 'changing'],
      ['Paused', 'on'],
      ['Chassis Power is on', 'on'],
      [' chassis power is OFF ', 'off'],
      ['', 'unknown'],
      ['Standby?', 'unknown'],
      ['constructor', 'unknown'],
      [null, 'unknown'],
      [undefined, 'unknown'],
      [0, 'unknown'],
    ];
    for (const [word, meaning] of said) assert.equal(observedPower(word), meaning, String(word));
    const odd = await stage.bmcWith({ quirks: ['odd-power-words'] });
    assert.equal(valueOf(site.BmcPowerResultSchema, await stage.perform('bmc.power', odd, power(PowerAction.ON))).already, true);
    for (const verb of ['on', 'off-hard', 'off-soft', 'cycle', 'restart-soft'] as const)
      assert.notEqual(planPower(verb, 'unknown', () => true).kind, 'already', verb);
    const silent = await stage.bmcWith({ quirks: ['no-power-state'] });
    await assert.rejects(
      stage.perform('bmc.power', silent, power(PowerAction.OFF_HARD)),
      /answered ForceOff, and after 120 s the machine was not seen off$/,
    );
  });

  it('M17 a power cycle of a machine that is off turns it on', async () => {
    const bmc = await stage.bmcWith({ power: 'Off' });
    const end = valueOf(site.BmcPowerResultSchema, await stage.perform('bmc.power', bmc, power(PowerAction.CYCLE)));
    assert.deepEqual([end.state, end.resetType, bmc.effects.resetsAsked], [PowerState.ON, 'On', ['On']]);
  });

  it('M18 409 although it is done is a success with a note; 409 and another state is the controller’s own error', async () => {
    const done = await stage.bmcWith({ quirks: ['conflict-although-done'] });
    const end = valueOf(site.BmcPowerResultSchema, await stage.perform('bmc.power', done, power(PowerAction.OFF_HARD)));
    assert.equal(end.state, PowerState.OFF);
    assert.match(end.notes.join(), /refused ForceOff, and the machine is as it was asked for: .*ResourceInUse/);
    assert.deepEqual(done.effects.resets, ['ForceOff']);
    const refusal: FaultScript = ({ path }) =>
      path.endsWith('ComputerSystem.Reset') ? { kind: 'answer', status: 409, body: '{"error":{"message":"not now"}}' } : undefined;
    const busy = await stage.bmcWith({ script: refusal });
    await assert.rejects(stage.perform('bmc.power', busy, power(PowerAction.OFF_HARD)), {
      code: 'INVALID_STATE',
      message: /with 409: "not now"/,
    });
    assert.equal(busy.requests.filter(({ method }) => method === 'POST' && true).filter(({ path }) => path.endsWith('Reset')).length, 6);
    assert.equal(stage.clock.slept.filter((ms) => ms === 10_000).length, 5, 'ten seconds apart');
  });

  it('M20 off is what was seen twice after the request; a machine that is never seen off is not reported as off', async () => {
    const bmc = await stage.bmcWith({ machine: { looksInTransition: 3 } });
    const askedAtMs = stage.clock.now();
    const end = valueOf(site.BmcPowerResultSchema, await stage.perform('bmc.power', bmc, power(PowerAction.OFF_HARD)));
    assert.ok(Number(end.observedAtMs) > askedAtMs);
    const at = bmc.requests.findIndex(({ path }) => path.endsWith('ComputerSystem.Reset'));
    const looks = bmc.requests.slice(at).filter(({ method, path }) => method === 'GET' && path.endsWith('/Systems/1'));
    assert.ok(looks.length >= 5, `three in transition and two that say off: ${looks.length}`);
    assert.ok(stage.clock.slept.includes(1000), 'the second look is a moment later');
  });

  it('M22 a controller that answers 504 until it is reset is named for it, and never reset on the way', async () => {
    const bmc = await stage.bmcWith({ quirks: ['needs-manager-reset'] });
    await assert.rejects(stage.perform('bmc.power', bmc, power(PowerAction.CYCLE)), {
      code: 'UNAVAILABLE',
      message: /refused GET \/redfish\/v1\/ with 504: "504 Gateway Time-out"; request [0-9a-f]{8}-\d+/,
    });
    assert.equal(bmc.effects.managerResets, 0);
    assert.ok(bmc.requests.length > 5, 'it was asked again for a minute');
  });

  it('M23 a restart is not waited for as an off; its reset time says that it happened, and a minute and more is given', async () => {
    const bmc = await stage.bmcWith();
    const end = valueOf(site.BmcPowerResultSchema, await stage.perform('bmc.power', bmc, power(PowerAction.RESTART_SOFT)));
    assert.deepEqual([end.state, end.resetType, bmc.effects.resets], [PowerState.ON, 'GracefulRestart', ['GracefulRestart']]);
    const lazy = await stage.bmcWith({
      script: ({ path }) => (path.endsWith('ComputerSystem.Reset') ? { kind: 'answer', status: 204, body: '' } : undefined),
    });
    const sinceMs = stage.clock.now();
    await assert.rejects(
      stage.perform('bmc.power', lazy, power(PowerAction.RESTART_SOFT)),
      /after 120 s the machine was not seen to start again$/,
    );
    assert.ok(stage.clock.now() - sinceMs >= 120_000);
    assert.deepEqual(lazy.effects.resets, [], 'nothing is forced after it');
    for (const verb of ['cycle', 'restart-soft', 'on'] as const) {
      const step = planPower(verb, verb === 'on' ? 'off' : 'on', () => true);
      assert.ok(step.kind === 'send' && step.waitMs >= 120_000 && step.done !== 'off', verb);
    }
  });

  it('M24 a failure shows the controller’s own message and the request', async () => {
    const body = JSON.stringify({
      error: {
        '@Message.ExtendedInfo': { MessageId: 'IDRAC.2.8.SYS403', Message: 'The host is\u202e in lifecycle\n mode.', MessageArgs: [] },
      },
    });
    const script: FaultScript = ({ path }) =>
      path.endsWith('Reset') ? { kind: 'answer', status: 400, body, headers: { 'x-request-id': 'idrac-77' } } : undefined;
    const bmc = await stage.bmcWith({ script });
    await assert.rejects(
      stage.perform('bmc.power', bmc, power(PowerAction.ON, {})).then(() => stage.perform('bmc.power', bmc, power(PowerAction.OFF_HARD))),
      (error: Error) => {
        assert.match(error.message, /^127\.0\.0\.1:\d+ refused POST \/redfish\/v1\/Systems\/1\/Actions\/ComputerSystem\.Reset with 400: /);
        assert.match(
          error.message,
          /"The host is in lifecycle mode\." \(IDRAC\.2\.8\.SYS403\); request [0-9a-f]{8}-\d+, the controller's idrac-77$/,
        );
        return true;
      },
    );
  });

  it('M32 soft means that the operating system is asked first; off comes only when it does not follow', async () => {
    const bmc = await stage.bmcWith();
    assert.equal(
      valueOf(site.BmcPowerResultSchema, await stage.perform('bmc.power', bmc, power(PowerAction.OFF_SOFT))).resetType,
      'GracefulShutdown',
    );
    assert.deepEqual(bmc.effects.resetsAsked, ['GracefulShutdown']);
    const deaf = await stage.bmcWith({ quirks: ['graceful-ignored'] });
    const sinceMs = stage.clock.now();
    const end = valueOf(site.BmcPowerResultSchema, await stage.perform('bmc.power', deaf, power(PowerAction.OFF_SOFT)));
    assert.deepEqual([deaf.effects.resetsAsked, end.state], [['GracefulShutdown', 'ForceOff'], PowerState.OFF]);
    assert.ok(stage.clock.now() - sinceMs >= 150_000);
    assert.match(end.notes.join(), /GracefulShutdown was not followed in 150 s: turned off/);
  });

  const cycles: readonly (readonly [readonly Quirk[], string])[] = [
    [[], 'PowerCycle'],
    [['no-power-cycle'], 'ForceRestart'],
    [['action-info-only'], 'PowerCycle'],
    [['action-info-only', 'no-power-cycle'], 'ForceRestart'],
    [['no-reset-time'], 'PowerCycle'],
    [['tasks'], 'PowerCycle'],
    [['tasks', 'tasks-forgotten'], 'PowerCycle'],
    [['task-uri'], 'PowerCycle'],
    [['no-sessions'], 'PowerCycle'],
    [['no-expand'], 'PowerCycle'],
  ];
  for (const [quirks, resetType] of cycles) {
    it(`cycles once a controller with ${quirks.join(', ') || 'nothing odd'}: ${resetType}`, async () => {
      const bmc = await stage.bmcWith({ quirks });
      const end = valueOf(site.BmcPowerResultSchema, await stage.perform('bmc.power', bmc, power(PowerAction.CYCLE)));
      assert.deepEqual([end.state, end.resetType, bmc.effects.resets], [PowerState.ON, resetType, [resetType]]);
    });
  }

  it('cycles by off and on where nothing else is taken', () => {
    const step = planPower('cycle', 'on', (type) => type === 'ForceOff' || type === 'On');
    assert.deepEqual(step, { kind: 'send', resetType: 'ForceOff', done: 'off', next: 'on', otherwise: null, waitMs: 60_000 });
    assert.deepEqual(
      planPower('cycle', 'on', () => false),
      { kind: 'unsupported', wanted: ['PowerCycle', 'ForceRestart', 'ForceOff'] },
    );
    assert.equal(planPower('cycle', 'changing', () => true).kind, 'wait');
  });

  it('M1 a controller that is away for ten seconds is waited for, and the outage is noted', async () => {
    const bmc = await stage.bmcWith();
    await bmc.refuse();
    const handlers = stage.handlers();
    const end = stage.perform('bmc.power', bmc, power(PowerAction.ON, { handlers, how: 'recover' }));
    // On the virtual clock ten seconds are over when three waits are; then it answers again.
    stage.clock.onSleep = async () => {
      if (stage.clock.slept.length === 4) await bmc.accept();
    };
    assert.match(valueOf(site.BmcPowerResultSchema, await end).notes.join(), /the controller did not answer for 15 s/);
  });

  describe('M38 an agent that dies on the way', () => {
    const before = { power: 'on', lastReset: '2026-01-01T23:00:00.000Z', bootProgress: '' };
    const cycle = { payload: { action: PowerAction.CYCLE } };

    it('M38 before the request: it is sent once by the next start', async () => {
      const bmc = await stage.bmcWith();
      const note = await noteOf(bmc);
      const end = valueOf(site.BmcPowerResultSchema, await stage.perform('bmc.power', bmc, { ...cycle, how: 'recover', note }));
      assert.deepEqual([end.already, bmc.effects.resets], [false, ['PowerCycle']]);
      assert.ok(stage.clock.slept.reduce((sum, ms) => sum + ms, 0) >= 30_000, 'an effect that is late was waited for');
    });

    it('M38 after the request and after the effect: it is found, and nothing is sent', async () => {
      const bmc = await stage.bmcWith();
      const note = await noteOf(bmc);
      await stage.perform('bmc.power', bmc, cycle);
      const end = valueOf(site.BmcPowerResultSchema, await stage.perform('bmc.power', bmc, { ...cycle, how: 'recover', note }));
      assert.deepEqual([end.already, end.resetType, bmc.effects.resets], [true, '', ['PowerCycle']]);
    });

    it('M38 the answer is lost on the way: the machine is looked at, nothing is sent again', async () => {
      const bmc = await stage.bmcWith({ script: whenReset('cut-after') });
      const end = valueOf(site.BmcPowerResultSchema, await stage.perform('bmc.power', bmc, cycle));
      assert.deepEqual(bmc.effects.resets, ['PowerCycle']);
      assert.match(end.notes.join(), /the answer to PowerCycle was lost/);
      const lost = await stage.bmcWith({ script: whenReset('cut-before') });
      await assert.rejects(stage.perform('bmc.power', lost, cycle), {
        code: 'UNAVAILABLE',
        message: /answered PowerCycle, and after 120 s/,
      });
      assert.equal(lost.requests.filter(({ path }) => path.endsWith('ComputerSystem.Reset')).length, 1);
    });

    it('M38 where the controller tells nothing of resets it is not reset again', async () => {
      const bmc = await stage.bmcWith({ quirks: ['no-reset-time'] });
      const note = await noteOf(bmc);
      const end = await stage.perform('bmc.power', bmc, { ...cycle, how: 'recover', note });
      assert.equal(end.kind, 'interrupted');
      assert.match(
        end.kind === 'interrupted' ? end.message : '',
        /does not tell whether the machine was reset: it is on, and is not reset again/,
      );
      assert.deepEqual(bmc.effects.resetsAsked, []);
    });

    it('M38 turned off in the middle of off and on: it is turned on', () => {
      assert.equal(judgeTakenUp('cycle', { ...before, power: 'on' }, { ...before, power: 'off' }), 'turn-on');
      assert.equal(judgeTakenUp('cycle', { ...before, power: 'off' }, { ...before, power: 'on' }), 'done');
      assert.equal(judgeTakenUp('cycle', { ...before, power: 'off' }, { ...before, power: 'off' }), 'go-on');
      assert.equal(judgeTakenUp('off-hard', { ...before, power: 'on' }, { ...before, power: 'on' }), 'go-on');
    });

    async function noteOf(bmc: Awaited<ReturnType<typeof stage.bmcWith>>) {
      const { prepare } = stage.handlers()['bmc.power'];
      const { payloadOf } = await import('./bmc-stage.ts');
      const signal = new AbortController().signal;
      const context = { commandId: 'c/p.1', signal, now: stage.clock.now, progress: () => undefined };
      const note = (await prepare?.(payloadOf('bmc.power', bmc, cycle.payload), context)) ?? {};
      assert.equal(note['power'], 'on');
      stage.clock.slept.splice(0);
      return note;
    }
  });

  describe('MT2 an action that was asked for before', () => {
    const cycle = { payload: { action: PowerAction.CYCLE } };
    const idOf = (n: number): string => `machine/m-1/provision/run-1/power.${n}`;
    /** As an agent told it in the answer before, and the control plane signed it. */
    const earlierThan = (n: number, seen: site.BmcPowerResult['seen'] | undefined) =>
      create(EarlierAttemptSchema, { commandId: idOf(n), ...(seen === undefined ? {} : { seen: anyPack(site.SystemSightSchema, seen) }) });
    type Bmc = Awaited<ReturnType<typeof stage.bmcWith>>;
    const setBoot = async (bmc: Bmc): Promise<site.SystemSight> => {
      const end = await stage.perform('bmc.boot', bmc, { payload: { target: site.BootTarget.NETWORK } });
      const { seen } = valueOf(site.BmcBootResultSchema, end);
      assert.ok(seen);
      return seen;
    };
    const power = async (bmc: Bmc, n: number, earlier?: ReturnType<typeof earlierThan>): Promise<site.BmcPowerResult> =>
      valueOf(
        site.BmcPowerResultSchema,
        await stage.perform('bmc.power', bmc, { ...cycle, commandId: idOf(n), ...(earlier ? { earlier } : {}) }),
      );

    it('is found done by another agent, which sends nothing, however long ago it was', async () => {
      const bmc = await stage.bmcWith();
      const seen = await setBoot(bmc);
      await power(bmc, 1);
      for (const passes of [1000, 60_000, 3_600_000]) {
        stage.clock.advance(passes);
        const { already, notes } = await power(bmc, 2, earlierThan(1, seen));
        assert.deepEqual([already, bmc.effects.resets], [true, ['PowerCycle']]);
        assert.match(notes.join(), /run-1\/power\.1 asked for the same, and it was done: nothing was sent/);
      }
    });

    it('is another action than the one a minute before it: a first attempt never takes an earlier reset for its own', async () => {
      const bmc = await stage.bmcWith();
      await power(bmc, 1);
      stage.clock.advance(60_000);
      assert.equal((await power(bmc, 2)).already, false);
      assert.deepEqual(bmc.effects.resets, ['PowerCycle', 'PowerCycle']);
    });

    it('is done by another agent where the first one never sent it, though the action before it was a moment ago', async () => {
      const bmc = await stage.bmcWith();
      const { seen } = await power(bmc, 1);
      stage.clock.advance(1000);
      assert.equal((await power(bmc, 3, earlierThan(2, seen))).already, false);
      assert.deepEqual(bmc.effects.resets, ['PowerCycle', 'PowerCycle']);
    });

    it('is compared with what was before the first attempt also by an agent that died over the second', async () => {
      const bmc = await stage.bmcWith();
      const seen = await setBoot(bmc);
      await power(bmc, 1);
      const { prepare } = stage.handlers()['bmc.power'];
      const signal = new AbortController().signal;
      const context = { commandId: idOf(2), signal, now: stage.clock.now, progress: () => undefined };
      const note = (await prepare?.(payloadOf('bmc.power', bmc, cycle.payload), context)) ?? {};
      const end = await stage.perform('bmc.power', bmc, {
        ...cycle,
        commandId: idOf(2),
        how: 'recover',
        note,
        earlier: earlierThan(1, seen),
      });
      assert.equal(valueOf(site.BmcPowerResultSchema, end).already, true);
      assert.deepEqual(bmc.effects.resets, ['PowerCycle']);
    });

    for (const [what, quirks, told] of [
      ['nobody told how it was', [], false],
      ['the controller tells no reset', ['no-reset-time'], true],
    ] as const)
      it(`is not sent again where ${what}: it ends as interrupted`, async () => {
        const bmc = await stage.bmcWith({ quirks: [...quirks] });
        const seen = await setBoot(bmc);
        const end = await stage.perform('bmc.power', bmc, {
          ...cycle,
          commandId: idOf(2),
          earlier: earlierThan(1, told ? seen : undefined),
        });
        assert.equal(end.kind, 'interrupted');
        assert.match(end.kind === 'interrupted' ? end.message : '', /power\.1 asked for the same, and the controller does not tell/);
        assert.deepEqual(bmc.effects.resetsAsked, []);
      });

    it('holds as it is where it is a level', async () => {
      const bmc = await stage.bmcWith();
      const off = { payload: { action: PowerAction.OFF_HARD } };
      const first = valueOf(site.BmcPowerResultSchema, await stage.perform('bmc.power', bmc, off));
      const again = valueOf(
        site.BmcPowerResultSchema,
        await stage.perform('bmc.power', bmc, { ...off, earlier: earlierThan(1, first.seen) }),
      );
      assert.deepEqual([first.already, again.already, bmc.effects.resets], [false, true, ['ForceOff']]);
    });

    it('is told by the last reset alone: a boot that goes on is none', () => {
      const seen = { power: 'on', lastReset: 'a', bootProgress: 'None' } as const;
      assert.equal(judgeEarlier('cycle', seen, { ...seen, bootProgress: 'OSRunning' }), 'watch');
      assert.equal(judgeEarlier('cycle', seen, { ...seen, lastReset: 'b' }), 'done');
      assert.equal(judgeEarlier('cycle', { ...seen, power: 'off' }, seen), 'done', 'a machine that was off');
      assert.equal(judgeEarlier('cycle', { ...seen, power: 'off' }, { ...seen, power: 'unknown' }), 'watch', 'unknown is not on');
      assert.equal(judgeEarlier('cycle', null, { ...seen, power: 'off' }), 'go-on');
      assert.equal(judgeEarlier('on', null, seen), 'go-on');
    });
  });

  it('refuses an action that does not exist, and a system that is not there', async () => {
    const bmc = await stage.bmcWith();
    assert.throws(() => void stage.handlers()['bmc.power'].run({ action: 0 } as never, {} as never), { code: 'INVALID_INPUT' });
    await assert.rejects(stage.perform('bmc.power', bmc, { payload: { action: PowerAction.ON, systemId: '7' } }), {
      code: 'NOT_FOUND',
      message: /has no system "7"; it shows: 1$/,
    });
  });
});
