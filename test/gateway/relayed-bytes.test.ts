/**
 * What a gateway carries between a machine and the service behind it: the very bytes, both ways. The messages here are written as no encoder of
 * ours writes them (fields of a newer version in front, numbers in more bytes than they need), so that decoding and encoding shows.
 */
import assert from 'node:assert/strict';
import { fromBinary } from '@bufbuild/protobuf';
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import fc from 'fast-check';
import { createInternalListener } from '../../api/internal.ts';
import { createControlPlaneClient } from '../../gateway/control-plane-client.ts';
import type { GatewayServices } from '../../gateway/services.ts';
import { encodePem } from '../../pki/x509/index.ts';
import { AgentFrameSchema, bounds, embeddedMessage, envelopeOf, ServerFrameSchema } from '../../proto/index.ts';
import { listenOn } from '../../runtime/ports.ts';
import {
  createAuthorities,
  dial,
  hostLeaf,
  nodeLeaf,
  openAgent,
  servicePath,
  TestAgent,
  type TestAuthorities,
  TestCall,
  type TestLeaf,
} from '../harness/agent.ts';
import { type RunningGateway, startGateway } from './start-gateway.ts';

type Asked = { readonly call: keyof GatewayServices; readonly request: Uint8Array; readonly chain: readonly Uint8Array[] };

/** A field that this version does not know, in front of all others. */
const unknownField = (text: string): Uint8Array =>
  new BinaryWriter()
    .uint32((1_000 << 3) | WireType.LengthDelimited)
    .string(text)
    .finish();
const textField = (number: number, text: string): Uint8Array =>
  new BinaryWriter().tag(number, WireType.LengthDelimited).string(text).finish();
const bytesField = (number: number, bytes: Uint8Array): Uint8Array => envelopeOf(bytes, number);
/** The number 7 in three bytes, where one would do. */
const wastefulSeven = (number: number): Uint8Array =>
  Buffer.concat([new BinaryWriter().tag(number, WireType.Varint).finish(), Buffer.from([0x87, 0x80, 0x00])]);

