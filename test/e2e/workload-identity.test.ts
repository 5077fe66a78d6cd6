/**
 * Workload identity from end to end: api, gateway and bcd are processes, the instances are fakehw's on addresses of this machine, and what
 * a program inside an instance gets is verified as a stranger verifies it, against the published keys.
 */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createLocalJWKSet, type JSONWebKeySet, jwtVerify } from 'jose';
import { writeTlsFiles } from '../../cli/stack/tls-files.ts';
import { findStatus } from '../../daemon/state/status-file.ts';
import { createBundle, encodeBundle } from '../../pki/bundle/index.ts';
import { createBundleFileStore } from '../../runtime/bundle-file-store.ts';
import { claimPort } from '../../scripts/lib/free-port.mjs';
import { createReservation, endReservation, findReservation } from '../../services/capacity/reservations.ts';
import { revokeNode } from '../../services/revocation.ts';
import { endInstance, placeInstance } from '../../services/workload-instances.ts';
import { bearer, post } from '../api/support.ts';
import { type Bcd, startBcd } from '../daemon/bcd-process.ts';
import { eventually } from '../harness/eventually.ts';
import { type HttpAnswer, httpFrom, metadataSession } from '../harness/http-from.ts';
import { useDatabase } from '../harness/postgres.ts';
import { type Program, startProgram } from '../harness/program.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';

const issuer = 'https://id.example.com/wid';
const audience = 'https://db.example.com';
const [first, second, stranger] = ['127.0.0.21', '127.0.0.22', '127.0.0.23'];

