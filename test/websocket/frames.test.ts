/** The codec: published cases, and what no case list covers. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { answerLine } from '../../cli/conformance/answer.ts';
import { getSet } from '../../cli/conformance/sets/table.ts';
import {
  closePayload,
  encodeCloseReason,
  encodeWebSocketFrame,
  isCloseCode,
  parseCloseReason,
  WebSocketFault,
  WebSocketLink,
  WebSocketReader,
  webSocketOpcodes,
} from '../../proto/index.ts';
import { projectRoot } from '../harness/imports.ts';

const unexpected = (): void => assert.fail('this was not to come');
const mask = Uint8Array.of(1, 2, 3, 4);
const masked = (opcode: number, payload: Uint8Array): Buffer => Buffer.from(encodeWebSocketFrame(opcode, payload, mask));
const maxMessageBytes = 1_000;

interface Heard {
  readonly messages: string[];
  readonly pings: string[];
  readonly pongs: number[];
  close: number | null | undefined;
}

function read(chunks: Iterable<Uint8Array>, options: Partial<ConstructorParameters<typeof WebSocketReader>[0]> = {}): Heard {
  const heard: Heard = { messages: [], pings: [], pongs: [], close: undefined };
  const reader = new WebSocketReader({ from: 'client', maxMessageBytes, takesText: false, ...options });
  for (const chunk of chunks)
    reader.push(chunk, {
      onMessage: (payload) => void heard.messages.push(Buffer.from(payload).toString('hex')),
      onPing: (payload) => void heard.pings.push(Buffer.from(payload).toString('hex')),
      onPong: () => void heard.pongs.push(1),
      onClose: (code) => {
        heard.close = code;
      },
    });
  return heard;
}

const faultOf = (work: () => unknown): number | null => {
  try {
    work();
    return null;
  } catch (error) {
    assert.ok(error instanceof WebSocketFault, String(error));
    return error.closeCode;
  }
};

/** FIN and opcode, then MASK and length as they are given. */
const raw = (first: number, second: number, ...rest: number[]): Buffer => Buffer.from([first, second, ...rest]);

