/** The routes of machines over a real database: whose they are, what is refused, and that nothing is half done. */
import assert from 'node:assert/strict';
import { ControlError } from '../../domain/errors.ts';
import { parseProfileText } from '../../services/metal/profile-text.ts';
import { createTenant } from '../../services/tenants.ts';
import { useDatabase } from '../harness/postgres.ts';
import { profileYaml } from '../harness/profile.ts';
import { addBootEntry } from '../services/metal-rows.ts';
import { type BatchApi, operatorToken, startBatchApi } from './batch-api.ts';

interface Answer {
  readonly status: number;
  readonly body: any;
}

describe('machines over the api', function () {
  this.timeout(30_000);
  const used = useDatabase({ max: 10 });
  let api: BatchApi;
  before(async () => {
    await createTenant(used.db, { id: 'acme', actor: 'ann', now: Date.now() });
    api = await startBatchApi(used.db);
  });
  after(() => api.close());
  beforeEach(() => void api.metalAsked.splice(0));

  async function call(path: string, { token = operatorToken, body }: { token?: string; body?: unknown } = {}): Promise<Answer> {
    const response = await fetch(`${api.url}${path}`, {
      method: body === undefined ? 'GET' : 'POST',
      headers: { authorization: `Bearer ${token}`, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    return { status: response.status, body: await response.json() };
  }
  const post = (path: string, body: unknown, token?: string) => call(path, { body, ...(token === undefined ? {} : { token }) });
  const person = (over: object = {}) =>
    api.sign({ sub: 'olga', bc_tenants: ['acme'], bc_permissions: ['machines.read', 'machines.operate'], ...over });
  const isRefused = ({ status, body }: Answer, expected: { status: number; reason: string; message?: RegExp }): void => {
    assert.deepEqual([status, body.details?.reason], [expected.status, expected.reason], JSON.stringify(body));
    if (expected.message !== undefined) assert.match(body.detail, expected.message);
  };
  let next = 0;
  /** A machine of its own for each test. */
  async function add(over: object = {}): Promise<string> {
    next += 1;
    const machine = { id: `m-${next}`, siteId: 'hel-1', rack: 'r7', bmcAddress: `10.7.1.${next}`, serial: `SN-${next}-X`, ...over };
    const answer = await post('/v1/machines', { machine });
    assert.equal(answer.status, 201, JSON.stringify(answer.body));
    return machine.id;
  }
  const words = { reason: 'ticket 4711' };

  it('adds a machine and shows it, all of it', async () => {
    const id = await add({ macAddresses: ['3C-EC-EF-00-01-17'] });
    const { status, body } = await call(`/v1/machines/${id}`);
    assert.equal(status, 200, JSON.stringify(body));
    const { siteId, rack, state, bmc, credentialRef, run, live, identities, tenantId, connected } = body;
    assert.deepEqual(
      { siteId, rack, state, bmc, credentialRef, run, live, tenantId, connected },
      {
        siteId: 'hel-1',
        rack: 'r7',
        state: 'registered',
        bmc: '10.7.1.1',
        credentialRef: `secret://bmc/${id}`,
        run: null,
        live: null,
        tenantId: 'default',
        connected: false,
      },
    );
    assert.deepEqual(
      identities.map(({ value }: { value: string }) => value),
      ['3c:ec:ef:00:01:17', 'SN-1-X'],
    );
  });

  it('says of a bad machine every field at once, and adds none of it', async () => {
    const machine = {
      id: 'a b',
      siteId: 'hel-1',
      bmcAddress: 'https://10.7.0.1/',
      macAddresses: ['ff:ff:ff:ff:ff:ff'],
      bmcPinSha256: 'XY',
    };
    const answer = await post('/v1/machines', { machine });
    isRefused(answer, { status: 400, reason: 'bad-machine' });
    const fields = answer.body.details.problems.map(({ field }: { field: string }) => field);
    assert.deepEqual(fields, ['id', 'bmcAddress', 'bmcPinSha256', 'macAddresses']);
    isRefused(await call('/v1/machines/a%20b'), { status: 404, reason: 'unknown-machine' });
  });

  it('takes an inventory whole or not at all: with line and field of what stands against it', async () => {
    const known = await add({ bmcAddress: '10.9.0.1' });
    const importing = (text: string, more: object = {}) => post('/v1/machines/import', { text, format: 'csv', ...more });
    const head = 'id,site,rack,bmc,serial\n';
    const bad = await importing(`${head}i-1,hel-1,r1,10.9.1.1,A1B2\ni-2,hel-1,r1,not an address,A1B3\ni-1,hel-1,r1,10.9.1.3,A1B4\n`);
    isRefused(bad, { status: 400, reason: 'bad-inventory', message: /line 3, bmc: .*not an address/ });
    assert.match(bad.body.detail, /line 4, id: /);
    const clash = await importing(`${head}i-1,hel-1,r1,10.9.1.1,A1B2\ni-2,hel-1,r1,10.9.0.1,A1B3\n`);
    isRefused(clash, { status: 400, reason: 'bad-inventory', message: new RegExp(`line 3, bmc: controller 10.9.0.1 .* machine ${known}`) });
    for (const id of ['i-1', 'i-2']) isRefused(await call(`/v1/machines/${id}`), { status: 404, reason: 'unknown-machine' });
    const good = `${head}i-1,hel-1,r1,10.9.1.1,A1B2\ni-2,hel-1,r2,10.9.1.2,A1B3\n`;
    assert.deepEqual((await importing(good, { dryRun: true })).body, { added: ['i-1', 'i-2'], dryRun: true });
    isRefused(await call('/v1/machines/i-1'), { status: 404, reason: 'unknown-machine' });
    assert.deepEqual((await importing(good)).body, { added: ['i-1', 'i-2'], dryRun: false });
    const listed = await call('/v1/machines?site=hel-1&state=registered&after=i-&limit=2');
    assert.deepEqual([listed.body.machines.map(({ id }: { id: string }) => id), listed.body.next], [['i-1', 'i-2'], 'i-2']);
  });

  it('QUO-025 a machine of another tenant is not there, and none is added for a tenant that is not the caller’s', async () => {
    const [own, other] = [await add({ tenantId: 'acme' }), await add()];
    const token = await person();
    assert.equal((await call(`/v1/machines/${own}`, { token })).status, 200);
    isRefused(await call(`/v1/machines/${other}`, { token }), { status: 404, reason: 'unknown-machine' });
    const listed = await call('/v1/machines', { token });
    assert.deepEqual(
      listed.body.machines.map(({ id }: { id: string }) => id),
      [own],
    );
    for (const [path, body] of [
      ['inspect', words],
      ['retire', words],
      ['rotate-bmc', words],
      ['provision', { ...words, profile: {} }],
      ['cancel', words],
      ['give-up', words],
      ['override', { ...words, step: 'boot' }],
      ['release', words],
      ['forget', words],
      ['readmit', words],
    ] as const)
      isRefused(await post(`/v1/machines/${other}/${path}`, body, token), { status: 404, reason: 'unknown-machine' });
    const profile = parseProfileText(profileYaml, 'p');
    isRefused(await post('/v1/fleet/reimage', { ...words, run: 'r', machines: [own, other], profile }, token), {
      status: 404,
      reason: 'unknown-node',
    });
    const machine = { id: 'm-x', siteId: 'hel-1', bmcAddress: '10.8.0.1' };
    isRefused(await post('/v1/machines', { machine }, token), { status: 403, reason: 'tenant' });
    const text = 'id,site,bmc,tenant\nm-y,hel-1,10.8.0.2,acme\nm-z,hel-1,10.8.0.3,default\n';
    isRefused(await post('/v1/machines/import', { text, format: 'csv' }, token), { status: 403, reason: 'tenant' });
    assert.deepEqual(api.metalAsked, []);
  });

  it('takes a permission to read, and another one to act', async () => {
    const id = await add({ tenantId: 'acme' });
    const reader = await person({ bc_permissions: ['machines.read'] });
    isRefused(await post(`/v1/machines/${id}/inspect`, words, reader), { status: 403, reason: 'permission', message: /machines\.operate/ });
    const nobody = await person({ bc_permissions: ['batches.read'] });
    for (const path of ['/v1/machines', `/v1/machines/${id}`, '/v1/machine-counts', '/v1/runs', '/v1/sites'])
      isRefused(await call(path, { token: nobody }), { status: 403, reason: 'permission' });
  });

  it('starts a run under the name that the caller has', async () => {
    const id = await add({ tenantId: 'acme' });
    const answer = await post(`/v1/machines/${id}/inspect`, words, await person());
    assert.deepEqual([answer.status, answer.body], [202, { workflowId: `machine/${id}/inspect`, runId: 'r' }]);
    assert.deepEqual(api.metalAsked, [['inspect', { machineId: id, actor: 'olga', reason: 'ticket 4711' }]]);
    isRefused(await post(`/v1/machines/${id}/inspect`, { ...words, actor: 'ann' }, await person()), { status: 400, reason: 'actor' });
  });

  it('refuses a profile that cannot be used before a run begins, and says what is wrong with a text by line and field', async () => {
    const id = await add();
    const profile = parseProfileText(profileYaml, 'p');
    const bad = { ...profile, wipe: { ...profile.wipe, samples: 0 } };
    isRefused(await post(`/v1/machines/${id}/provision`, { ...words, profile: bad }), {
      status: 400,
      reason: 'bad-profile',
      message: /wipe\.samples/,
    });
    assert.deepEqual(api.metalAsked, []);
    assert.equal((await post(`/v1/machines/${id}/provision`, { ...words, profile })).status, 202);
    assert.deepEqual(api.metalAsked, [['provision', { machineId: id, actor: 'operator', reason: 'ticket 4711', profile }]]);
    const good = await post('/v1/profiles/validate', { text: profileYaml });
    assert.deepEqual([good.body.name, good.body.problems], ['gpu-worker', []]);
    assert.ok(['bmc.power', 'disk.wipe', 'deploy.image', 'boot.kexec'].every((kind) => good.body.kinds.includes(kind)));
    const { body } = await post('/v1/profiles/validate', {
      text: profileYaml.replace('samples: 64', 'samples: 0').replace('by: kexec', 'by: magic'),
    });
    assert.deepEqual(
      [body.name, body.problems.map(({ line, field }: { line: number; field: string }) => `${line} ${field}`)],
      [null, ['7 wipe.samples', '16 start.by']],
    );
  });

  it('M58 gives up a run whose workflow is gone: the run ends by what the database knows', async () => {
    const id = await add();
    isRefused(await post(`/v1/machines/${id}/give-up`, words), { status: 404, reason: 'no-run' });
    const { runId } = await addBootEntry(used.db, { nodeId: id, siteId: 'hel-1' });
    await used.db.query({ text: `update machines set state = 'provisioning' where id = $1` }, [id]);
    const waits = await post(`/v1/machines/${id}/cancel`, words);
    assert.deepEqual([waits.status, waits.body.told], [200, 'waits']);
    api.steering.refuses = new ControlError('NOT_FOUND', 'the workflow is not running', { details: { reason: 'not-running' } });
    isRefused(await post(`/v1/machines/${id}/cancel`, words), { status: 404, reason: 'not-running' });
    const ended = await post(`/v1/machines/${id}/give-up`, words);
    api.steering.refuses = null;
    assert.deepEqual([ended.body.told, ended.body.end, ended.body.remains], ['ended', 'failed', 'untouched']);
    const { body } = await call(`/v1/runs/${runId}`);
    assert.deepEqual([body.state, body.endReason, body.endedBy], ['failed', 'workflow-gone: ticket 4711', 'operator']);
    assert.deepEqual(
      api.metalAsked.map(([what]) => what),
      ['cancel', 'cancel', 'give-up'],
    );
  });

  it('M55 lets a machine out of quarantine by name and reason, forgets it with a tombstone, and lifts that', async () => {
    const id = await add({ serial: 'DIRTY-1' });
    isRefused(await post(`/v1/machines/${id}/release`, words), { status: 409, reason: 'machine-state', message: /only a quarantined one/ });
    await used.db.query({ text: `update machines set state = 'quarantined' where id = $1` }, [id]);
    assert.deepEqual((await post(`/v1/machines/${id}/release`, words)).body, { id, state: 'available', tombstone: false });
    await used.db.query({ text: `update machines set state = 'quarantined' where id = $1` }, [id]);
    assert.deepEqual((await post(`/v1/machines/${id}/forget`, words)).body, { id, state: 'deleted', tombstone: true });
    const again = { id: 'again', siteId: 'hel-1', bmcAddress: '10.8.2.2', serial: 'DIRTY-1' };
    isRefused(await post('/v1/machines', { machine: again }), { status: 409, reason: 'tombstone' });
    assert.deepEqual((await post(`/v1/machines/${id}/readmit`, words)).body, { id, state: 'deleted', tombstone: false });
    assert.equal((await post('/v1/machines', { machine: again })).status, 201);
    const listed = await call('/v1/machines?limit=1000');
    assert.ok(
      listed.body.machines.every((machine: { id: string }) => machine.id !== id),
      'what was deleted is not listed',
    );
  });

  it('shows runs with their steps in time, their commands with the answers, and sites with their machines', async () => {
    const id = await add({ siteId: 'osl-2' });
    const { runId } = await addBootEntry(used.db, { nodeId: id, siteId: 'osl-2', now: Date.now() });
    const step = (name: string, attempt: number, state: string) =>
      used.db.query(
        {
          text: `insert into metal_run_steps (run_id, step, attempt, state, actor, started_at) values ($1, $2, $3::int, $4, 'workflow', now() + $3::int * interval '1 s')`,
        },
        [runId, name, attempt, state],
      );
    await step('boot', 1, 'failed');
    await step('boot', 2, 'started');
    const { body } = await call(`/v1/runs/${runId}`);
    assert.deepEqual(
      body.steps.map(({ step: name, attempt, state }: any) => [name, attempt, state]),
      [
        ['boot', 1, 'failed'],
        ['boot', 2, 'started'],
      ],
    );
    const [listed] = (await call('/v1/machines?site=osl-2')).body.machines;
    assert.deepEqual([listed.id, listed.run.step, listed.run.attempt], [id, 'boot', 2]);
    assert.deepEqual(
      (await call(`/v1/runs?machine=${id}&state=open`)).body.runs.map((run: { id: string }) => run.id),
      [runId],
    );
    const site = await call('/v1/sites/osl-2');
    assert.deepEqual([site.body.states, site.body.openRuns, site.body.racks], [{ registered: 1 }, 1, [{ rack: 'r7', machines: 1 }]]);
    isRefused(await call('/v1/sites/nowhere'), { status: 404, reason: 'unknown-site' });
    isRefused(await call('/v1/runs/000000000000'), { status: 404, reason: 'unknown-run' });
    const counts = (await call('/v1/machine-counts')).body.counts;
    assert.equal(counts.find((row: any) => row.siteId === 'osl-2')?.machines, 1);
  });
});
