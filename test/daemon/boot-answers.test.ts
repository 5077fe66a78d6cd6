import assert from 'node:assert/strict';
import fc from 'fast-check';
import { answerFor, answerTable, type MachineSituation, situationOf } from '../../daemon/site/boot/answers.ts';
import { cleanedUp, preparedWith } from '../../daemon/site/boot/entry-changes.ts';
import { type BootEntry, emptyRecord, type MachineRecord, standingEntry } from '../../daemon/site/boot/machine-record.ts';
import { firstScript, scriptFor } from '../../daemon/site/boot/script.ts';
import { isUnderMaintenance, machineStates } from '../../domain/metal/life-cycle.ts';
import { answerIn, mac } from './boot-stage.ts';

const now = 1_000_000;
const artefact = { name: 'vmlinuz', sha256: 'a'.repeat(64) };
const wanted = {
  entryId: 'entry-1',
  runId: '0123456789ab',
  workflowId: 'machine/m/provision/r',
  macAddresses: [mac],
  bootNonce: '0'.repeat(32),
  tokenRef: 'secret://t',
  tokenSha256: 'b'.repeat(64),
  expiresAtMs: now + 1_000,
  kernel: artefact,
  initramfs: artefact,
  kernelArgs: '',
};
const prepared = preparedWith(undefined, { nodeId: 'm', wanted, now });
const use = { atMs: now, csrSha256: 'c'.repeat(64), macAddress: mac, systemUuid: '', systemSerial: '' };
const used: MachineRecord = { ...prepared, entries: prepared.entries.map((entry): BootEntry => ({ ...entry, used: use })) };
const clean = (answer: 'hold' | 'local') => ({ nodeId: 'm', runId: wanted.runId, macAddresses: [mac], answer });

/** One of each situation, with the time it is looked at. */
const each: Record<MachineSituation, { record: MachineRecord | undefined; damaged?: true; at?: number }> = {
  unknown: { record: undefined },
  damaged: { record: undefined, damaged: true },
  open: { record: prepared },
  used: { record: used },
  expired: { record: prepared, at: wanted.expiresAtMs },
  held: { record: cleanedUp(used, { clean: clean('hold'), now }) },
  released: { record: cleanedUp(used, { clean: clean('local'), now }) },
  unsaid: { record: emptyRecord('m') },
};

