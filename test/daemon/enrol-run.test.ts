/**
 * `bcd run` with an armed enrolment, as processes of their own: against the real JoinService over a real database, so that what a machine ends as is what
 * the control plane says it is.
 */
import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { createServer } from 'node:net';
import { enrolmentPath, findEnrolment } from '../../daemon/enrol/file.ts';
import type { CrashPoint } from '../../daemon/state/crash-points.ts';
import { findIdentity } from '../../daemon/state/identity.ts';
import { findStatus } from '../../daemon/state/status-file.ts';
import { day, hour, minute } from '../../domain/time.ts';
import { createGatewayServices } from '../../services/gateway-services.ts';
import { createJoinToken } from '../../services/tokens.ts';
import { settleAndPublish } from '../../services/trust-publication.ts';
import { createDeployment, type TestDeployment } from '../harness/deployment.ts';
import { eventually } from '../harness/eventually.ts';
import { type FakeGateway, startFakeGateway } from '../harness/fake-gateway.ts';
import { useDatabase } from '../harness/postgres.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { addEnrolment } from '../services/enrolment-rows.ts';
import { certificatesOf } from '../services/identity-support.ts';
import { recordingLog } from '../services/support.ts';
import { bcdHere as bcd, type Ran } from './bcd-here.ts';
import { type Bcd, startBcd } from './bcd-process.ts';
import { pinsFile, pinsOf } from './enrol-stage.ts';

