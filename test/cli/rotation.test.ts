/** Second table for `rotation …`: options and the state of a rotation → what is said, asked and answered. */
import assert from 'node:assert/strict';
import { rotationListRun } from '../../cli/commands/rotation/list.ts';
import {
  forceableGates,
  rotationAbortRun,
  rotationExcludeRun,
  rotationForceRun,
  rotationPauseRun,
  rotationResumeRun,
} from '../../cli/commands/rotation/override.ts';
import { rotationStartRun } from '../../cli/commands/rotation/start.ts';
import { rotationStatusRun } from '../../cli/commands/rotation/status.ts';
import { rotationWatchRun } from '../../cli/commands/rotation/watch.ts';
import type { AnyRotationRun, RotationRun } from '../../cli/rotation-port.ts';
import { commandRoot, type RotationTarget, targetName } from '../../cli/rotation-target.ts';
import { ControlError } from '../../domain/errors.ts';
import { gates } from '../../workflows/rotate-command-root/messages.ts';
import type { KeyRotationStatus } from '../../workflows/rotate-key/messages.ts';
import { now } from '../api/support.ts';
import {
  aRun,
  aStatus,
  createFakeRotation,
  createTestIo,
  createTestPorts,
  type FakeRotation,
  type TestIo,
  type TestIoOptions,
} from './support.ts';

const common = { json: false };
const signed = { ...common, actor: 'ann', reason: 'scrap' };
const completed = aRun({
  state: 'completed',
  closedAt: now,
  status: aStatus({ phase: 'done', outcome: 'dropped', behind: null }),
  result: {
    rotationId: 'rotation-1',
    outcome: 'dropped',
    oldRoot: 'a'.repeat(64),
    newRoot: 'b'.repeat(64),
    trustVersion: 3,
    commandsSignedAgain: 0,
    specsSignedAgain: 0,
    overrides: 0,
  },
});

interface Setting {
  readonly io: TestIo;
  readonly rotation: FakeRotation;
  readonly ports: ReturnType<typeof createTestPorts>;
}

function set(runs: FakeRotation['runs'], options?: TestIoOptions): Setting {
  const io = createTestIo(options);
  const rotation = createFakeRotation(runs);
  return { io, rotation, ports: createTestPorts(io, { rotation: async () => rotation }) };
}

const refusal = (code: string, message: RegExp) => (error: ControlError) => {
  assert.equal(error.code, code);
  assert.match(error.message, message);
  return true;
};

