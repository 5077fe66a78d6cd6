/** The gate over gateways: each live one presents the certificate it was given. */
import assert from 'node:assert/strict';
import { judgeGateways, processLiveWithinMs } from '../../domain/rotation/gates.ts';

const now = 1_000_000;
const gateway = (id: string, servingSerial: string | null, lastSeenAt = now) => ({ id, kind: 'gateway', servingSerial, lastSeenAt });
const judge = (...rows: Parameters<typeof judgeGateways>[0]) => judgeGateways(rows, { serial: '0b', now });

describe('the gate over gateways', () => {
  it('H-01 H-02 passes when every live gateway presents it, and never on none', () => {
    assert.deepEqual(judge(gateway('g1', '0b'), gateway('g2', '0b')), { kind: 'open' });
    const none = {
      kind: 'closed',
      reason: 'no-gateway',
      message: 'no live gateway has reported which certificate it presents',
      behind: [],
    };
    assert.deepEqual(judge(), none);
    assert.deepEqual(judge({ ...gateway('api', '0b'), kind: 'api' }), none);
    assert.deepEqual(judge(gateway('g1', '0b', now - processLiveWithinMs - 1)), none);
  });

  it('H-02 names those that present another, or report none; one that is gone is not waited for', () => {
    assert.deepEqual(judge(gateway('g1', '0a'), gateway('g2', null), gateway('g3', '0b'), gateway('g4', '0a', 0)), {
      kind: 'closed',
      reason: 'gateways-behind',
      message: '2 of 3 gateway(s) do not present it yet (g1, g2)',
      behind: ['g1', 'g2'],
    });
  });
});
