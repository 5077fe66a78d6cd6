/** What the api issues, and when it issues nothing. */
import assert from 'node:assert/strict';
import { whileUsable } from '../../api/while-usable.ts';
import { ControlError } from '../../domain/errors.ts';
import type { GatewayServices } from '../../services/gateway-port.ts';

const request = Buffer.from('asked');
const peer = { chain: [Buffer.from('leaf')] };
const echo: Required<GatewayServices> = {
  join: async (bytes) => bytes,
  renew: async (bytes) => bytes,
  workloadToken: async (bytes) => bytes,
  secret: async (bytes) => bytes,
  event: async (bytes) => bytes,
};

describe('what an api issues', () => {
  const state: { problem: Error | null } = { problem: null };
  const keys = {
    assertUsable: () => {
      if (state.problem !== null) throw state.problem;
    },
  };

  for (const name of ['join', 'renew', 'workloadToken', 'secret', 'event'] as const)
    it(`H-07 WID-036 ${name}: nothing over a restored database or from an old bundle, and again when that is repaired`, async () => {
      const ask: GatewayServices['renew'] | undefined = whileUsable(keys, echo)[name];
      assert.ok(ask);
      state.problem = new ControlError('UNAVAILABLE', 'this process may not issue anything now: its log says why');
      await assert.rejects(ask(request, peer), state.problem);
      state.problem = null;
      assert.deepEqual(await ask(request, peer), request);
    });

  it('WID-037 a deployment without a broker has none here either', () => {
    const { workloadToken: _none, ...without } = echo;
    assert.equal(whileUsable(keys, without).workloadToken, undefined);
  });
});
