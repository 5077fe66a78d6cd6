import assert from 'node:assert/strict';
import { backoffLimits } from '../../daemon/transport/backoff.ts';
import { type Fleet, type FleetOptions, startFleet } from '../fakes/fleet.ts';
import { MemoryStore } from '../gateway/memory-store.ts';
import { type CommandInit, createDeployment, joinedNode, type TestDeployment, type TrustInit } from '../harness/deployment.ts';
import { eventually } from '../harness/eventually.ts';
import { enqueueSigned, publishTrust, type RealGateway, startRealGateway } from './real-gateway.ts';

/** The daemon's own code against the gateway's own code, over real TLS; only the database and the machines are in memory. */
describe('a fleet of daemons on a real gateway', () => {
  let deployment: TestDeployment;
  const running: { stop(): Promise<unknown> }[] = [];

  before(async () => {
    deployment = await createDeployment();
  });
  afterEach(async () => {
    for (const one of running.splice(0).toReversed()) await one.stop();
  });

  async function startGateway(store: MemoryStore): Promise<RealGateway> {
    const started = await startRealGateway(deployment, { store });
    running.push(started);
    return started;
  }

  async function fleetAt(gatewayUrl: string, count: number, options: Partial<FleetOptions> = {}): Promise<Fleet> {
    const identities = await Promise.all(
      Array.from({ length: count }, (_, n) => joinedNode(deployment, { gatewayUrl, nodeId: `node-${n}` })),
    );
    const fleet = startFleet({ identities, limits: { ...backoffLimits, baseMs: 20, capMs: 200 }, ...options });
    running.push(fleet);
    return fleet;
  }

  const publish = (store: MemoryStore, init: TrustInit): Promise<void> => publishTrust(deployment, store, init);

  const enqueue = (store: MemoryStore, nodeId: string, init: CommandInit & { id: string }): Promise<string> =>
    enqueueSigned(deployment, store, { ...init, nodeId });

  it('TRN-030 TRN-031 ROT-015 ROT-016 ROT-017 ROT-026 every daemon takes the published bundle with its Welcome and reports it; the command behind it runs once', async function () {
    this.timeout(60_000);
    const store = new MemoryStore();
    await publish(store, { version: 2, roots: [deployment.rootA, deployment.rootB] });
    const { url } = await startGateway(store);
    const count = 40;
    // Signed under the new root: it runs only where the bundle came first.
    for (let n = 0; n < count; n++) await enqueue(store, `node-${n}`, { id: `c-${n}`, worker: deployment.workerB });
    const fleet = await fleetAt(url, count);
    await fleet.whenConnected();
    await eventually('all results', () => store.results.size === count);
    assert.deepEqual([...fleet.trustVersions()], [[2, count]]);
    assert.equal(fleet.effects(), count);
    for (const member of fleet.members) assert.equal(member.status().lastRefusal ?? null, null);
    await eventually('all versions are reported', () => store.sessions.filter((session) => session.reportedTrust === 2).length === count);
  });

  it('B51 B52 a second session of one node takes over, and the first daemon is never lost for good', async () => {
    const store = new MemoryStore();
    await publish(store, { version: 1, roots: [deployment.rootA] });
    const { url } = await startGateway(store);
    const one = await fleetAt(url, 1);
    await one.whenConnected();
    const twin = await fleetAt(url, 1);
    await twin.whenConnected();
    await eventually('the first one was told', () => one.members[0]?.status().lastFailure?.reason === 'superseded');
    await twin.stop();
    await one.whenConnected();
  });

  it('B37 a gateway that drains loses nobody: each daemon is welcomed again, and its commands go on', async function () {
    this.timeout(60_000);
    const store = new MemoryStore();
    await publish(store, { version: 1, roots: [deployment.rootA] });
    const { gateway, url, port } = await startGateway(store);
    const fleet = await fleetAt(url, 10);
    await fleet.whenConnected();
    await gateway.close();
    running.push(await startRealGateway(deployment, { store, gatewayId: 'gw-2', port }));
    await fleet.whenConnected();
    for (let n = 0; n < 10; n++) await enqueue(store, `node-${n}`, { id: `after-${n}` });
    await eventually('all results', () => store.results.size === 10);
  });
});
