import assert from 'node:assert/strict';
import { create, toBinary } from '@bufbuild/protobuf';
import { createSites } from '../../../activities/adapters/metal.ts';
import { DiagDisksReportSchema, site } from '../../../proto/index.ts';
import {
  addMachine,
  deleteMachine,
  finishRun,
  importMachines,
  liftTombstone,
  observeMachine,
  planRun,
  readRunFacts,
  recordDisks,
  recordInventory,
  recordPower,
  siteOverview,
} from '../../../services/metal/index.ts';
import { getMachine } from '../../../services/metal/machine-views.ts';
import { useDatabase } from '../../harness/postgres.ts';
import { publishQuorum } from '../batch-support.ts';
import { certificatesOf } from '../identity-support.ts';
import { certify, connect, enrol, newKey, refused } from '../support.ts';
import { addSite, availableMachine, inventoryReport, newMachine, now, pin, runOf, stateOf } from './support.ts';

describe('machines', () => {
  const used = useDatabase();
  const by = { actor: 'olga', now };
  const change = (machineId: string, reason = 'a test') => ({ machineId, reason, ...by });

  before(async () => {
    await publishQuorum(used.db, null);
    await addSite(used.db);
  });

  const counted = async (): Promise<number> =>
    (await used.db.query<{ n: number }>({ text: 'select count(*) as n from machines' }))[0]?.n ?? -1;

  it('a machine comes with its node, its controller and what the inventory knows, and is registered', async () => {
    await addMachine(used.db, newMachine('new', { rack: 'r1', macAddresses: ['B8-3F-D2-AA-00-01'] }), by);
    assert.deepEqual(await stateOf(used.db, 'new'), { state: 'registered', node: 'active', role: 'node', generation: 1, reason: '' });
    const facts = await used.db.query({
      text: `select source, value, origin from machine_identities where machine_id = 'new' order by source`,
    });
    assert.deepEqual(facts, [
      { source: 'inventory-mac', value: 'b8:3f:d2:aa:00:01', origin: 'inventory' },
      { source: 'inventory-serial', value: 'SN-NEW', origin: 'inventory' },
    ]);
    const [node] = await used.db.query<{ labels: object }>({ text: `select labels from nodes where id = 'new'` });
    assert.deepEqual(node?.labels, { rack: 'r1' });
  });

  it('refuses everything that is wrong at once, and what another machine has', async () => {
    const before = await counted();
    await assert.rejects(
      addMachine(used.db, newMachine('bad id', { bmcAddress: 'https://x', bmcPinSha256: 'x', uuid: 'x' }), by),
      refused('INVALID_INPUT', /^id: .*; bmcAddress: .*; bmcPinSha256: .*; uuid: /, 'bad-machine'),
    );
    await assert.rejects(addMachine(used.db, newMachine('new'), by), refused('CONFLICT', /SN-NEW is that of machine new/, 'known-machine'));
    await assert.rejects(addMachine(used.db, newMachine('agent-a'), by), refused('CONFLICT', /the id agent-a is taken/, 'id-taken'));
    const taken = newMachine('twin', { bmcAddress: 'new.bmc.example' });
    await assert.rejects(
      addMachine(used.db, taken, by),
      refused('CONFLICT', /controller new\.bmc\.example of site berlin is that of machine new/, 'bmc-taken'),
    );
    await assert.rejects(
      addMachine(used.db, newMachine('lost', { tenantId: 'nobody' }), by),
      refused('NOT_FOUND', /no tenant is called nobody/),
    );
    assert.equal(await counted(), before, 'and nothing stays of it');
    await addMachine(used.db, newMachine('blade', { bmcAddress: 'new.bmc.example', bmcSystemId: 'Node2' }), by);
  });

  it('an inventory is taken whole or not at all, with the line of everything that the database knows against it', async () => {
    const before = await counted();
    const text = 'id,site,bmc,serial\ni1,berlin,10.1.0.1,I1\nnew,berlin,10.1.0.2,I2\ni3,berlin,10.1.0.3,SN-new\n';
    await assert.rejects(
      importMachines(used.db, { text, format: 'csv', ...by }),
      refused(
        'INVALID_INPUT',
        /^the inventory cannot be taken, and nothing of it was:\nline 3, id: the id new is taken.*\nline 4, serial: .*SN-NEW is that of machine new/,
        'bad-inventory',
      ),
    );
    assert.equal(await counted(), before);
    const good = 'id,site,bmc,serial\ni1,berlin,10.1.0.1,I1\ni2,berlin,10.1.0.2,I2\n';
    assert.deepEqual(await importMachines(used.db, { text: good, format: 'csv', dryRun: true, ...by }), {
      added: ['i1', 'i2'],
      dryRun: true,
    });
    assert.equal(await counted(), before, 'a dry run stores nothing');
    assert.deepEqual(await importMachines(used.db, { text: good, format: 'csv', ...by }), { added: ['i1', 'i2'], dryRun: false });
    assert.equal(await counted(), before + 2);
  });

  it('M55 one that is deleted with something on its disks does not come back under another name until a person says so', async () => {
    await availableMachine(used.db, 'full', { macAddresses: ['b8:3f:d2:aa:00:10'] });
    await used.db.query({ text: `update machines set state = 'provisioned' where id = 'full'` });
    await certify(used.db, { id: 'full', key: newKey(), now });
    assert.deepEqual(await deleteMachine(used.db, change('full', 'sold')), { tombstone: true });
    assert.deepEqual([(await stateOf(used.db, 'full'))?.state, (await stateOf(used.db, 'full'))?.node], ['deleted', 'retired']);
    assert.ok((await certificatesOf(used.db, 'full')).every(({ revoked }) => revoked));
    for (const again of [{ serial: ' sn-full ' }, { serial: 'OTHER', macAddresses: ['B8:3F:D2:AA:00:10'] }]) {
      await assert.rejects(
        addMachine(used.db, newMachine('again', again), by),
        refused(
          'INVALID_STATE',
          /is that of machine full, which was deleted without a proven wipe \(deleted-dirty: it was provisioned; sold\)/,
          'tombstone',
        ),
      );
    }
    await assert.rejects(liftTombstone(used.db, change('full', '')), refused('INVALID_INPUT', /lifting a tombstone needs a reason/));
    await liftTombstone(used.db, change('full', 'the drives were shredded, report 17'));
    await addMachine(used.db, newMachine('again', { serial: 'SN-full', bmcAddress: 'full.bmc.example' }), by);
    await assert.rejects(liftTombstone(used.db, change('full')), refused('NOT_FOUND', /machine full has no tombstone/));
  });

  it('M55 a clean one leaves none; one in a run is not deleted', async () => {
    await availableMachine(used.db, 'clean');
    const { runId } = await planRun(used.db, runOf('clean', 'provision'));
    await assert.rejects(
      deleteMachine(used.db, change('clean')),
      refused('INVALID_STATE', /machine clean is in provision run/, 'machine-busy'),
    );
    await finishRun(used.db, { runId, end: 'cancelled', reason: 'a test', ...by });
    assert.deepEqual(await deleteMachine(used.db, change('clean')), { tombstone: false });
    await assert.rejects(deleteMachine(used.db, change('clean')), refused('INVALID_STATE', /machine clean is deleted/, 'machine-state'));
    await addMachine(used.db, newMachine('clean-2', { serial: 'SN-clean', bmcAddress: 'clean.bmc.example' }), by);
  });

  it('the key of a controller is taken at first contact, and no report changes it', async () => {
    await availableMachine(used.db, 'pinned');
    const { runId } = await planRun(used.db, runOf('pinned', 'inspect'));
    assert.equal((await readRunFacts(used.db, runId, now)).machine.bmc.pinSha256, pin);
    const report = inventoryReport({ pinSha256: 'f'.repeat(64) });
    await assert.rejects(
      recordInventory(used.db, { runId, report, now }),
      refused('CONFLICT', /another key than the pinned one/, 'pin-differs'),
    );
    await assert.rejects(
      recordInventory(used.db, { runId, report: Buffer.from([0xff]), now }),
      refused('MALFORMED', /no BmcInventoryReport/),
    );
  });

  it('M59 M60 M62 what controllers say is normalised and kept as claims; a value that two machines have is told', async () => {
    const facts = {
      serial: 'CHASSIS-9            ',
      uuid: '4C4C4544-0042-3510-8053-B4C04F4E4733',
      interfaces: [{ macAddress: 'B8:3F:D2:AA:00:20' }, { macAddress: '' }],
      identity: [
        { source: 'redfish-drive-serial', value: 'COPIED' },
        { source: 'redfish-chassis-serial', value: 'None' },
      ],
      disks: [
        { id: 'a', serial: 'SAME', capacityBytes: 10n },
        { id: 'b', serial: 'SAME', capacityBytes: 10n },
      ],
    };
    const summaries: string[] = [];
    for (const id of ['first', 'second']) {
      await availableMachine(used.db, id);
      const { runId } = await planRun(used.db, runOf(id, 'inspect'));
      const { summary, duplicates } = await recordInventory(used.db, { runId, report: inventoryReport(facts), now });
      summaries.push(summary);
      if (id === 'first') assert.deepEqual(duplicates, []);
      else
        assert.deepEqual([...duplicates].sort(), [
          'mac:b8:3f:d2:aa:00:20',
          'serial:CHASSIS-9',
          'uuid:4c4c4544-0042-3510-8053-b4c04f4e4733',
        ]);
    }
    assert.match(summaries[1] ?? '', /shared with another machine: .*serial:CHASSIS-9/);
    const { shared } = await getMachine(used.db, 'first', { tenants: 'all', now });
    assert.deepEqual(
      shared.map(({ value, others, hidden }) => [value, others, hidden]),
      ['mac:b8:3f:d2:aa:00:20', 'serial:CHASSIS-9', 'uuid:4c4c4544-0042-3510-8053-b4c04f4e4733'].map((value) => [value, ['second'], 0]),
    );
    await used.db.query({ text: `insert into tenants (id) values ('other')` });
    await used.db.query({ text: `update nodes set tenant_id = 'other' where id = 'second'` });
    const narrow = await getMachine(used.db, 'first', { tenants: ['default'], now });
    assert.deepEqual(
      narrow.shared.map(({ others, hidden }) => [others, hidden]),
      Array.from({ length: 3 }, () => [[], 1]),
      'another tenant’s machine is not named',
    );
    await used.db.query({ text: `update nodes set tenant_id = 'default' where id = 'second'` });
    const disks = await used.db.query<{ serial: string }>({ text: `select serial from machine_disks where machine_id = 'first'` });
    assert.deepEqual(
      disks.map(({ serial }) => serial),
      ['SAME', 'SAME'],
      'two disks with one serial stay two',
    );
  });

  const disksReport = (changes: { systemSerial?: string; macAddresses?: string[]; serial?: string }): Uint8Array =>
    toBinary(
      DiagDisksReportSchema,
      create(DiagDisksReportSchema, {
        disks: [{ name: 'nvme0n1', serial: changes.serial ?? 'D1', sizeBytes: 10n, transport: 'nvme' }],
        ...changes,
      }),
    );

  it('M60 the ramdisk’s own reading is that of the machine when they share a value, and another machine is refused', async () => {
    await availableMachine(used.db, 'booted', { macAddresses: ['b8:3f:d2:aa:00:30'] });
    const { runId } = await planRun(used.db, runOf('booted', 'provision'));
    const stranger = disksReport({ systemSerial: 'SN-elsewhere', macAddresses: ['b8:3f:d2:aa:00:31'] });
    await assert.rejects(
      recordDisks(used.db, { runId, report: stranger, now }),
      refused('CONFLICT', /answers for booted is another one: dmi-serial SN-ELSEWHERE/, 'wrong-machine'),
    );
    assert.deepEqual((await readRunFacts(used.db, runId, now)).disks, [], 'and nothing of it is kept');
    // The board's serial differs from the chassis', as on machines where both are right.
    await recordDisks(used.db, { runId, report: disksReport({ systemSerial: 'BOARD-7', macAddresses: ['B8:3F:D2:AA:00:30'] }), now });
    const { disks, macAddresses } = await readRunFacts(used.db, runId, now);
    assert.deepEqual(
      disks.map(({ serial, origin }) => [serial, origin]),
      [['D1', 'ramdisk']],
    );
    assert.deepEqual(macAddresses, ['b8:3f:d2:aa:00:30']);
  });

  it('power is what was observed last; an older observation changes nothing', async () => {
    await availableMachine(used.db, 'powered');
    const { runId } = await planRun(used.db, runOf('powered', 'provision'));
    await recordPower(used.db, { runId, state: 'on', at: now + 10 });
    await recordPower(used.db, { runId, state: 'off', at: now + 5 });
    assert.equal((await observeMachine(used.db, 'powered', now)).power, 'on');
    await recordPower(used.db, { runId, state: 'unknown', at: now + 20 });
    assert.equal((await observeMachine(used.db, 'powered', now)).power, 'unknown');
    assert.equal(site.PowerState.UNKNOWN, 1);
  });

  it('BAT-034 agents of a site are those of the machine’s tenant, those that are connected first', async () => {
    const clock = Date.now();
    const agents = async (tenantId: string) =>
      (await createSites({ db: used.db }).agents({ siteId: 'lyon', tenantId })).map(({ nodeId, connected }) => [nodeId, connected]);
    for (const id of ['lyon-1', 'lyon-2', 'lyon-3']) {
      const node = await enrol(used.db, id, { role: 'site', now: clock });
      await used.db.query({ text: `insert into sites (id) values ('lyon') on conflict do nothing` });
      await used.db.query({ text: `update nodes set site_id = 'lyon' where id = $1` }, [id]);
      if (id !== 'lyon-1') await connect(used.db, node, { role: 'site', now: null });
    }
    await used.db.query({ text: `insert into tenants (id) values ('acme') on conflict do nothing` });
    await used.db.query({ text: `update nodes set tenant_id = 'acme' where id = 'lyon-2'` });
    assert.deepEqual(await agents('default'), [
      ['lyon-3', true],
      ['lyon-1', false],
    ]);
    assert.deepEqual(await agents('acme'), [['lyon-2', true]]);
    const [lyon] = await siteOverview(used.db, { sites: ['lyon'], now: clock });
    assert.deepEqual([lyon?.agents.length, lyon?.states, lyon?.openRuns], [3, {}, 0]);
  });
});
