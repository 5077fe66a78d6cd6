import assert from 'node:assert/strict';
import { approverFleetFacts, approverSetsHeld } from '../../drizzle/queries/approver-fleet.ts';
import { endSession } from '../../drizzle/queries/sessions.ts';
import { useDatabase } from '../harness/postgres.ts';
import { connect, enrol } from '../services/support.ts';

const sha256 = 'ab'.repeat(32);
const other = 'cd'.repeat(32);

describe('which approver set the machines enforce', () => {
  const used = useDatabase();
  const bytes = (hex: string): Buffer => Buffer.from(hex, 'hex');

  before(async () => {
    const held: readonly [id: string, epoch: number | null, digest: string | null][] = [
      ['current', 4, sha256],
      ['none', null, null],
      ['other-set', 4, other],
      ['same-set-before', 3, sha256],
    ];
    for (const [id, epoch, digest] of held)
      await connect(used.db, await enrol(used.db, id), {
        now: null,
        approverSetEpoch: epoch,
        approverSetSha256: digest === null ? null : bytes(digest),
      });
    const gone = await connect(used.db, await enrol(used.db, 'gone'), { now: null, approverSetEpoch: 1, approverSetSha256: bytes(other) });
    await endSession(used.db, { sessionId: gone.sessionId, reason: 'test', now: Date.now() });
  });

  it('LAG-007 LAG-008 LAG-009 counts a machine without a set, with another one, or with the same at another epoch', async () => {
    const facts = await approverFleetFacts(used.db, { epoch: 4, sha256, excluded: [] });
    assert.deepEqual([facts.connected, facts.behind], [4, 3]);
    assert.deepEqual(facts.sample, [
      { nodeId: 'none', epoch: null },
      { nodeId: 'other-set', epoch: 4 },
      { nodeId: 'same-set-before', epoch: 3 },
    ]);
    assert.notEqual(facts.lastPresenceWriteAt, null);
  });

  it('LAG-010 without a published set, whoever still holds one is behind', async () => {
    const facts = await approverFleetFacts(used.db, { epoch: 5, sha256: null, excluded: [] });
    assert.deepEqual([facts.connected, facts.behind], [4, 3]);
    assert.ok(!facts.sample.some(({ nodeId }) => nodeId === 'none'));
  });

  it('leaves out who is excluded, and lists each for the evidence', async () => {
    const facts = await approverFleetFacts(used.db, { epoch: 4, sha256, excluded: ['none', 'other-set', 'same-set-before'] });
    assert.deepEqual([facts.connected, facts.behind], [1, 0]);
    assert.deepEqual(
      (await approverSetsHeld(used.db)).map(({ nodeId, epoch, sha256: held }) => [nodeId, epoch, held]),
      [
        ['current', 4, sha256],
        ['none', null, null],
        ['other-set', 4, other],
        ['same-set-before', 3, sha256],
      ],
    );
  });
});
