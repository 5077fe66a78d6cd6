import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  judgeMachine,
  matchKeys,
  matchMachine,
  normaliseFact,
  normaliseFacts,
  normaliseMac,
  sharedValues,
} from '../../../domain/metal/identity.ts';

const serial = (value: string, source = 'redfish-system-serial') => ({ source, value });
const mac = (value: string, source = 'redfish-interface-mac') => ({ source, value });

describe('identity of a machine', () => {
  it('M62 brings MAC addresses of every notation to one, whatever the case', () => {
    for (const text of ['B8:3F:D2:AA:00:01', 'b8-3f-d2-aa-00-01', 'b83f.d2aa.0001', ' b83fd2aa0001 '])
      assert.equal(normaliseMac(text), 'b8:3f:d2:aa:00:01', text);
    for (const text of ['', '00:00:00:00:00:00', 'ff:ff:ff:ff:ff:ff', '01:00:5e:00:00:01', 'b8:3f:d2:aa:00', 'not a mac'])
      assert.equal(normaliseMac(text), null, text);
    const known = [{ machineId: 'm1', facts: normaliseFacts([mac('b8:3f:d2:aa:00:01')]) }];
    assert.equal(matchMachine(normaliseFacts([mac('B8-3F-D2-AA-00-01', 'kernel-mac')]), known).kind, 'one');
  });

  it('M62 drops padding, null and what makers leave in a field', () => {
    assert.deepEqual(normaliseFact('redfish-system-serial', 'MT2334XZ0ABC            '), {
      source: 'redfish-system-serial',
      value: 'MT2334XZ0ABC',
    });
    for (const value of [
      null,
      undefined,
      '',
      '   ',
      'None',
      'To be filled by O.E.M.',
      'Default string',
      'Not Specified',
      '0000000000',
      'N/A',
      '0123456789',
    ])
      assert.equal(normaliseFact('dmi-serial', value), null, String(value));
    assert.equal(normaliseFact('dmi-uuid', '00000000-0000-0000-0000-000000000000'), null);
    assert.equal(normaliseFact('dmi-uuid', 'FFFFFFFF-ffff-FFFF-ffff-FFFFFFFFFFFF'), null);
    assert.equal(normaliseFact('dmi-uuid', '{4C4C4544-0042-3510-8053-B4C04F4E4733}')?.value, '4c4c4544-0042-3510-8053-b4c04f4e4733');
  });

  it('normalising twice is normalising once', () => {
    fc.assert(
      fc.property(
        fc.constantFrom('dmi-serial', 'dmi-uuid', 'kernel-mac', 'asset-tag'),
        fc.oneof(fc.string(), fc.base64String(), fc.uuid()),
        (source, value) => {
          const once = normaliseFact(source, value);
          if (once !== null) assert.deepEqual(normaliseFact(once.source, once.value), once);
        },
      ),
    );
  });

  it('M59 a number that a part copied from another one matches no machine, and one that two machines have matches neither', () => {
    assert.deepEqual([...matchKeys([serial('DPU-1', 'redfish-drive-serial'), serial('DPU-1', 'redfish-component-serial')])], []);
    const known = [
      { machineId: 'm1', facts: [serial('SAME'), mac('b8:3f:d2:aa:00:01')] },
      { machineId: 'm2', facts: [serial('SAME'), mac('b8:3f:d2:aa:00:02')] },
    ];
    assert.deepEqual([...sharedValues(known).keys()], ['serial:SAME']);
    assert.deepEqual(matchMachine([serial('SAME', 'dmi-serial')], known), { kind: 'none', duplicates: ['serial:SAME'] });
    assert.deepEqual(matchMachine([serial('SAME'), mac('b8:3f:d2:aa:00:02')], known), {
      kind: 'one',
      machineId: 'm2',
      by: ['mac:b8:3f:d2:aa:00:02'],
      duplicates: ['serial:SAME'],
    });
  });

  it('M60 a machine whose board and controller give two serials is one machine, whichever is asked for', () => {
    const known = [{ machineId: 'gb300', facts: [serial('BOARD-7', 'dmi-serial'), serial('CHASSIS-9')] }];
    for (const value of ['BOARD-7', 'CHASSIS-9']) assert.equal(matchMachine([serial(value, 'inventory-serial')], known).kind, 'one', value);
  });

  it('M60 facts of two machines at once are nobody’s', () => {
    const known = [
      { machineId: 'm1', facts: [serial('A')] },
      { machineId: 'm2', facts: [mac('b8:3f:d2:aa:00:02')] },
    ];
    assert.deepEqual(matchMachine([serial('A'), mac('b8:3f:d2:aa:00:02')], known), {
      kind: 'several',
      machineIds: ['m1', 'm2'],
      duplicates: [],
    });
  });

  it('addresses that software gives match nothing: makers give every machine the same one', () => {
    assert.deepEqual([...matchKeys([mac('be:3a:f2:b6:05:9f')])], []);
  });

  it('tells another machine from one about which nothing comparable is known', () => {
    const mine = [serial('A'), mac('b8:3f:d2:aa:00:01')];
    assert.equal(judgeMachine(mine, [serial('B', 'dmi-serial'), mac('b8:3f:d2:aa:00:01', 'kernel-mac')]), 'same');
    assert.equal(judgeMachine(mine, [serial('B', 'dmi-serial')]), 'other');
    assert.equal(judgeMachine(mine, [{ source: 'dmi-uuid', value: '4c4c4544-0042-3510-8053-b4c04f4e4733' }]), 'unknown');
  });
});
