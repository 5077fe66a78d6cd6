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
});
