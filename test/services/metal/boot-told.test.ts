/** What boot servers were told, read from the log: whose agents are asked, what counts as told, and by which index it is found among many. */
import assert from 'node:assert/strict';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { AnySchema, anyPack, anyUnpack } from '@bufbuild/protobuf/wkt';
import { isCommandId, maxNodeIdLength } from '../../../domain/commands/ids.ts';
import { type CommandState, commandStates } from '../../../domain/commands/states.ts';
import { day, hour, minute } from '../../../domain/time.ts';
import { protocolRegistry, site } from '../../../proto/index.ts';
import { enqueueCommands } from '../../../services/command-queue.ts';
import { type BootTelling, bootOrders, listUntoldBoots, tellingsOf, toldCommands } from '../../../services/metal/boot-told.ts';
import { deleteMachine, finishRun, liftTombstone, planRun, quarantineMachine } from '../../../services/metal/index.ts';
import { useDatabase } from '../../harness/postgres.ts';
import { planOf } from '../../harness/query-plan.ts';
import { batchWorker } from '../batch-support.ts';
import { connect, enrol, trustDomain } from '../support.ts';
import { availableMachine, commandIdOf, now, runOf } from './support.ts';

describe('what boot servers were told', function () {
  this.timeout(60_000);
  const used = useDatabase();

  before(async () => {
    for (const id of ['agent-a', 'agent-b', 'agent-other', 'agent-acme']) {
      const node = await enrol(used.db, id, { role: 'site', now });
      await connect(used.db, node, { role: 'site', now: null });
    }
    await used.db.query({ text: `insert into sites (id) values ('paris') on conflict do nothing` });
    await used.db.query({ text: `update nodes set site_id = 'paris' where id = 'agent-other'` });
    await used.db.query({ text: `insert into tenants (id) values ('acme')` });
    await used.db.query({ text: `update nodes set tenant_id = 'acme' where id = 'agent-acme'` });
  });

  const macOf = (id: string): string => `00:1b:21:00:00:${id.slice(-2)}`;
  const of = async (machineId: string, at = now): Promise<BootTelling[]> =>
    tellingsOf(used.db, { now: at, limit: 10, machineIds: [machineId] });
  const words = async (machineId: string, at = now): Promise<string[]> =>
    (await of(machineId, at)).map(({ agentId, telling }) => `${agentId} ${telling.kind}${'answer' in telling ? ` ${telling.answer}` : ''}`);
  /** A command that came to this end. */
  const tell = async (
    { machineId, runId }: { machineId: string; runId: string },
    {
      id,
      agent = 'agent-a',
      answer = site.BootAnswer.LOCAL,
      state = 'done',
      error,
    }: { id: string; agent?: string; answer?: site.BootAnswer | 'entry'; state?: CommandState; error?: [code: string, message: string] },
  ): Promise<void> => {
    const common = { nodeId: machineId, runId, macAddresses: [macOf(machineId)] };
    const payload =
      answer === 'entry'
        ? anyPack(site.BootPrepareRamdiskSchema, create(site.BootPrepareRamdiskSchema, common))
        : anyPack(site.BootCleanUpSchema, create(site.BootCleanUpSchema, { ...common, answer }));
    const kind = answer === 'entry' ? 'boot.prepareRamdisk' : 'boot.cleanUp';
    const command = { id, nodeId: agent, kind, payload: toBinary(AnySchema, payload), deadlineMs: now + 5 * minute, requestedBy: 'olga' };
    await enqueueCommands({ db: used.db, worker: await batchWorker(used.db), trustDomain, now, commands: [command] });
    const at = new Date(now);
    await used.db.query({ text: 'update node_commands set state = $2, finished_at = $3 where id = $1' }, [id, commandStates[state], at]);
    if (error !== undefined)
      await used.db.query(
        { text: 'insert into node_results (command_id, node_id, outcome, error_code, error_message, epoch) values ($1, $2, 2, $3, $4, 1)' },
        [id, agent, ...error],
      );
  };
  const end = { reason: 'workflow-gone: a test', actor: 'olga', now };
  const quarantine = (id: string) => used.db.transaction((tx) => quarantineMachine(tx, { nodeId: id, reason: 'a look', now }));
  const provisioned = async (id: string) => {
    await availableMachine(used.db, id, { macAddresses: [macOf(id)] });
    const plan = await planRun(used.db, runOf(id, 'provision'));
    await tell(plan, { id: commandIdOf(plan, 'prepare-boot.1'), answer: 'entry' });
    await tell(plan, { id: commandIdOf(plan, 'clean-up.1') });
    await finishRun(used.db, { runId: plan.runId, end: 'done', ...end });
    return plan;
  };

  it('M6 a quarantine concerns every connected agent of the machine’s site and tenant, and no other', async () => {
    await provisioned('m01');
    await quarantine('m01');
    assert.deepEqual(await words('m01'), ['agent-a tell hold', 'agent-b tell hold']);
  });

  it('M6 the command is made of what is known of the machine, of the run whose entry may stand, and has an id of the state that it is about', async () => {
    const { runId } = await provisioned('m02');
    await quarantine('m02');
    const [{ machineId, generation } = assert.fail('nothing is to be told')] = await of('m02');
    const orders = await bootOrders(used.db, [{ machineId, generation }], now);
    assert.deepEqual(
      orders.map(({ id, nodeId, kind }) => [/^machine\/m02\/boot\/(\d+)\/[0-9a-f]{12}\.1$/.exec(id)?.[1], nodeId, kind]),
      [
        [`${generation}`, 'agent-a', 'boot.cleanUp'],
        [`${generation}`, 'agent-b', 'boot.cleanUp'],
      ],
    );
    const said = orders.map(({ payload }) => anyUnpack(fromBinary(AnySchema, payload), protocolRegistry) as site.BootCleanUp);
    for (const one of said)
      assert.deepEqual([one.nodeId, one.runId, one.macAddresses, one.answer], ['m02', runId, [macOf('m02')], site.BootAnswer.HOLD]);
    assert.deepEqual(await bootOrders(used.db, [{ machineId, generation: generation - 1 }], now), [], 'another state was looked at');
    assert.deepEqual(await bootOrders(used.db, [{ machineId, generation }], now), orders, 'asked again, the same commands');
    const longest = 'm'.repeat(maxNodeIdLength);
    assert.ok(isCommandId(`machine/${longest}/boot/${Number.MAX_SAFE_INTEGER}/${'a'.repeat(12)}.9999`));
  });

  it('what the agent answered is read as it ended: done, rejected, on its way, expired, failed, without a boot server', async () => {
    const plan = await provisioned('m03');
    await quarantine('m03');
    const [{ generation } = assert.fail('nothing is to be told')] = await of('m03');
    const own = (n: number) => `machine/m03/boot/${generation}/x.${n}`;
    const hold = { answer: site.BootAnswer.HOLD, agent: 'agent-b' };
    await tell(plan, { id: own(1), ...hold, state: 'open' });
    assert.deepEqual(await words('m03'), ['agent-a tell hold', 'agent-b under-way']);
    assert.deepEqual(await words('m03', now + hour), ['agent-a away hold', 'agent-b away hold'], 'nobody knows what became of it');
    await used.db.query({ text: 'update node_commands set state = 4 where id = $1' }, [own(1)]);
    assert.deepEqual(await words('m03'), ['agent-a tell hold', 'agent-b pause hold'], 'expired: tried again, and not at once');
    await tell(plan, { id: own(2), ...hold, state: 'failed', error: ['INTERNAL', 'the disk is full'] });
    await tell(plan, { id: own(3), ...hold, state: 'rejected' });
    const [, paused] = await of('m03');
    assert.ok(paused?.telling.kind === 'pause' && paused.telling.failed === 3);
    await tell(plan, { id: own(4), ...hold, state: 'failed', error: ['INTERNAL', 'the disk is full'] });
    await tell(plan, { id: own(5), ...hold, state: 'failed', error: ['INTERNAL', 'the disk is full'] });
    const untold = (await listUntoldBoots(used.db, { now, limit: 100 })).filter(({ agentId }) => agentId === 'agent-b');
    assert.deepEqual(untold, [
      { agentId: 'agent-b', connected: true, machineIds: ['m03'], machines: 1, failed: 5, error: 'the disk is full' },
    ]);
    await tell(plan, { id: own(6), ...hold, state: 'failed', error: ['UNSUPPORTED', 'this site agent has no boot server'] });
    assert.deepEqual(await words('m03'), ['agent-a tell hold']);
    await tell(plan, { id: own(7), ...hold });
    assert.deepEqual(await words('m03', now + 2 * day), ['agent-a away hold']);
  });

  it('M55 a machine that was deleted lets its addresses go when its tombstone is lifted, or at once behind a proven wipe', async () => {
    const change = { actor: 'olga', reason: 'sold', now };
    const plan = await provisioned('m04');
    await tell(plan, { id: 'machine/m04/retire/x/clean-up.1', answer: site.BootAnswer.HOLD });
    await deleteMachine(used.db, { machineId: 'm04', ...change });
    assert.deepEqual(await words('m04'), []);
    await liftTombstone(used.db, { machineId: 'm04', ...change });
    assert.deepEqual(await words('m04'), ['agent-a tell local']);
    const [{ generation } = assert.fail('nothing is to be told')] = await of('m04');
    const [order] = await bootOrders(used.db, [{ machineId: 'm04', generation }], now);
    const said = anyUnpack(fromBinary(AnySchema, order?.payload ?? new Uint8Array()), protocolRegistry) as site.BootCleanUp;
    assert.deepEqual([said.macAddresses, said.answer], [[], site.BootAnswer.LOCAL], 'its addresses may be another machine’s by now');

    await availableMachine(used.db, 'm08', { macAddresses: [macOf('m08')] });
    const wiped = await planRun(used.db, runOf('m08', 'provision'));
    await tell(wiped, { id: commandIdOf(wiped, 'clean-up.1'), answer: site.BootAnswer.HOLD });
    await finishRun(used.db, { runId: wiped.runId, end: 'failed', ...end });
    await used.db.query({ text: `update metal_runs set remains = 'clean' where id = $1` }, [wiped.runId]);
    assert.deepEqual(await words('m08'), [], 'it is held, and has no system');
    await deleteMachine(used.db, { machineId: 'm08', ...change });
    assert.deepEqual(await words('m08'), ['agent-a tell local']);
  });

  it('an agent that has another identity than the one it was told under is told again', async () => {
    await provisioned('m05');
    assert.deepEqual(await words('m05'), ['agent-a tell hold'], 'no evidence of an image is stored');
    const plan = await provisioned('m06');
    await quarantine('m06');
    for (const agent of ['agent-a', 'agent-b'])
      await tell(plan, { id: `machine/m06/boot/x/${agent}.1`, agent, answer: site.BootAnswer.HOLD });
    assert.deepEqual(await words('m06'), []);
    await used.db.query({ text: `update nodes set identity_generation = identity_generation + 1 where id = 'agent-b'` });
    assert.deepEqual(await words('m06'), ['agent-b tell hold']);
    await used.db.query({ text: `update nodes set identity_generation = identity_generation - 1 where id = 'agent-b'` });
  });

  it('of many, those whose state has just changed come first, and are found by an index of these commands alone', async () => {
    await used.db.query({ text: `update machines set state_since = now() - interval '1 day'` });
    await provisioned('m07');
    await quarantine('m07');
    const [first] = await tellingsOf(used.db, { now, limit: 1, turn: 'a turn' });
    assert.equal(first?.machineId, 'm07');
    await used.db.query({
      text: `insert into node_commands (node_id, seq, id, kind, lane, body, body_sha256, signature, signer_root, signer_not_after, deadline, state, finished_at)
             select 'agent-a', 1000000 + i, 'machine/x' || i || '/provision/r/power.1', 'bmc.power', 'bmc', '', '', '', '', '-infinity', now(), 2, now()
             from generate_series(1, 20000) i`,
    });
    await used.db.query({ text: 'analyze node_commands' });
    const nodes = await planOf(used.db, { text: toldCommands.text }, [['m07']]);
    const reads = nodes.filter((node) => node['Relation Name'] === 'node_commands' || node['Index Name'] === 'node_commands_of_boots');
    assert.ok(reads.some((node) => node['Index Name'] === 'node_commands_of_boots'));
    for (const node of reads) assert.ok(node['Actual Rows'] + (node['Rows Removed by Filter'] ?? 0) < 100, JSON.stringify(node));
  });
});
