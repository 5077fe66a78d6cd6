/**
 * The one frame that comes all day from every node, read and answered without the general codec: a Heartbeat is recognised by
 * its bytes and its ack written beside them (measured: half of the CPU time of an idle fleet was building and walking message
 * objects for these two). Anything that is not exactly the plain encoding goes the general way; a property test holds both ways
 * to the same answers.
 *
 *   AgentFrame.heartbeat = 7    { sequence = 1 varint, time_ms = 2 varint }
 *   ServerFrame.heartbeat_ack = 5 { sequence = 1 varint, server_time_ms = 2 varint }
 */
import { prefixBytes, writePrefix } from '../../proto/index.ts';

const heartbeatTag = (7 << 3) | 2;
const ackTag = (5 << 3) | 2;
const sequenceTag = 1 << 3;
const timeTag = 2 << 3;

/** A varint of 64 bits has at most ten bytes, the last of them 0 or 1. */
const longestVarint = 10;

/** Where the varint at `at` ends; -1 when it is none. */
function varintEnd(bytes: Uint8Array, at: number): number {
  for (let end = at; end < bytes.length && end - at < longestVarint; end += 1) {
    if ((bytes[end] as number) < 0x80) return end - at === longestVarint - 1 && (bytes[end] as number) > 1 ? -1 : end + 1;
  }
  return -1;
}

/**
 * The framed ack of a heartbeat.
 *
 * @returns null when the message is no heartbeat in its plain encoding: decode it
 */
export function answerHeartbeat(message: Uint8Array, now: number): Buffer | null {
  if (message[0] !== heartbeatTag || message[1] !== message.length - 2 || message[2] !== sequenceTag) return null;
  const sequenceEnd = varintEnd(message, 3);
  if (sequenceEnd === -1) return null;
  if (sequenceEnd !== message.length && (message[sequenceEnd] !== timeTag || varintEnd(message, sequenceEnd + 1) !== message.length))
    return null;
  return writeAck(message, sequenceEnd, now);
}

/** The sequence is copied as it came, bytes 2 to `sequenceEnd`. */
function writeAck(message: Uint8Array, sequenceEnd: number, now: number): Buffer {
  const sequenceBytes = sequenceEnd - 2;
  const length = sequenceBytes + 1 + varintBytes(now);
  const framed = Buffer.allocUnsafe(prefixBytes + 2 + length);
  writePrefix(framed, 2 + length);
  framed[prefixBytes] = ackTag;
  framed[prefixBytes + 1] = length;
  let at = prefixBytes + 2;
  for (let from = 2; from < sequenceEnd; from += 1) framed[at++] = message[from] as number;
  framed[at++] = timeTag;
  let rest = now;
  while (rest >= 0x80) {
    framed[at++] = (rest % 0x80) | 0x80;
    rest = Math.floor(rest / 0x80);
  }
  framed[at] = rest;
  return framed;
}

function varintBytes(value: number): number {
  let bytes = 1;
  for (let rest = value; rest >= 0x80; rest = Math.floor(rest / 0x80)) bytes += 1;
  return bytes;
}