describe('better-compute rotation', () => {
  describe('start', () => {
    it('starts with the actor, says how to follow it, and closes its connection', async () => {
      const { io, rotation, ports } = set([]);
      await rotationStartRun({ ...common, actor: 'ann', reason: '' }, ports);
      assert.equal(io.stdout(), 'rotation started: workflow rotate-command-root, run run-1\n');
      assert.equal(io.stderr(), 'follow it with: better-compute rotation watch\n');
      assert.deepEqual(rotation.messages, [['start', { actor: 'ann', reason: '' }]]);
      assert.equal(rotation.closed, 1);
    });

    it('refuses a second one, and closes its connection then too', async () => {
      const { rotation, ports } = set([aRun()]);
      await assert.rejects(
        rotationStartRun({ ...common, actor: 'ann', reason: 'x' }, ports),
        refusal('INVALID_STATE', /^a rotation is already running$/),
      );
      assert.equal(rotation.closed, 1);
    });
  });

  describe('of another key', () => {
    const keyStatus: KeyRotationStatus = {
      rotationId: 'rotate-ticket-key/r',
      key: 'ticket',
      subject: '',
      phase: 'waiting-retire',
      since: now - 61_000,
      outcome: null,
      from: 'a'.repeat(43),
      to: 'b'.repeat(43),
      opensAt: now + 60_000,
      paused: null,
      blocked: null,
      behind: null,
      overrides: [],
      startedBy: 'ann',
      reason: '',
    };
    const ticket = { key: 'ticket', ca: '' } as const;
    const running: AnyRotationRun = { ...aRun(), workflowId: 'rotate-ticket-key', status: keyStatus };

    /** Each key its own rotation; all that is not given never ran. */
    const setKeys = (
      runs: Partial<Record<string, AnyRotationRun>>,
    ): { io: TestIo; ports: ReturnType<typeof createTestPorts>; asked: RotationTarget[] } => {
      const io = createTestIo();
      const asked: RotationTarget[] = [];
      const ports = createTestPorts(io, {
        rotation: async (target = commandRoot) => {
          asked.push(target);
          const run = runs[targetName(target)];
          return createFakeRotation(run === undefined ? [] : [run as RotationRun]);
        },
      });
      return { io, ports, asked };
    };

    it('starts the one that is named, and says how to follow that one', async () => {
      const { io, ports, asked } = setKeys({});
      await rotationStartRun({ ...common, actor: 'ann', reason: '', target: { key: 'ca', ca: 'node' } }, ports);
      assert.deepEqual(asked, [{ key: 'ca', ca: 'node' }]);
      assert.equal(io.stderr(), 'follow it with: better-compute rotation watch --key ca --ca node\n');
    });

    it('status names the keys and the next instant that opens', async () => {
      const { io, ports } = setKeys({ ticket: running });
      await rotationStatusRun({ ...common, target: ticket }, ports);
      assert.equal(
        io.stdout(),
        `workflow  rotate-ticket-key (run run-1)
state     running
started   2030-01-01T11:58:00Z (2 min 0 s ago)
phase     waiting-retire (1 min 1 s ago)
key       ticket: aaaaaaaaaaaa → bbbbbbbbbbbb
opens     2030-01-01T12:01:00Z (in 1 min 0 s)
`,
      );
    });

    it('status in phase confirming says who is behind, in the newest word of the step that waits', async () => {
      const confirming = { ...keyStatus, phase: 'confirming', opensAt: null, behind: null } as const;
      const waiting = 'api@b:7 still runs another key bundle';
      const { io, ports } = setKeys({ ticket: { ...running, status: confirming, waiting } });
      await rotationStatusRun({ ...common, target: ticket }, ports);
      assert.match(io.stdout(), /^phase {8}confirming .*\nkey .*\nwaiting for {2}api@b:7 still runs another key bundle\n$/m);
      const older = { ...confirming, behind: { reason: 'r', message: 'an older word', names: [], count: 1, seenAt: now } } as never;
      const shown = setKeys({ ticket: { ...running, status: older, waiting } });
      await rotationStatusRun({ ...common, target: ticket }, shown.ports);
      assert.doesNotMatch(shown.io.stdout(), /an older word/);
    });

    it('list shows the newest of every key', async () => {
      const ended: AnyRotationRun = {
        ...completed,
        result: {
          rotationId: 'renew-ca/node/r',
          key: 'ca',
          subject: 'node',
          outcome: 'exchanged',
          from: '1'.repeat(32),
          to: '2'.repeat(32),
          overrides: 0,
        },
      };
      const { io, ports } = setKeys({ ticket: running, 'node ca': ended, 'command-root': aRun() });
      await rotationListRun(common, ports);
      assert.equal(
        io.stdout(),
        `command-root  waiting-fleet: 1 of 5 connected node(s) have not applied it (node-3 at 1) (started 2 min 0 s ago)
approvers     never started
node ca       done: node ca from 111111111111 to 222222222222 (started 2 min 0 s ago)
serving ca    never started
internal ca   never started
gateway       never started
ticket        waiting-retire: until 2030-01-01T12:01:00Z (started 2 min 0 s ago)
workload      never started
`,
      );
    });
  });

  describe('status', () => {
    it('says who is behind and what was overridden', async () => {
      const overrides = [{ kind: 'exclude', subject: 'node-9', actor: 'bob', reason: 'scrap', at: now } as const];
      const { io, ports } = set([aRun({ status: aStatus({ overrides }) })]);
      await rotationStatusRun(common, ports);
      assert.equal(
        io.stdout(),
        `workflow       rotate-command-root (run run-1)
state          running
started        2030-01-01T11:58:00Z (2 min 0 s ago)
phase          waiting-fleet (1 min 1 s ago)
roots          aaaaaaaaaaaa → bbbbbbbbbbbb
trust version  2
waiting for    1 of 5 connected node(s) have not applied it (node-3 at 1)
override       exclude node-9 by bob: scrap
`,
      );
    });

    it('shows what the server knows when no worker answers', async () => {
      const { io, ports } = set([aRun({ status: null })]);
      await rotationStatusRun(common, ports);
      assert.match(io.stdout(), /^phase {5}unknown: no worker answers$/m);
    });

    it('is NOT_FOUND before the first, and JSON with --json', async () => {
      await assert.rejects(rotationStatusRun(common, set([]).ports), refusal('NOT_FOUND', /^no rotation has been started$/));
      const { io, ports } = set([aRun()]);
      await rotationStatusRun({ json: true }, ports);
      assert.deepEqual(io.json(), aRun());
    });
  });

  describe('watch', () => {
    it('prints one line for each change, through an outage, until the end', async () => {
      const away = new ControlError('UNAVAILABLE', 'Temporal did not answer');
      const { io, ports, rotation } = set([
        aRun({ status: aStatus({ phase: 'adding', behind: null }) }),
        aRun({ status: aStatus({ phase: 'adding', behind: null }) }),
        away,
        away,
        aRun(),
        aRun({ status: null }),
        aRun({ status: aStatus({ phase: 'waiting-drop', behind: null, dropOpensAt: now + 86_400_000 }) }),
        completed,
      ]);
      await rotationWatchRun({ ...common, intervalMs: 1_000 }, ports);
      assert.deepEqual(
        io
          .stdout()
          .trimEnd()
          .split('\n')
          .map((line) => line.slice('2030-01-01T12:00:00Z  '.length)),
        [
          'adding',
          'Temporal does not answer; trying again',
          'waiting-fleet: 1 of 5 connected node(s) have not applied it (node-3 at 1)',
          'no worker answers; the rotation itself is safe and goes on when one is back',
          'waiting-drop: until 2030-01-02T12:00:00Z',
          'done: rotated from aaaaaaaaaaaa to bbbbbbbbbbbb, trust version 3',
        ],
      );
      assert.equal(rotation.closed, 1);
    });

    it('streams a line of JSON for each change', async () => {
      const { io, ports } = set([aRun(), completed]);
      await rotationWatchRun({ json: true, intervalMs: 1_000 }, ports);
      const lines = io
        .stdout()
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line) as { state: string; status: { phase: string } });
      assert.deepEqual(
        lines.map(({ state, status }) => [state, status.phase]),
        [
          ['running', 'waiting-fleet'],
          ['completed', 'done'],
        ],
      );
    });

    it('fails when the rotation failed, and names why', async () => {
      const { ports, io } = set([aRun({ state: 'failed', failure: 'not the id of a rotation' })]);
      await assert.rejects(
        rotationWatchRun({ ...common, intervalMs: 1_000 }, ports),
        refusal('INVALID_STATE', /^the rotation ended as failed: not the id of a rotation$/),
      );
      assert.match(io.stdout(), /failed: not the id of a rotation/);
    });

    it('ends with Ctrl-C without touching the rotation', async () => {
      const interrupt = new AbortController();
      const { ports, rotation } = set([aRun()], { signal: interrupt.signal, onSleep: () => interrupt.abort() });
      await rotationWatchRun({ ...common, intervalMs: 1_000 }, ports);
      assert.deepEqual([rotation.messages, rotation.closed], [[], 1]);
    });
  });

  it('offers the gates that the workflow lets an operator force', () => assert.deepEqual(forceableGates, gates));

  describe('what changes a rotation', () => {
    it('sends each message as the workflow takes it', async () => {
      const { ports, rotation, io } = set([aRun()]);
      await rotationForceRun({ ...signed, yes: true, phase: 'fleet' }, ports);
      await rotationExcludeRun({ ...signed, yes: true, node: 'node-3' }, ports);
      await rotationAbortRun({ ...signed, yes: true }, ports);
      await rotationPauseRun(signed, ports);
      await rotationResumeRun({ ...common, actor: 'ann' }, ports);
      assert.deepEqual(rotation.messages, [
        ['force', { phase: 'fleet', actor: 'ann', reason: 'scrap' }],
        ['exclude', { node: 'node-3', actor: 'ann', reason: 'scrap' }],
        ['abort', { actor: 'ann', reason: 'scrap' }],
        ['pause', { actor: 'ann', reason: 'scrap' }],
        ['resume', { actor: 'ann' }],
      ]);
      assert.equal(io.stdout().trimEnd().split('\n').length, 5);
    });

    it('asks first, and does nothing on a no', async () => {
      const { ports, rotation } = set([aRun()], { answers: [false] });
      await assert.rejects(rotationAbortRun({ ...signed, yes: false }, ports), refusal('CANCELLED', /^nothing was changed$/));
      assert.deepEqual([rotation.messages, rotation.closed], [[], 0]);
    });

    it('goes on after a yes', async () => {
      const { ports, rotation } = set([aRun()], { answers: [true] });
      await rotationAbortRun({ ...signed, yes: false }, ports);
      assert.equal(rotation.messages.length, 1);
    });

    it('needs --yes where nobody can be asked', async () => {
      for (const run of [
        rotationForceRun({ ...signed, yes: false, phase: 'fleet' }, set([aRun()]).ports),
        rotationExcludeRun({ ...signed, yes: false, node: 'node-3' }, set([aRun()]).ports),
        rotationAbortRun({ ...signed, yes: false }, set([aRun()]).ports),
      ]) {
        await assert.rejects(run, refusal('INVALID_INPUT', /^this needs --yes where nobody can be asked: /));
      }
    });

    it('tells when there is nothing to change', async () => {
      await assert.rejects(
        rotationAbortRun({ ...signed, yes: true }, set([completed]).ports),
        refusal('NOT_FOUND', /^the rotation is not running$/),
      );
    });
  });
});
