import assert from 'node:assert/strict';
import { create } from '@bufbuild/protobuf';
import { commandKinds } from '../../domain/commands/kinds.ts';
import { readHello } from '../../gateway/session/read-frames.ts';
import { HelloSchema } from '../../proto/index.ts';

describe('capabilities in Hello', () => {
  const hello = (capabilities: string[]) =>
    create(HelloSchema, { protoMin: 1, protoMax: 1, daemonVersion: '0.1.0', bootId: 'b', role: 'site', capabilities });

  it('KIND-002 SKEW-018 takes the name of every kind: a daemon says which ones it runs', () => {
    const kinds = Object.keys(commandKinds);
    assert.deepEqual(readHello(hello(kinds)).capabilities, kinds);
  });

  it('refuses what is no name', () => {
    for (const name of ['', 'A', 'a b', 'a'.repeat(64), 'a\n'])
      assert.throws(() => readHello(hello([name])), /a capability is not what the protocol says/);
  });
});
