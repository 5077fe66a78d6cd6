import assert from 'node:assert/strict';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import fc from 'fast-check';
import {
  AgentFrameSchema,
  type Bound,
  bounds,
  CommandBodySchema,
  decodeMessage,
  driver,
  encodeMessage,
  HelloSchema,
  isProtocolRange,
  negotiateProtocolVersion,
  PROTOCOL_VERSION,
  ProtocolError,
  type Purpose,
  purposes,
  StatusReportSchema,
  signingInput,
  TrustBundleSchema,
  u64be,
} from '../../proto/index.ts';

const isProtocolError = (code: string) => (error: unknown) => error instanceof ProtocolError && error.code === code;

describe('bounds', () => {
  it('BND-003 each bound holds to the byte, before the parser runs', () => {
    for (const name of Object.keys(bounds) as Bound[]) {
      if (name === 'certificateChainLength') continue;
      const size = bounds[name];
      // Zeros are no field tag: with the size right, the parser is what refuses.
      const body = new Uint8Array(size + 1);
      assert.throws(() => decodeMessage(HelloSchema, body, name), isProtocolError('FRAME_TOO_LARGE'), name);
      assert.throws(() => decodeMessage(HelloSchema, body.subarray(0, size), name), isProtocolError('INVALID_FRAME'), name);
    }
  });

  it('BND-004 garbage is INVALID_FRAME and nothing else', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        try {
          decodeMessage(AgentFrameSchema, bytes, 'agentFrame');
        } catch (error) {
          assert.ok(isProtocolError('INVALID_FRAME')(error), String(error));
        }
      }),
    );
  });

  it('BND-004 what is too large is not sent either', () => {
    const daemonVersion = 'x'.repeat(bounds.hello);
    assert.throws(() => encodeMessage(HelloSchema, { daemonVersion }, 'hello'), isProtocolError('FRAME_TOO_LARGE'));
  });

  it("BND-005 FRM-005 SKEW-037 a newer peer's field survives decoding and encoding, and its frame case reads as none", () => {
    const unknown = Uint8Array.from([0xfa, 0x3e, 0x03, 1, 2, 3]); // field 1007, three bytes
    const frame = decodeMessage(AgentFrameSchema, unknown, 'agentFrame');
    assert.equal(frame.frame.case, undefined);
    assert.deepEqual(toBinary(AgentFrameSchema, frame), unknown);
  });
});

describe('numbers that are fixed', () => {
  it('QUO-040 FRM-006 FRM-007 five field numbers never move', () => {
    const number = (fields: readonly { name: string; number: number }[], name: string): number | undefined =>
      fields.find((field) => field.name === name)?.number;
    assert.equal(number(TrustBundleSchema.fields, 'approver_set_epoch'), 8);
    assert.equal(number(HelloSchema.fields, 'approver_set_epoch'), 18);
    assert.equal(number(HelloSchema.fields, 'approver_set_sha256'), 19);
    assert.equal(number(StatusReportSchema.fields, 'approver_set_epoch'), 10);
    assert.equal(number(StatusReportSchema.fields, 'approver_set_sha256'), 11);
  });

  it('KIND-008 TRN-035 the bytes of a call of a plugin, which leaves are bound to, never change', () => {
    const call = { plugin: 'psu', manifestSha256: 'ab', method: 'read', input: Buffer.from([0, 255]), harmless: true, runId: 'r1' };
    const bytes = toBinary(driver.DriverInvokeSchema, create(driver.DriverInvokeSchema, call));
    assert.equal(Buffer.from(bytes).toString('hex'), '0a03707375120261621a0472656164220200ff280132027231');
    const answer = toBinary(driver.DriverInvokeResultSchema, create(driver.DriverInvokeResultSchema, { output: Buffer.from('ok') }));
    assert.equal(Buffer.from(answer).toString('hex'), '0a026f6b');
  });

  it('QUO-031 CommandBody carries the batch inside the signed bytes', () => {
    const body = create(CommandBodySchema, { batchId: 'b1' });
    assert.equal(fromBinary(CommandBodySchema, toBinary(CommandBodySchema, body)).batchId, 'b1');
  });
});