describe('workload identity from end to end', function () {
  this.timeout(240_000);
  // Before the database's own hook, which finds no connection left open then.
  after(async () => {
    await bcd?.stop();
    await gateway?.stop('SIGKILL');
    await api?.stop('SIGKILL');
    removeScratchFolders();
  });
  const used = useDatabase();
  const nodeId = 'host-1';
  let folder: string;
  let dataDir: string;
  let api: Program;
  let gateway: Program;
  let bcd: Bcd;
  let metadata: string;
  let apiEnv: NodeJS.ProcessEnv;

  const instancesPath = (): string => join(folder, 'instances.json');
  const declare = (instances: readonly object[]): Promise<void> => writeFile(instancesPath(), JSON.stringify({ instances }));
  const both = [
    { instanceId: 'i-1', address: first },
    { instanceId: 'i-2', address: second },
  ];

  before(async () => {
    folder = scratchFolder();
    const now = Date.now();
    const secret = 'a secret of at least thirty-two characters';
    const bundle = await createBundle({ trustDomain: 'compute.example.com', now });
    await createBundleFileStore(join(folder, 'pki.json')).create(encodeBundle(bundle, { secret }));
    await writeTlsFiles(join(folder, 'tls'), { bundle, names: { dns: ['localhost'], ips: ['127.0.0.1'] }, now });
    writeFileSync(join(folder, 'operator.token'), `${bearer}\n`, { mode: 0o600 });
    const port = async (who: string): Promise<number> => claimPort({ port: 0, who, setBy: 'this test' });
    const [gatewayPort, internalPort, imdsPort] = [await port('the gateway'), await port('the api'), await port('the metadata service')];
    const shared = { BETTER_COMPUTE_HOME: folder, BETTER_COMPUTE_DATABASE_URL: used.url };
    apiEnv = {
      ...shared,
      BETTER_COMPUTE_SECRET: secret,
      BETTER_COMPUTE_API_PORT: '0',
      BETTER_COMPUTE_INTERNAL_PORT: String(internalPort),
      BETTER_COMPUTE_GATEWAY_URL: `https://localhost:${gatewayPort}`,
      BETTER_COMPUTE_WORKLOAD_ISSUER: issuer,
      BETTER_COMPUTE_WORKLOAD_AUDIENCES: audience,
      TEMPORAL_ADDRESS: '127.0.0.1:1',
    };
    api = await startProgram('api/main', apiEnv);
    gateway = await startProgram('gateway/main', {
      BETTER_COMPUTE_DATABASE_URL: used.url,
      BETTER_COMPUTE_TLS: join(folder, 'tls'),
      BETTER_COMPUTE_TRUST_DOMAIN: 'compute.example.com',
      BETTER_COMPUTE_GATEWAY_ID: 'gw-1',
      BETTER_COMPUTE_GATEWAY_HOST: '127.0.0.1',
      BETTER_COMPUTE_GATEWAY_PORT: String(gatewayPort),
      BETTER_COMPUTE_INTERNAL_URL: `https://localhost:${internalPort}`,
    });
    const { body } = await post(`${api.addresses['api']}/v1/tokens`, { actor: 'ann', siteId: 'eu-1', nodeId });
    dataDir = join(folder, 'bcd');
    const joined = await startBcd(['join', '--data-dir', dataDir, String(body['join'])]).ended;
    assert.equal(joined.code, 0, joined.stderr);
    await declare(both);
    const listen = `127.0.0.1:${imdsPort}`;
    bcd = startBcd(['run', '--data-dir', dataDir, '--imds-listen', listen, '--fakehw-instances', instancesPath()]);
    metadata = `http://${listen}`;
    await eventually('bcd is connected', async () => (await findStatus(dataDir))?.state === 'connected', 120_000);
    for (const { instanceId } of both) await placeInstance(used.db, { instanceId, tenantId: 'acme', nodeId }, Date.now());
  });
  const askFrom = async (from: string, query = ''): Promise<HttpAnswer> =>
    httpFrom(`${metadata}/v1/identity-token${query}`, { from, headers: { 'metadata-token': await metadataSession(metadata, from) } });

  /** As any relying party does: by the issuer's published keys alone. */
  async function verified(token: unknown, aud: string) {
    const published = await fetch(`${api.addresses['api']}/wid/.well-known/jwks.json`);
    const keys = createLocalJWKSet((await published.json()) as JSONWebKeySet);
    return (await jwtVerify(String(token), keys, { issuer, audience: aud, algorithms: ['ES256'], typ: 'JWT' })).payload;
  }
  const reasonOf = ({ body }: HttpAnswer): unknown => (body['details'] as { reason: string }).reason;

  it('WID-001 WID-027 WID-028 an instance gets its own token over bcd, gateway and broker, which a stranger verifies', async () => {
    for (const { address: from, instanceId } of both) {
      const answer = await askFrom(from);
      assert.equal(answer.status, 200, answer.text);
      const claims = await verified(answer.body['token'], issuer);
      assert.deepEqual([claims.sub, claims['tenant_id']], [`t:acme:instance:${instanceId}`, 'acme']);
      assert.equal(answer.body['expiresAt'], new Date(Number(claims.exp) * 1_000).toISOString());
    }
    const named = await askFrom(first, `?audience=${encodeURIComponent(audience)}`);
    assert.equal((await verified(named.body['token'], audience)).aud, audience);
    assert.ok(!bcd.log().includes('eyJ'), 'no token is logged');
  });

  it('WID-040 an address that no running instance holds is refused, and an instance that the host stopped', async () => {
    const unknown = await httpFrom(`${metadata}/v1/identity-token`, { from: stranger });
    assert.deepEqual([unknown.status, reasonOf(unknown)], [403, 'unknown-address']);
    await declare([{ ...both[0], state: 'stopped' }, { ...both[1] }]);
    const stopped = await httpFrom(`${metadata}/v1/token`, {
      from: first,
      method: 'PUT',
      headers: { 'metadata-token-expiry-seconds': '60' },
    });
    assert.deepEqual([stopped.status, reasonOf(stopped)], [403, 'unknown-address']);
    assert.equal((await askFrom(second)).status, 200);
    await declare(both);
  });

  it('WID-036 the control plane has the last word: another audience, an instance that ended, one that another node runs', async () => {
    const audienceRefused = await askFrom(first, '?audience=https%3A%2F%2Fevil.example.com');
    assert.deepEqual([audienceRefused.status, reasonOf(audienceRefused)], [403, 'audience']);
    assert.equal(await endInstance(used.db, { instanceId: 'i-2', nodeId }, Date.now()), true);
    const ended = await askFrom(second);
    assert.deepEqual([ended.status, reasonOf(ended)], [403, 'not-bound']);
    await declare([...both, { instanceId: 'i-never-placed', address: stranger }]);
    const claimed = await askFrom(stranger);
    assert.deepEqual([claimed.status, reasonOf(claimed)], [403, 'not-bound']);
    await declare(both);
  });

  it('SIGN-014 an instance whose host says by its own key that its allocation is bound gets tokens, and none after the end', async () => {
    const reservation = { id: 'r-1', tenantId: 'default', nodeId, allocationId: 'i-3', actor: 'ann' };
    await createReservation(used.db, reservation, Date.now());
    await declare([...both, { instanceId: 'i-3', address: stranger }]);
    const pending = await askFrom(stranger);
    assert.deepEqual([pending.status, reasonOf(pending)], [403, 'not-bound']);
    await declare([...both, { instanceId: 'i-3', address: stranger, reservationId: 'r-1' }]);
    await eventually('the reservation is active', async () => (await findReservation(used.db, 'r-1'))?.state === 'active', 120_000);
    const active = await askFrom(stranger);
    assert.equal(active.status, 200, active.text);
    assert.equal((await verified(active.body['token'], issuer)).sub, 't:default:instance:i-3');
    await endReservation(used.db, { id: 'r-1', actor: 'ann' }, Date.now());
    assert.equal(reasonOf(await askFrom(stranger)), 'not-bound');
    await declare(both);
  });

  it('WID-037 while the broker is down there is none, and the answer says when to ask again; it comes back by itself', async () => {
    await api.stop('SIGKILL');
    const down = await askFrom(first);
    assert.deepEqual([down.status, reasonOf(down), down.headers['retry-after']], [503, 'unavailable', '5']);
    api = await startProgram('api/main', apiEnv);
    // It may say too-often meanwhile, for a minute.
    await eventually('the broker answers again', async () => (await askFrom(first)).status === 200, 120_000);
  });

  it('WID-041 a host whose identity was revoked speaks for no instance any more', async () => {
    await revokeNode({ db: used.db, nodeId, reason: 'stolen', actor: 'ann', now: Date.now() });
    await eventually('bcd is parked', async () => (await findStatus(dataDir))?.state === 'parked');
    const answer = await askFrom(first);
    assert.deepEqual([answer.status, reasonOf(answer)], [503, 'not-connected']);
  });
});
