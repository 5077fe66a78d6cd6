/** Whose word about allocations a deployment in code takes. */
import assert from 'node:assert/strict';
import { type CapacityOptions, createGatewayServices, defineConfig, initialise, pkiJoinCrypto } from '../../config/index.ts';
import { useDatabase } from '../harness/postgres.ts';
import { recordingLog, refused, t0, testBundle } from '../services/support.ts';

describe('capacity of a deployment in code', () => {
  const used = useDatabase();

  async function optionsWith({ signs, capacity }: { readonly signs: boolean; readonly capacity?: unknown }) {
    const { trustDomain, nodeCa, joinSigning, joinEncryption, commandSigning } = await testBundle();
    const join = pkiJoinCrypto({ trustDomain, nodeCa, signingKey: joinSigning, encryptionKey: joinEncryption.privateKey });
    const pki = { nodeCa, join, ...(signs ? { commandSigning } : {}) };
    return initialise(defineConfig(() => ({ pki, ...(capacity === undefined ? {} : { capacity: capacity as CapacityOptions }) })));
  }

  it('SIGN-013 with pki.commandSigning nodes’ words are checked by default; without it, none is taken', async () => {
    const [signed, unsigned] = [await optionsWith({ signs: true }), await optionsWith({ signs: false })];
    assert.equal(typeof signed.capacity.attestedBindings, 'function');
    assert.equal(unsigned.capacity.attestedBindings, null);
    for (const { pki, capacity } of [signed, unsigned]) {
      const services = createGatewayServices({ db: used.db, crypto: () => pki.join, ...capacity, log: recordingLog(), now: () => t0 });
      assert.equal(services.event !== undefined, capacity.attestedBindings !== null);
    }
  });

  it('SIGN-013 what the deployment says itself goes before the default', async () => {
    const own = async () => Promise.reject(new Error('never'));
    assert.equal((await optionsWith({ signs: true, capacity: { attestedBindings: own } })).capacity.attestedBindings, own);
    assert.equal((await optionsWith({ signs: true, capacity: { attestedBindings: null } })).capacity.attestedBindings, null);
    assert.equal(typeof (await optionsWith({ signs: true, capacity: {} })).capacity.attestedBindings, 'function');
    const bad: [unknown, RegExp][] = [
      [{ attestedBindings: true }, /capacity\.attestedBindings must come from pkiAllocationBindingCheck/],
      [{ attestedBinding: own }, /capacity\.attestedBinding is no option: did you mean capacity\.attestedBindings\?/],
      [7, /capacity must be an object/],
    ];
    for (const [capacity, message] of bad)
      await assert.rejects(optionsWith({ signs: true, capacity }), refused('INVALID_CONFIG', message, 'options'));
  });
});