describe('signing input', () => {
  const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

  it('ENV-005 ENV-006 is the prefix, the purpose, a zero byte and length-prefixed parts', () => {
    const expected = `${Buffer.from('bettercompute.v1/trust-bundle\0').toString('hex')}00000003616263`;
    assert.equal(hex(signingInput('trust-bundle', ['abc'])), expected);
    assert.equal(hex(signingInput('trust-bundle', [''])), `${Buffer.from('bettercompute.v1/trust-bundle\0').toString('hex')}00000000`);
  });

  it('ENV-006 lengths count bytes, not UTF-16 units', () => {
    assert.ok(hex(signingInput('trust-bundle', ['é'])).endsWith('00000002c3a9'));
  });

  it('ENV-009 no two purposes and no two lists of parts share an input', () => {
    const purpose = fc.constantFrom(...(Object.keys(purposes) as Purpose[]));
    const input = purpose.chain((name) =>
      fc.tuple(
        fc.constant(name),
        fc.array(fc.uint8Array({ maxLength: 9 }), { minLength: purposes[name].length, maxLength: purposes[name].length }),
      ),
    );
    fc.assert(
      fc.property(input, input, (left, right) => {
        const same = left[0] === right[0] && left[1].every((part, i) => hex(part) === hex(right[1][i] ?? new Uint8Array()));
        assert.equal(hex(signingInput(...left)) === hex(signingInput(...right)), same);
      }),
    );
  });

  it('ENV-008 refuses another number of parts than the registry has', () => {
    assert.throws(() => signingInput('renew', ['a', 'b']), /purpose renew takes 3 part\(s\), got 2/);
  });

  it('u64be covers exactly the unsigned 64-bit range', () => {
    assert.equal(hex(u64be(2n ** 64n - 1n)), 'ffffffffffffffff');
    assert.equal(hex(u64be(2 ** 53)), '0020000000000000');
    assert.throws(() => u64be(2n ** 64n), RangeError);
    assert.throws(() => u64be(-1), RangeError);
  });
});

describe('version negotiation', () => {
  it('SKEW-002 SKEW-011 picks the highest version inside both ranges', () => {
    assert.deepEqual(PROTOCOL_VERSION, { min: 1, max: 1 });
    assert.deepEqual(negotiateProtocolVersion({ min: 1, max: 3 }, { min: 1, max: 1 }), { kind: 'agreed', version: 1 });
    assert.deepEqual(negotiateProtocolVersion({ min: 1, max: 3 }, { min: 1, max: 2 }), { kind: 'agreed', version: 2 });
    assert.deepEqual(negotiateProtocolVersion({ min: 2, max: 3 }, { min: 3, max: 9 }), { kind: 'agreed', version: 3 });
  });

  it('SKEW-013 SKEW-020 a daemon below the range is asked to upgrade, at our minimum', () => {
    assert.deepEqual(negotiateProtocolVersion({ min: 2, max: 3 }, { min: 1, max: 1 }), { kind: 'upgrade-required', version: 2 });
  });

  it('A-PRO-04 a daemon above the range is refused', () => {
    assert.deepEqual(negotiateProtocolVersion({ min: 1, max: 1 }, { min: 2, max: 2 }), { kind: 'gateway-too-old' });
  });

  it('SKEW-021 a range is whole numbers from 1 upwards', () => {
    assert.equal(isProtocolRange({ min: 1, max: 1 }), true);
    for (const range of [
      { min: 0, max: 1 },
      { min: 2, max: 1 },
      { min: 1.5, max: 2 },
      { min: 1, max: Number.NaN },
    ]) {
      assert.equal(isProtocolRange(range), false, JSON.stringify(range));
    }
  });
});
