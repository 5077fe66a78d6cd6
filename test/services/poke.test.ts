import assert from 'node:assert/strict';
import { createPoker, gatewayChannel, maxPayloadBytes, pokePayload } from '../../services/poke.ts';
import { useDatabase } from '../harness/postgres.ts';
import { recordingLog } from './support.ts';

describe('waking gateways', () => {
  const used = useDatabase();

  it('B68 5,000 nodes become one word, never a payload the server refuses', () => {
    const many = new Set(Array.from({ length: 5_000 }, (_, index) => `node-${index}`));
    assert.equal(pokePayload(many), 'sweep');
    assert.equal(pokePayload(new Set(['a', 'b"', 'ü'])), '["a","b\\"","ü"]');
    const edge = new Set(['ü'.repeat((maxPayloadBytes - 4) / 2)]);
    assert.equal(Buffer.byteLength(pokePayload(edge)), maxPayloadBytes);
    assert.equal(pokePayload(new Set(['ü'.repeat(maxPayloadBytes / 2 - 1)])), 'sweep');
  });

  it('sends many pokes as one notification', async () => {
    const listener = await used.db.connect();
    const heard: string[] = [];
    listener.on('notification', (message) => void heard.push(message.payload ?? ''));
    await listener.query(`listen ${gatewayChannel}`);
    const poker = createPoker({ db: used.db, log: recordingLog(), intervalMs: 5 });
    for (let index = 0; index < 100; index++) poker.poke([`node-${index % 10}`]);
    poker.poke([]);
    await poker.close();
    await listener.query('select 1');
    assert.deepEqual(heard, [JSON.stringify(Array.from({ length: 10 }, (_, index) => `node-${index}`))]);
    await listener.end();
  });

  it('B67 a lost notification is logged and fails nobody', async () => {
    const log = recordingLog();
    const poker = createPoker({ db: { ...used.db, query: () => Promise.reject(new Error('queue is full')) }, log, intervalMs: 1 });
    poker.poke(['a']);
    await poker.close();
    assert.match(log.lines[0]!.message, /a notification to the gateways was lost/);
  });
});
