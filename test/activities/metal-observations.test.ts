/** What a wait writes while it looks at the same thing again and again. */
import assert from 'node:assert/strict';
import { create, toBinary } from '@bufbuild/protobuf';
import { observations } from '../../activities/metal-observations.ts';
import type { MetalControlPorts } from '../../activities/metal-ports.ts';
import type { Looking } from '../../activities/metal-seen.ts';
import { site } from '../../proto/index.ts';

const observedAt = 1_700_000_000_000;
const result = toBinary(
  site.BmcPowerResultSchema,
  create(site.BmcPowerResultSchema, { state: site.PowerState.OFF, observedAtMs: BigInt(observedAt) }),
);

/** How often the power is written when the database has it from `powerAt`. */
async function written(powerAt: number | null): Promise<number> {
  let count = 0;
  const ports = { runs: { recordPower: async () => void (count += 1) } } as unknown as MetalControlPorts;
  const looking = { facts: { run: { id: 'r1' }, machine: { powerAt } }, answer: async () => ({ result }) } as unknown as Looking;
  assert.equal((await observations.off(ports, looking)).kind, 'reached', 'what was seen counts, written again or not');
  return count;
}

describe('the power that was observed', () => {
  it('is written once: where the database has it, or a newer one, there is nothing to write', async () => {
    assert.deepEqual(await Promise.all([null, observedAt - 1, observedAt, observedAt + 1].map(written)), [1, 1, 0, 0]);
  });

  it('M20 is off where the controller said so behind the command: on its way, unknown, and no word at all are not', async () => {
    const kept: string[] = [];
    const ports = { runs: { recordPower: async ({ state }: { state: string }) => void kept.push(state) } } as unknown as MetalControlPorts;
    const said = async (state: site.PowerState | null) => {
      const answered =
        state === null ? null : toBinary(site.BmcPowerResultSchema, create(site.BmcPowerResultSchema, { state, observedAtMs: 1n }));
      const answer = async () => ({ result: answered });
      const looking = { facts: { run: { id: 'r1' }, machine: { powerAt: null } }, answer } as unknown as Looking;
      const seen = await observations.off(ports, looking);
      return seen.kind === 'failed' ? `${seen.reason}: ${seen.detail}` : seen.kind;
    };
    const { OFF, ON, CHANGING, UNKNOWN, UNSPECIFIED } = site.PowerState;
    const all: string[] = [];
    for (const state of [OFF, ON, CHANGING, UNKNOWN, UNSPECIFIED, null]) all.push(await said(state));
    assert.deepEqual(all, [
      'reached',
      'power-not-off: the controller says ON',
      'power-not-off: the controller says CHANGING',
      'power-not-off: the controller says UNKNOWN',
      'power-not-off: the controller says UNSPECIFIED',
      'power-not-off: the controller did not say what the power is',
    ]);
    assert.deepEqual(kept, ['off', 'on', 'changing', 'unknown', 'unknown'], 'what it said is kept as it was said');
  });
});
