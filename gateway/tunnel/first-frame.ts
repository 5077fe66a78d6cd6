/** The first frame of a stream, and the rest left unread on it: after it a gateway splices bytes and looks at none. */
import type { ServerHttp2Stream } from 'node:http2';
import { decodeMessage, prefixBytes, type TunnelFrame, TunnelFrameSchema } from '../../proto/index.ts';
import { prefixRefusal, refusal } from '../grpc/refusals.ts';
import type { Scheduler } from '../scheduler.ts';

/** A ticket, or an id: far less than this. */
const longestFirstFrame = 8 * 1024;

/** @throws no-message, compressed, frame-too-large, undecodable-frame */
export async function readFirstFrame(
  stream: ServerHttp2Stream,
  { withinMs, scheduler }: { readonly withinMs: number; readonly scheduler: Scheduler },
): Promise<TunnelFrame['frame']> {
  let kept = Buffer.alloc(0);
  for (;;) {
    const length = lengthOf(kept);
    if (length !== null && kept.length >= prefixBytes + length) {
      const message = kept.subarray(prefixBytes, prefixBytes + length);
      const rest = kept.subarray(prefixBytes + length);
      if (rest.length > 0) stream.unshift(rest);
      return decode(message);
    }
    kept = Buffer.concat([kept, await nextChunk(stream, { withinMs, scheduler })]);
  }
}

/** null while the prefix is not whole. */
function lengthOf(bytes: Buffer): number | null {
  if (bytes.length < prefixBytes) return null;
  if (bytes[0] !== 0) throw prefixRefusal({ reason: 'compressed' });
  const length = bytes.readUInt32BE(1);
  if (length > longestFirstFrame) throw prefixRefusal({ reason: 'frame-too-large', length, maxBytes: longestFirstFrame });
  return length;
}

function decode(message: Uint8Array): TunnelFrame['frame'] {
  try {
    return decodeMessage(TunnelFrameSchema, message, 'tunnelFrame').frame;
  } catch (cause) {
    throw refusal('undecodable-frame', { cause });
  }
}

/** Read by hand, so that nothing flows while nobody looks. */
function nextChunk(
  stream: ServerHttp2Stream,
  { withinMs, scheduler }: { readonly withinMs: number; readonly scheduler: Scheduler },
): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const settle = (chunk: Buffer | null): void => {
      late();
      stream.off('readable', look).off('end', gone).off('close', gone);
      if (chunk === null) reject(refusal('no-message'));
      else resolve(chunk);
    };
    const look = (): void => {
      const chunk = stream.read() as Buffer | null;
      if (chunk !== null) settle(chunk);
    };
    const gone = (): void => settle(null);
    const late = scheduler.after(withinMs, gone);
    stream.on('readable', look).once('end', gone).once('close', gone);
    if (stream.destroyed || stream.readableEnded) gone();
    else look();
  });
}
