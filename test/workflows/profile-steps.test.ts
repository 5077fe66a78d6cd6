/** A profile's own steps on a real server: what is sent for them and when, and what becomes of a run in which one of them fails. */
import assert from 'node:assert/strict';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { AnySchema } from '@bufbuild/protobuf/wkt';
import { ControlError } from '../../domain/errors.ts';
import type { ProfileStep } from '../../domain/metal/profile-steps.ts';
import { minute, second } from '../../domain/time.ts';
import { driver, site } from '../../proto/index.ts';
import * as messages from '../../workflows/shared/machine-messages.ts';
import { invokeStep, requestStep } from '../domain/metal/profiles.ts';
import { sharedTemporal, type TestTemporal, useWorkflows } from '../harness/temporal.ts';
import { type RunHandle, runMetalWorkers, startRun, untilRun, words } from './metal-rig.ts';
import { testProfile } from './metal-rows.ts';
import { MetalWorld } from './metal-world.ts';
import type { RunningWorkers } from './rotation-rig.ts';

describe('a profile’s own steps', function () {
  this.timeout(60_000);
  useWorkflows();
  let temporal: TestTemporal;
  let workers: RunningWorkers | undefined;
  let handle: RunHandle | undefined;
  let world: MetalWorld;

  before(async () => {
    temporal = await sharedTemporal();
  });
  beforeEach(() => {
    world = new MetalWorld();
  });
  afterEach(async () => {
    await handle?.terminate('the test is over').catch(() => undefined);
    await workers?.stop();
    [workers, handle] = [undefined, undefined];
  });

  const begin = async (steps: readonly ProfileStep[], { client = temporal.skipping } = {}): Promise<RunHandle> => {
    workers = await runMetalWorkers(temporal, world, { activitiesOnly: true });
    handle = await startRun(client, 'provision', { over: { profile: testProfile({ steps }) } });
    return handle;
  };
  const statusOf = (status: number): Uint8Array =>
    toBinary(site.SiteHttpProxyResultSchema, create(site.SiteHttpProxyResultSchema, { status }));
  const stepsDone = (): string[] => world.steps.filter(({ state }) => state === 'done').map(({ step }) => step);
  const poll = (over: Partial<ProfileStep> = {}): ProfileStep => requestStep({ name: 'poll', ...over }, { method: 'GET', body: '' });

  it('BAT-035 BAT-036 are sent each behind its place, on the ramdisk, through the site and on the system, with what was planned', async () => {
    const result = await (
      await begin([
        poll({ after: 'approve', name: 'told' }),
        invokeStep(),
        invokeStep({ name: 'second', after: 'diagnose' }, { harmless: true, method: 'read' }),
        requestStep(),
        requestStep({ name: 'restart', sends: [], do: { 'service.restart': { unit: 'a.service' } } }),
        requestStep({ name: 'reboot', sends: ['node.reboot'], do: { 'node.reboot': { reason: 'firmware of {machine}' } } }),
      ])
    ).result();
    assert.deepEqual([result.end, result.failure, result.detail], ['done', '', '']);
    assert.deepEqual(world.sent, [
      'request.1',
      'prepare-boot.1',
      'set-boot.1',
      'power.1',
      'read-disks.1',
      'invoke-ramdisk.1',
      'ask-ramdisk.1',
      'wipe.1',
      'deploy.1',
      'clean-up.1',
      'start.1',
      'request.2',
      'restart.1',
      'reboot.1',
    ]);
    assert.deepEqual(stepsDone(), [
      'told',
      'prepare-boot',
      'boot',
      'ramdisk-join',
      'diagnose',
      'nic',
      'second',
      'wipe',
      'deploy',
      'clean-up',
      'start',
      'provisioned-join',
      'talos',
      'restart',
      'reboot',
    ]);
    const sent = new Map([...world.stored.values()].map((command) => [command.id.slice(command.id.lastIndexOf('/') + 1), command]));
    const call = fromBinary(driver.DriverInvokeSchema, fromBinary(AnySchema, sent.get('invoke-ramdisk.1')!.payload).value);
    assert.deepEqual([call.method, call.runId, Buffer.from(call.input).toString()], ['flash', result.runId, 'm1']);
    for (const [id, batchId] of [
      ['request.1', undefined],
      ['invoke-ramdisk.1', result.batchId],
      ['ask-ramdisk.1', undefined],
      ['request.2', result.batchId],
      ['restart.1', undefined],
      ['reboot.1', result.batchId],
    ] as const)
      assert.equal(sent.get(id)?.batchId, batchId, id);
    assert.deepEqual(
      ['invoke-ramdisk.1', 'request.2', 'restart.1'].map((id) => sent.get(id)?.nodeId),
      ['m1', 'agent-a', 'm1'],
    );
    assert.ok(world.steps.some(({ step, detail }) => step === 'nic' && detail === 'flash of plugin nic answered 2 bytes'));
  });

  it('a request that only looks is made again until it is answered as it should be; one that writes is made once', async () => {
    world.reply.set('request', (n) => ({ result: statusOf(n < 3 ? 503 : 200) }));
    const result = await (await begin([poll()])).result();
    assert.equal(result.end, 'done');
    assert.deepEqual(world.sent.slice(-3), ['request.1', 'request.2', 'request.3']);
    const told = world.steps.filter(({ step, state }) => step === 'poll' && state === 'failed').map(({ detail }) => detail);
    assert.deepEqual(new Set(told), new Set(['unexpected-status: GET answered 503, and 200 to 299 is meant']));
  });

  it('one that is never answered as it should be has failed at its deadline, held first for an operator, and the run goes back', async () => {
    world.reply.set('request', () => ({ result: statusOf(503) }));
    const result = await (await begin([poll({ withinMs: 2 * minute })])).result();
    assert.deepEqual([result.end, result.failure, result.remains], ['failed', 'unexpected-status', 'dirty']);
    const asked = world.sent.filter((id) => id.startsWith('request.')).length;
    assert.ok(asked >= 2 && asked <= 5, `${asked} requests`);
    assert.ok(world.sent.includes('power-off.1'), 'as of every run that fails behind its boot');
  });

  it('a step that fails is held, says what it was told, and goes on when an operator says that he has checked', async () => {
    world.reply.set('request', () => ({ result: statusOf(409) }));
    const run = await begin([requestStep({}, { expect: [200, 201] })], { client: temporal.client });
    const held = await untilRun(run, ({ phase }) => phase === 'held');
    assert.match(held.waitsFor, /an operator: talos failed \(unexpected-status\): POST answered 409, and 200, 201 is meant/);
    assert.equal(held.next, 'better-compute machine override m1 --step talos --reason <what was checked>');
    await run.executeUpdate(messages.override, { args: [{ step: 'talos', ...words }] });
    assert.equal((await run.result()).end, 'done');
    assert.equal(world.sent.filter((id) => id.startsWith('request.')).length, 1);
    assert.ok(world.steps.some(({ step, state, by }) => step === 'talos' && state === 'done' && by === 'ann'));
  });

  it('BAT-037 a step that has not said what it sends is refused when it is sent, and the run says why', async () => {
    world.before = (call) => {
      if (call === 'send request')
        throw new ControlError('INVALID_INPUT', 'site.httpProxy on node:m1 with this payload is not in the scope of batch b', {
          details: { reason: 'not-in-scope' },
        });
    };
    const result = await (await begin([requestStep({ sends: undefined })])).result();
    assert.deepEqual([result.end, result.failure], ['failed', 'not-in-scope']);
    assert.match(result.detail, /is not in the scope of batch b/);
  });

  it('M49 a call that may have written makes the machine dirty until a wipe is proven; one that is harmless does not', async () => {
    world.reply.set('invoke-ramdisk', () => ({ state: 'interrupted', error: 'the ramdisk was lost' }));
    const dirty = await (await begin([invokeStep()])).result();
    assert.deepEqual([dirty.end, dirty.failure, dirty.remains], ['failed', 'invoke-ramdisk-interrupted', 'dirty']);
    assert.equal(world.machine().state, 'quarantined');
    assert.ok(!world.sent.includes('wipe.1'));
    assert.equal(world.sent.filter((id) => id.startsWith('invoke-ramdisk.')).length, 1, 'it is never sent twice');
    await workers?.stop();

    world = new MetalWorld();
    world.reply.set('ask-ramdisk', () => ({ state: 'failed', error: 'read of plugin nic ended with status 3' }));
    const untouched = await (await begin([invokeStep({}, { harmless: true })])).result();
    assert.deepEqual([untouched.end, untouched.remains, world.machine().state], ['failed', 'untouched', 'available']);
    assert.match(untouched.detail, /ended with status 3/);
  });

  it('a cancelled run ends in the middle of a step, and takes the step’s command back where it was not begun', async () => {
    world.reply.set('invoke-ramdisk', () => 'hold');
    const run = await begin([invokeStep()], { client: temporal.client });
    await untilRun(run, ({ step }) => step === 'nic');
    while (![...world.waits.keys()].some((id) => id.includes('/invoke-ramdisk.'))) await new Promise((resolve) => setTimeout(resolve, 50));
    await run.executeUpdate(messages.cancel, { args: [words] });
    const result = await run.result();
    assert.deepEqual([result.end, result.remains], ['cancelled', 'untouched']);
    assert.ok(!world.sent.includes('wipe.1'));
  });

  it('M38 a worker that ends between the send and its answer sends no second one', async () => {
    let lost = false;
    world.before = (call) => {
      if (call !== 'sent invoke-ramdisk' || lost) return;
      lost = true;
      throw new Error('the worker is gone');
    };
    const result = await (await begin([invokeStep({ withinMs: 30 * second })])).result();
    assert.equal(result.end, 'done');
    assert.deepEqual(
      world.sent.filter((id) => id.startsWith('invoke-ramdisk.')),
      ['invoke-ramdisk.1'],
    );
  });
});
