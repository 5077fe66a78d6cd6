import assert from 'node:assert/strict';
import { SpecFeed, type SpecSession } from '../../gateway/session/spec-feed.ts';
import type { HeldState, StoredDesiredState } from '../../gateway/session/store.ts';
import { turns } from './manual-scheduler.ts';
import { MemoryStore } from './memory-store.ts';

describe('the feed of desired state', () => {
  class Session implements SpecSession {
    readonly core: { specHeld: number } = { specHeld: 0 };
    readonly taken: number[] = [];
    readonly nodeId: string;
    constructor(nodeId: string) {
      this.nodeId = nodeId;
    }
    onDesiredState({ generation }: StoredDesiredState): void {
      this.core.specHeld = generation;
      this.taken.push(generation);
    }
  }
  const setUp = (nodes: number) => {
    const store = new MemoryStore();
    const sessions = new Map(Array.from({ length: nodes }, (_, n) => [`node-${n}`, new Session(`node-${n}`)]));
    const reads: (readonly HeldState[])[] = [];
    const errors: unknown[] = [];
    const feed = new SpecFeed({
      sessions: () => sessions.values(),
      find: (nodeId) => sessions.get(nodeId),
      read: (held) => {
        reads.push(held);
        return store.findNewerStates(held);
      },
      onError: (error) => void errors.push(error),
    });
    const write = (nodeId: string, generation: number): void =>
      void store.desired.set(nodeId, { generation, body: new Uint8Array(), signature: new Uint8Array() });
    return { store, sessions, reads, errors, feed, write };
  };

  it('SSH-006 a connected node is sent its next state when it is told of, and only what is newer than what it holds', async () => {
    const { sessions, reads, feed, write } = setUp(2);
    write('node-0', 3);
    write('node-1', 3);
    feed.look(['node-0', 'elsewhere']);
    await turns(5);
    assert.deepEqual([sessions.get('node-0')?.taken, sessions.get('node-1')?.taken], [[3], []]);
    assert.deepEqual(reads, [[{ nodeId: 'node-0', generation: 0 }]], 'a node of another gateway is not asked for');
    feed.look(['node-0']);
    await turns(5);
    assert.deepEqual(sessions.get('node-0')?.taken, [3]);
  });

  it('a sweep finds what no notification told of, in pages', async () => {
    const { sessions, reads, feed, write } = setUp(1_100);
    for (const id of sessions.keys()) write(id, 1);
    feed.look('sweep');
    await turns(20);
    assert.deepEqual(
      reads.map((held) => held.length),
      [500, 500, 100],
    );
    assert.ok([...sessions.values()].every(({ taken }) => taken.length === 1));
  });

  it('what is asked for while a read is under way is read after it', async () => {
    const { sessions, reads, feed, write } = setUp(3);
    write('node-0', 1);
    feed.look(['node-0']);
    write('node-0', 2);
    write('node-1', 1);
    feed.look(['node-0']);
    feed.look(['node-1']);
    await turns(10);
    assert.equal(reads.length, 2);
    assert.equal(sessions.get('node-0')?.core.specHeld, 2);
    assert.deepEqual(sessions.get('node-1')?.taken, [1]);
  });

  it('a database that does not answer is said, and the next sweep finds what was missed', async () => {
    const { store, sessions, errors, feed, write } = setUp(1);
    write('node-0', 1);
    const failing = new Error('away');
    const read = store.findNewerStates.bind(store);
    store.findNewerStates = async () => Promise.reject(failing);
    feed.look(['node-0']);
    await turns(5);
    assert.deepEqual([errors, sessions.get('node-0')?.taken], [[failing], []]);
    store.findNewerStates = read;
    feed.look('sweep');
    await turns(5);
    assert.deepEqual(sessions.get('node-0')?.taken, [1]);
  });
});
