import assert from 'node:assert/strict';
import fc from 'fast-check';
import { prefixRefusal } from '../../gateway/grpc/refusals.ts';
import { decodeGrpcMessage, encodeGrpcMessage, frameMessage as frameInto, MessageReader, writePrefix } from '../../proto/index.ts';

const frameMessage = (message: Uint8Array): Buffer => frameInto(message, Buffer.allocUnsafe);

function readAll(chunks: readonly Uint8Array[], maxBytes = 1_000): { messages: Buffer[]; reader: MessageReader } {
  const reader = new MessageReader(maxBytes, prefixRefusal);
  const messages: Buffer[] = [];
  for (const chunk of chunks) reader.push(chunk, { onMessage: (message) => void messages.push(Buffer.from(message)) });
  return { messages, reader };
}

const refusedAs = (reason: string, code: string, message: RegExp) => (error: unknown) => {
  const { code: actual, details, message: text } = error as { code: string; details: { reason: string }; message: string };
  assert.deepEqual({ code: actual, reason: details.reason }, { code, reason });
  assert.match(text, message);
  return true;
};

describe('gRPC messages on a byte stream', () => {
  it('TRN-017 writes one byte of flags and four of length, big-endian', () => {
    assert.deepEqual([...frameMessage(Buffer.from([9, 8, 7]))], [0, 0, 0, 0, 3, 9, 8, 7]);
    assert.deepEqual([...frameMessage(new Uint8Array())], [0, 0, 0, 0, 0]);
    assert.deepEqual([...frameMessage(new Uint8Array(70_000)).subarray(0, 5)], [0, 0, 1, 0x11, 0x70]);
    const longest = new Uint8Array(5);
    writePrefix(longest, 0xffff_ffff);
    assert.deepEqual([...longest], [0, 255, 255, 255, 255]);
    assert.throws(() => readAll([Buffer.from(longest)]), /4294967295 bytes/);
  });

  it('reads every split of the same bytes the same way', () => {
    const whole = Buffer.concat([frameMessage(Buffer.from('alpha')), frameMessage(new Uint8Array()), frameMessage(Buffer.from('b'))]);
    for (let first = 0; first <= whole.length; first += 1) {
      for (let second = first; second <= whole.length; second += 1) {
        const { messages, reader } = readAll([whole.subarray(0, first), whole.subarray(first, second), whole.subarray(second)]);
        assert.deepEqual(messages.map(String), ['alpha', '', 'b']);
        assert.equal(reader.isInMessage, false);
      }
    }
  });

  it('reads any messages in any chunks', () => {
    fc.assert(
      fc.property(
        fc.array(fc.uint8Array({ maxLength: 300 }), { maxLength: 12 }),
        fc.array(fc.integer({ min: 1, max: 90 }), { minLength: 1 }),
        (sent, sizes) => {
          const whole = Buffer.concat(sent.map(frameMessage));
          const chunks: Buffer[] = [];
          for (let at = 0, turn = 0; at < whole.length; turn += 1) {
            const size = sizes[turn % sizes.length] as number;
            chunks.push(whole.subarray(at, at + size));
            at += size;
          }
          assert.deepEqual(
            readAll(chunks).messages,
            sent.map((bytes) => Buffer.from(bytes)),
          );
        },
      ),
    );
  });

  it('BND-001 takes a message of exactly the bound and refuses one byte more by its prefix, before a byte of it came', () => {
    assert.equal(readAll([frameMessage(new Uint8Array(1_000))]).messages[0]?.length, 1_000);
    assert.throws(
      () => readAll([Buffer.from([0, 0, 0, 3, 233])]),
      refusedAs('frame-too-large', 'FRAME_TOO_LARGE', /a frame of 1001 bytes exceeds the bound of 1000/),
    );
    const { reader } = readAll([Buffer.from([0, 0, 0])]);
    assert.throws(
      () => reader.push(Buffer.from([255, 255, 255]), { onMessage: () => undefined }),
      refusedAs('frame-too-large', 'FRAME_TOO_LARGE', /65535/),
    );
  });

  it('TRN-019 refuses the compressed flag and every other flag', () => {
    for (const flag of [1, 2, 0x80, 0xff]) {
      assert.throws(
        () => readAll([Buffer.from([flag, 0, 0, 0, 0])]),
        refusedAs('compressed', 'UNSUPPORTED', /compressed messages are not accepted/),
      );
    }
  });

  it('says when the stream stops inside a message', () => {
    assert.equal(readAll([Buffer.from([0, 0])]).reader.isInMessage, true);
    assert.equal(readAll([Buffer.from([0, 0, 0, 0, 2, 1])]).reader.isInMessage, true);
  });
});

describe('the text of grpc-message', () => {
  it('TRN-018 percent-encodes over UTF-8 and reads it back', () => {
    const special = '\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \u{1f608}\t\n';
    const encoded = encodeGrpcMessage(special);
    assert.match(encoded, /^[\x20-\x7e]*$/);
    assert.equal(encoded.slice(0, 10), '%09%0Atest');
    assert.equal(decodeGrpcMessage(encoded), special);
    assert.equal(encodeGrpcMessage('100% ~ok'), '100%25 ~ok');
    assert.equal(decodeGrpcMessage('100% %zz %4'), '100% %zz %4');
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) => decodeGrpcMessage(encodeGrpcMessage(text)) === Buffer.from(text).toString()),
    );
  });
});
