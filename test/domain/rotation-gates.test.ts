import assert from 'node:assert/strict';
import {
  about,
  dropOpensAt,
  type FleetFacts,
  judgeDrop,
  judgeFleet,
  judgeProcesses,
  judgePublication,
  processLiveWithinMs,
  productionTimes,
} from '../../domain/rotation/gates.ts';
import { connectedWithinMs, isConnected } from '../../domain/session/presence.ts';
import { day, hour, minute, second } from '../../domain/time.ts';

const now = 1_000 * day;
const fleet: FleetFacts = { connected: 2, behind: 0, sample: [], knownNodes: 2, absentNodes: 0, lastPresenceWriteAt: now - second };

function assertClosed(verdict: ReturnType<typeof judgeFleet>, reason: string, message: string): void {
  assert.equal(verdict.kind, 'closed');
  assert.equal(verdict.kind === 'closed' && verdict.reason, reason);
  assert.equal(verdict.kind === 'closed' && verdict.message, message);
}

describe('the gate on the publication', () => {
  it('ROT-023 refuses while the deployment publishes something else, in the words operators know', () => {
    assertClosed(
      judgePublication({ publishedVersion: 7, publishedDigest: 'a', expectedDigest: 'b' }),
      'not-published',
      'Not switching: the deployment still publishes trust version 7 without the new root',
    );
    assert.equal(judgePublication({ publishedVersion: 8, publishedDigest: 'b', expectedDigest: 'b' }).kind, 'open');
  });

  it('CLI-072 refuses when nothing was ever published', () => {
    assertClosed(
      judgePublication({ publishedVersion: null, publishedDigest: null, expectedDigest: 'b' }),
      'nothing-published',
      'no process has published a trust bundle yet',
    );
  });
});

describe('the gate on the processes', () => {
  const worker = { id: 'w1', kind: 'signing', bundleDigest: 'new', publishedVersionSeen: null, lastSeenAt: now };
  const gateway = { id: 'g1', kind: 'gateway', bundleDigest: null, publishedVersionSeen: 8, lastSeenAt: now };
  const expected = { bundleDigest: 'new', publishedVersion: 8, now };

  it('H-02 waits for every live process, each by what it holds', () => {
    assert.equal(judgeProcesses([worker, gateway], expected).kind, 'open');
    assertClosed(
      judgeProcesses([worker, { ...worker, id: 'w2', bundleDigest: 'old' }, gateway], expected),
      'processes-behind',
      '1 of 3 process(es) do not run this bundle yet (signing w2)',
    );
    assertClosed(
      judgeProcesses([worker, { ...gateway, publishedVersionSeen: 7 }], expected),
      'processes-behind',
      '1 of 2 process(es) do not run this bundle yet (gateway g1)',
    );
  });

  it('H-02 does not wait for a process that is gone', () => {
    const gone = { ...worker, id: 'w2', bundleDigest: 'old', lastSeenAt: now - processLiveWithinMs - 1 };
    assert.equal(judgeProcesses([worker, gone], expected).kind, 'open');
    assert.equal(judgeProcesses([worker, { ...gone, lastSeenAt: now - processLiveWithinMs }], expected).kind, 'closed');
  });

  it('H-01 does not pass on no process at all', () => {
    const none = 'no live process that holds the key bundle has reported which one it runs';
    assertClosed(judgeProcesses([], expected), 'no-process', none);
    assertClosed(judgeProcesses([gateway], expected), 'no-process', none);
  });
});

describe('the gate on the fleet', () => {
  it('ROT-020 opens when every connected node holds the version', () => {
    assert.equal(judgeFleet(fleet, { version: 2, now }).kind, 'open');
  });

  it('ROT-021 names a few of the nodes with the version they hold', () => {
    const sample = [{ nodeId: 'node_old', trustVersion: 1, daemonVersion: '0.5.0' }];
    assertClosed(
      judgeFleet({ ...fleet, behind: 1, sample }, { version: 2, now }),
      'nodes-behind',
      '1 of 2 connected node(s) have not applied it (node_old at 1)',
    );
  });

  it('C03 C04 a node that does not report is named so, with NULL and 0 alike', () => {
    for (const trustVersion of [null, 0]) {
      const sample = [{ nodeId: 'n1', trustVersion, daemonVersion: '0.3.0' }];
      assertClosed(
        judgeFleet({ ...fleet, behind: 1, sample }, { version: 2, now }),
        'nodes-behind',
        '1 of 2 connected node(s) have not applied it (n1 does not report (daemon 0.3.0))',
      );
    }
  });

  it('H-01 C08 does not pass on an empty fleet', () => {
    assertClosed(
      judgeFleet({ ...fleet, connected: 0, knownNodes: 500 }, { version: 2, now }),
      'no-connected-node',
      'no connected daemon confirms trust version 2 (500 known node(s))',
    );
  });

  it('H-01 does not pass on rows that nobody writes any more', () => {
    const stalled = { ...fleet, lastPresenceWriteAt: now - connectedWithinMs - 1 };
    assert.equal(judgeFleet(stalled, { version: 2, now }).kind, 'closed');
    assert.equal(judgeFleet({ ...fleet, lastPresenceWriteAt: now - connectedWithinMs }, { version: 2, now }).kind, 'open');
    assert.equal(judgeFleet({ ...fleet, lastPresenceWriteAt: null }, { version: 2, now }).kind, 'closed');
  });

  it('a long list of names is cut', () => {
    const sample = Array.from({ length: 9 }, (_, i) => ({ nodeId: `n${i}`, trustVersion: 1, daemonVersion: '' }));
    const verdict = judgeFleet({ ...fleet, behind: 9, connected: 9, sample }, { version: 2, now });
    assert.match(verdict.kind === 'closed' ? verdict.message : '', /\(n0 at 1, n1 at 1, n2 at 1, n3 at 1, n4 at 1, …\)$/);
  });

  it('ROT-025 C07 connected means not ended and seen within 2 minutes', () => {
    assert.equal(isConnected({ endedAt: null, lastSeenAt: now - 119 * second }, now), true);
    assert.equal(isConnected({ endedAt: null, lastSeenAt: now - 120 * second }, now), true);
    assert.equal(isConnected({ endedAt: null, lastSeenAt: now - 121 * second }, now), false);
    assert.equal(isConnected({ endedAt: now, lastSeenAt: now }, now), false);
  });
});

describe('the gate on the drop', () => {
  it('ROT-008 H-03 opens 24 h after the switch at the earliest', () => {
    assert.equal(dropOpensAt({ switchedAt: now, lastWorkerNotAfter: null }, productionTimes), now + day);
    assert.equal(dropOpensAt({ switchedAt: now, lastWorkerNotAfter: now + hour }, productionTimes), now + day);
  });

  it('H-03 C10 a worker key issued late under the old root moves it to 120 s after its end', () => {
    const late = { switchedAt: now, lastWorkerNotAfter: now + 27 * hour };
    assert.equal(dropOpensAt(late, productionTimes), now + 27 * hour + 120 * second);
    const verdict = judgeDrop({ ...late, now: now + day }, productionTimes);
    assert.equal(verdict.kind === 'closed' && verdict.message, 'the old root can be dropped from 1972-09-28T03:02:00Z (in 3 h 2 min)');
    assert.equal(judgeDrop({ ...late, now: now + 27 * hour + 120 * second }, productionTimes).kind, 'open');
  });

  it('durations are shown as people say them', () => {
    assert.equal(about(400), '1 s');
    assert.equal(about(-5), '0 s');
    assert.equal(about(61 * second), '1 min 1 s');
    assert.equal(about(day - minute), '23 h 59 min');
  });
});
