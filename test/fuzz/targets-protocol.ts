/** What crosses the wire between gateway and machines: messages, frames, signed answers and tokens. */
import { type KeyObject, sign } from 'node:crypto';
import { create, toBinary } from '@bufbuild/protobuf';
import { ControlError } from '../../domain/errors.ts';
import { openJoinToken, sealJoinToken, verifyJoinResponse } from '../../pki/enroll/index.ts';
import { signCommand, verifyEnvelope, verifyIntent } from '../../pki/envelope/index.ts';
import { readGatewayProof, readNodeProof } from '../../pki/handshake/index.ts';
import { signTrustBundle, trustBundleOf, verifySignedTrustBundle } from '../../pki/trust/index.ts';
import { kidOf } from '../../pki/x509/index.ts';
import {
  AgentFrameSchema,
  bounds,
  CommandBodySchema,
  closePayload,
  DesiredStateBodySchema,
  decodeGrpcMessage,
  decodeMessage,
  encodeMessage,
  encodeWebSocketFrame,
  JoinRequestSchema,
  JoinResponseBodySchema,
  JoinResponseSchema,
  MessageReader,
  parseCloseReason,
  RenewRequestSchema,
  ServerFrameSchema,
  type Signature,
  SignatureSchema,
  SignedTrustBundleSchema,
  signingInput,
  WebSocketFault,
  WebSocketGatewayProofSchema,
  WebSocketNodeProofSchema,
  WebSocketReader,
  webSocketOpcodes,
} from '../../proto/index.ts';
import type { Target } from './engine.ts';
import { mutateDer } from './mutate-der.ts';
import { mutateFrames, mutateProtobuf } from './mutate-fields.ts';
import { mutateBase64 } from './mutate-text.ts';
import { bytesOf, mutatorsOf, now, textOf, trustDomain, type World } from './world.ts';

const nonce = new Uint8Array(32).fill(7);
const rawSign = (key: KeyObject, input: Uint8Array): Uint8Array => sign('sha256', input, { key, dsaEncoding: 'ieee-p1363' });

