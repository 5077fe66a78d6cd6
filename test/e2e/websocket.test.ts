/**
 * WS-032: bcd behind a proxy that takes TLS apart. Api, gateway and bcd are processes; the machine joins over gRPC, is moved to the
 * WebSocket by its configuration, runs a signed command there and renews over POST /v1/renew.
 */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { writeTlsFiles } from '../../cli/stack/tls-files.ts';
import { renewIdentity } from '../../daemon/agent/renewal.ts';
import { getIdentity } from '../../daemon/state/identity.ts';
import { findStatus } from '../../daemon/state/status-file.ts';
import { webSocketRoute } from '../../daemon/transport/websocket/route.ts';
import { createServerClock } from '../../daemon/trust/server-clock.ts';
import { codeOf } from '../../domain/errors.ts';
import { hour, second } from '../../domain/time.ts';
import { createBundle, encodeBundle, type PkiBundle } from '../../pki/bundle/index.ts';
import { parseCertificate } from '../../pki/x509/index.ts';
import { createBundleFileStore } from '../../runtime/bundle-file-store.ts';
import { claimPort } from '../../scripts/lib/free-port.mjs';
import { enqueueCommands, findCommand } from '../../services/command-queue.ts';
import { bearer, post } from '../api/support.ts';
import { type Bcd, startBcd } from '../daemon/bcd-process.ts';
import { eventually } from '../harness/eventually.ts';
import { useDatabase } from '../harness/postgres.ts';
import { type Program, startProgram } from '../harness/program.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { command, keyring } from '../services/support.ts';
import { startTlsProxy, type TlsProxy } from '../websocket/proxy.ts';

const trustDomain = 'compute.example.com';

