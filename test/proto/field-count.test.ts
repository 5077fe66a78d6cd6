/** Bytes bound neither time nor memory: the number of fields does. */
import assert from 'node:assert/strict';
import { holdsTooManyFields, maxMessageFields } from '../../proto/field-count.ts';
import { DesiredStateBodySchema, decodeMessage, encodeMessage, ProtocolError, TrustBundleSchema } from '../../proto/index.ts';

const times = (count: number, ...field: number[]): Uint8Array => Buffer.alloc(count * field.length, Buffer.from(field));
const refused = (error: unknown): boolean => {
  assert.ok(error instanceof ProtocolError);
  assert.deepEqual([error.code, error.message], ['INVALID_FRAME', `TrustBundle holds more than ${maxMessageFields} fields`]);
  return true;
};

describe('the number of fields of a message', () => {
  const unknown = [0xf8, 0x01, 0x01];
  /** approver_keys: a message of its own, empty. */
  const empty = [0x1a, 0x00];

  it('BND-004 as many as allowed are read, one more is refused', () => {
    assert.equal(decodeMessage(TrustBundleSchema, times(maxMessageFields, ...unknown), 'trustBundle').version, 0n);
    assert.throws(() => decodeMessage(TrustBundleSchema, times(maxMessageFields + 1, ...unknown), 'trustBundle'), refused);
    assert.equal(decodeMessage(TrustBundleSchema, times(maxMessageFields, ...empty), 'trustBundle').approverKeys.length, maxMessageFields);
    assert.throws(() => decodeMessage(TrustBundleSchema, times(maxMessageFields + 1, ...empty), 'trustBundle'), refused);
  });

  it('BND-004 fields of the messages inside count', () => {
    const inner = times(2_000, ...unknown);
    const outer = Buffer.concat(Array.from({ length: 9 }, () => Buffer.concat([Buffer.from([0x1a, 0xf0, 0x2e]), inner])));
    assert.equal(inner.length, 0x2e * 128 + 0x70);
    assert.throws(() => decodeMessage(TrustBundleSchema, outer, 'trustBundle'), refused);
    const allowed = outer.subarray(0, 8 * (inner.length + 3));
    assert.equal(decodeMessage(TrustBundleSchema, allowed, 'trustBundle').approverKeys.length, 8);
  });

  it('BND-004 the bytes of a long value do not count', () => {
    const spec = encodeMessage(TrustBundleSchema, { commandRoots: [Buffer.alloc(200_000, Buffer.from(unknown))] }, 'trustBundle');
    assert.equal(decodeMessage(TrustBundleSchema, spec, 'trustBundle').commandRoots[0]?.length, 200_000);
    assert.equal(holdsTooManyFields(DesiredStateBodySchema, spec), false);
  });

  it('BND-004 bytes that are no message are left to the decoder', () => {
    const broken = Buffer.concat([Buffer.from([0x12, 0xff, 0xff, 0xff, 0x7f]), new Uint8Array(100_000)]);
    assert.throws(() => decodeMessage(TrustBundleSchema, broken, 'trustBundle'), /does not decode/);
  });
});