describe('bcd run with an armed enrolment', function () {
  this.timeout(180_000);
  const used = useDatabase({ max: 10 });
  let deployment: TestDeployment;
  let services: ReturnType<typeof createGatewayServices>;
  let count = 0;
  const running: { stop(): Promise<unknown> }[] = [];

  before(async () => {
    deployment = await createDeployment({ now: Date.now() - minute });
    const { bundle } = deployment;
    await settleAndPublish({ db: used.db, bundle, floorOption: 0, overlapMs: day, processId: 'api', now: Date.now(), log: recordingLog() });
    services = createGatewayServices({ db: used.db, bundle: () => bundle, log: recordingLog(), now: Date.now });
  });
  afterEach(async () => {
    for (const one of running.splice(0).toReversed()) await one.stop();
  });
  after(removeScratchFolders);

  interface Machine {
    readonly gateway: FakeGateway;
    readonly dataDir: string;
    readonly nodeId: string;
    /** Session streams that are refused as of an identity that is over. */
    readonly refusals: Set<number>;
  }

  async function machine(options: { readonly joined: boolean } = { joined: true }): Promise<Machine> {
    const refusals = new Set<number>();
    const gateway = await startFakeGateway({
      deployment,
      onJoin: (request) => services.join(request),
      refuseSession: (attempt) => (refusals.has(attempt) ? { 'grpc-status': '7', 'x-bc-reason': 'revoked' } : null),
    });
    running.push({ stop: () => gateway.close() });
    count += 1;
    const here = { gateway, dataDir: scratchFolder(), nodeId: `metal-${count}`, refusals };
    if (options.joined) await joinFirst(here);
    return here;
  }

  async function joinFirst({ gateway, dataDir, nodeId }: Machine): Promise<void> {
    const { trustDomain, bundle, siteId } = deployment;
    const order = { siteId, role: 'node' as const, nodeId, lifetimeMs: hour, actor: 'olga', now: Date.now() };
    const { token } = await createJoinToken({ db: used.db, trustDomain, joinEncryption: bundle.joinEncryption.spki, ...order });
    const pins = await pinsFile(pinsOf(deployment, gateway.url));
    assert.equal((await bcd(['join', token, '--pins', pins, '--data-dir', dataDir])).code, 0);
  }

  const ran = (result: Ran): Ran => {
    assert.equal(result.code, 0, result.err);
    return result;
  };

  interface ArmInit {
    /** Generation of the identity before. */
    readonly base?: number | null;
    readonly within?: number;
    readonly url?: string;
    readonly role?: 'node' | 'site';
  }

  /** As the control plane does it over SSH, up to the restart; every step while the daemon may run. */
  async function arm(
    { dataDir, nodeId, gateway }: Machine,
    { base = 1, within = 1_800, url = gateway.url, role = 'node' }: ArmInit = {},
  ): Promise<string> {
    const pins = await pinsFile(pinsOf(deployment, url));
    const { siteId } = deployment;
    const id = await addEnrolment(used.db, { nodeId, siteId, role, baseGeneration: base });
    const flags = ['--data-dir', dataDir, '--id', id];
    ran(await bcd(['enrol', 'prepare', ...flags, '--role', role, '--pins', pins]));
    if (url === gateway.url) ran(await bcd(['enrol', 'check', ...flags, '--pins', pins]));
    const { csrSha256 } = JSON.parse(ran(await bcd(['enrol', 'prepare', ...flags, '--role', role, '--pins', pins, '--json'])).out) as {
      csrSha256: string;
    };
    const mint = { text: `update enrolments set state = 'minted', csr_sha256 = $2, deadline = $3 where id = $1` };
    await used.db.query(mint, [id, Buffer.from(csrSha256, 'hex'), new Date(Date.now() + hour)]);
    ran(await bcd(['enrol', 'arm', ...flags, '--within', String(within)]));
    return id;
  }

  function run({ dataDir }: Machine, more: NodeJS.ProcessEnv = {}, command = 'run'): Bcd {
    const daemon = startBcd([command, '--data-dir', dataDir], { env: more });
    running.push({ stop: () => daemon.stop('SIGKILL') });
    return daemon;
  }
  const crashAt = (on: Machine, point: CrashPoint): Bcd =>
    run(on, { BETTER_COMPUTE_TEST_ONLY: 'yes', BETTER_COMPUTE_TEST_ONLY_CRASH_AT: point });

  const generationOf = async ({ dataDir }: Machine): Promise<bigint | undefined> => (await findIdentity(dataDir))?.identity.generation;
  const stateOf = async (id: string): Promise<string | undefined> =>
    (await used.db.query<{ state: string }>({ text: 'select state from enrolments where id = $1' }, [id]))[0]?.state;
  /** Of each certificate that was issued: its generation, and whether it was revoked. */
  const certificates = async ({ nodeId }: Machine) =>
    (await certificatesOf(used.db, nodeId)).filter(({ issued }) => issued).map(({ generation, revoked }) => [generation, revoked]);
  const untouched = [[1, false]];
  const renewed = [
    [1, true],
    [2, false],
  ];

  /** A daemon that ends as generation 2, with nothing left of the enrolment. */
  async function assertRenewed(on: Machine, id: string): Promise<void> {
    assert.equal(await generationOf(on), 2n);
    assert.deepEqual(await certificates(on), renewed);
    assert.equal(await stateOf(id), 'completed');
    assert.equal(await findEnrolment(on.dataDir), undefined);
  }

  it('XC-033 XC-037 XC-038 XC-043 a node that serves: prepared beside it, stopped, and started as the next generation; the one before is revoked', async () => {
    const on = await machine();
    const serving = run(on);
    const session = await on.gateway.nextSession();
    const id = await arm(on);
    assert.deepEqual([await generationOf(on), session.isClosed], [1n, false], 'it serves meanwhile');
    assert.deepEqual(await certificates(on), untouched, 'XC-041 and there is no certificate to steal');
    const stopped = await serving.stop();
    assert.equal(stopped.code, 0, stopped.stderr);
    assert.equal(await generationOf(on), 1n);
    const next = run(on);
    await on.gateway.nextSession();
    await assertRenewed(on, id);
    assert.match(next.log(), new RegExp(`completing enrolment ${id}.*until then this machine is node ${on.nodeId}, generation 1`));
    assert.match(next.log(), new RegExp(`enrolment ${id} is complete: this machine is node ${on.nodeId}, generation 2`));
    await next.stop();
    run(on);
    await on.gateway.nextSession();
    assert.deepEqual(await certificates(on), renewed, 'the start after that is one like any other');
  });

  it('XC-042 XC-043 a machine without an identity gets its first', async () => {
    const on = await machine({ joined: false });
    const id = await arm(on, { base: null });
    const asked = await bcd(['status', '--data-dir', on.dataDir]);
    assert.match(asked.err, new RegExp(`has not joined; enrolment ${id} is armed until`));
    run(on);
    await on.gateway.nextSession();
    assert.deepEqual([await generationOf(on), await certificates(on), await stateOf(id)], [1n, untouched, 'completed']);
  });

  it('XC-042 a site agent gets its first no less, before it asks itself whether it is one', async () => {
    const on = await machine({ joined: false });
    const id = await arm(on, { base: null, role: 'site' });
    const agent = run(on, {}, 'site');
    await on.gateway.nextSession();
    assert.deepEqual([(await findIdentity(on.dataDir))?.identity.role, await stateOf(id)], ['site', 'completed'], agent.log());
  });

  it('enrolment 42 the control plane refuses: the daemon goes on as what it is; the enrolment stays for the next start', async () => {
    const on = await machine();
    const id = await arm(on);
    await used.db.query({ text: `update enrolments set state = 'cancelled' where id = $1` }, [id]);
    const first = run(on);
    await on.gateway.nextSession();
    assert.deepEqual([await generationOf(on), await certificates(on), await stateOf(id)], [1n, untouched, 'cancelled']);
    assert.match(first.log(), /is not completed: .*is cancelled: it is over; going on as node metal-\d+, generation 1/);
    assert.equal((await findEnrolment(on.dataDir))?.state, 'armed');
    await first.stop();
    // A refusal is not signed: whoever said it may have lied.
    await used.db.query({ text: `update enrolments set state = 'minted' where id = $1` }, [id]);
    run(on);
    await on.gateway.nextSession();
    await assertRenewed(on, id);
  });

  /** A port where nobody answers. */
  async function nobodyThere(): Promise<string> {
    const server = createServer();
    await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    await new Promise((resolve) => void server.close(resolve));
    return `https://127.0.0.1:${port}`;
  }

  it('enrolment 42 the control plane cannot be reached until the deadline: the daemon goes on as what it is, and asks no more', async () => {
    const on = await machine();
    const id = await arm(on, { within: 2, url: await nobodyThere() });
    const first = run(on);
    await on.gateway.nextSession();
    assert.deepEqual([await generationOf(on), await certificates(on)], [1n, untouched]);
    assert.match(first.log(), /going on as node metal-\d+, generation 1/);
    await first.stop();
    await eventually('its deadline is over', async () => Date.now() > ((await findEnrolment(on.dataDir))?.deadlineMs ?? 0));
    const second = run(on);
    await on.gateway.nextSession();
    assert.match(second.log(), new RegExp(`enrolment ${id}.* was not completed in time; going on as node`));
    assert.equal(on.gateway.joins.length, 1, 'the first join of this node alone');
  });

  it('says what it waits for, stops when it is told to, and goes on when the enrolment is abandoned', async () => {
    const on = await machine();
    const id = await arm(on, { url: await nobodyThere() });
    const waiting = run(on);
    const report = await eventually('enrolling', async () => {
      const found = await findStatus(on.dataDir);
      return found?.state === 'enrolling' && found;
    });
    assert.equal(report.generation, '1');
    const status = (await bcd(['status', '--data-dir', on.dataDir])).out;
    assert.match(status, new RegExp(`daemon: +enrolling \\(pid \\d+\\): completing enrolment ${id}, armed until 20`));
    assert.match(status, new RegExp(`enrolment: +${id} is armed until 20`));
    const end = await waiting.stop();
    assert.equal(end.signal, null, 'it left by itself');
    assert.equal(await generationOf(on), 1n);
    const again = run(on);
    await eventually('it tries', () => /trying again/.test(again.log()));
    ran(await bcd(['enrol', 'abandon', '--data-dir', on.dataDir, '--id', id]));
    await on.gateway.nextSession();
    assert.match(again.log(), /is not completed: it was abandoned on this machine; going on as node/);
    assert.deepEqual([await generationOf(on), await certificates(on)], [1n, untouched]);
  });

  const points: [point: CrashPoint, generationAfter: bigint, completed: boolean][] = [
    ['join-unasked', 1n, false],
    ['join-answered', 1n, true],
    ['join-uninstalled', 1n, true],
    ['join-installed', 2n, true],
    ['enrolment-removed', 2n, true],
  ];
  for (const [point, generationAfter, completed] of points)
    it(`enrolment 45 killed at ${point}, it is generation ${generationAfter} still or already, and the next start makes it 2`, async () => {
      const on = await machine();
      const id = await arm(on);
      const end = await crashAt(on, point).ended;
      assert.equal(end.signal, 'SIGKILL', end.stderr);
      assert.equal(await generationOf(on), generationAfter, 'an identity that is whole');
      assert.equal(await stateOf(id), completed ? 'completed' : 'minted');
      run(on);
      await on.gateway.nextSession();
      await assertRenewed(on, id);
    });

  async function endDeadline({ dataDir }: Machine): Promise<void> {
    const stored = JSON.parse(await readFile(enrolmentPath(dataDir), 'utf8')) as object;
    await writeFile(enrolmentPath(dataDir), JSON.stringify({ ...stored, deadlineMs: Date.now() - 1 }));
  }

  it('XC-043 an answer that got lost, and the deadline over: the identity in force is told to be over, and the machine asks once more before it parks', async () => {
    const on = await machine();
    const id = await arm(on);
    await crashAt(on, 'join-answered').ended;
    assert.deepEqual([await generationOf(on), await stateOf(id)], [1n, 'completed']);
    await endDeadline(on);
    on.refusals.add(on.gateway.attempts + 1);
    const late = run(on);
    await on.gateway.nextSession();
    await assertRenewed(on, id);
    assert.match(late.log(), /was not completed in time; going on as node .*generation 1/);
    assert.doesNotMatch(late.log(), /Join again/, 'no person was asked');
  });

  it('parks as ever where the enrolment does not help', async () => {
    const on = await machine();
    const id = await arm(on);
    await used.db.query({ text: `update enrolments set state = 'failed' where id = $1` }, [id]);
    on.refusals.add(on.gateway.attempts + 1);
    run(on);
    await eventually('parked', async () => (await findStatus(on.dataDir))?.state === 'parked');
    assert.deepEqual([await generationOf(on), (await findEnrolment(on.dataDir))?.state], [1n, 'armed']);
  });

  it('without an identity and in vain it is a machine that has not joined: asked once behind the deadline, and saying so', async () => {
    const on = await machine({ joined: false });
    const id = await arm(on, { base: null });
    await used.db.query({ text: `update enrolments set state = 'failed' where id = $1` }, [id]);
    await endDeadline(on);
    const before = on.gateway.joins.length;
    const end = await run(on).ended;
    assert.equal(end.code, 5);
    assert.match(end.stderr, /error: no identity in .*: this machine has not joined/);
    assert.equal(on.gateway.joins.length, before + 1);
  });
});
