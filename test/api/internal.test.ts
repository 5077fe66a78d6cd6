import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { once } from 'node:events';
import type { Server } from 'node:https';
import { request } from 'node:https';
import type { AddressInfo } from 'node:net';
import { type ConnectionOptions, connect, type TLSSocket } from 'node:tls';
import { createInternalListener, parsePeerChain, setListenerTls } from '../../api/internal.ts';
import { ControlError } from '../../domain/errors.ts';
import { hour } from '../../domain/time.ts';
import { createControlPlaneClient } from '../../gateway/control-plane-client.ts';
import { createAuthorities } from '../../pki/authority/index.ts';
import { createBundle, type PkiBundle } from '../../pki/bundle/index.ts';
import { encodePem, spkiOf } from '../../pki/x509/index.ts';
import { bounds } from '../../proto/index.ts';
import type { GatewayServices } from '../../services/gateway-port.ts';

const now = Date.now();
const quiet = { info: () => undefined, warn: () => undefined, error: () => undefined } as never;

interface Leaf {
  readonly key: string;
  readonly cert: string;
}

async function internalLeaf(bundle: PkiBundle, options: { role?: string; now?: number; lifetimeMs?: number } = {}): Promise<Leaf> {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const { chain } = await createAuthorities(bundle).issueInternal({
    spki: spkiOf(publicKey),
    now: options.now ?? now,
    commonName: 'localhost',
    dns: ['localhost'],
    ips: ['127.0.0.1'],
    ...(options.role === undefined ? {} : { role: options.role as 'gateway' }),
    ...(options.lifetimeMs === undefined ? {} : { lifetimeMs: options.lifetimeMs }),
  });
  return {
    key: String(privateKey.export({ type: 'pkcs8', format: 'pem' })),
    cert: chain.map((der) => encodePem('CERTIFICATE', der)).join(''),
  };
}

