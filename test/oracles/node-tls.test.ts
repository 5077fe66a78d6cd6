/** Node's own TLS as a judge: whole handshakes with what we issue, both sides asking for certificates, system roots nowhere. */
import assert from 'node:assert/strict';
import type { AddressInfo } from 'node:net';
import { connect, createServer, type TLSSocket } from 'node:tls';
import { day } from '../../domain/time.ts';
import { encodePem } from '../../pki/x509/index.ts';
import { createDeployment, type Deployment, type Issued, serverName, tamperings } from './issued.ts';

/** What each side says of the other; null: authorized. */
interface Said {
  readonly client: string | null;
  readonly server: string | null;
}

interface Side {
  readonly issued: Issued;
  /** What it shows instead of the leaf. */
  readonly leaf?: Uint8Array;
}

const credentials = ({ issued, leaf = issued.certificate.der }: Side): { key: string; cert: string } => ({
  key: String(issued.key?.privateKey.export({ type: 'pkcs8', format: 'pem' })),
  cert: [leaf, ...issued.intermediates.map(({ der }) => der)].map((der) => encodePem('CERTIFICATE', der)).join(''),
});

const saidBy = (socket: TLSSocket): string | null => (socket.authorized ? null : String(socket.authorizationError));

/** One handshake. Neither side breaks it off, so that both can say what they think. */
async function handshake(server: Side, client: Side, options: { root: Uint8Array; name?: string }): Promise<Said> {
  const common = { ca: encodePem('CERTIFICATE', options.root), minVersion: 'TLSv1.3', rejectUnauthorized: false } as const;
  const listener = createServer({ ...common, ...credentials(server), requestCert: true });
  const seen = new Promise<string | null>((resolve, reject) => {
    listener.on('secureConnection', (socket) => resolve(saidBy(socket.on('error', () => undefined))));
    listener.on('tlsClientError', reject);
  });
  await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', resolve));
  const { port } = listener.address() as AddressInfo;
  const socket = connect({ ...common, ...credentials(client), host: '127.0.0.1', port, servername: options.name ?? serverName });
  try {
    const said = new Promise<string | null>((resolve, reject) =>
      socket.on('secureConnect', () => resolve(saidBy(socket))).on('error', reject),
    );
    const [ofServer, ofClient] = await Promise.all([said, seen]);
    return { client: ofServer, server: ofClient };
  } finally {
    socket.destroy();
    await new Promise((resolve) => listener.close(resolve));
  }
}

const agreed: Said = { client: null, server: null };

describe('oracle: TLS of Node', function () {
  this.timeout(30_000);
  let deployment: Deployment;
  let root: Uint8Array;
  before(async () => {
    deployment = await createDeployment(Date.now());
    root = deployment.bundle.rootCa.certificate.der;
  });
  const side = (kind: string): Side => ({ issued: deployment.get(kind) });
  const ways = ['', ' below the former CA'];

  for (const kind of ['node', 'node with a statement', 'site', 'ramdisk', 'nodeTenant'])
    it(`${kind} and gateway take each other, below both certificates of their authorities`, async () => {
      for (const agent of ways)
        for (const gateway of ways) assert.deepEqual(await handshake(side(`gateway${gateway}`), side(`${kind}${agent}`), { root }), agreed);
    });

  it('two processes of the control plane take each other', async () => {
    for (const way of ways) assert.deepEqual(await handshake(side(`internal${way}`), side('internal'), { root }), agreed);
  });

  it('a node is no server, and a gateway no client', async () => {
    assert.deepEqual(await handshake(side('node'), side('gateway'), { root }), { client: 'INVALID_PURPOSE', server: 'INVALID_PURPOSE' });
  });

  it('a gateway has its own names only', async () => {
    const said = await handshake(side('gateway'), side('node'), { root, name: 'other.fleet.example' });
    assert.deepEqual(said, { client: 'ERR_TLS_CERT_ALTNAME_INVALID', server: null });
  });

  it('what was changed after it was signed is refused on both sides', async () => {
    // With another key no side could finish the handshake at all.
    for (const [what, change] of Object.entries(tamperings).filter(([what]) => what !== 'another key')) {
      const changed = (kind: string): Side => {
        const { certificate } = deployment.get(kind);
        return { issued: deployment.get(kind), leaf: change(certificate.der, certificate) };
      };
      const said = await handshake(changed('gateway'), changed('node'), { root });
      assert.deepEqual(said, { client: 'CERT_SIGNATURE_FAILURE', server: 'CERT_SIGNATURE_FAILURE' }, what);
    }
  });

  it('another deployment of the same name is refused on both sides', async () => {
    const foreign = await createDeployment(Date.now());
    const { client, server } = await handshake({ issued: foreign.get('gateway') }, { issued: foreign.get('node') }, { root });
    assert.match(`${client}`, /^(UNABLE_TO_|CERT_SIGNATURE_FAILURE|SELF_SIGNED)/);
    assert.equal(server, client);
  });

  it('what has ended is refused on both sides', async () => {
    const ended = await createDeployment(Date.now() - 20 * 365 * day);
    const said = await handshake(
      { issued: ended.get('gateway') },
      { issued: ended.get('node') },
      { root: ended.bundle.rootCa.certificate.der },
    );
    assert.deepEqual(said, { client: 'CERT_HAS_EXPIRED', server: 'CERT_HAS_EXPIRED' });
  });
});
