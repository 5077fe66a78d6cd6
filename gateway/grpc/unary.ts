/** One request message, one response message. The handler sees whole, bounded bytes and answers bytes: a relay stays byte-identical. */
import type { ServerHttp2Stream } from 'node:http2';
import { frameMessage, MessageReader } from '../../proto/index.ts';
import type { Scheduler } from '../scheduler.ts';
import { okTrailers } from './metadata.ts';
import { prefixRefusal, refusal, toWireRefusal } from './refusals.ts';
import { endStream, openResponse, refuseStream } from './stream.ts';

export interface UnaryCall {
  readonly maxBytes: number;
  /** For the request to arrive whole. */
  readonly requestWithinMs: number;
  readonly scheduler: Scheduler;
  readonly random: () => number;
  handle(request: Uint8Array): Promise<Uint8Array>;
  /** Told once about each refusal, with its cause; the wire never sees the cause. */
  onRefused?(error: unknown): void;
}

export async function serveUnary(stream: ServerHttp2Stream, call: UnaryCall): Promise<void> {
  try {
    const response = await call.handle(await readRequest(stream, call));
    if (stream.destroyed) return;
    openResponse(stream);
    stream.write(frameMessage(response, Buffer.allocUnsafe));
    endStream(stream, okTrailers);
  } catch (error) {
    call.onRefused?.(error);
    refuseStream(stream, toWireRefusal(error, call.random));
  }
}

function readRequest(stream: ServerHttp2Stream, { maxBytes, requestWithinMs, scheduler }: UnaryCall): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    const reader = new MessageReader(maxBytes, prefixRefusal);
    const messages: Uint8Array[] = [];
    const late = scheduler.after(requestWithinMs, () => settle(refusal('no-message', { message: 'the request did not arrive in time' })));
    const settle = (error: unknown): void => {
      late();
      stream.removeAllListeners('data');
      if (error === null) resolve(messages[0] as Uint8Array);
      else reject(error);
    };
    const sink = {
      onMessage: (message: Uint8Array): void => {
        if (messages.push(message) > 1) throw refusal('more-than-one-message');
      },
    };
    stream.on('data', (chunk: Buffer) => {
      try {
        reader.push(chunk, sink);
      } catch (error) {
        settle(error);
      }
    });
    stream.once('end', () => settle(messages.length === 1 && !reader.isInMessage ? null : refusal('no-message')));
    stream.once('close', () => settle(refusal('no-message', { message: 'the call was given up' })));
    // The call waited for its turn, and its end came before.
    if (stream.readableEnded) settle(refusal('no-message'));
  });
}
