/** Who is given up on when he is silent, and who has a command next: one attempt of a run's command, called by hand. */
import assert from 'node:assert/strict';
import { create, toBinary } from '@bufbuild/protobuf';
import { anyUnpack } from '@bufbuild/protobuf/wkt';
import { CompleteAsyncError } from '@temporalio/activity';
import { MockActivityEnvironment } from '@temporalio/testing';
import { DefaultLogger } from '@temporalio/worker';
import { type ActEnd, type ActInput, createMetalSigningActivities } from '../../activities/metal-signing.ts';
import { type ActName, acts, silentForMs } from '../../domain/metal/acts.ts';
import { ownStepsOf, type ProfileStep } from '../../domain/metal/profile-steps.ts';
import { day, minute } from '../../domain/time.ts';
import { site } from '../../proto/index.ts';
import { invokeStep, requestStep } from '../domain/metal/profiles.ts';
import { testProfile } from '../workflows/metal-rows.ts';
import { MetalWorld } from '../workflows/metal-world.ts';

const quiet = { logger: new DefaultLogger('ERROR') };
/** One of a profile's own steps for each act that is of one. */
const everyOwnStep: readonly ProfileStep[] = [
  invokeStep({ name: 'ask-ramdisk' }, { harmless: true }),
  invokeStep({ name: 'invoke-ramdisk' }),
  invokeStep({ name: 'ask-node', after: 'provisioned-join' }, { harmless: true }),
  invokeStep({ name: 'invoke-node', after: 'provisioned-join' }),
  requestStep(),
  requestStep({ name: 'restart', sends: [], do: { 'service.restart': { unit: 'a.service' } } }),
  requestStep({ name: 'reboot', sends: ['node.reboot'], do: { 'node.reboot': { reason: 'firmware' } } }),
];
const actsOn = (who: 'site' | 'ramdisk' | 'node'): ActName[] => (Object.keys(acts) as ActName[]).filter((act) => acts[act].on === who);
/** The order to start is proven by who joins, and is not waited for. */
const heardOnRamdisk = actsOn('ramdisk').filter((act) => act !== 'start');

interface Setting {
  readonly world: MetalWorld;
  readonly commandOf: (act: ActName, n: number) => string;
  /** 'waits': the relay will complete it. */
  attempt(act: ActName, over?: Partial<ActInput>): Promise<ActEnd | 'waits'>;
  passes(ms: number): void;
}

/** A provision run whose ramdisk has joined; its commands get no end, and its clock is ours. */
async function begun(kind: 'provision' | 'rotate-bmc' = 'provision'): Promise<Setting> {
  const world = new MetalWorld();
  let now = Date.now();
  world.now = () => now;
  const workflowId = `machine/m1/${kind}`;
  const profile = kind === 'provision' ? { ...testProfile({ steps: everyOwnStep }) } : null;
  const { runId } = await world.runs.plan({ machineId: 'm1', kind, profile, workflowId, workflowRunId: 'w1', actor: 'ann', reason: 'x' });
  await world.keys.openBootEntry({ runId, attempt: 1, expiresAt: now + day });
  const run = world.runsById.get(runId);
  assert.ok(run?.entry);
  Object.assign(run, { entry: { ...run.entry, usedAt: now }, wiped: true });
  world.stored.set('erased', {
    id: `${workflowId}/${runId}/wipe.0`,
    nodeId: 'm1',
    kind: 'disk.wipe',
    createdAt: 0,
    state: 'done',
    errorCode: '',
    error: '',
    result: null,
    payload: new Uint8Array(0),
    batchId: undefined,
  });
  Object.assign(world.machine(), { role: 'ramdisk', generation: 2, connected: true });
  for (const act of Object.keys(acts)) world.reply.set(act, () => 'hold');
  const { actOnMachine } = createMetalSigningActivities(world);
  return {
    world,
    commandOf: (act, n) => `${workflowId}/${runId}/${act}.${n}`,
    passes: (ms) => void (now += ms),
    async attempt(act, over = {}) {
      const own = ownStepsOf({ steps: everyOwnStep }).find((step) => step.act === act)?.ordinal;
      const ordinal = own ?? (act === 'power-off' ? 4 : 1);
      const input: ActInput = { runId, act, n: 1, first: 1, ordinal, records: [], patienceMs: minute, ...over };
      try {
        return await new MockActivityEnvironment(undefined, quiet).run<[ActInput], ActEnd, typeof actOnMachine>(actOnMachine, input);
      } catch (error) {
        if (error instanceof CompleteAsyncError) return 'waits';
        throw error;
      }
    },
  };
}