describe('JOIN-020 the internal listener', () => {
  let bundle: PkiBundle;
  let other: PkiBundle;
  let server: Server;
  let url: string;
  let ca: string;
  let gateway: Leaf;
  const asked: { kind: string; body: Uint8Array; chain?: readonly Uint8Array[] }[] = [];
  let answer: () => Uint8Array = () => new Uint8Array([9, 8, 7]);

  const services: GatewayServices = {
    join: async (body) => {
      asked.push({ kind: 'join', body });
      return answer();
    },
    renew: async (body, { chain }) => {
      asked.push({ kind: 'renew', body, chain });
      return answer();
    },
  };

  // The authority is no root: a client that trusts it alone has to say that a chain may end there.
  const trust = { allowPartialTrustChain: true };
  const clientTls = () => ({ ...gateway, ca, ...trust });

  before(async () => {
    bundle = await createBundle({ trustDomain: 'compute.example.com', now: now - hour });
    other = await createBundle({ trustDomain: 'other.example.com', now: now - hour });
    ca = encodePem('CERTIFICATE', bundle.internalCa.certificate.der);
    gateway = await internalLeaf(bundle, { role: 'gateway' });
    const tls = await internalLeaf(bundle);
    server = createInternalListener({ tls, anchors: () => [bundle.internalCa.certificate.der], services, log: quiet, now: () => now });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    url = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
  });
  after(() => new Promise<void>((resolve) => void server.close(() => resolve())));
  beforeEach(() => {
    asked.length = 0;
    answer = () => new Uint8Array([9, 8, 7]);
  });

  it('relays the bytes of a join and of a renewal as they are, through the gateway’s own client', async () => {
    const client = createControlPlaneClient({ url, tls: clientTls() });
    try {
      const body = new Uint8Array([0, 255, 10, 13, 0]);
      assert.deepEqual(new Uint8Array(await client.join(body)), answer());
      const chain = [bundle.nodeCa.certificate.der, bundle.rootCa.certificate.der];
      assert.deepEqual(new Uint8Array(await client.renew(body, { chain })), answer());
      assert.deepEqual(
        asked.map(({ kind, body: seen, chain: peer }) => ({
          kind,
          body: [...seen],
          chain: peer?.map((der) => Buffer.from(der).toString('hex')),
        })),
        [
          { kind: 'join', body: [...body], chain: undefined },
          { kind: 'renew', body: [...body], chain: chain.map((der) => Buffer.from(der).toString('hex')) },
        ],
      );
    } finally {
      client.close();
    }
  });

  it('TLS-003, TLS-016, TLS-017, TLS-018 presents a renewed pair to new handshakes, keeps the other options, refuses a broken pair', async () => {
    const port = Number(new URL(url).port);
    const handshake = async (over: ConnectionOptions = {}): Promise<TLSSocket> => {
      const socket = connect({ host: '127.0.0.1', port, servername: 'localhost', rejectUnauthorized: false, ...gateway, ...over });
      await once(socket, 'secureConnect');
      return socket;
    };
    const served = async (): Promise<string> => {
      const socket = await handshake();
      const pem = String(socket.getPeerX509Certificate());
      socket.destroy();
      return pem;
    };
    const client = createControlPlaneClient({ url, tls: clientTls() });
    await client.join(new Uint8Array([1]));
    const [renewed, strange] = [await internalLeaf(bundle), await internalLeaf(bundle)];
    setListenerTls(server, renewed);
    assert.ok(renewed.cert.startsWith(await served()));
    assert.throws(() => setListenerTls(server, { key: strange.key, cert: renewed.cert }), {
      code: 'INVALID_CONFIG',
      message: 'the key does not belong to the certificate',
    });
    assert.ok(renewed.cert.startsWith(await served()));
    await assert.rejects(handshake({ maxVersion: 'TLSv1.2' }));
    await client.join(new Uint8Array([2]));
    client.close();
  });

  it('H-11 resumes no session, before and after a reload: it would prove no key', async () => {
    const at = { host: '127.0.0.1', port: Number(new URL(url).port), servername: 'localhost', rejectUnauthorized: false };
    const join = 'POST /internal/v1/join HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\nconnection: close\r\n\r\nx';
    const call = async (socket: TLSSocket): Promise<string> => {
      await once(socket, 'secureConnect');
      socket.end(join);
      let answer = '';
      for await (const chunk of socket) answer += String(chunk);
      return answer;
    };
    for (const pair of [null, await internalLeaf(bundle)]) {
      if (pair !== null) setListenerTls(server, pair);
      const sessions: Buffer[] = [];
      const proved = connect({ ...at, ...gateway });
      proved.on('session', (session: Buffer) => void sessions.push(session));
      assert.match(await call(proved), /^HTTP\/1.1 200 /);
      for (const session of sessions) {
        const resumed = connect({ ...at, session });
        assert.match(await call(resumed), /^HTTP\/1.1 401 /);
      }
      assert.notEqual(sessions.length, 0, 'what was given is of no use');
    }
  });

  it('passes a refusal on with its code, message and reason, and never a cause', async () => {
    answer = () => {
      throw new ControlError('REPLAYED', 'this renewal was used before', {
        details: { reason: 'replayed' },
        cause: new Error('select … from renew_replays'),
      });
    };
    const client = createControlPlaneClient({ url, tls: clientTls() });
    try {
      await assert.rejects(client.join(new Uint8Array([1])), (error: ControlError) => {
        assert.deepEqual([error.code, error.message, error.details], ['REPLAYED', 'this renewal was used before', { reason: 'replayed' }]);
        return true;
      });
      const raw = await send({ ...gateway });
      assert.equal(raw.body.includes('renew_replays'), false);
    } finally {
      client.close();
    }
  });

  const send = (
    tls: Partial<Leaf>,
    options: { path?: string; method?: string; body?: Uint8Array; headers?: Record<string, string> } = {},
  ): Promise<{ status: number; body: string }> =>
    new Promise((resolve, reject) => {
      const outgoing = request(
        new URL(options.path ?? '/internal/v1/join', url),
        {
          method: options.method ?? 'POST',
          ca,
          ...trust,
          agent: false,
          ...(options.headers === undefined ? {} : { headers: options.headers }),
          ...tls,
        },
        (incoming) => {
          let body = '';
          incoming.on('data', (chunk) => {
            body += String(chunk);
          });
          incoming.on('end', () => resolve({ status: incoming.statusCode ?? 0, body }));
        },
      );
      outgoing.on('error', reject);
      outgoing.end(options.body ?? new Uint8Array([1]));
    });

  const refusedAs = async (sent: Promise<{ status: number; body: string }>): Promise<unknown[]> => {
    const { status, body } = await sent;
    const { code, message } = JSON.parse(body) as { code: string; message: string };
    assert.deepEqual(asked, [], 'it must not reach the service');
    return [status, code, message];
  };

  it('refuses a caller without a certificate', async () => {
    assert.deepEqual(await refusedAs(send({})), [
      401,
      'UNAUTHENTICATED',
      'the internal listener needs a certificate of the internal authority',
    ]);
  });

  it('refuses every role but gateway', async () => {
    for (const role of ['internal', 'worker-tls']) {
      assert.deepEqual(await refusedAs(send(await internalLeaf(bundle, { role }))), [
        403,
        'PERMISSION_DENIED',
        `role ${role} may not relay for daemons, only gateway may`,
      ]);
    }
  });

  it('refuses the certificate of another deployment, and of another authority of this one', async () => {
    const [status, code] = await refusedAs(send(await internalLeaf(other, { role: 'gateway' })));
    assert.deepEqual([status, code], [401, 'BAD_SIGNATURE']);
    const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const issued = await createAuthorities(bundle).issueGateway({ spki: spkiOf(publicKey), now, dns: ['localhost'] });
    const serving = {
      key: String(privateKey.export({ type: 'pkcs8', format: 'pem' })),
      cert: issued.chain.map((der) => encodePem('CERTIFICATE', der)).join(''),
    };
    const refused = await refusedAs(send(serving));
    assert.notEqual(refused[0], 200);
  });

  it('refuses a certificate that has ended', async () => {
    const ended = await internalLeaf(bundle, { role: 'gateway', now: now - 30 * 60_000, lifetimeMs: 60_000 });
    const [status, code] = await refusedAs(send(ended));
    assert.deepEqual([status, code], [401, 'CERTIFICATE_EXPIRED']);
  });

  it('BND-003 refuses a body above its bound before it is read', async () => {
    assert.deepEqual(await refusedAs(send(gateway, { body: new Uint8Array(bounds.joinRequest + 1) })), [
      413,
      'FRAME_TOO_LARGE',
      `the body is larger than ${bounds.joinRequest} bytes`,
    ]);
  });

  it('refuses another path and another method', async () => {
    assert.deepEqual(await refusedAs(send(gateway, { path: '/internal/v1/sign' })), [
      404,
      'NOT_FOUND',
      'nothing is at POST /internal/v1/sign',
    ]);
    assert.deepEqual(await refusedAs(send(gateway, { method: 'GET', body: new Uint8Array() })), [
      404,
      'NOT_FOUND',
      'nothing is at GET /internal/v1/join',
    ]);
  });

  it('refuses a renewal without the chain its peer proved', async () => {
    assert.deepEqual(await refusedAs(send(gateway, { path: '/internal/v1/renew' })), [400, 'MALFORMED', 'x-bc-peer-chain is missing']);
  });

  const chains: readonly [string, string, string][] = [
    ['nothing', '', 'x-bc-peer-chain is missing'],
    ['five certificates', 'AA==,AA==,AA==,AA==,AA==', 'x-bc-peer-chain holds 5 certificates, at most 4'],
    ['an empty part', 'AA==,', 'x-bc-peer-chain is not base64 of certificates'],
    ['base64url', '-_8=', 'x-bc-peer-chain is not base64 of certificates'],
    ['bits that are not zero', 'AB==', 'x-bc-peer-chain is not base64 of certificates'],
  ];
  for (const [title, header, message] of chains) {
    it(`H-19 refuses a chain of ${title}`, () => {
      assert.throws(
        () => parsePeerChain(header),
        (error: ControlError) => error.code === 'MALFORMED' && error.message === message,
      );
    });
  }
});
