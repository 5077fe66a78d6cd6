import assert from 'node:assert/strict';
import { reportOf } from '../../daemon/site/bmc/inventory.ts';
import { matchKeys, sharedValues } from '../../domain/metal/identity.ts';
import { site } from '../../proto/index.ts';
import { asMachine } from '../fakes/bmc/own-machine.ts';
import { type FakeTree, hasTree } from '../fakes/bmc/server.ts';
import { setBmcStage, valueOf } from './bmc-stage.ts';

type Report = site.BmcInventoryReport;

/** Resources of a whole tree. */
const resources: Readonly<Record<FakeTree, number>> = { dell_poweredge_r750: 3061, gh200: 1443, minimal: 36 };

describe('bmc.inventory', () => {
  const stage = setBmcStage();
  const facts = ({ identity }: Report) => identity.map(({ source, value }) => `${source}=${value}`);

  it('reports a machine, its identity and what its controller can do', async () => {
    const bmc = await stage.bmcWith();
    const report = valueOf(site.BmcInventoryReportSchema, await stage.perform('bmc.inventory', bmc));
    assert.deepEqual(facts(report), [
      'redfish-system-serial=EX1-000042',
      'redfish-system-sku=EX1',
      'redfish-system-uuid=5a1e0c0e-7b54-4d4c-8a2e-0c0ffee00042',
      'redfish-nic-mac=02:00:00:00:42:01',
      'redfish-nic-mac=02:00:00:00:42:02',
      'redfish-manager-uuid=7f0c1a52-0d3e-4a4e-9d1b-0f4c7d1e2a31',
      'redfish-manager-mac=02:00:00:00:42:ff',
    ]);
    assert.deepEqual([report.power, report.memoryBytes, report.processors], [site.PowerState.ON, 64n * 2n ** 30n, 2]);
    assert.deepEqual(
      report.disks?.map(({ serial, identifier }) => [serial, identifier]),
      [
        ['EXD-0000001', 'eui.0025385a00000001'],
        ['EXD-0000002', 'eui.0025385a00000002'],
      ],
    );
    assert.deepEqual(report.profile?.resetTypes, ['On', 'ForceOff', 'ForceRestart', 'GracefulRestart', 'GracefulShutdown', 'PowerCycle']);
    const { vendor, systemId, managerId, virtualMedia, httpBootUrl, lockoutThreshold, lockoutKnown } =
      report.profile ?? assert.fail('no profile');
    assert.deepEqual(
      [vendor, systemId, managerId, virtualMedia, httpBootUrl, lockoutThreshold, lockoutKnown],
      ['example', '1', '1', true, false, 3, true],
    );
    assert.equal(report.requests, bmc.requests.length - 1, 'all but the end of the session');
    assert.equal(bmc.effects.sessionsOpen, 0);
  });

  for (const tree of ['dell_poweredge_r750', 'gh200'] as const) {
    it(`M14 reads a captured ${tree} in order, in at most a fiftieth of its requests (skipped where the captured tree is absent)`, async function () {
      if (!hasTree(tree)) this.skip();
      const bmc = await stage.bmcWith({ tree, quirks: ['wedges-on-overlap'] });
      const report = valueOf(site.BmcInventoryReportSchema, await stage.perform('bmc.inventory', bmc));
      assert.ok(bmc.requests.length <= resources[tree] / 50, `${bmc.requests.length} requests`);
      assert.deepEqual([bmc.effects.overlaps, bmc.effects.sessionsOpen, report.truncated, report.notes], [0, 0, false, []]);
    });
  }

  it('M60 M62 a captured Dell: every number it has, by where it stands (skipped where the captured tree is absent)', async function () {
    if (!hasTree('dell_poweredge_r750')) this.skip();
    const bmc = await stage.bmcWith({ tree: 'dell_poweredge_r750' });
    const report = valueOf(site.BmcInventoryReportSchema, await stage.perform('bmc.inventory', bmc));
    assert.deepEqual(facts(report).slice(0, 3), [
      'redfish-system-serial=CNIVC0014M0388',
      'redfish-service-tag-serial=F54P1G3',
      'redfish-system-uuid=4c4c4544-0035-3410-8050-c6c04f314733',
    ]);
    assert.ok(facts(report).filter((fact) => /^redfish-nic-mac=([0-9a-f]{2}:){5}[0-9a-f]{2}$/.test(fact)).length >= 4);
    assert.ok(report.disks.length >= 3 && report.disks.every(({ serial, capacityBytes }) => serial !== '' && capacityBytes > 0n));
    assert.ok(report.firmware.length > 10);
    assert.deepEqual([report.memoryBytes, report.processors, report.profile?.vendor], [512n * 2n ** 30n, 2, 'dell']);
  });

  it('M62 M60 a captured GH200: no serial number where it can be reset, and the board’s beside it (skipped where the captured tree is absent)', async function () {
    if (!hasTree('gh200')) this.skip();
    const bmc = await stage.bmcWith({ tree: 'gh200' });
    const report = valueOf(site.BmcInventoryReportSchema, await stage.perform('bmc.inventory', bmc));
    assert.deepEqual([report.serial, report.profile?.systemId, report.profile?.vendor], ['', 'System_0', 'nvidia']);
    assert.ok(facts(report).includes('redfish-baseboard-serial=1580924760074'));
    assert.ok(facts(report).every((fact) => !fact.startsWith('redfish-system-serial')));
    assert.ok(report.profile?.resetTypes.includes('PowerCycle'), 'told by its ActionInfo alone');
    assert.deepEqual([report.profile?.lockoutKnown, report.profile?.virtualMedia], [true, true]);
  });

  for (const tree of ['dell_poweredge_r750', 'gh200', 'minimal'] as const)
    it(`M60 two machines that show ${tree} share no fact that machines are told apart by (skipped where a captured tree is absent)`, async function () {
      if (!hasTree(tree)) this.skip();
      const reports = [];
      for (const at of [1, 2]) {
        const machine = { serial: `RACK-${at}`, uuid: `1000000${at}-7b54-4d4c-8a2e-0c0ffee0000${at}`, macAddress: `3c:ec:ef:00:01:0${at}` };
        const bmc = await stage.bmcWith(asMachine(tree, machine));
        reports.push(valueOf(site.BmcInventoryReportSchema, await stage.perform('bmc.inventory', bmc)));
      }
      const known = reports.map((report, at) => ({ machineId: `m${at}`, facts: report.identity }));
      assert.deepEqual([...sharedValues(known)], []);
      assert.ok(known.every(({ facts: own }) => matchKeys(own).size > 0));
      const parts = reports
        .flatMap(({ disks }) => disks.flatMap(({ serial, identifier }) => [serial, identifier]))
        .filter((text) => text !== '');
      assert.equal(new Set(parts).size, parts.length, 'nor a drive');
    });

  it('M62 MAC addresses in any case, serial numbers padded or null, placeholders for none', async () => {
    const overrides = {
      '/redfish/v1/Systems/1': { SerialNumber: 'MT2334XZ0A1B            ', SKU: 'To Be Filled By O.E.M.', UUID: null },
      '/redfish/v1/Systems/1/EthernetInterfaces/1': { MACAddress: 'B8-3F-D2-AA-BB-01', PermanentMACAddress: null },
      '/redfish/v1/Systems/1/EthernetInterfaces/2': { MACAddress: '00:00:00:00:00:00', PermanentMACAddress: '', LinkStatus: null },
    };
    const bmc = await stage.bmcWith({ overrides });
    const report = valueOf(site.BmcInventoryReportSchema, await stage.perform('bmc.inventory', bmc));
    assert.deepEqual(facts(report).slice(0, 2), ['redfish-system-serial=MT2334XZ0A1B', 'redfish-nic-mac=b8:3f:d2:aa:bb:01']);
    assert.deepEqual(
      report.interfaces.map(({ macAddress, linkStatus }) => [macAddress, linkStatus]),
      [
        ['b8:3f:d2:aa:bb:01', 'LinkUp'],
        ['', ''],
      ],
    );
    assert.equal(report.uuid, '');
  });

  it('M59 serial numbers of parts are no facts of the machine; two disks of one number are both listed, and named', async () => {
    const drives = '/redfish/v1/Systems/1/Storage/NVMe/Drives';
    const overrides = { [`${drives}/1`]: { SerialNumber: 'EXD-0000001' }, [`${drives}/0`]: { SerialNumber: 'EXD-0000001' } };
    const bmc = await stage.bmcWith({ overrides });
    const report = valueOf(site.BmcInventoryReportSchema, await stage.perform('bmc.inventory', bmc));
    assert.equal(report.disks.length, 2);
    assert.match(report.notes.join(), /several disks say that their serial number is EXD-0000001/);
    assert.ok(facts(report).every((fact) => !fact.includes('EXD-')));
  });

  it('reads page by page and each page once, expanded or not, and says when there was more', async () => {
    const at = '/redfish/v1/Systems/1/EthernetInterfaces';
    const circle = { 'Members@odata.nextLink': `${at}?$skip=2` };
    for (const quirks of [[], ['no-expand']] as const) {
      const bmc = await stage.bmcWith({ quirks, overrides: { [at]: circle } });
      const report = valueOf(site.BmcInventoryReportSchema, await stage.perform('bmc.inventory', bmc));
      assert.equal(report.interfaces.length, 2, 'a page that leads to itself ends the walk');
    }
    const many = Array.from({ length: 600 }, (_, n) => ({
      '@odata.id': `/redfish/v1/UpdateService/FirmwareInventory/${n}`,
      Id: String(n),
      Version: '1',
    }));
    const bmc = await stage.bmcWith({ overrides: { '/redfish/v1/UpdateService/FirmwareInventory': { Members: many } } });
    const report = valueOf(site.BmcInventoryReportSchema, await stage.perform('bmc.inventory', bmc));
    assert.deepEqual([report.firmware.length, report.truncated], [512, true]);
  });

  it('leaves out what cannot be read, and names it', async () => {
    const bmc = await stage.bmcWith({
      script: ({ path }) =>
        path.includes('EthernetInterfaces') ? { kind: 'answer', status: 403, body: '{"error":{"message":"no"}}' } : undefined,
    });
    const report = valueOf(site.BmcInventoryReportSchema, await stage.perform('bmc.inventory', bmc));
    assert.deepEqual([report.interfaces.length, report.serial], [0, 'EX1-000042']);
    assert.match(report.notes.join('; '), /interfaces could not be read: .*with 403: "no"/);
  });

  it('bounds every number that a controller makes up', () => {
    const of = (body: Record<string, unknown>) => ({ path: '/redfish/v1/x', body, etag: null });
    const mad = {
      MemorySummary: { TotalSystemMemoryGiB: 1e300 },
      ProcessorSummary: { Count: Number.MAX_VALUE },
      SerialNumber: 'x'.repeat(1e5),
    };
    const read = {
      root: { body: {}, vendor: '', quirks: { serialInSku: false }, expandLevels: 0 } as never,
      system: of(mad),
      others: [],
      manager: null,
      resetTypes: [],
      settingsBoot: {},
      interfaces: [],
      managerInterfaces: [],
      drives: [of({ CapacityBytes: 1e40, Id: { not: 'a text' } })],
      firmware: [],
      accountService: null,
      truncated: false,
    };
    const report = reportOf(read, { seenPin: null, requests: 1, notes: [] });
    assert.deepEqual([report.processors, report.memoryBytes, report.serial?.length], [4096, 2n ** 50n, 256]);
    assert.deepEqual([report.disks?.[0]?.capacityBytes, report.disks?.[0]?.id], [BigInt(Number.MAX_SAFE_INTEGER), '']);
  });
});
