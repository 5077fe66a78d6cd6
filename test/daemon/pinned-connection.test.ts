import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import type { AddressInfo } from 'node:net';
import { createServer, type Server } from 'node:net';
import { dialPinned, type GatewayAddress } from '../../daemon/transport/pinned-connection.ts';
import { ControlError } from '../../domain/errors.ts';
import { hour } from '../../domain/time.ts';
import { encodePem, issueLeaf, spkiOf, spkiPin } from '../../pki/x509/index.ts';
import { createDeployment, gatewayName, joinedNode } from '../harness/deployment.ts';

import { setStage } from './stage.ts';

describe('the pinned connection', () => {
  const stage = setStage();

  const addressOf = (gateway: { url: string }, over: Partial<GatewayAddress> = {}): GatewayAddress => ({
    gatewayUrl: gateway.url,
    gatewayServerName: gatewayName,
    servingCaPin: spkiPin(stage.deployment.bundle.servingCa.spki),
    ...over,
  });
  const dial = (gateway: GatewayAddress, now = Date.now()) => dialPinned({ gateway, client: null, now, timeoutMs: 5_000 });
  const refusedWith =
    (code: string, reason: string, message: RegExp) =>
    (error: unknown): boolean => {
      assert.ok(error instanceof ControlError, String(error));
      assert.deepEqual([error.code, error.details['reason']], [code, reason]);
      assert.match(error.message, message);
      return true;
    };

  it('TRN-011 TRN-026 believes the pinned serving CA alone', async () => {
    const gateway = await stage.gatewayWith();
    (await dial(addressOf(gateway))).destroy();
    const other = await createDeployment();
    const wrongPin = addressOf(gateway, { servingCaPin: spkiPin(other.bundle.servingCa.spki) });
    await assert.rejects(
      dial(wrongPin),
      refusedWith('PERMISSION_DENIED', 'wrong-pin', /does not come from the pinned serving CA sha256\//),
    );
    const impostor = await stage.gatewayWith({ serving: other.serving });
    await assert.rejects(
      dial(addressOf(impostor)),
      refusedWith('PERMISSION_DENIED', 'wrong-pin', /does not come from the pinned serving CA/),
    );
  });

  it('TRN-011 the pinned CA beside a chain that it did not sign proves nothing', async () => {
    const other = await createDeployment();
    const [leaf = ''] = other.serving.cert.split(/(?<=-----END CERTIFICATE-----\n)/);
    const mixed = leaf + encodePem('CERTIFICATE', stage.deployment.bundle.servingCa.certificate.der);
    const gateway = await stage.gatewayWith({ serving: { key: other.serving.key, cert: mixed } });
    // OpenSSL offers the pinned CA only where it fits the leaf by name; either way the gateway is refused.
    await assert.rejects(
      dial(addressOf(gateway)),
      (error: ControlError) => error.code === 'BAD_SIGNATURE' || error.code === 'PERMISSION_DENIED',
    );
  });

  it('TRN-029 the certificate must name the server, whatever address was dialled', async () => {
    const gateway = await stage.gatewayWith();
    (await dial(addressOf(gateway, { gatewayServerName: null }))).destroy();
    await assert.rejects(
      dial(addressOf(gateway, { gatewayServerName: 'gw.other' })),
      refusedWith('PERMISSION_DENIED', 'server-name', /is not for "gw\.other"/),
    );
  });

  it('TRN-025 speaks TLS 1.3 only', async () => {
    const gateway = await stage.gatewayWith({ minVersion: 'TLSv1.2', maxVersion: 'TLSv1.2' });
    await assert.rejects(dial(addressOf(gateway)), refusedWith('UNAVAILABLE', 'dial-failed', /no connection to 127\.0\.0\.1:\d+: .*/));
  });

  it('a client leaf, a leaf of another CA and an expired leaf are no gateway', async () => {
    const { servingCa, nodeCa } = stage.deployment.bundle;
    const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const ca = { certificate: servingCa.certificate.der, signer: servingCa.signer() };
    const key = String(privateKey.export({ type: 'pkcs8', format: 'pem' }));
    const leaf = await issueLeaf({
      ca,
      profile: 'gateway',
      spki: spkiOf(publicKey),
      sans: { dns: [gatewayName] },
      now: Date.now(),
      lifetimeMs: hour,
    });
    const cert = encodePem('CERTIFICATE', leaf.der) + encodePem('CERTIFICATE', servingCa.certificate.der);
    const gateway = await stage.gatewayWith({ serving: { key, cert } });
    await assert.rejects(dial(addressOf(gateway), Date.now() + 2 * hour), refusedWith('CERTIFICATE_EXPIRED', 'expired', /expired at/));
    const node = await joinedNode(stage.deployment, { gatewayUrl: gateway.url });
    const asServer = await stage.gatewayWith({
      serving: {
        key: String(node.key.export({ type: 'pkcs8', format: 'pem' })),
        cert: node.identity.chain.map((der) => encodePem('CERTIFICATE', der)).join(''),
      },
    });
    await assert.rejects(
      dial(addressOf(asServer, { servingCaPin: spkiPin(nodeCa.spki) })),
      refusedWith('PERMISSION_DENIED', 'extended-key-usage', /is not for/),
    );
  });

  for (const offMs of [-2 * hour, -90_000, 90_000, 2 * hour]) {
    it(`a machine whose clock is ${offMs / 1000} s off reaches a gateway whose certificate was made just now`, async () => {
      const gateway = await stage.gatewayWith();
      (await dial(addressOf(gateway), Date.now() + offMs)).destroy();
    });
  }

  it('nobody there, silence and plain text are one clear refusal each', async () => {
    const closed = createServer();
    await new Promise<void>((resolve) => closed.listen(0, '127.0.0.1', resolve));
    const { port } = closed.address() as AddressInfo;
    await new Promise((resolve) => closed.close(resolve));
    await assert.rejects(dial(addressOf({ url: `https://127.0.0.1:${port}` })), refusedWith('UNAVAILABLE', 'dial-failed', /ECONNREFUSED/));
    const talkers: [(server: Server) => void, RegExp][] = [
      [(server) => server.on('connection', (socket) => socket.on('error', () => undefined)), /no answer within 0\.2 s/],
      [(server) => server.on('connection', (socket) => socket.on('error', () => undefined).end('SSH-2.0-x\r\n')), /no connection to/],
    ];
    for (const [talk, message] of talkers) {
      const server = createServer();
      const sockets = new Set<{ destroy(): void }>();
      server.on('connection', (socket) => void sockets.add(socket));
      talk(server);
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      const url = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
      await assert.rejects(
        dialPinned({ gateway: addressOf({ url }), client: null, now: Date.now(), timeoutMs: 200 }),
        refusedWith('UNAVAILABLE', 'dial-failed', message),
      );
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    }
  });
});
