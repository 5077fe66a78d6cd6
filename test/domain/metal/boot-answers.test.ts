import assert from 'node:assert/strict';
import { cleanUps, diskAnswer } from '../../../domain/metal/boot-answers.ts';
import type { Remains, RunKind } from '../../../domain/metal/run-ends.ts';

const remainders: readonly Remains[] = ['untouched', 'clean', 'dirty'];
const kinds: readonly RunKind[] = ['provision', 'retire', 'inspect', 'rotate-bmc'];

describe('what a boot server is told behind a clean-up', () => {
  it('M6 is the local disk in three places and in no other: untouched, let go or taken back, and the image that is about to start', () => {
    const local: string[] = [];
    for (const kind of kinds)
      for (const remains of remainders)
        for (const deployed of [false, true])
          for (const [reason, number] of Object.entries(cleanUps))
            if (diskAnswer({ kind, state: 'provisioning', remains, deployed, number }) === 'local')
              local.push(`${kind} ${remains} ${deployed ? 'deployed' : '-'} ${reason}`);
    assert.deepEqual(local, [
      'provision untouched - letsGo',
      'provision untouched - takesBack',
      'provision untouched deployed letsGo',
      'provision untouched deployed takesBack',
      'provision dirty deployed letsGo',
    ]);
  });

  it('M6 holds a machine in quarantine, one of another run than a provision, and for a number that means nothing', () => {
    const good = { kind: 'provision', state: 'provisioning', remains: 'dirty', deployed: true, number: cleanUps.letsGo } as const;
    assert.equal(diskAnswer(good), 'local');
    assert.equal(diskAnswer({ ...good, state: 'quarantined' }), 'hold');
    for (const kind of kinds.slice(1)) assert.equal(diskAnswer({ ...good, kind }), 'hold', kind);
    for (const number of [-1, 3, Number.NaN]) assert.equal(diskAnswer({ ...good, remains: 'untouched', number }), 'hold');
  });
});