describe('the bytes that a gateway relays', () => {
  let authorities: TestAuthorities;
  let running: RunningGateway;
  let leaf: TestLeaf;
  let asked: Asked[];
  let answers: Record<keyof GatewayServices, Uint8Array>;
  let close: () => Promise<void>;

  // The stub stands behind the real listener and the real client: JoinService's own place.
  const stub = (call: keyof GatewayServices) => async (request: Uint8Array, peer?: { readonly chain: readonly Uint8Array[] }) => {
    asked.push({ call, request: Uint8Array.from(request), chain: peer?.chain ?? [] });
    return answers[call];
  };

  before(async () => {
    authorities = await createAuthorities();
    const [api, gateway] = [await hostLeaf(authorities, 'internal'), await hostLeaf(authorities, 'internal', { role: 'gateway' })];
    const listener = createInternalListener({
      tls: { key: api.keyPem, cert: api.chainPem },
      anchors: () => [authorities.internalCa.certificate],
      services: {
        join: stub('join'),
        renew: stub('renew'),
        secret: stub('secret'),
        workloadToken: stub('workloadToken'),
        event: stub('event'),
      },
      log: { info: () => undefined, warn: () => undefined, error: () => undefined },
      now: Date.now,
    });
    const { port } = await listenOn(listener, { host: '127.0.0.1', port: 0, who: 'the stub', setBy: 'this test' });
    const client = createControlPlaneClient({
      url: `https://127.0.0.1:${port}`,
      tls: { key: gateway.keyPem, cert: gateway.chainPem, ca: encodePem('CERTIFICATE', authorities.internalCa.certificate) },
    });
    running = await startGateway({ authorities, services: client });
    leaf = await nodeLeaf(authorities, 'node-1');
    close = async () => {
      await running.gateway.close();
      client.close();
      listener.closeAllConnections();
      await new Promise((resolve) => listener.close(resolve));
    };
  });
  after(() => close());
  beforeEach(() => {
    asked = [];
  });

  async function unary(method: 'Join' | 'Renew', request: Uint8Array): Promise<Uint8Array | null> {
    const session = dial({ port: running.port, leaf: method === 'Join' ? null : leaf });
    const call = new TestCall(session, `${servicePath}/${method}`);
    call.send(request);
    call.halfClose();
    const answer = await call.next();
    session.destroy();
    return answer;
  }

  const sameBytes = (found: Uint8Array | null | undefined, expected: Uint8Array): void =>
    assert.equal(Buffer.from(found ?? []).toString('hex'), Buffer.from(expected).toString('hex'));

  it('KEY-014 Join and Renew reach the service byte for byte, and so do its answers the machine', async () => {
    const join = Buffer.concat([unknownField('newer'), textField(4, 'node'), textField(1, 'join-token')]);
    const renew = Buffer.concat([unknownField('newer'), wastefulSeven(3), ...leaf.chain.map((der) => bytesField(1, der))]);
    answers = { ...answers, join: Buffer.from('any bytes at all'), renew: Buffer.concat([wastefulSeven(2), unknownField('newer')]) };
    sameBytes(await unary('Join', join), answers.join);
    sameBytes(await unary('Renew', renew), answers.renew);
    assert.deepEqual(
      asked.map(({ call }) => call),
      ['join', 'renew'],
    );
    sameBytes(asked[0]?.request, join);
    sameBytes(asked[1]?.request, renew);
    sameBytes(asked[1]?.chain[0], leaf.chain[0] as Uint8Array);
  });

  const questions = [
    {
      call: 'workloadToken',
      request: 'workloadTokenRequest',
      response: 'workloadTokenResponse',
      requestId: 1,
      key: 4,
      bound: bounds.workloadTokenRequest,
    },
    { call: 'secret', request: 'secretRequest', response: 'secretResponse', requestId: 7, key: 5, bound: bounds.secretRequest },
    { call: 'event', request: 'eventReport', response: 'eventReceipt', requestId: 1, key: 2, bound: bounds.eventReport },
  ] as const;

  for (const { call, request, response, requestId, key, bound } of questions) {
    const field = AgentFrameSchema.field[request].number;
    const answerField = ServerFrameSchema.field[response].number;
    const questionOf = (id: string): Uint8Array =>
      Buffer.concat([unknownField('newer'), textField(requestId, id), bytesField(key, Buffer.from('key'))]);
    const answerTo = (id: string): Uint8Array => Buffer.concat([unknownField('newer too'), textField(2, 'a.b.c.d.e'), textField(1, id)]);

    it(`KEY-014 ${call}: a question reaches the service byte for byte, and its answer the machine`, async () => {
      const agent = new TestAgent({ port: running.port, leaf });
      answers = { ...answers, [call]: answerTo('r-1') };
      // Not waiting for the welcome: the question is held until the session is open.
      agent.hello();
      agent.call.send(Buffer.concat([unknownField('of the frame'), envelopeOf(questionOf('r-1'), field)]));
      await agent.expect('welcome');
      sameBytes(await agent.call.next(), envelopeOf(answers[call], answerField));
      sameBytes(asked[0]?.request, questionOf('r-1'));
      sameBytes(asked[0]?.chain[0], leaf.chain[0] as Uint8Array);
      agent.close();
    });

    it(`${call}: a question in pieces goes on as what it means, and one that is too large is refused`, async () => {
      const { agent } = await openAgent({ port: running.port, leaf });
      answers = { ...answers, [call]: answerTo('r-2') };
      agent.call.send(
        Buffer.concat([envelopeOf(textField(requestId, 'r-2'), field), envelopeOf(bytesField(key, Buffer.from('key')), field)]),
      );
      sameBytes(await agent.call.next(), envelopeOf(answers[call], answerField));
      assert.deepEqual(embeddedMessage(asked[0]?.request as Uint8Array, key), Uint8Array.from(Buffer.from('key')), 'both pieces are in it');
      agent.call.send(envelopeOf(Buffer.concat([textField(requestId, 'r-3'), bytesField(key, new Uint8Array(bound))]), field));
      const refusedFrame = fromBinary(ServerFrameSchema, (await agent.call.next()) as Uint8Array);
      assert.equal((refusedFrame.frame.value as { error: string }).error, 'unavailable');
      assert.equal(asked.length, 1);
      agent.close();
    });
  }

  it('what is taken out of an envelope is what was put in, among whatever else stands there (property)', () => {
    const other = fc.oneof(
      fc.tuple(fc.integer({ min: 11, max: 5_000 }), fc.uint8Array({ maxLength: 30 })).map(([number, bytes]) => envelopeOf(bytes, number)),
      fc.integer({ min: 11, max: 5_000 }).map(wastefulSeven),
    );
    fc.assert(
      fc.property(
        fc.uint8Array({ maxLength: 200 }),
        fc.array(other, { maxLength: 4 }),
        fc.array(other, { maxLength: 4 }),
        (message, before, behind) => {
          const envelope = Buffer.concat([...before, envelopeOf(message, 10), ...behind]);
          sameBytes(embeddedMessage(envelope, 10), message);
          assert.equal(embeddedMessage(envelope, 9), null);
          assert.equal(embeddedMessage(Buffer.concat([envelope, envelopeOf(message, 10)]), 10), null);
        },
      ),
    );
  });
});
