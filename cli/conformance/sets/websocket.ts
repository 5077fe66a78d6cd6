/** The WebSocket codec as an endpoint that echoes: ws-frames. A case's octets go in as a client's; what comes back is the value. */
import { ControlError } from '../../../domain/errors.ts';
import {
  bounds,
  closePayload,
  encodeWebSocketFrame,
  type WebSocketEnd,
  WebSocketLink,
  webSocketCloseCodes,
  webSocketOpcodes,
} from '../../../proto/index.ts';
import { type Case, toHex } from '../case.ts';

const malformed = (message: string): ControlError<'MALFORMED'> =>
  new ControlError('MALFORMED', `the case's steps ${message}`, { details: { reason: 'case', field: 'steps' } });

const mask = Uint8Array.of(0x37, 0xfa, 0x21, 0x3d);
const longestPayload = 2 * bounds.webSocketMessage;

type Step = Readonly<Record<string, unknown>>;

const hexOf = (text: unknown): Buffer => {
  if (typeof text === 'string' && /^(?:[0-9a-fA-F]{2})*$/.test(text)) return Buffer.from(text, 'hex');
  throw malformed('have hex that is none');
};

const numberOf = (value: unknown, most: number): number => {
  if (Number.isInteger(value) && (value as number) >= 0 && (value as number) <= most) return value as number;
  throw malformed('have a number out of range');
};

const payloadOf = (step: Step): Buffer =>
  step['fill'] === undefined ? hexOf(step['hex'] ?? '') : Buffer.alloc(numberOf(step['len'], longestPayload), hexOf(step['fill']));

/** The frame as it is meant, with whatever is wrong about it. */
const frameOf = (step: Step, payload: Uint8Array): Buffer => {
  const bytes = Buffer.from(encodeWebSocketFrame(numberOf(step['op'], 15), payload, mask));
  bytes[0] = (step['fin'] === false ? 0 : 0x80) | (numberOf(step['rsv'] ?? 0, 7) << 4) | ((bytes[0] as number) & 0x0f);
  return bytes;
};

/** What a step sends. Waits and the end of a case are nothing here: the endpoint answers as it reads. */
const octetsOf = (step: Step): readonly Uint8Array[] => {
  if (step['close'] === true) {
    const reason = hexOf(step['reasonHex'] ?? '').toString('utf8');
    return [encodeWebSocketFrame(webSocketOpcodes.close, closePayload(numberOf(step['code'] ?? 1000, 65_535), reason), mask)];
  }
  if (step['op'] === undefined) return [];
  const frame = frameOf(step, payloadOf(step));
  const size = step['chopsize'] === undefined ? frame.length : Math.max(1, numberOf(step['chopsize'], frame.length));
  return Array.from({ length: Math.ceil(frame.length / size) }, (_, at) => frame.subarray(at * size, (at + 1) * size));
};

/** A frame whose payload comes in steps of its own, as one frame that comes octet by octet. */
const joined = (steps: readonly Step[]): readonly Step[] =>
  steps.map((step) => {
    if (step['frameHeader'] !== true) return step;
    const pieces = steps.filter(({ frameData }) => frameData !== undefined).map(({ frameData }) => hexOf(frameData));
    return { op: step['op'], fin: step['fin'], rsv: step['rsv'], hex: Buffer.concat(pieces).toString('hex'), chopsize: 1 };
  });

/** Messages and pongs in order, as the endpoint wrote them, and its close code. @throws MALFORMED or FRAME_TOO_LARGE with the code it closed with */
export const judgeWebSocket = (read: Case): unknown => {
  const steps = read['steps'];
  if (!Array.isArray(steps) || steps.length > 10_000) throw malformed('are no list of at most 10,000');
  const events: unknown[] = [];
  let end: WebSocketEnd | null = null;
  const link = new WebSocketLink({
    as: 'server',
    takesText: true,
    maxMessageBytes: bounds.webSocketMessage,
    write: (bytes) => void (bytes[0] === 0x8a && events.push(['pong', { hex: toHex(bytes.subarray(2)) }])),
    onMessage: (payload, isText) => void events.push(['message', { hex: toHex(payload) }, !isText]),
    onPong: () => undefined,
    onEnd: (how) => {
      end = how;
    },
  });
  for (const step of joined(steps.map((one: Step | null) => one ?? {}))) for (const octets of octetsOf(step)) link.push(octets);
  const { fault = null, code = null } = (end as WebSocketEnd | null) ?? {};
  if (fault === null) return { events, closeCode: code ?? webSocketCloseCodes.normal };
  throw new ControlError(fault.closeCode === webSocketCloseCodes.tooBig ? 'FRAME_TOO_LARGE' : 'MALFORMED', fault.message, {
    details: { reason: `close-${fault.closeCode}`, events },
  });
};