describe('bcd over a WebSocket, as processes', function () {
  this.timeout(240_000);
  // Before the database's own hook, which finds no connection left open then.
  after(async () => {
    await bcd?.stop();
    await proxy?.stop();
    await gateway?.stop('SIGKILL');
    await api?.stop('SIGKILL');
    removeScratchFolders();
  });
  const used = useDatabase();
  const nodeId = 'host-1';
  let bundle: PkiBundle;
  let dataDir: string;
  let api: Program;
  let gateway: Program;
  let proxy: TlsProxy;
  let bcd: Bcd | undefined;
  let config: string;

  before(async () => {
    const folder = scratchFolder();
    const secret = 'a secret of at least thirty-two characters';
    bundle = await createBundle({ trustDomain, now: Date.now() });
    await createBundleFileStore(join(folder, 'pki.json')).create(encodeBundle(bundle, { secret }));
    await writeTlsFiles(join(folder, 'tls'), { bundle, names: { dns: ['localhost'], ips: ['127.0.0.1'] }, now: Date.now() });
    writeFileSync(join(folder, 'operator.token'), `${bearer}\n`, { mode: 0o600 });
    const port = async (who: string): Promise<number> => claimPort({ port: 0, who, setBy: 'this test' });
    const [gatewayPort, internalPort] = [await port('the gateway'), await port('the api')];
    api = await startProgram('api/main', {
      BETTER_COMPUTE_HOME: folder,
      BETTER_COMPUTE_DATABASE_URL: used.url,
      BETTER_COMPUTE_SECRET: secret,
      BETTER_COMPUTE_API_PORT: '0',
      BETTER_COMPUTE_INTERNAL_PORT: String(internalPort),
      BETTER_COMPUTE_GATEWAY_URL: `https://localhost:${gatewayPort}`,
      TEMPORAL_ADDRESS: '127.0.0.1:1',
    });
    gateway = await startProgram('gateway/main', {
      BETTER_COMPUTE_DATABASE_URL: used.url,
      BETTER_COMPUTE_TLS: join(folder, 'tls'),
      BETTER_COMPUTE_TRUST_DOMAIN: trustDomain,
      BETTER_COMPUTE_GATEWAY_ID: 'gw-1',
      BETTER_COMPUTE_GATEWAY_HOST: '127.0.0.1',
      BETTER_COMPUTE_GATEWAY_PORT: String(gatewayPort),
      BETTER_COMPUTE_GATEWAY_WEBSOCKET_PORT: '0',
      BETTER_COMPUTE_INTERNAL_URL: `https://localhost:${internalPort}`,
    });
    proxy = await startTlsProxy({ to: Number(gateway.addresses['websocket']?.split(':')[1]) });
    const { body } = await post(`${api.addresses['api']}/v1/tokens`, { actor: 'ann', siteId: 'eu-1', nodeId });
    dataDir = join(folder, 'bcd');
    const joined = await startBcd(['join', '--data-dir', dataDir, String(body['join'])]).ended;
    assert.equal(joined.code, 0, joined.stderr);
    writeFileSync(join(folder, 'proxy.pem'), proxy.ca);
    config = join(folder, 'bcd.json');
    writeFileSync(config, JSON.stringify({ websocket: { url: `wss://localhost:${proxy.port}`, proxyCaFile: join(folder, 'proxy.pem') } }));
  });

  it('WS-017 WS-032 runs a signed inventory.refresh through the proxy', async () => {
    bcd = startBcd(['run', '--data-dir', dataDir, '--config', config]);
    await eventually('bcd is connected', async () => (await findStatus(dataDir))?.state === 'connected', 120_000);
    const worker = await keyring(used.db, { bundle: () => bundle, now: Date.now });
    const request = command(nodeId, { deadlineMs: Date.now() + hour });
    await enqueueCommands({
      db: used.db,
      worker,
      trustDomain,
      now: Date.now(),
      poke: () => undefined,
      commands: [request],
    });
    await eventually('it is done', async () => (await findCommand(used.db, request.id))?.state === 'done', 60_000);
    assert.ok(Buffer.concat(proxy.seen).includes('/v1/session'), 'the proxy saw the handshake');
  });

  it('WS-010 WS-013 WS-032 the control plane renews what comes over POST /v1/renew, and refuses the same request a second time', async () => {
    const stored = await getIdentity(dataDir);
    const route = webSocketRoute({ url: `wss://localhost:${proxy.port}`, proxyCa: proxy.ca, env: {} });
    const { identity, key } = stored;
    const context = { identity, client: { chain: identity.chain, key }, timeoutMs: 20 * second, signal: new AbortController().signal };
    const sent: Uint8Array[] = [];
    // A certificate ends on a whole second: the renewed one later than the first.
    await eventually('a second has passed', () => Date.now() > parseCertificate(identity.chain[0] as Uint8Array).notBefore + 62 * second);
    const renewed = await renewIdentity(stored, {
      clock: createServerClock({ wallMs: Date.now, steadyMs: () => performance.now() }, 0),
      attest: async () => new Uint8Array(),
      call(request) {
        sent.push(request);
        return route.renew(request, { ...context, now: Date.now() });
      },
    });
    const serialOf = (chain: readonly Uint8Array[]): string => parseCertificate(chain[0] as Uint8Array).serial;
    assert.notEqual(serialOf(renewed.identity.chain), serialOf(identity.chain));
    await assert.rejects(route.renew(sent[0] as Uint8Array, { ...context, now: Date.now() }), { code: 'REPLAYED' });
  });

  it('WS-014 a seventh renewal within the hour is refused with the time to wait', async () => {
    const stored = await getIdentity(dataDir);
    const { identity, key } = stored;
    const route = webSocketRoute({ url: `wss://localhost:${proxy.port}`, proxyCa: proxy.ca, env: {} });
    const context = { identity, client: { chain: identity.chain, key }, timeoutMs: 20 * second, signal: new AbortController().signal };
    const clock = createServerClock({ wallMs: Date.now, steadyMs: () => performance.now() }, 0);
    const renew = (): Promise<unknown> =>
      renewIdentity(stored, {
        clock,
        attest: async () => new Uint8Array(),
        call: (request) => route.renew(request, { ...context, now: Date.now() }),
      });
    const refusals: unknown[] = [];
    for (let attempt = 0; attempt < 7; attempt += 1) await renew().catch((error: unknown) => void refusals.push(error));
    const refused = refusals.find((error) => codeOf(error) === 'RATE_LIMITED');
    const { details } = refused as { details: { reason: string; pushbackMs: number } };
    assert.equal(details.reason, 'renew-rate-limit');
    assert.ok(details.pushbackMs > 0 && details.pushbackMs <= hour);
  });
});
