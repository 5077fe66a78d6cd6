/** The gateway as a client nobody here wrote sees it: @grpc/grpc-js. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Client, type ClientDuplexStream, credentials, status as grpcStatus, type Metadata, type ServiceError } from '@grpc/grpc-js';
import { ControlError } from '../../domain/errors.ts';
import { refusal } from '../../gateway/grpc/refusals.ts';
import { encodePem } from '../../pki/x509/index.ts';
import { AgentFrameSchema, CommandOutcome, decodeMessage, encodeMessage, type ServerFrame, ServerFrameSchema } from '../../proto/index.ts';
import { helloFrame, nodeLeaf, servicePath, type TestLeaf } from '../harness/agent.ts';
import { digestOf } from './memory-store.ts';
import { type RunningGateway, startGateway } from './start-gateway.ts';

const asIs = (bytes: Buffer): Buffer => bytes;

describe('@grpc/grpc-js as the client', () => {
  let running: RunningGateway;
  let leaf: TestLeaf;
  let answer: (request: Uint8Array) => Promise<Uint8Array>;
  const clients: Client[] = [];
  before(async () => {
    running = await startGateway({ services: { join: (request) => answer(request), renew: async (request) => request } });
    leaf = await nodeLeaf(running.authorities, 'node-1');
  });
  after(async () => {
    for (const client of clients) client.close();
    await running.gateway.close();
  });

  function clientOf(certificate: TestLeaf | null): Client {
    const { authorities, port } = running;
    const roots = Buffer.from(
      encodePem('CERTIFICATE', authorities.servingCa.certificate) + encodePem('CERTIFICATE', authorities.root.certificate),
    );
    const tls =
      certificate === null
        ? credentials.createSsl(roots)
        : credentials.createSsl(roots, Buffer.from(certificate.keyPem), Buffer.from(certificate.chainPem));
    const client = new Client(`127.0.0.1:${port}`, tls, { 'grpc.ssl_target_name_override': 'gw.test', 'grpc.enable_retries': 0 });
    clients.push(client);
    return client;
  }

  const join = (client: Client, request: Buffer, path = 'Join'): Promise<{ error: ServiceError | null; response: Buffer | undefined }> =>
    new Promise((resolve) => {
      client.makeUnaryRequest(`${servicePath}/${path}`, asIs, asIs, request, (error, response) => resolve({ error, response }));
    });

  it('empty_unary, large_unary: Join answers what the control plane answered, byte for byte', async () => {
    answer = async (request) => Buffer.from(request);
    const client = clientOf(null);
    for (const size of [0, 1, 70_000, 250_000]) {
      const request = Buffer.alloc(size, 0xa5);
      const { error, response } = await join(client, request);
      assert.equal(error, null);
      assert.ok(response?.equals(request), String(size));
    }
  });

  it('status_code_and_message, special_status_message: a refused Join keeps code, message, reason and wait', async () => {
    const special = '\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP \u{1f608}\t\n';
    answer = async () => {
      throw new ControlError('PERMISSION_DENIED', special, { details: { reason: 'join-refused' } });
    };
    const { error } = await join(clientOf(null), Buffer.from('x'));
    assert.deepEqual(
      [error?.code, error?.details, error?.metadata.get('x-bc-reason')],
      [grpcStatus.PERMISSION_DENIED, special, ['join-refused']],
    );
    answer = async () => {
      throw refusal('services-unavailable', { pushbackMs: 1_234 });
    };
    const away = await join(clientOf(null), Buffer.from('x'));
    assert.deepEqual([away.error?.code, away.error?.metadata.get('grpc-retry-pushback-ms')], [grpcStatus.UNAVAILABLE, ['1234']]);
  });

  it('unimplemented_method, oversized request, no certificate', async () => {
    answer = async (request) => request;
    assert.equal((await join(clientOf(null), Buffer.from('x'), 'Nope')).error?.code, grpcStatus.UNIMPLEMENTED);
    assert.equal((await join(clientOf(null), Buffer.alloc(256 * 1024 + 1))).error?.code, grpcStatus.RESOURCE_EXHAUSTED);
    assert.equal((await join(clientOf(null), Buffer.from('x'), 'Renew')).error?.code, grpcStatus.UNAUTHENTICATED);
  });

  type Session = ClientDuplexStream<Buffer, Buffer>;
  const session = (client: Client): Session => client.makeBidiStreamRequest(`${servicePath}/Session`, asIs, asIs);
  const nextFrame = async (call: Session): Promise<ServerFrame> =>
    decodeMessage(ServerFrameSchema, ((await once(call, 'data')) as [Buffer])[0], 'serverFrame');

  it('ping_pong: a whole session, ended by half-close with status 0', async () => {
    const call = session(clientOf(leaf));
    const ended = once(call, 'status') as Promise<[{ code: number; metadata: Metadata }]>;
    call.write(Buffer.from(encodeMessage(AgentFrameSchema, helloFrame(), 'agentFrame')));
    assert.equal((await nextFrame(call)).frame.case, 'welcome');
    const command = running.store.enqueue('node-1', { id: 'big', bytes: 300_000 });
    running.gateway.sessions.poke(['node-1']);
    const { frame } = await nextFrame(call);
    assert.ok(frame.case === 'command' && Buffer.from(frame.value.body).equals(command.body));
    const payload = { typeUrl: 'type.googleapis.com/x', value: new Uint8Array(400_000).fill(1) };
    call.write(
      Buffer.from(
        encodeMessage(
          AgentFrameSchema,
          {
            frame: {
              case: 'commandResult',
              value: { commandId: 'big', outcome: CommandOutcome.SUCCEEDED, payload, bodySha256: digestOf(command.body) },
            },
          },
          'agentFrame',
        ),
      ),
    );
    assert.equal((await nextFrame(call)).frame.case, 'resultReceipt');
    assert.ok((running.store.results.get('big')?.payload?.length ?? 0) > 400_000);
    call.end();
    assert.equal((await ended)[0].code, grpcStatus.OK);
  });

  it('empty_stream, first frame not Hello, superseded: the status of each', async () => {
    const statusOf = (call: Session): Promise<number> => {
      call.on('error', () => undefined);
      call.resume();
      return new Promise((resolve) => void call.on('status', ({ code }) => resolve(code)));
    };
    const empty = session(clientOf(leaf));
    const emptied = statusOf(empty);
    empty.end();
    assert.equal(await emptied, grpcStatus.INVALID_ARGUMENT);
    const wrong = session(clientOf(leaf));
    const refused = statusOf(wrong);
    wrong.write(Buffer.from(encodeMessage(AgentFrameSchema, { frame: { case: 'heartbeat', value: { sequence: 1n } } }, 'agentFrame')));
    assert.equal(await refused, grpcStatus.INVALID_ARGUMENT);
    const older = session(clientOf(leaf));
    older.write(Buffer.from(encodeMessage(AgentFrameSchema, helloFrame(), 'agentFrame')));
    await nextFrame(older);
    const replaced = statusOf(older);
    const newer = session(clientOf(leaf));
    newer.write(Buffer.from(encodeMessage(AgentFrameSchema, helloFrame(), 'agentFrame')));
    await nextFrame(newer);
    assert.equal(await replaced, grpcStatus.ABORTED);
    newer.on('error', () => undefined);
    newer.cancel();
  });
});