describe('what a boot server answers', () => {
  for (const [situation, { record, damaged, at }] of Object.entries(each)) {
    it(`M6 has an answer for a machine that is ${situation}, and it is never the disk while something stands`, () => {
      const asked = { record, recordsDamaged: damaged === true, defaultAnswer: 'local' as const };
      assert.equal(situationOf(asked, at ?? now), situation);
      const told = answerFor(asked, at ?? now);
      const { answer } = answerTable[situation as MachineSituation];
      assert.equal(told.kind, answer === 'default' ? 'local' : answer);
      const stands = damaged === true || record?.answer === 'hold' || (record !== undefined && standingEntry(record) !== undefined);
      if (stands) assert.notEqual(told.kind, 'local');
      assert.equal(answerFor({ ...asked, defaultAnswer: 'hold' }, at ?? now).kind, answer === 'default' ? 'hold' : answer);
      const script = scriptFor(told, { baseUrl: 'http://site:1', macAddress: mac, cmdline: 'bc.x=y' });
      assert.equal(answerIn(script), told.kind);
    });
  }

  it('M6 holds a machine from its entry on, also one that was let go before, whatever becomes of the entry', () => {
    const released = cleanedUp(undefined, { clean: { nodeId: 'm', runId: 'a'.repeat(12), macAddresses: [mac], answer: 'local' }, now });
    const again = preparedWith(released, { nodeId: 'm', wanted, now });
    assert.deepEqual([released.answer, again.answer], ['local', 'hold']);
    assert.equal(answerFor({ record: { ...again, entries: [] }, recordsDamaged: false, defaultAnswer: 'local' }, now).kind, 'hold');
  });

  it('M6 keeps a machine in any state of maintenance from its disk, whatever is done to its entries and whenever it asks', () => {
    assert.ok(machineStates.some(isUnderMaintenance));
    const step = fc.oneof(
      fc.record({ kind: fc.constant('prepare' as const), entry: fc.integer({ min: 1, max: 4 }), run: fc.constantFrom('a', 'b') }),
      fc.record({
        kind: fc.constant('clean' as const),
        run: fc.constantFrom('a', 'b'),
        answer: fc.constantFrom('hold' as const, 'local' as const),
      }),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 12 }), fc.integer({ min: 0, max: 5_000 }), (steps, laterMs) => {
        let record: MachineRecord | undefined;
        // What the last command that counted said: an entry stands, or an answer was given.
        for (const [at, one] of steps.entries()) {
          try {
            record =
              one.kind === 'prepare'
                ? preparedWith(record, {
                    nodeId: 'm',
                    wanted: { ...wanted, entryId: `entry-${one.entry}`, runId: one.run.repeat(12) },
                    now: now + at,
                  })
                : cleanedUp(record, { clean: { ...clean(one.answer), runId: one.run.repeat(12) }, now: now + at });
          } catch {
            // Refused: nothing changes.
          }
          const told = answerFor({ record, recordsDamaged: false, defaultAnswer: 'hold' }, now + laterMs);
          const stands = record !== undefined && standingEntry(record) !== undefined;
          assert.equal(told.kind === 'local', !stands && record?.answer === 'local');
          assert.ok((record?.entries ?? []).filter(({ closedAtMs }) => closedAtMs === null).length <= 1);
        }
      }),
    );
  });

  it('M34 closes the entry of an earlier boot when the next is made, and a late clean-up of an earlier run leaves the next alone', () => {
    const second = preparedWith(prepared, {
      nodeId: 'm',
      wanted: { ...wanted, entryId: 'entry-2', runId: 'b'.repeat(12), bootNonce: '1'.repeat(32) },
      now,
    });
    assert.equal(standingEntry(second)?.bootNonce, '1'.repeat(32));
    const late = cleanedUp(second, { clean: clean('local'), now });
    assert.equal(answerFor({ record: late, recordsDamaged: false, defaultAnswer: 'local' }, now).kind, 'ramdisk');
    assert.throws(() => preparedWith(second, { nodeId: 'm', wanted, now }), /boot entry entry-1 was cleaned up/);
  });

  it('is the same when a command is taken up again: a used entry stays used, another of its id is refused', () => {
    assert.equal(preparedWith(used, { nodeId: 'm', wanted, now }), used);
    assert.throws(
      () => preparedWith(used, { nodeId: 'm', wanted: { ...wanted, kernelArgs: 'x' }, now }),
      /here already with another kernelArgs/,
    );
    assert.throws(
      () => preparedWith(undefined, { nodeId: 'm', wanted, now: wanted.expiresAtMs }),
      /entry-1 ended at .* before it was made/,
    );
    const once = cleanedUp(used, { clean: clean('local'), now });
    assert.deepEqual(cleanedUp(once, { clean: clean('local'), now: now + 5 }), once);
  });

  it('M6 ends every script but that of the disk in asking again', () => {
    const options = { baseUrl: 'http://site:1', macAddress: mac, cmdline: 'bc.x=y' };
    for (const record of [prepared, used]) {
      const script = scriptFor(answerFor({ record, recordsDamaged: false, defaultAnswer: 'local' }, now), options);
      assert.match(script, /^#!ipxe\n/);
      assert.match(script, /:wait\nsleep 15\nchain --replace --autofree http:\/\/site:1\/ipxe\/52:54:00:00:00:01 \|\| goto wait\n$/);
      assert.doesNotMatch(script, /exit|sanboot|shell/);
      for (const line of script.split('\n').filter((one) => /^(?:kernel|initrd|boot)/.test(one))) assert.match(line, / \|\| goto again$/);
    }
    assert.match(firstScript('http://site:1'), /sleep 15\ngoto wait\n$/);
  });
});
