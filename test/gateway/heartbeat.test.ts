import assert from 'node:assert/strict';
import { fromBinary } from '@bufbuild/protobuf';
import fc from 'fast-check';
import { answerHeartbeat } from '../../gateway/session/heartbeat.ts';
import { AgentFrameSchema, encodeMessage, ServerFrameSchema } from '../../proto/index.ts';
import { helloFrame } from '../harness/agent.ts';

describe('heartbeats without the codec', () => {
  const general = (message: Uint8Array, now: number): Buffer => {
    const { frame } = fromBinary(AgentFrameSchema, message);
    assert.ok(frame.case === 'heartbeat');
    return Buffer.from(
      encodeMessage(
        ServerFrameSchema,
        { frame: { case: 'heartbeatAck', value: { sequence: frame.value.sequence, serverTimeMs: BigInt(now) } } },
        'serverFrame',
      ),
    );
  };

  it('answers as the codec does', () => {
    fc.assert(
      fc.property(
        fc.bigInt({ min: 1n, max: 2n ** 64n - 1n }),
        fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
        fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER }),
        (sequence, timeMs, now) => {
          const message = encodeMessage(AgentFrameSchema, { frame: { case: 'heartbeat', value: { sequence, timeMs } } }, 'agentFrame');
          const answer = answerHeartbeat(message, now);
          assert.ok(answer !== null);
          assert.equal(answer.readUInt32BE(1), answer.length - 5);
          assert.deepEqual(answer.subarray(5), general(message, now));
        },
      ),
    );
  });

  it('leaves everything else to the codec: other frames, unknown fields, torn ones', () => {
    const plain = encodeMessage(AgentFrameSchema, { frame: { case: 'heartbeat', value: { sequence: 300n, timeMs: 7n } } }, 'agentFrame');
    for (let cut = 0; cut < plain.length; cut += 1) assert.equal(answerHeartbeat(plain.subarray(0, cut), 1), null);
    assert.equal(answerHeartbeat(encodeMessage(AgentFrameSchema, helloFrame(), 'agentFrame'), 1), null);
    assert.equal(answerHeartbeat(Buffer.from([0x3a, 0x04, 0x08, 0x01, 0x18, 0x01]), 1), null);
    assert.equal(answerHeartbeat(Buffer.from([0x3a, 0x0b, 0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]), 1), null);
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 30 }), (bytes) => {
        const answer = answerHeartbeat(bytes, 5);
        if (answer !== null) assert.deepEqual(answer.subarray(5), general(bytes, 5));
      }),
    );
  });
});