export async function protocolTargets({ bundle, worker, leaf }: World): Promise<Target[]> {
  const roots = [bundle.commandSigning?.certificate.der ?? leaf];
  const body = encodeMessage(CommandBodySchema, { commandId: 'c-1', nodeId: 'node-1' }, 'commandBody');
  const signature = toBinary(SignatureSchema, await signCommand(worker, body));
  const signedTrust = await signTrustBundle(bundle.joinSigning.signer(), trustBundleOf(bundle, 3));
  const joinKey = bundle.joinSigning.spki;
  const agentFrames = [
    encodeMessage(AgentFrameSchema, { frame: { case: 'heartbeat', value: { sequence: 1n } } }, 'agentFrame'),
    encodeMessage(
      AgentFrameSchema,
      { frame: { case: 'hello', value: { nodeId: 'node-1', capabilities: ['commands'] } } } as never,
      'agentFrame',
    ),
  ];
  const joinBody = encodeMessage(
    JoinResponseBodySchema,
    { nonce, csrSha256: nonce, serverTimeMs: BigInt(now), outcome: { case: 'granted', value: { chain: [leaf] } } } as never,
    'joinResponse',
  );
  const of = (schema: Parameters<typeof decodeMessage>[0], bound: keyof typeof bounds, seeds: readonly Uint8Array[]): Target => ({
    name: bound.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`),
    maxBytes: bounds[bound] + 1,
    seeds,
    mutators: mutatorsOf(bounds[bound], mutateProtobuf),
    run: (input) => decodeMessage(schema, input, bound),
  });
  const protobuf = mutatorsOf(bounds.trustBundle, mutateProtobuf);
  const inBody = (schema: Parameters<typeof create>[0], purpose: 'join-response' | 'trust-bundle', signed: Uint8Array): Uint8Array => {
    const key = bundle.joinSigning.privateKey as KeyObject;
    const made = { body: signed, signature: { sig: rawSign(key, signingInput(purpose, [signed])), kid: kidOf(bundle.joinSigning.spki) } };
    return toBinary(schema, create(schema, made as never));
  };
  return [
    of(AgentFrameSchema, 'agentFrame', agentFrames),
    of(ServerFrameSchema, 'serverFrame', [
      encodeMessage(ServerFrameSchema, { frame: { case: 'heartbeatAck', value: { sequence: 1n } } }, 'serverFrame'),
    ]),
    of(JoinRequestSchema, 'joinRequest', [toBinary(JoinRequestSchema, create(JoinRequestSchema, { nonce }))]),
    of(RenewRequestSchema, 'renewRequest', [toBinary(RenewRequestSchema, create(RenewRequestSchema, { timeMs: 1n }))]),
    of(CommandBodySchema, 'commandBody', [body]),
    of(DesiredStateBodySchema, 'desiredStateBody', [toBinary(DesiredStateBodySchema, create(DesiredStateBodySchema, {}))]),
    {
      name: 'envelope',
      maxBytes: 64 * 1024,
      seeds: [signature],
      mutators: mutatorsOf(64 * 1024, mutateProtobuf, mutateProtobuf, mutateDer),
      run: (input) => {
        const decoded: Signature = decodeMessage(SignatureSchema, input, 'leafPayload');
        verifyIntent({ purpose: 'command', body, signature: decoded, roots, now, required: true });
        verifyEnvelope({ signature: decoded, purpose: 'command', parts: [body], key: worker.signer.spki });
      },
    },
    {
      name: 'trust-bundle',
      maxBytes: bounds.trustBundle + 1,
      seeds: [signedTrust],
      mutators: protobuf,
      run: (input) => verifySignedTrustBundle(input, { joinKey, trustDomain }),
    },
    {
      name: 'trust-bundle-signed',
      maxBytes: bounds.trustBundle - 512,
      seeds: [decodeMessage(SignedTrustBundleSchema, signedTrust, 'trustBundle').body],
      mutators: protobuf,
      run: (input) => verifySignedTrustBundle(inBody(SignedTrustBundleSchema, 'trust-bundle', input), { joinKey, trustDomain }),
    },
    {
      name: 'join-response-signed',
      maxBytes: bounds.joinResponse - 512,
      seeds: [joinBody],
      mutators: protobuf,
      run: (input) => verifyJoinResponse(inBody(JoinResponseSchema, 'join-response', input), { joinKey, nonce, csrSha256: nonce }),
    },
    {
      name: 'grpc-frames',
      maxBytes: bounds.agentFrame + 64,
      seeds: agentFrames.map((frame) => Buffer.concat([Buffer.from([0, 0, 0, 0, frame.length]), frame])),
      mutators: mutatorsOf(bounds.agentFrame, mutateFrames),
      run: (input) => readFrames(input),
    },
    {
      name: 'websocket-frames',
      maxBytes: bounds.agentFrame,
      seeds: agentFrames.map((frame) =>
        Buffer.concat([
          encodeWebSocketFrame(webSocketOpcodes.binary, frame, webSocketMask),
          encodeWebSocketFrame(webSocketOpcodes.ping, nonce, webSocketMask),
          encodeWebSocketFrame(webSocketOpcodes.close, closePayload(4_014, 'draining 500 this gateway is going away'), webSocketMask),
        ]),
      ),
      mutators: mutatorsOf(bounds.agentFrame),
      run: readWebSocket,
    },
    ...webSocketProofs(leaf),
    {
      name: 'grpc-text',
      maxBytes: 16 * 1024,
      seeds: [bytesOf('caf%C3%A9 100%25 %F0%9F%98%80')],
      mutators: mutatorsOf(16 * 1024),
      run: (input) => decodeGrpcMessage(Buffer.from(input).toString('latin1')),
    },
    {
      name: 'join-token',
      maxBytes: 16 * 1024,
      // Of an operator, and of a run for the system it deployed: that one names its node.
      seeds: [{}, { nodeId: 'node-1' }].map((bound) => {
        const claims = { tokenId: 't-1', secret: nonce, siteId: 'site', role: 'node', expiresAt: now, ...bound };
        return bytesOf(sealJoinToken(bundle.joinEncryption.spki, claims, { trustDomain }));
      }),
      mutators: mutatorsOf(16 * 1024, mutateBase64),
      run: (input) => openJoinToken(bundle.joinEncryption.privateKey, textOf(input), { trustDomain }),
    },
  ];
}

/** In pieces whose sizes the bytes themselves decide, as a network would. */
function readFrames(input: Uint8Array): void {
  const reader = new MessageReader(bounds.agentFrame, ({ reason }) => new ControlError('MALFORMED', reason));
  const sink = { onMessage: (message: Uint8Array) => void decodeMessage(AgentFrameSchema, message, 'agentFrame') };
  for (let at = 0; at < input.length; ) {
    const piece = 1 + ((input[at] as number) % 16) ** 4;
    reader.push(input.subarray(at, at + piece), sink);
    at += piece;
  }
}

const webSocketMask = Uint8Array.of(5, 6, 7, 8);

/** In pieces likewise. A fault is the answer to what is none. */
function readWebSocket(input: Uint8Array): void {
  const reader = new WebSocketReader({ from: 'client', maxMessageBytes: bounds.webSocketMessage, takesText: true });
  const sink = {
    onMessage: () => undefined,
    onPing: () => undefined,
    onPong: () => undefined,
    onClose: (_code: number | null, reason: string) => void parseCloseReason(reason),
  };
  try {
    for (let at = 0; at < input.length; ) {
      const piece = 1 + ((input[at] as number) % 16) ** 4;
      reader.push(input.subarray(at, at + piece), sink);
      at += piece;
    }
  } catch (error) {
    if (!(error instanceof WebSocketFault)) throw error;
  }
}

/** The headers of the two ends. */
function webSocketProofs(leaf: Uint8Array): Target[] {
  const node = create(WebSocketNodeProofSchema, { chain: [leaf], nonce, timeMs: BigInt(now) });
  const gateway = create(WebSocketGatewayProofSchema, { chain: [leaf], timeMs: BigInt(now) });
  const of = (name: string, seed: Uint8Array, read: (text: string) => unknown): Target => ({
    name,
    maxBytes: 2 * bounds.webSocketProof,
    seeds: [bytesOf(Buffer.from(seed).toString('base64url'))],
    mutators: mutatorsOf(2 * bounds.webSocketProof, mutateBase64),
    run: (input) => read(textOf(input)),
  });
  return [
    of('websocket-node-proof', toBinary(WebSocketNodeProofSchema, node), readNodeProof),
    of('websocket-gateway-proof', toBinary(WebSocketGatewayProofSchema, gateway), readGatewayProof),
  ];
}