describe('WebSocket frames', () => {
  it('WS-020 every message comes out whole, whatever its size and however the bytes are cut', () => {
    const message = fc.uint8Array({ maxLength: 400 });
    fc.assert(
      fc.property(fc.array(message, { maxLength: 6 }), fc.integer({ min: 1, max: 60 }), fc.boolean(), (messages, size, isClient) => {
        const from = isClient ? 'client' : 'server';
        const bytes = Buffer.concat(
          messages.map((one) => Buffer.from(encodeWebSocketFrame(webSocketOpcodes.binary, one, isClient ? mask : null))),
        );
        const chunks = Array.from({ length: Math.ceil(bytes.length / size) }, (_, at) => bytes.subarray(at * size, (at + 1) * size));
        assert.deepEqual(
          read(chunks, { from }).messages,
          messages.map((one) => Buffer.from(one).toString('hex')),
        );
      }),
    );
  });

  it('never throws anything but a fault with a code that may be sent, whatever comes', () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ maxLength: 40 }), { maxLength: 10 }), fc.boolean(), (chunks, takesText) => {
        const code = faultOf(() => read(chunks, { takesText }));
        assert.ok(code === null || isCloseCode(code));
      }),
      { numRuns: 2_000 },
    );
  });

  const refused: readonly (readonly [string, Uint8Array, number])[] = [
    ['B63 an unmasked frame of a client', raw(0x82, 0x01, 0x00), 1002],
    ['B61 RSV1, which permessage-deflate would use', raw(0xc2, 0x80, 1, 2, 3, 4), 1002],
    ['RSV2', raw(0xa2, 0x80, 1, 2, 3, 4), 1002],
    ['an opcode that is none', raw(0x83, 0x80, 1, 2, 3, 4), 1002],
    ['B63 a control frame of 126 bytes', raw(0x89, 0xfe, 0, 126), 1002],
    ['a control frame in pieces', raw(0x09, 0x80, 1, 2, 3, 4), 1002],
    ['B63 text', raw(0x81, 0x80, 1, 2, 3, 4), 1003],
    ['a continuation of nothing', raw(0x80, 0x80, 1, 2, 3, 4), 1002],
    ['a message within a message', Buffer.concat([raw(0x02, 0x80, 1, 2, 3, 4), raw(0x82, 0x80, 1, 2, 3, 4)]), 1002],
    ['a length with its top bit', raw(0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4), 1002],
    ['a length in a longer form than it needs', raw(0x82, 0xfe, 0, 5, 1, 2, 3, 4), 1002],
    ['a length in the longest form that it does not need', raw(0x82, 0xff, 0, 0, 0, 0, 0, 0, 1, 0, 1, 2, 3, 4), 1002],
    ['a close of one byte', masked(8, Uint8Array.of(3)), 1002],
    ['B63 a close with 1005', masked(8, Uint8Array.of(0x03, 0xed)), 1002],
    ['B63 a close with 1006', masked(8, Uint8Array.of(0x03, 0xee)), 1002],
    ['a close whose reason is not UTF-8', masked(8, Uint8Array.of(0x03, 0xe8, 0xff)), 1007],
    ['a message above the bound, by its header alone', raw(0x82, 0xfe, 0x03, 0xe9, 1, 2, 3, 4), 1009],
  ];
  for (const [what, bytes, code] of refused)
    it(`refuses ${what} with ${code}`, () => {
      assert.equal(
        faultOf(() => read([bytes])),
        code,
      );
    });

  it('B63 counts the bound across fragments, and takes a ping between them', () => {
    const piece = (first: number, bytes: number): Buffer => {
      const frame = masked(webSocketOpcodes.binary, new Uint8Array(bytes));
      frame[0] = first;
      return frame;
    };
    const heard = read([piece(0x02, 600), masked(9, Buffer.from('p')), piece(0x80, 400)]);
    assert.deepEqual([heard.messages.map((one) => one.length / 2), heard.pings], [[1_000], ['70']]);
    assert.equal(
      faultOf(() => read([piece(0x02, 600), piece(0x00, 400), piece(0x80, 1)])),
      1009,
    );
    assert.equal(read([masked(10, Buffer.from('unasked'))]).pongs.length, 1);
  });

  it('ends a message of fragments without end', () => {
    const empty = masked(webSocketOpcodes.continuation, new Uint8Array());
    empty[0] = 0x00;
    const begin = masked(webSocketOpcodes.binary, new Uint8Array());
    begin[0] = 0x02;
    assert.equal(
      faultOf(() => read([begin, ...Array.from({ length: 20_000 }, () => empty)])),
      1008,
    );
  });

  it('a message of single bytes costs what its bytes cost', () => {
    const size = 4 * 2 ** 20;
    const reader = new WebSocketReader({ from: 'server', maxMessageBytes: size, takesText: false });
    let whole = 0;
    const sink = {
      onMessage: (payload: Uint8Array) => void (whole = payload.length),
      onPing: unexpected,
      onPong: unexpected,
      onClose: unexpected,
    };
    const bytes = encodeWebSocketFrame(webSocketOpcodes.binary, new Uint8Array(size), null);
    const before = process.memoryUsage();
    for (let at = 0; at < bytes.length - 1; at += 1) reader.push(bytes.subarray(at, at + 1), sink);
    const { arrayBuffers } = process.memoryUsage();
    assert.ok(arrayBuffers - before.arrayBuffers < 4 * size, `${arrayBuffers - before.arrayBuffers} bytes are held`);
    reader.push(bytes.subarray(-1), sink);
    assert.equal(whole, size);
  });

  it('WS-021 answers a ping with its payload, echoes a close once, and says nothing after it', () => {
    const written: Buffer[] = [];
    const ends: unknown[] = [];
    const link = new WebSocketLink({
      as: 'server',
      maxMessageBytes,
      takesText: false,
      write: (bytes) => void written.push(Buffer.from(bytes)),
      onMessage: unexpected,
      onPong: unexpected,
      onEnd: (end) => void ends.push(end),
    });
    link.push(masked(9, Buffer.from('beat')));
    link.push(Buffer.concat([masked(8, closePayload(1001, 'gone')), masked(9, Buffer.from('late'))]));
    link.close(1000);
    assert.equal(link.send(Buffer.from('late')), 0);
    assert.deepEqual(
      written.map((bytes) => bytes.toString('hex')),
      [
        Buffer.from(encodeWebSocketFrame(10, Buffer.from('beat'), null)).toString('hex'),
        Buffer.from(encodeWebSocketFrame(8, closePayload(1001), null)).toString('hex'),
      ],
    );
    assert.deepEqual(ends, [{ code: 1001, reason: 'gone', fault: null }]);
  });

  it('a client masks each frame anew', () => {
    const written: string[] = [];
    const link = new WebSocketLink({
      as: 'client',
      maxMessageBytes,
      takesText: false,
      write: (bytes) => void written.push(Buffer.from(bytes).toString('hex')),
      onMessage: unexpected,
      onPong: unexpected,
      onEnd: unexpected,
    });
    for (let i = 0; i < 20; i += 1) link.send(Buffer.alloc(16));
    assert.equal(new Set(written).size, 20);
    assert.deepEqual(
      read(written.map((hex) => Buffer.from(hex, 'hex'))).messages,
      Array.from({ length: 20 }, () => '00'.repeat(16)),
    );
  });

  it('a reason is cut to what a close frame holds, between two characters, and reads back', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 200 }), (message) => {
        const payload = closePayload(4007, message);
        assert.ok(payload.length <= 125);
        const heard = read([masked(8, payload)]);
        assert.equal(heard.close, 4007);
      }),
    );
    const reason = { reason: 'renew-rate-limit', pushbackMs: 1_200, message: 'too often' };
    assert.deepEqual(parseCloseReason(encodeCloseReason(reason)), reason);
    assert.deepEqual(parseCloseReason(encodeCloseReason({ ...reason, pushbackMs: null })), { ...reason, pushbackMs: null });
    for (const other of ['', 'Draining 5', 'draining five words', '1 2 3']) assert.equal(parseCloseReason(other), null);
  });

  const cases = join(projectRoot, '..', 'shared', 'vectors', 'cases.mjs');
  interface Case {
    readonly id: string;
    readonly description: string;
    readonly expected: Readonly<Record<string, readonly (readonly [string, { hex?: string; len?: number; fill?: string }, boolean?])[]>>;
    readonly expectedClose: { readonly closeCode: readonly number[] };
    readonly informational: boolean;
  }
  const lines = existsSync(cases)
    ? execFileSync(process.execPath, [cases, 'ws-frames'], { encoding: 'utf8', maxBuffer: 2 ** 28, stdio: ['ignore', 'pipe', 'ignore'] })
        .split('\n')
        .filter((line) => line !== '')
    : [];
  (lines.length > 0 ? it : it.skip)('Autobahn: every case of the set ws-frames, or skipped where the conformance data is absent', () => {
    assert.ok(lines.length >= 150);
    for (const line of lines) {
      const { id, expected, expectedClose, informational } = JSON.parse(line) as Case;
      const answer = answerLine(Buffer.from(line), getSet('ws-frames'), 0);
      const { events, closeCode } = (answer.value ?? {}) as { events?: unknown; closeCode?: number };
      assert.ok(
        expectedClose.closeCode.includes(closeCode ?? Number(answer.reason?.slice('close-'.length))),
        `${id}: closed with ${closeCode ?? answer.reason}`,
      );
      if (events === undefined || informational) continue;
      const wanted = Object.values(expected).map((list) =>
        list
          .filter(([kind]) => kind !== 'timeout')
          .map(([kind, { hex, len = 0, fill = '' }, ...isBinary]) => [kind, { hex: hex ?? fill.repeat(len) }, ...isBinary]),
      );
      assert.ok(
        wanted.some((one) => JSON.stringify(one) === JSON.stringify(events)),
        `${id}: ${JSON.stringify(events).slice(0, 200)}`,
      );
    }
  });
});
