/** Orders to enrol over SSH at the operator API, over a real database: the row first, then the workflow, and what an end leaves. */
import assert from 'node:assert/strict';
import { ControlError } from '../../domain/errors.ts';
import { mintEnrolment } from '../../services/enrolments/index.ts';
import { eventually } from '../harness/eventually.ts';
import { useDatabase } from '../harness/postgres.ts';
import { addNode, randomBytes } from '../services/support.ts';
import { type BatchApi, operatorToken, startBatchApi } from './batch-api.ts';

const hostKey = `SHA256:${'A'.repeat(43)}`;
const access = { address: '10.0.0.7', hostKey, credential: 'file://web' };
const told = { actor: 'ann', reason: 'new rack' };

type Call = readonly [method: 'GET' | 'POST', path: string, body?: object | undefined];

describe('enrolments over SSH at the api', function () {
  this.timeout(30_000);
  const used = useDatabase();
  let api: BatchApi;
  before(async () => {
    api = await startBatchApi(used.db);
  });
  after(() => api.close());

  const callAs = async (token: string, ...[method, path, body]: Call) => {
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
    const response = await fetch(`${api.url}/v1/enrolments${path}`, {
      method,
      headers,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    return { status: response.status, body: (await response.json()) as any };
  };
  const call = (...what: Call) => callAs(operatorToken, ...what);
  const fresh = (nodeId: string, over: object = {}) => ({
    kind: 'enrol',
    siteId: 'eu-1',
    nodeId,
    ...access,
    ...told,
    ...over,
  });
  const rows = async (nodeId: string): Promise<string[]> =>
    (await used.db.query<{ state: string }>({ text: 'select state from enrolments where node_id = $1 order by created_at' }, [nodeId])).map(
      ({ state }) => state,
    );
  const asked = (nodeId: string): string[] =>
    api.enrolling.asked.filter(([, input]) => input === nodeId || (input as { nodeId?: string }).nodeId === nodeId).map(([what]) => what);

  it('an order is a row, and the workflow that carries it out is started by its id alone', async () => {
    const { status, body } = await call('POST', '', fresh('new-1', { login: 'ops', becomeRoot: true }));
    assert.deepEqual([status, body.draft, body.enrolment.state, body.enrolment.createdBy], [202, null, 'open', 'ann']);
    const { id, workflowId } = body.enrolment;
    assert.equal(workflowId, 'node/new-1/identity');
    assert.deepEqual(api.enrolling.asked, [['start', { kind: 'enrol', nodeId: 'new-1', enrolmentId: id }]]);
    assert.deepEqual((await call('GET', `/${id}`)).body, body.enrolment);
    assert.deepEqual((await call('GET', '?node=new-1')).body.enrolments, [body.enrolment]);
    assert.deepEqual((await call('GET', '?node=new-1&open=true')).body.enrolments.length, 1);
    assert.deepEqual((await call('GET', '?node=nobody')).body.enrolments, []);
    assert.equal((await call('GET', '/enr-none')).status, 404);
  });

  it('enrolment 49 a dry run says what would be ordered; there is neither row nor workflow', async () => {
    await addNode(used.db, 'known-2');
    const { status, body } = await call('POST', '', {
      kind: 'reenrol',
      nodeId: 'known-2',
      dryRun: true,
      ...access,
      ...told,
    });
    assert.deepEqual([status, body.enrolment, body.draft.baseGeneration, body.draft.login], [202, null, 1, 'root']);
    assert.deepEqual([await rows('known-2'), asked('known-2')], [[], []]);
  });

  it('XC-034 enrolment 39 enrolment 41 what names no host key is refused with its field, and a credential is never said back', async () => {
    const { hostKey: _, ...without } = fresh('new-3');
    const none = await call('POST', '', without);
    assert.equal(none.status, 400);
    assert.match(JSON.stringify(none.body), /ssh-hostkey-required/);
    for (const text of ['MD5:aa', `SHA1:${'A'.repeat(27)}`, `${hostKey} x`])
      assert.equal((await call('POST', '', fresh('new-3', { hostKey: text }))).status, 400, text);
    const pasted = await call('POST', '', fresh('new-3', { credential: '-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz' }));
    assert.equal(pasted.status, 400);
    assert.equal(JSON.stringify(pasted.body).includes('b3BlbnNz'), false);
    assert.deepEqual([await rows('new-3'), asked('new-3')], [[], []]);
  });

  it('XC-036 a workflow that does not start fails its row, so that the next order is not refused because of it', async () => {
    api.enrolling.refuses = new ControlError('UNAVAILABLE', 'Temporal did not answer');
    const { status, body } = await call('POST', '', fresh('new-4'));
    api.enrolling.refuses = null;
    assert.equal(status, 503);
    assert.match(JSON.stringify(body), /Temporal did not answer/);
    const [failed] = (await call('GET', '?node=new-4')).body.enrolments;
    assert.deepEqual([failed.state, failed.endReason], ['failed', 'its workflow could not be started']);
    assert.equal((await call('POST', '', fresh('new-4'))).status, 202);
    assert.deepEqual(await rows('new-4'), ['failed', 'open']);
  });

  it('enrolment 45 one at a time: the second is told so, and starts nothing', async () => {
    assert.equal((await call('POST', '', fresh('new-5'))).status, 202);
    const second = await call('POST', '', fresh('new-5'));
    assert.equal(second.status, 409);
    assert.match(JSON.stringify(second.body), /node new-5 is being enrolled already/);
    assert.deepEqual(asked('new-5'), ['start']);
  });

  it('a cancelled one is over in the database first, then its workflow is told; what completed is not cancelled', async () => {
    const { id } = (await call('POST', '', fresh('new-6'))).body.enrolment;
    const { status, body } = await call('POST', `/${id}/cancel`, { actor: 'bob', reason: 'wrong machine' });
    assert.deepEqual([status, body.state, body.endReason], [200, 'cancelled', 'wrong machine']);
    assert.deepEqual(asked('new-6'), ['start', 'cancel']);
    const again = await call('POST', `/${id}/cancel`, { actor: 'bob', reason: 'again' });
    assert.deepEqual([again.status, asked('new-6').length], [409, 2]);
    const other = (await call('POST', '', fresh('new-6'))).body.enrolment.id;
    await mintEnrolment(used.db, { id: other, csrSha256: randomBytes(32), now: Date.now() });
    await used.db.query({ text: `update enrolments set state = 'completed', ended_at = now() where id = $1` }, [other]);
    const late = await call('POST', `/${other}/cancel`, { actor: 'bob', reason: 'too late' });
    assert.equal(late.status, 409);
    assert.match(JSON.stringify(late.body), /is completed/);
    const trail = await used.db.query<{ actor: string }>(
      { text: `select actor from audit_events where action = 'node.enrolment-cancelled' and subject = 'new-6'` },
      [],
    );
    assert.deepEqual(trail, [{ actor: 'bob' }]);
  });

  it('XC-036 a machine that completes while it is being cancelled is quicker, and its workflow goes on', async () => {
    const { id } = (await call('POST', '', fresh('new-8'))).body.enrolment;
    await mintEnrolment(used.db, { id, csrSha256: randomBytes(32), now: Date.now() });
    let commit = (): void => undefined;
    const committed = new Promise<void>((resolve) => {
      commit = resolve;
    });
    const completing = used.db.transaction(async (tx) => {
      await tx.query({ text: `update enrolments set state = 'completed', ended_at = now() where id = $1` }, [id]);
      await committed;
    });
    const cancelled = call('POST', `/${id}/cancel`, { actor: 'bob', reason: 'wrong machine' });
    const waits = { text: `select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'` };
    await eventually('the cancellation waits for the join', async () => (await used.db.query(waits)).length > 0);
    commit();
    await completing;
    assert.deepEqual([(await cancelled).status, asked('new-8')], [409, ['start']]);
  });

  it('takes the permission for the whole deployment and all tenants, to look as well', async () => {
    const of = (bc_tenants: string[] | '*', bc_permissions: string[]) => api.sign({ sub: 'carl', bc_tenants, bc_permissions });
    const tenants = await of(['acme'], ['machines.operate', 'deployment.operate', 'commands.run']);
    for (const [method, path, body] of [
      ['POST', '', fresh('new-7', { actor: 'carl' })],
      ['GET', '', undefined],
      ['GET', '/enr-1', undefined],
      ['POST', '/enr-1/cancel', { actor: 'carl', reason: 'x' }],
    ] as const)
      assert.equal((await callAs(tenants, method, path, body)).status, 403, `${method} ${path}`);
    assert.equal((await callAs('x'.repeat(43), 'GET', '')).status, 401);
    assert.deepEqual([await rows('new-7'), asked('new-7')], [[], []]);
  });
});
