/** Provisioning on a real server, told from beginning to end: what is sent, what is seen, what a machine that does not boot ends as. */
import assert from 'node:assert/strict';
import { fromBinary } from '@bufbuild/protobuf';
import { AnySchema } from '@bufbuild/protobuf/wkt';
import { findCommandKind } from '../../domain/commands/kinds.ts';
import { BootKexecSchema, DiskWipeSchema, site } from '../../proto/index.ts';
import * as messages from '../../workflows/shared/machine-messages.ts';
import { sharedTemporal, type TestTemporal, useWorkflows } from '../harness/temporal.ts';
import { type RunHandle, runMetalWorkers, type StartOptions, startRun, untilRun, words } from './metal-rig.ts';
import { testProfile } from './metal-rows.ts';
import { MetalWorld } from './metal-world.ts';
import { countEvents, type RunningWorkers } from './rotation-rig.ts';

describe('provisionMachine', function () {
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

  const begin = async (options: StartOptions = {}): Promise<RunHandle> => {
    workers = await runMetalWorkers(temporal, world, { activitiesOnly: true });
    handle = await startRun(temporal.skipping, 'provision', options);
    return handle;
  };
  const payloadOf = (suffix: string): Uint8Array => {
    const found = [...world.stored.values()].find(({ id }) => id.endsWith(suffix));
    assert.ok(found, `${suffix} was sent`);
    return fromBinary(AnySchema, found.payload).value;
  };
  const answers = (): site.BootAnswer[] =>
    [...world.stored.values()]
      .filter(({ kind }) => kind === 'boot.cleanUp')
      .map(({ payload }) => fromBinary(site.BootCleanUpSchema, fromBinary(AnySchema, payload).value).answer);

  it('provisions a machine: every command once, the evidence stored, the system joined, in at most 150 events', async () => {
    const run = await begin();
    const result = await run.result();
    assert.deepEqual(
      { ...result, runId: typeof result.runId, batchId: typeof result.batchId },
      {
        machineId: 'm1',
        kind: 'provision',
        runId: 'string',
        end: 'done',
        remains: null,
        failure: '',
        detail: '',
        batchId: 'string',
        reboots: 0,
      },
    );
    assert.deepEqual(world.sent, [
      'prepare-boot.1',
      'set-boot.1',
      'power.1',
      'read-disks.1',
      'wipe.1',
      'deploy.1',
      'clean-up.1',
      'start.1',
    ]);
    assert.equal(world.machine().state, 'provisioned');
    const { total } = await countEvents(run as never);
    process.stderr.write(`      ${total} history events for one machine\n`);
    assert.ok(total <= 150, `${total} events`);
    const done = world.steps.filter(({ state }) => state === 'done').map(({ step }) => step);
    assert.deepEqual(done, ['prepare-boot', 'boot', 'ramdisk-join', 'diagnose', 'wipe', 'deploy', 'clean-up', 'start', 'provisioned-join']);
    const prefix = `machine/m1/provision/${result.runId}`;
    assert.ok([...world.stored.keys()].every((id) => id.startsWith(`${prefix}/`)));
    // BAT-030: what destroys is in the batch, and nothing else: a batch takes no command that is not in its scope.
    for (const { kind, batchId } of world.stored.values())
      assert.equal(batchId, findCommandKind(kind)?.destructive === true ? result.batchId : undefined, kind);
    // M6: its own disk only behind the evidence of what was written to it.
    assert.deepEqual(answers(), [site.BootAnswer.LOCAL]);
  });

  it('M4 M27 boots a machine that never asks the boot server once more, and then has failed with no-netboot and the machine off', async () => {
    world.netboots = () => false;
    const result = await (await begin()).result();
    assert.deepEqual([result.end, result.failure, result.remains, result.reboots], ['failed', 'no-netboot', 'untouched', 1]);
    assert.match(result.detail, /never asked the boot server/);
    assert.equal(world.sent.filter((id) => id.startsWith('power.')).length, 2);
    assert.deepEqual([world.machine().state, world.machine().power], ['available', 'off']);
    // M6: held while it is worked on, its own disk again when nothing was touched.
    assert.deepEqual(answers(), [site.BootAnswer.HOLD, site.BootAnswer.HOLD, site.BootAnswer.LOCAL]);
  });

  it('M27 tells a machine that asked the boot server, and whose ramdisk did not join, from one that never asked', async () => {
    world.netboots = () => false;
    world.scriptsServed = 3;
    const result = await (await begin()).result();
    assert.deepEqual([result.end, result.failure], ['failed', 'no-ramdisk-join']);
    assert.match(result.detail, /asked the boot server 3 time\(s\)/);
  });

  it('M34 goes on with the second boot, and names that boot and this run in every command behind it', async () => {
    world.netboots = (boot) => boot === 2;
    const result = await (await begin()).result();
    assert.deepEqual([result.end, result.reboots], ['done', 1]);
    const entry = [...world.runsById.values()][0]?.entry;
    assert.equal(entry?.attempt, 2);
    for (const wanted of [fromBinary(DiskWipeSchema, payloadOf('/wipe.1')), fromBinary(BootKexecSchema, payloadOf('/start.1'))])
      assert.deepEqual([wanted.runId, Buffer.from(wanted.bootNonce).toString('hex')], [result.runId, entry?.bootNonce]);
  });

  it('M11 M12 takes no answer of the jump for the join: one that hangs is followed by a boot from the disk, in the batch from the start', async () => {
    world.systemJoins = (by) => by === 'disk';
    const result = await (await begin()).result();
    assert.deepEqual([result.end, result.reboots], ['done', 1]);
    assert.deepEqual(world.sent.slice(-3), ['start.1', 'set-boot.2', 'power.2']);
    const { target, ordinal } = fromBinary(site.BmcBootSchema, payloadOf('/set-boot.2'));
    assert.deepEqual([target, ordinal], [site.BootTarget.DISK, 3]);
  });

  it('M11 sees the system join although the order to start was lost with the ramdisk that had it', async () => {
    world.reply.set('start', () => {
      Object.assign(world.machine(), { role: 'node', generation: 3, connected: true });
      return { state: 'interrupted', error: 'the session ended' };
    });
    const result = await (await begin()).result();
    assert.deepEqual([result.end, result.reboots], ['done', 0]);
  });

  it('M12 boots from the disk at once where the jump was refused, and has failed when no system joins', async () => {
    world.systemJoins = () => false;
    world.reply.set('start', () => ({ state: 'failed', error: 'Secure Boot refuses the load' }));
    const result = await (await begin()).result();
    assert.deepEqual([result.end, result.failure, result.remains], ['failed', 'no-provisioned-join', 'dirty']);
    assert.equal(world.machine().state, 'quarantined');
    assert.ok(world.steps.some(({ state, detail }) => state === 'failed' && detail.includes('Secure Boot refuses the load')));
  });

  it("M24 shows the controller's own words and request id, and goes on when an operator says that he has checked", async () => {
    const refusal = { state: 'failed', error: 'bmc-refused: UnableToModifyDuringSystemPOST (request 7F3A)' } as const;
    // The last attempt stays open: a wait that is pending keeps the clock of the test.
    world.reply.set('set-boot', (n) => (n < 3 ? refusal : 'hold'));
    const run = await begin();
    const waiting = await untilRun(run, ({ step, attempt }) => step === 'boot' && attempt === 3);
    assert.match(waiting.last?.message ?? '', /UnableToModifyDuringSystemPOST \(request 7F3A\)/);
    Object.assign(world.machine(), { role: 'ramdisk', generation: 2, connected: true });
    const entry = [...world.runsById.values()][0];
    Object.assign(entry as object, { entry: { ...entry?.entry, usedAt: 1 } });
    await run.executeUpdate(messages.override, { args: [{ step: 'boot', ...words }] });
    assert.equal((await run.result()).end, 'done');
    assert.deepEqual(
      world.messages.map(({ kind, step, actor }) => [kind, step, actor]),
      [['override', 'boot', 'ann']],
    );
    assert.ok(world.steps.some(({ step, state, by }) => step === 'boot' && state === 'done' && by === 'ann'));
  });

  it('M24 has failed with the words of the controller when nobody has checked', async () => {
    world.reply.set('set-boot', () => ({ state: 'failed', error: 'bmc-refused: no (request 1)' }));
    const result = await (await begin()).result();
    assert.deepEqual([result.end, result.failure, result.remains], ['failed', 'set-boot-failed', 'untouched']);
    assert.match(result.detail, /no \(request 1\)/);
    assert.ok(world.steps.some(({ step, state, detail }) => step === 'boot' && state === 'failed' && detail.includes('no (request 1)')));
    assert.ok(!world.sent.includes('power-off.1'), 'a machine that was never restarted is not turned off');
  });

  it('M1 recovers alone from a controller that was away, and keeps the outage in the record', async () => {
    world.reply.set('power', (n) => (n === 1 ? { state: 'failed', error: 'bmc-unreachable: connect ECONNREFUSED' } : {}));
    const result = await (await begin()).result();
    assert.equal(result.end, 'done');
    assert.ok(world.steps.some(({ step, state, detail }) => step === 'boot' && state === 'failed' && detail.includes('ECONNREFUSED')));
  });

  it('M49 sends a wipe that failed never again: the machine is dirty, and in quarantine', async () => {
    world.reply.set('wipe', () => ({ state: 'failed', error: 'nvme format exited 1' }));
    const result = await (await begin()).result();
    assert.deepEqual([result.end, result.failure, result.remains], ['failed', 'wipe-failed', 'dirty']);
    assert.equal(world.sent.filter((id) => id.startsWith('wipe.')).length, 1);
    assert.ok(!world.sent.includes('deploy.1'));
    assert.deepEqual([world.machine().state, world.machine().power], ['quarantined', 'off']);
    assert.deepEqual(answers(), [site.BootAnswer.HOLD]);
  });

  it('M50 takes no wipe for done that ended without evidence', async () => {
    world.reply.set('wipe', () => ({ state: 'done', result: new Uint8Array(0) }));
    const result = await (await begin()).result();
    assert.deepEqual([result.end, result.failure, result.remains], ['failed', 'no-evidence', 'dirty']);
  });

  it('M68 stops when the machine was taken into quarantine meanwhile, and nothing lets it go again', async () => {
    world.reply.set('read-disks', () => {
      world.quarantine('m1', 'second-join: another machine showed the same token');
      return {};
    });
    const result = await (await begin()).result();
    assert.deepEqual([result.end, result.failure], ['failed', 'quarantined']);
    assert.ok(!world.sent.includes('wipe.1'));
    assert.equal(world.machine().state, 'quarantined');
    assert.deepEqual(answers(), [site.BootAnswer.HOLD]);
  });

  it('MT2 asks another agent when the one that has a command went silent, under another id, with the first one taken back', async () => {
    world.siteAgents.push({ nodeId: 'agent-b', connected: true });
    world.reply.set('power', (n) => (n === 1 ? 'hold' : {}));
    let lost = false;
    world.before = (call) => {
      if (call !== 'sent power' || lost) return;
      lost = true;
      world.seen.set('agent-a', 1);
      throw new Error('the worker is gone');
    };
    world.now = () => Date.now() + 600_000;
    world.siteAgents[0] = { nodeId: 'agent-a', connected: true };
    const result = await (await begin()).result();
    assert.equal(result.end, 'done');
    const powers = [...world.stored.values()].filter(({ id }) => id.includes('/power.'));
    assert.deepEqual(
      powers.map(({ nodeId, state }) => [nodeId, state]),
      [
        ['agent-a', 'cancelled'],
        ['agent-b', 'done'],
      ],
    );
  });

  it('BAT-030 sends nothing before the approvers have signed, and everything destructive in their batch', async () => {
    world.approval = { held: true, state: 'pending' };
    const run = await begin();
    const waiting = await untilRun(run, ({ phase }) => phase === 'waiting-approvals');
    assert.deepEqual([world.sent, world.watched], [[], [waiting.batchId]]);
    world.approval.state = 'approved';
    assert.equal((await run.result()).end, 'done');
  });

  it('diagnoses GPUs where the profile asks for it', async () => {
    const result = await (await begin({ over: { profile: testProfile({ diagnose: { dcgm: { level: 2, required: false } } }) } })).result();
    assert.equal(result.end, 'done');
    assert.ok(world.sent.includes('diagnose-gpus.1'));
  });
});
