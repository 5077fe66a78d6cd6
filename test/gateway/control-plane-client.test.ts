import assert from 'node:assert/strict';
import type { Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { createInternalListener } from '../../api/internal.ts';
import { ControlError } from '../../domain/errors.ts';
import { type ControlPlaneClient, createControlPlaneClient } from '../../gateway/control-plane-client.ts';
import type { GatewayServices } from '../../gateway/services.ts';
import { encodePem } from '../../pki/x509/index.ts';
import { createLogger } from '../../runtime/log.ts';
import { createAuthorities, hostLeaf, nodeLeaf, type TestAuthorities, type TestLeaf } from '../harness/agent.ts';
import { eventually } from '../harness/eventually.ts';

describe('the client of the internal listener', () => {
  let authorities: TestAuthorities;
  let server: Server;
  let url: string;
  let ca: string;
  let gateway: TestLeaf;
  let services: GatewayServices;
  const clients: ControlPlaneClient[] = [];

  before(async () => {
    authorities = await createAuthorities();
    ca = encodePem('CERTIFICATE', authorities.internalCa.certificate) + encodePem('CERTIFICATE', authorities.root.certificate);
    const api = await hostLeaf(authorities, 'internal', { dns: ['api.test'] });
    gateway = await hostLeaf(authorities, 'internal', { role: 'gateway' });
    server = createInternalListener({
      tls: { key: api.keyPem, cert: api.chainPem },
      anchors: () => [authorities.internalCa.certificate],
      services: {
        join: (request) => services.join(request),
        renew: (request, peer) => services.renew(request, peer),
        get workloadToken() {
          return services.workloadToken;
        },
      } as GatewayServices,
      log: createLogger({ process: 'test', level: 'silent' }),
      now: Date.now,
    });
    await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
    url = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
  });
  after(() => {
    for (const client of clients) client.close();
    server.close();
    server.closeAllConnections();
  });

  function clientOf(leaf: TestLeaf, over: { url?: string; ca?: string; timeoutMs?: number } = {}): ControlPlaneClient {
    const client = createControlPlaneClient({
      url: over.url ?? url,
      tls: { key: leaf.keyPem, cert: leaf.chainPem, ca: over.ca ?? ca },
      timeoutMs: over.timeoutMs ?? 5_000,
    });
    clients.push(client);
    return client;
  }

  it('WID-033 RENEW-012 no renewal waits behind workload tokens, however slow their broker', async () => {
    const held: ((answer: Uint8Array) => void)[] = [];
    services = {
      join: async (request) => request,
      renew: async (request) => request,
      workloadToken: () => new Promise((resolve) => void held.push(resolve)),
    };
    const client = clientOf(gateway);
    const chain = [gateway.chain[0] as Uint8Array];
    const { workloadToken } = client;
    assert.ok(workloadToken);
    const asked = Array.from({ length: 64 }, async () => workloadToken(Buffer.from('token'), { chain }));
    await eventually('the broker is busy', () => held.length >= 16);
    assert.equal(Buffer.from(await client.renew(Buffer.from('renew'), { chain })).toString(), 'renew');
    assert.equal(Buffer.from(await client.join(Buffer.from('join'))).toString(), 'join');
    services = { ...services, workloadToken: async (request) => request };
    for (const answer of held) answer(Buffer.from('token'));
    await Promise.all(asked);
  });

  it('JOIN-021, RENEW-012 relays request and answer byte for byte, and the chain TLS proved', async () => {
    const seen: unknown[] = [];
    services = {
      join: async (request) => Buffer.concat([request, Buffer.from([0, 255])]),
      renew: async (request, { chain }) => {
        seen.push(chain.map((der) => Buffer.from(der).toString('hex')));
        return request;
      },
    };
    const client = clientOf(gateway);
    const request = Buffer.from(Array.from({ length: 256 }, (_, at) => at));
    assert.deepEqual(Buffer.from(await client.join(request)), Buffer.concat([request, Buffer.from([0, 255])]));
    const { chain } = await nodeLeaf(authorities, 'node-1');
    assert.deepEqual(Buffer.from(await client.renew(request, { chain })), request);
    assert.deepEqual(seen, [chain.map((der) => Buffer.from(der).toString('hex'))]);
  });

  it('WID-033 WID-037 relays a question for a workload token with its chain; a control plane without the service says so', async () => {
    const seen: unknown[] = [];
    const same = async (request: Uint8Array): Promise<Uint8Array> => request;
    services = {
      join: same,
      renew: same,
      workloadToken: async (request, { chain }) => {
        seen.push(chain.length);
        return Buffer.concat([request, Buffer.from([7])]);
      },
    };
    const client = clientOf(gateway);
    const { chain } = await nodeLeaf(authorities, 'node-1');
    const peer = { chain };
    assert.deepEqual(Buffer.from((await client.workloadToken?.(Buffer.from('ask'), peer)) ?? []), Buffer.from('ask\u0007'));
    assert.deepEqual(seen, [chain.length]);
    services = { join: same, renew: same };
    await assert.rejects(
      async () => client.workloadToken?.(Buffer.from('ask'), peer),
      (error: ControlError) => error.code === 'UNSUPPORTED' && error.details['reason'] === 'no-such-service',
    );
  });

  it('keeps code, message and reason of a refusal, and hides a fault behind services-unavailable', async () => {
    const fail = (error: unknown): void => {
      const thrown = async (): Promise<never> => {
        throw error;
      };
      services = { join: thrown, renew: thrown };
    };
    fail(new ControlError('PERMISSION_DENIED', 'the token was used', { details: { reason: 'token-used' } }));
    const client = clientOf(gateway);
    await assert.rejects(client.join(Buffer.from('x')), (error: ControlError) => {
      assert.deepEqual([error.code, error.message, error.details['reason']], ['PERMISSION_DENIED', 'the token was used', 'token-used']);
      return true;
    });
    fail(new Error('a secret detail'));
    await assert.rejects(client.join(Buffer.from('x')), { code: 'UNAVAILABLE', message: 'the control plane does not answer' });
  });

  it('takes another server, or none, for unavailable', async () => {
    services = { join: async (request) => request, renew: async (request) => request };
    const others = await createAuthorities();
    const strange = clientOf(gateway, {
      ca: encodePem('CERTIFICATE', others.internalCa.certificate) + encodePem('CERTIFICATE', others.root.certificate),
    });
    await assert.rejects(strange.join(Buffer.from('x')), { code: 'UNAVAILABLE', message: 'the control plane does not answer' });
    await assert.rejects(clientOf(gateway, { url: 'https://127.0.0.1:1' }).join(Buffer.from('x')), { code: 'UNAVAILABLE' });
  });

  it('TLS-003 is nobody without the role, and somebody again with a renewed pair', async () => {
    services = { join: async (request) => request, renew: async (request) => request };
    const client = clientOf(await hostLeaf(authorities, 'internal', { role: 'worker-tls' }));
    await assert.rejects(client.join(Buffer.from('x')), { code: 'PERMISSION_DENIED', message: /may not relay/ });
    client.setTls({ key: gateway.keyPem, cert: gateway.chainPem, ca });
    assert.deepEqual(Buffer.from(await client.join(Buffer.from('x'))), Buffer.from('x'));
  });

  it('TLS-003, TLS-018 refuses a pair that does not match, and keeps what it has', async () => {
    services = { join: async (request) => request, renew: async (request) => request };
    const client = clientOf(gateway);
    const other = await hostLeaf(authorities, 'internal', { role: 'gateway' });
    assert.throws(() => client.setTls({ key: other.keyPem, cert: gateway.chainPem }), {
      code: 'INVALID_CONFIG',
      message: 'the private key does not belong to the certificate',
    });
    assert.deepEqual(Buffer.from(await client.join(Buffer.from('x'))), Buffer.from('x'));
  });

  it('TLS-003, TLS-012 a call under way survives the renewal, and its connection does not outlive it', async () => {
    const open = (): Promise<number> => new Promise((resolve) => server.getConnections((_, count) => resolve(count)));
    let release: () => void = () => undefined;
    let arrived: () => void = () => undefined;
    const isThere = new Promise<void>((resolve) => void (arrived = resolve));
    services = {
      join: (request) =>
        new Promise((resolve) => {
          release = () => resolve(request);
          arrived();
        }),
      renew: async (request) => request,
    };
    for (const client of clients.splice(0)) client.close();
    await eventually('no other connection', async () => (await open()) === 0);
    const client = clientOf(gateway);
    const answer = client.join(Buffer.from('slow'));
    await isThere;
    const renewed = await hostLeaf(authorities, 'internal', { role: 'gateway' });
    client.setTls({ key: renewed.keyPem, cert: renewed.chainPem });
    release();
    assert.deepEqual(Buffer.from(await answer), Buffer.from('slow'));
    await eventually('the old connection is closed', async () => (await open()) === 0);
  });

  it('does not wait for ever', async () => {
    let release: () => void = () => undefined;
    services = {
      join: () => new Promise((resolve) => void (release = () => resolve(new Uint8Array()))),
      renew: async (request) => request,
    };
    await assert.rejects(clientOf(gateway, { timeoutMs: 50 }).join(Buffer.from('x')), { code: 'UNAVAILABLE' });
    release();
  });
});
