import assert from 'node:assert/strict';
import { fromBinary } from '@bufbuild/protobuf';
import fc from 'fast-check';
import { SessionCore } from '../../gateway/session/core.ts';
import { rejectReasonName } from '../../gateway/session/read-frames.ts';
import {
  type AgentFrame,
  AgentFrameSchema,
  bounds,
  CommandOutcome,
  CommandRejectReason,
  CommandRejectSchema,
  decodeMessage,
} from '../../proto/index.ts';
import { type AgentFrameInit, helloFrame } from '../harness/agent.ts';
import { MemoryStore, trustOf } from './memory-store.ts';

import { frameOf, heartbeat, opened, Recorder, terms } from './session-core-support.ts';

describe('the session state machine', () => {
  it('FRM-001 takes Hello first and nothing else', () => {
    const core = new SessionCore('node-1', terms, 0);
    const fx = new Recorder();
    core.onFrame(heartbeat(), 0, fx);
    assert.deepEqual(fx.names(), ['end first-frame-not-hello']);
    core.onFrame(frameOf(helloFrame()), 0, fx);
    assert.equal(fx.effects.length, 1, 'an ended session does nothing');
  });

  it('FRM-009, FRM-010 welcomes with version, capabilities, server time, epoch and the newer bundle', () => {
    const { fx } = opened({ trustVersion: 6n });
    assert.deepEqual(fx.names(), ['open', 'send welcome']);
    const welcome = fx.sent()[0]?.frame;
    assert.ok(welcome?.case === 'welcome');
    const { protocolVersion, capabilities, upgradeRequired, serverTimeMs, epoch, heartbeatIntervalMs, gatewayId } = welcome.value;
    assert.deepEqual(
      { protocolVersion, capabilities, upgradeRequired, serverTimeMs, epoch, heartbeatIntervalMs, gatewayId },
      {
        protocolVersion: 1,
        capabilities: ['delivery.cursor'],
        upgradeRequired: false,
        serverTimeMs: 5_000n,
        epoch: 4n,
        heartbeatIntervalMs: 15_000,
        gatewayId: 'gw-1',
      },
    );
    assert.equal(new TextDecoder().decode(welcome.value.trust?.body), 'trust-7');
  });

  it('TRUST sends no bundle to a daemon that holds it, or a newer one', () => {
    for (const trustVersion of [7n, 8n]) {
      const welcome = opened({ trustVersion }).fx.sent()[0]?.frame;
      assert.ok(welcome?.case === 'welcome' && welcome.value.trust === undefined);
    }
  });

  it('B51 reads the epoch that the daemon has seen, and no number that could not be raised', () => {
    const seen = [0n, 5n, 2n ** 52n - 1n, 2n ** 52n, 2n ** 64n - 1n].map((epochSeen) => {
      const [name, hello] = opened({ epochSeen }).fx.effects[0] ?? [];
      return name === 'open' ? (hello as { epochSeen: number }).epochSeen : null;
    });
    assert.deepEqual(seen, [0, 5, 2 ** 52 - 1, 2 ** 52 - 1, 2 ** 52 - 1]);
  });

  it('ROT-016 sends a newer bundle in mid-session, once, and the same version to nobody twice', () => {
    const { core, fx } = opened({ trustVersion: 6n });
    fx.clear();
    core.onTrust(trustOf(7), 0, fx);
    assert.deepEqual(fx.names(), []);
    core.onTrust(trustOf(8), 0, fx);
    core.onTrust(trustOf(8), 0, fx);
    assert.deepEqual(fx.names(), ['send welcome']);
    core.onFrame(frameOf({ frame: { case: 'status', value: { trustVersion: 9n } } }), 0, fx);
    core.onTrust(trustOf(9), 0, fx);
    assert.deepEqual(fx.names(), ['send welcome', 'report']);
  });

  it('ROT-016 reports a raised version soon, and an unchanged one with the next write', () => {
    const { core, fx } = opened({ trustVersion: 6n });
    fx.clear();
    const status = (trustVersion: bigint): void => core.onFrame(frameOf({ frame: { case: 'status', value: { trustVersion } } }), 0, fx);
    for (const version of [7n, 7n, 3n, 0n]) status(version);
    const none = (version: number) => ({ approverSet: { version, epoch: null, sha256: null } });
    assert.deepEqual(fx.effects, [
      ['report', { report: { trustVersion: 7, ...none(7) }, soon: true }],
      ['report', { report: { trustVersion: 7, ...none(7) }, soon: false }],
      ['report', { report: { trustVersion: 3, ...none(3) }, soon: false }],
      ['report', { report: { trustVersion: null }, soon: false }],
    ]);
  });

  it('LAG-002 LAG-004 LAG-005 takes the approver set of Hello as it comes, of a status only beside a version, and an empty digest as none', () => {
    const approverSetSha256 = new Uint8Array(32).fill(7);
    const set = { approverSetEpoch: 4n, approverSetSha256 };
    const { core, fx } = opened({ trustVersion: 6n, ...set });
    const [, hello] = fx.effects[0] as unknown as [string, Record<string, unknown>];
    assert.deepEqual([hello['approverSetEpoch'], hello['approverSetSha256']], [4, approverSetSha256]);
    fx.clear();
    const status = (value: object): void => core.onFrame(frameOf({ frame: { case: 'status', value } }), 0, fx);
    status({ trustVersion: 6n, ...set });
    status({ trustVersion: 6n, approverSetEpoch: 4n });
    status({ trustVersion: 0n, ...set });
    const reports = (fx.effects as unknown as [string, { report: unknown }][]).map(([, { report }]) => report);
    assert.deepEqual(reports, [
      { trustVersion: 6, approverSet: { version: 6, epoch: 4, sha256: approverSetSha256 } },
      { trustVersion: 6, approverSet: { version: 6, epoch: null, sha256: null } },
      { trustVersion: null },
    ]);
  });

  type AgentCase = NonNullable<AgentFrame['frame']['case']>;

  it('FRM-004 has a use for every frame case of a session', () => {
    const said = { commandId: 'c', seq: 1n, bodySha256: new Uint8Array(32) };
    const uses: Readonly<Record<AgentCase, [frame: AgentFrameInit, effects: string[]]>> = {
      hello: [helloFrame(), ['end second-hello']],
      status: [{ frame: { case: 'status', value: { trustVersion: 7n } } }, ['report']],
      commandAck: [{ frame: { case: 'commandAck', value: said } }, ['ack']],
      commandReject: [{ frame: { case: 'commandReject', value: said } }, ['reject']],
      commandResult: [{ frame: { case: 'commandResult', value: said } }, ['result']],
      commandProgress: [{ frame: { case: 'commandProgress', value: { commandId: 'c', done: 1n } } }, ['progress']],
      heartbeat: [{ frame: { case: 'heartbeat', value: { sequence: 1n } } }, ['send heartbeatAck']],
      trustRefused: [{ frame: { case: 'trustRefused', value: { reason: 'no-roots' } } }, ['trustRefused']],
      workloadTokenRequest: [{ frame: { case: 'workloadTokenRequest', value: { requestId: 'r' } } }, ['ask workloadTokenRequest']],
      secretRequest: [{ frame: { case: 'secretRequest', value: { requestId: 'r' } } }, ['ask secretRequest']],
      eventReport: [{ frame: { case: 'eventReport', value: { requestId: 'r' } } }, ['ask eventReport']],
    };
    for (const [name, [frame, effects]] of Object.entries(uses)) {
      const { core, fx } = opened();
      fx.clear();
      core.onFrame(frameOf(frame), 0, fx);
      assert.deepEqual(fx.names(), effects, name);
    }
  });

  it('FRM-004 hears how far a command is, bounded: a number that is none and a note without end end no session', () => {
    const { core, fx } = opened();
    fx.clear();
    const say = (value: object): void => core.onFrame(frameOf({ frame: { case: 'commandProgress', value } }), 0, fx);
    say({ commandId: 'c', done: 2n ** 64n - 1n, total: 2n ** 63n, note: `a\u0000${'b'.repeat(1_000)}` });
    const [[, row] = []] = fx.effects;
    const most = Number.MAX_SAFE_INTEGER;
    assert.deepEqual(row, { nodeId: 'node-1', epoch: 4, commandId: 'c', done: most, total: most, note: `a${'b'.repeat(254)}` });
    assert.throws(() => say({ commandId: 'a b' }), /a command id is not what the protocol says/);
  });

  it('FRM-005 SKEW-037 passes over a frame case it does not know', () => {
    const { core, fx } = opened();
    fx.clear();
    const unknown = fromBinary(AgentFrameSchema, Buffer.from([0xf2, 0x07, 0x02, 0x08, 0x01]));
    assert.equal(unknown.frame.case, undefined);
    core.onFrame(unknown, 0, fx);
    assert.deepEqual(fx.names(), []);
    assert.equal(core.phase, 'open');
  });

  it('holds what comes between Hello and Welcome, in order, and no more than a bound', () => {
    const core = new SessionCore('node-1', terms, 0);
    const fx = new Recorder();
    core.onFrame(frameOf(helloFrame()), 0, fx);
    core.onFrame(heartbeat(1n), 0, fx);
    core.onFrame(heartbeat(2n), 0, fx);
    assert.deepEqual(fx.names(), ['open']);
    core.onOpened({ epoch: 1, ackedSeq: 0, identityGeneration: 1 }, { trust: null, now: 0 }, fx);
    assert.deepEqual(fx.names(), ['open', 'send welcome', 'send heartbeatAck', 'send heartbeatAck']);
    const flooded = new SessionCore('node-2', terms, 0);
    const other = new Recorder();
    flooded.onFrame(frameOf(helloFrame()), 0, other);
    for (let frame = 0; frame < 33; frame += 1) flooded.onFrame(heartbeat(), 0, other);
    assert.deepEqual(other.names(), ['open', 'end overloaded']);
  });

  it('SKEW-012, SKEW-013, SKEW-014, SKEW-039 restricts a daemon below the range to daemon.upgrade', () => {
    const { core, fx } = opened({}, { protocol: { min: 2, max: 3 } });
    const welcome = fx.sent()[0]?.frame;
    assert.ok(welcome?.case === 'welcome' && welcome.value.upgradeRequired && welcome.value.protocolVersion === 2);
    fx.clear();
    core.onDesiredState({ generation: 5, body: new Uint8Array([1]), signature: trustOf(1).signature }, fx);
    const store = new MemoryStore();
    const commands = [
      store.enqueue('node-1', { id: 'a' }),
      store.enqueue('node-1', { id: 'b', kind: 'daemon.upgrade' }),
      store.enqueue('node-1', { id: 'c' }),
    ];
    core.deliver(commands, { now: 0, hasRoom: () => true }, fx);
    assert.deepEqual(
      fx.sent().map(({ frame }) => (frame.case === 'command' ? frame.value.seq : frame.case)),
      [2n],
    );
  });

  it('SKEW-019, SKEW-020 welcomes at the highest version inside both ranges, refuses one above us', () => {
    const versions = [
      [1, 1, 1],
      [1, 2, 2],
      [1, 9, 3],
    ].map(([protoMin, protoMax]) => {
      const frame = opened({ protoMin: protoMin ?? 0, protoMax: protoMax ?? 0 }, { protocol: { min: 1, max: 3 } }).fx.sent()[0]?.frame;
      return frame?.case === 'welcome' ? frame.value.protocolVersion : null;
    });
    assert.deepEqual(versions, [1, 2, 3]);
    const fx = new Recorder();
    new SessionCore('node-1', terms, 0).onFrame(frameOf(helloFrame({ protoMin: 2, protoMax: 4 })), 0, fx);
    assert.deepEqual(fx.names(), ['end protocol-too-new']);
  });

  it('SPEC relays a desired state newer than the daemon reports, once', () => {
    const { core, fx } = opened({ specGeneration: 3n });
    fx.clear();
    const state = (generation: number): void =>
      core.onDesiredState({ generation, body: new Uint8Array([generation]), signature: trustOf(1).signature }, fx);
    for (const generation of [3, 4, 4]) state(generation);
    assert.deepEqual(
      fx.sent().map(({ frame }) => (frame.case === 'desiredState' ? [...frame.value.body] : frame.case)),
      [[4]],
    );
  });

  it('FRM a reject names a command by its position too, and ends no session whatever it says', () => {
    const { core, fx } = opened();
    const store = new MemoryStore();
    const sent = [store.enqueue('node-1', { id: 'run/1' }), store.enqueue('node-1', { id: 'run/2' })];
    core.deliver(sent, { now: 0, hasRoom: () => true }, fx);
    fx.clear();
    const reject = (commandId: string, seq: bigint): void =>
      core.onFrame(frameOf({ frame: { case: 'commandReject', value: { commandId, seq, reason: CommandRejectReason.MALFORMED } } }), 0, fx);
    reject('', 1n);
    reject('what an edited body says', 2n);
    assert.deepEqual(core.outstanding(0), [], 'both are settled');
    reject('x'.repeat(129), 77n);
    reject('', 0n);
    reject('', 2n ** 63n);
    assert.deepEqual(
      fx.effects.map(([name, row]) => [name, (row as { commandId: string }).commandId, (row as { seq: number }).seq]),
      [
        ['reject', 'run/1', 1],
        ['reject', 'run/2', 2],
        ['reject', '', 77],
      ],
    );
    assert.equal(core.phase, 'open');
  });

  it('settles a stored command that no frame can carry, and sends the ones behind it', () => {
    const { core, fx } = opened();
    fx.clear();
    const store = new MemoryStore();
    const sent = [store.enqueue('node-1', { id: 'a' }), store.enqueue('node-1', { id: 'b' }), store.enqueue('node-1', { id: 'c' })];
    const [a, b, c] = sent as [(typeof sent)[0], (typeof sent)[0], (typeof sent)[0]];
    const rows = [{ ...a, signature: new Uint8Array([0xff, 0xff]) }, { ...b, body: new Uint8Array(bounds.commandBody + 1) }, c];
    core.deliver(rows, { now: 0, hasRoom: () => true }, fx);
    assert.deepEqual(fx.names(), ['reject', 'reject', 'send command']);
    const reject = { nodeId: 'node-1', epoch: 4, reason: 'malformed', detail: 'the stored command cannot be sent' };
    assert.deepEqual(fx.effects[0], ['reject', { ...reject, commandId: 'a', seq: 1 }]);
    assert.deepEqual(fx.effects[1], ['reject', { ...reject, commandId: 'b', seq: 2 }]);
    assert.deepEqual(core.outstanding(0), ['c']);
  });

  it('REV-013 FRM-011 sends RevocationNotice as the last frame', () => {
    const { core, fx } = opened();
    fx.clear();
    core.onRevoked({ serial: 'ab', reason: 'lost', revokedAt: 9 }, fx);
    core.onReceipts(['x'], fx);
    core.onFrame(heartbeat(), 0, fx);
    assert.deepEqual(fx.names(), ['send revocation', 'end revoked']);
  });

  it('B37, B38 tells of the drain first, takes no command after it, and still takes results', () => {
    const { core, fx } = opened();
    const store = new MemoryStore();
    fx.clear();
    core.onDrain({ afterMs: 10, windowMs: 20, reason: 'shutdown' }, fx);
    assert.equal(core.readFrom(), null);
    core.deliver([store.enqueue('node-1', { id: 'a' })], { now: 0, hasRoom: () => true }, fx);
    core.onTrust(trustOf(99), 0, fx);
    core.onFrame(
      frameOf({
        frame: { case: 'commandResult', value: { commandId: 'a', outcome: CommandOutcome.SUCCEEDED, bodySha256: new Uint8Array(32) } },
      }),
      0,
      fx,
    );
    core.onReceipts(['a'], fx);
    assert.deepEqual(fx.names(), ['send drain', 'result', 'send resultReceipt']);
  });

  it('ends at the Hello deadline and after silence, not before', () => {
    const core = new SessionCore('node-1', terms, 0);
    const fx = new Recorder();
    core.sweep(9_999, fx);
    assert.deepEqual(fx.names(), []);
    core.sweep(10_000, fx);
    assert.deepEqual(fx.names(), ['end hello-deadline']);
    const { core: silent, fx: other } = opened();
    other.clear();
    silent.onFrame(heartbeat(), 1_000, other);
    other.clear();
    silent.sweep(50_999, other);
    assert.deepEqual(other.names(), []);
    silent.sweep(51_000, other);
    assert.deepEqual(other.names(), ['end heartbeat-lost']);
  });

  it('bounds what a frame may put into the database', () => {
    const { core, fx } = opened();
    const send = (init: AgentFrameInit): void => core.onFrame(frameOf(init), 0, fx);
    const refused = { code: 'MALFORMED', message: /is not what the protocol says$/ };
    assert.throws(() => send({ frame: { case: 'commandAck', value: { commandId: 'has\u0000nul', seq: 1n } } }), refused);
    assert.throws(() => send({ frame: { case: 'commandAck', value: { commandId: '', seq: 1n } } }), refused);
    assert.throws(() => send({ frame: { case: 'commandAck', value: { commandId: 'a', seq: 2n ** 60n } } }), refused);
    assert.throws(() => send({ frame: { case: 'commandResult', value: { commandId: 'a', bodySha256: new Uint8Array(31) } } }), refused);
    assert.throws(() => send({ frame: { case: 'status', value: { trustVersion: 2n ** 63n } } }), refused);
    fx.clear();
    const text = 'a\u0000b\u0007c\n\td'.padEnd(9_000, 'x');
    send({
      frame: {
        case: 'commandResult',
        value: {
          commandId: 'a',
          outcome: 77 as never,
          errorMessage: text,
          startedAtMs: 2n ** 63n,
          finishedAtMs: 5n,
          bodySha256: new Uint8Array(32),
        },
      },
    });
    const row = fx.effects[0]?.[1] as { errorMessage: string; outcome: number; startedAt: number | null; finishedAt: number | null };
    assert.equal(row.errorMessage.slice(0, 6), 'abc\n\td');
    assert.ok(row.errorMessage.length <= 4_096);
    assert.deepEqual(
      { outcome: row.outcome, startedAt: row.startedAt, finishedAt: row.finishedAt },
      { outcome: 2, startedAt: null, finishedAt: 5 },
    );
    assert.throws(() => new SessionCore('n', terms, 0).onFrame(frameOf(helloFrame({ capabilities: ['No Good'] })), 0, fx), refused);
  });

  it('SKEW-037 names every reject reason of the protocol, and keeps the number of one it does not know', () => {
    assert.equal(rejectReasonName(CommandRejectReason.BAD_SIGNATURE), 'bad-signature');
    assert.equal(rejectReasonName(CommandRejectReason.UNSUPPORTED), 'unsupported');
    const newer = decodeMessage(CommandRejectSchema, Uint8Array.of(0x18, 99), 'agentFrame'); // field 3: reason
    assert.equal(rejectReasonName(newer.reason), 'reason-99');
  });

  it('never sends before Welcome, never after the end, and never throws but refusals, whatever comes in whatever order', () => {
    const event = fc.oneof(
      fc.constantFrom('hello', 'opened', 'trust', 'revoked', 'drain', 'sweep', 'end', 'deliver', 'receipt', 'cancelled'),
      fc.uint8Array({ maxLength: 40 }),
    );
    fc.assert(
      fc.property(fc.array(event, { maxLength: 40 }), (events) => {
        const core = new SessionCore('node-1', terms, 0);
        const fx = new Recorder();
        const store = new MemoryStore();
        let trust = 1;
        const steps: Record<string, () => void> = {
          hello: () => core.onFrame(frameOf(helloFrame()), 0, fx),
          opened: () => core.onOpened({ epoch: 1, ackedSeq: 0, identityGeneration: 1 }, { trust: trustOf(trust), now: 0 }, fx),
          trust: () => core.onTrust(trustOf((trust += 1)), 0, fx),
          revoked: () => core.onRevoked({ serial: 'ab', reason: '', revokedAt: 0 }, fx),
          drain: () => core.onDrain({ afterMs: 0, windowMs: 1, reason: '' }, fx),
          sweep: () => core.sweep(1_000, fx),
          end: () => core.end('superseded', fx),
          deliver: () => core.deliver([store.enqueue('node-1', { id: `c${trust}` })], { now: 0, hasRoom: () => true }, fx),
          receipt: () => core.onReceipts(['c1'], fx),
          cancelled: () => core.onCancelled('c1', fx),
        };
        for (const step of events) {
          try {
            if (typeof step === 'string') steps[step]?.();
            else core.onFrame(fromBinary(AgentFrameSchema, step), 0, fx);
          } catch (error) {
            if (step instanceof Uint8Array) continue;
            assert.match(String((error as { code?: string }).code), /^(MALFORMED|FRAME_TOO_LARGE)$/);
          }
        }
        const names = fx.names().filter((name) => name.startsWith('send') || name.startsWith('end'));
        const ended = names.findIndex((name) => name.startsWith('end'));
        const first = names.find((name) => name.startsWith('send'));
        assert.ok(first === undefined || first === 'send welcome', names.join());
        assert.ok(ended === -1 || ended === names.length - 1, names.join());
      }),
    );
  });
});