describe('an attempt of a run’s command', () => {
  it('BAT-034 asks agents of the machine’s own site and tenant, whatever the command is', async () => {
    for (const act of actsOn('site').filter((name) => name !== 'rotate')) {
      const { world, attempt } = await begun();
      const asked: string[] = [];
      Object.assign(world.sites, {
        agents: async ({ siteId, tenantId }: { siteId: string; tenantId: string }) => {
          asked.push(`${siteId} ${tenantId}`);
          return world.siteAgents;
        },
      });
      assert.equal(await attempt(act), 'waits', act);
      assert.deepEqual(asked, ['s1 default'], act);
    }
  });

  for (const act of actsOn('site').filter((name) => name !== 'rotate'))
    it(`M7 ${act} waits for its agent alone: a ramdisk that is silent for a day, or was never there, is no reason to give it up`, async () => {
      const { world, attempt, passes } = await begun();
      assert.equal(await attempt(act), 'waits');
      passes(day);
      world.seen.set('m1', 0);
      world.seen.set('agent-a', world.now());
      assert.equal(await attempt(act), 'waits');
      world.seen.set('m1', world.now());
      world.seen.set('agent-a', world.now() - silentForMs.site - 1);
      const end = await attempt(act);
      assert.ok(end !== 'waits');
      assert.deepEqual([end.state, end.reason], ['silent', 'agent-silent']);
    });

  for (const act of heardOnRamdisk)
    it(`M7 ${act} waits for the ramdisk alone, for as long as it is heard of`, async () => {
      const { world, attempt, passes } = await begun();
      assert.equal(await attempt(act), 'waits');
      passes(day);
      world.seen.set('agent-a', 0);
      world.seen.set('m1', world.now() - silentForMs.ramdisk);
      assert.equal(await attempt(act), 'waits');
      passes(1);
      const end = await attempt(act);
      assert.ok(end !== 'waits');
      assert.deepEqual([end.state, end.reason], ['silent', 'ramdisk-silent']);
    });

  for (const act of actsOn('node'))
    it(`BAT-036 ${act} waits for the system alone, which has joined and is connected; without one it is not sent`, async () => {
      const { world, attempt, passes } = await begun();
      assert.deepEqual(await attempt(act), { state: 'unsent', error: 'the system of m1 is not connected', reason: 'no-system' });
      Object.assign(world.machine(), { role: 'node', generation: 3 });
      assert.equal(await attempt(act), 'waits');
      passes(day);
      world.seen.set('m1', world.now() - silentForMs.node);
      assert.equal(await attempt(act), 'waits');
      passes(1);
      const end = await attempt(act);
      assert.ok(end !== 'waits');
      assert.deepEqual([end.state, end.reason], ['silent', 'system-silent']);
    });

  it('BAT-036 what a step may destroy goes into the batch of the run, what does no harm does not; a call of a step that is none sends nothing', async () => {
    const { world, attempt, commandOf } = await begun();
    await world.runs.createBatch([...world.runsById.keys()][0] ?? '');
    for (const act of ['ask-ramdisk', 'invoke-ramdisk', 'request'] as const) assert.equal(await attempt(act), 'waits');
    const batchOf = (act: ActName) => world.stored.get(commandOf(act, 1))?.batchId;
    assert.equal(batchOf('ask-ramdisk'), undefined);
    assert.match(batchOf('invoke-ramdisk') ?? '', /^b-/);
    assert.match(batchOf('request') ?? '', /^b-/);
    for (const ordinal of [1, 99]) {
      const end = await attempt('invoke-node', { ordinal });
      assert.ok(end !== 'waits');
      assert.equal(end.state, 'unsent');
    }
  });

  for (const begins of [false, true])
    for (const act of actsOn('site'))
      it(`MT2 ${act} goes to another agent when the one that ${begins ? 'began' : 'has'} it is silent, once, under the next number`, async () => {
        const { world, attempt, passes, commandOf } = await begun(act === 'rotate' ? 'rotate-bmc' : 'provision');
        world.siteAgents.push({ nodeId: 'agent-b', connected: true });
        assert.equal(await attempt(act), 'waits');
        const first = world.stored.get(commandOf(act, 1));
        assert.ok(first);
        if (begins) first.state = 'acked';
        passes(silentForMs.site + minute);
        world.seen.set('agent-a', 0);
        world.seen.set('agent-b', world.now());
        assert.notEqual(await attempt(act), 'waits');
        assert.equal(first.state, begins ? 'acked' : 'cancelled', 'what was begun is not taken back');
        for (let again = 0; again < 2; again += 1) assert.equal(await attempt(act, { n: 2 }), 'waits');
        assert.deepEqual(
          [...world.stored.values()].filter(({ id }) => id.includes(`/${act}.`)).map(({ id, nodeId }) => [id, nodeId]),
          [
            [commandOf(act, 1), 'agent-a'],
            [commandOf(act, 2), 'agent-b'],
          ],
        );
        const [, second] = world.enqueued.filter(({ id }) => id.includes(`/${act}.`));
        assert.equal(second?.earlier?.commandId, act === 'power' ? commandOf(act, 1) : undefined, 'only what is no level says it');
        // The first one comes back and says that it was done: there is no third.
        Object.assign(first, { state: 'done' });
        assert.deepEqual(await attempt(act, { n: 3 }), { state: 'done', error: '' });
      });

  describe('MT2 power that is asked for again', () => {
    const told = (lastReset: string) => ({ power: site.PowerState.ON, lastReset, bootProgress: '' });
    const boot = (lastReset: string) => toBinary(site.BmcBootResultSchema, create(site.BmcBootResultSchema, { seen: told(lastReset) }));
    const power = (lastReset: string) => toBinary(site.BmcPowerResultSchema, create(site.BmcPowerResultSchema, { seen: told(lastReset) }));
    const seenBy = ({ world }: Setting): string | null | undefined => {
      const earlier = world.enqueued.at(-1)?.earlier;
      if (earlier === undefined) return undefined;
      return earlier.seen === null ? null : (anyUnpack(earlier.seen, site.SystemSightSchema)?.lastReset ?? null);
    };

    it('says how the machine was in the last answer before its first attempt, whichever act that was of', async () => {
      const setting = await begun();
      const { world, attempt, commandOf } = setting;
      const template = world.stored.get('erased');
      assert.ok(template);
      const ended = (act: ActName, n: number, { at, result }: { at: number; result: Uint8Array }): void => {
        world.stored.set(commandOf(act, n), { ...template, kind: acts[act].kind, id: commandOf(act, n), createdAt: at, result });
      };
      await attempt('power', { n: 2 });
      assert.equal(seenBy(setting), null, 'nobody told');
      ended('set-boot', 1, { at: 1, result: boot('first') });
      await attempt('power', { n: 3 });
      assert.equal(seenBy(setting), 'first');
      ended('set-boot', 2, { at: 2, result: boot('second') });
      await attempt('power', { n: 4 });
      assert.equal(seenBy(setting), 'second');
      ended('power', 1, { at: 3, result: power('third') });
      await attempt('power', { n: 6, first: 2 });
      assert.equal(seenBy(setting), 'third');
      await attempt('power', { n: 7, first: 7 });
      assert.equal(seenBy(setting), undefined, 'a first attempt follows none');
    });
  });
});
