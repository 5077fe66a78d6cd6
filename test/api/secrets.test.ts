/** The routes of secrets and `better-compute secrets` over a real database: what is kept, what is refused, and where a value never stands. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type SecretsDeleteOptions, secretsDeleteRun } from '../../cli/commands/secrets/delete.ts';
import { secretsListRun } from '../../cli/commands/secrets/list.ts';
import { newSecretsSet, secretsSetRun } from '../../cli/commands/secrets/set.ts';
import { maxSecretBytes } from '../../domain/secrets/reference.ts';
import { readSecret } from '../../services/secrets/store.ts';
import { createTestIo, createTestPorts, envFor, parseWith, type TestIo } from '../cli/support.ts';
import { useDatabase } from '../harness/postgres.ts';
import { scratchFolder } from '../harness/scratch.ts';
import { refused } from '../services/support.ts';
import { type BatchApi, operatorToken, deploymentSecret as secret, startBatchApi } from './batch-api.ts';

const value = 'correct horse battery';

describe('secrets over the api', function () {
  this.timeout(30_000);
  const used = useDatabase({ max: 10 });
  let api: BatchApi;
  before(async () => {
    api = await startBatchApi(used.db);
  });
  after(() => api.close());

  const shell = (input?: string, answers?: boolean[]): { io: TestIo; ports: ReturnType<typeof createTestPorts> } => {
    const env = { ...envFor(api.url), BETTER_COMPUTE_OPERATOR_TOKEN: operatorToken };
    const io = createTestIo({ env, ...(input === undefined ? {} : { input }), ...(answers === undefined ? {} : { answers }) });
    return { io, ports: createTestPorts(io) };
  };
  const set = async (
    path: string,
    input: string | undefined,
    { file = null, json = false }: { file?: string | null; json?: boolean } = {},
  ): Promise<TestIo> => {
    const { io, ports } = shell(input);
    await secretsSetRun({ path, file, actor: 'olga', json }, ports);
    return io;
  };
  const remove = (over: Partial<SecretsDeleteOptions>, { ports }: Pick<ReturnType<typeof shell>, 'ports'>): Promise<void> =>
    secretsDeleteRun({ path: 'bmc/m-1', actor: 'olga', yes: true, json: false, ...over }, ports);
  const stored = async (path: string): Promise<string | undefined> => {
    const found = await readSecret(used.db, { path, secret });
    return found === undefined ? undefined : Buffer.from(found.value).toString();
  };
  const call = async (path: string, { token = operatorToken, body }: { token?: string; body?: unknown }) => {
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
    const response = await fetch(`${api.url}${path}`, {
      method: body === undefined ? 'GET' : 'POST',
      headers,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    return { status: response.status, text, body: JSON.parse(text) };
  };
  const trail = async (): Promise<unknown[]> =>
    used.db.query({ text: `select action, actor, subject, details from audit_events where action like 'secret.%' order by seq` });

  it('SEC-028 are set from a pipe or a file, listed without their values, and deleted; the trail says who did', async () => {
    const piped = await set('bmc/m-1', value);
    assert.deepEqual([piped.stdout(), piped.stderr()], ['secret://bmc/m-1 version 1\n', '']);
    const file = join(scratchFolder(), 'value');
    writeFileSync(file, `${value} 2\n`);
    const second = await set('bmc/m-1', undefined, { file });
    assert.deepEqual(
      [second.stdout(), second.stderr()],
      ['secret://bmc/m-1 version 2\n', 'the value ends with a line end, which belongs to it now\n'],
    );
    assert.equal(await stored('bmc/m-1'), `${value} 2\n`, 'every byte of it');
    assert.deepEqual((await set('site/berlin', value, { json: true })).json(), { path: 'site/berlin', version: 1 });

    const listed = shell();
    await secretsListRun({ prefix: '', json: false }, listed.ports);
    assert.match(
      listed.io.stdout(),
      /^SECRET {7}VERSION {2}SINCE {17}BY\nbmc\/m-1 {6}2 {8}\d{4}-\d\d-\d\dT[\d:]{8}Z {2}olga\nsite\/berlin {2}1 {8}\S+ {2}olga\n$/,
    );
    const some = shell();
    await secretsListRun({ prefix: 'site/', json: true }, some.ports);
    assert.deepEqual(
      (some.io.json() as { secrets: object[] }).secrets.map((one) => Object.entries(one).filter(([name]) => name !== 'createdAt')),
      [[['path', 'site/berlin'], ['version', 1], ['createdBy', 'olga']]], // biome-ignore format: one row
    );

    const gone = shell();
    await remove({}, gone);
    assert.equal(gone.io.stdout(), 'deleted secret://bmc/m-1\n');
    assert.equal(await stored('bmc/m-1'), undefined);
    assert.deepEqual(await trail(), [
      { action: 'secret.set', actor: 'olga', subject: 'bmc/m-1', details: { version: 1 } },
      { action: 'secret.set', actor: 'olga', subject: 'bmc/m-1', details: { version: 2 } },
      { action: 'secret.set', actor: 'olga', subject: 'site/berlin', details: { version: 1 } },
      { action: 'secret.delete', actor: 'olga', subject: 'bmc/m-1', details: { versions: 2 } },
    ]);
  });

  it('a value is never taken from the command line, and bad input says what is wrong with it', async () => {
    const before = (await trail()).length;
    const noOne = shell();
    await assert.rejects(
      parseWith((run) => newSecretsSet(noOne.ports, run), ['bmc/m-1', value]),
      { code: 'commander.excessArguments' },
    );
    await assert.rejects(
      set('bmc/m-1', undefined),
      refused('INVALID_INPUT', /standard input or from --file, never from the command line/, 'no-value'),
    );
    await assert.rejects(set('bmc/m-1', ''), refused('INVALID_INPUT', /1 to 65536 bytes, and standard input has none/, 'secret-size'));
    await assert.rejects(
      set('bmc/m-1', 'x'.repeat(maxSecretBytes + 1)),
      refused('INVALID_INPUT', /standard input has more/, 'secret-size'),
    );
    const large = join(scratchFolder(), 'large');
    writeFileSync(large, Buffer.alloc(maxSecretBytes + 1));
    await assert.rejects(set('bmc/m-1', undefined, { file: large }), refused('INVALID_INPUT', /large has more/, 'secret-size'));
    await assert.rejects(set('bmc/m-1', undefined, { file: `${large}.not` }), refused('NOT_FOUND', /large\.not cannot be read/, 'no-file'));
    for (const path of ['', '/a', 'a//b', '../a', 'secret://a', 'a b', `${'a'.repeat(100)}/${'b'.repeat(200)}`])
      await assert.rejects(set(path, value), refused('INVALID_INPUT', /is no path of a secret: 1 to 8 parts/, 'secret-path'), path);
    assert.equal((await trail()).length, before, 'nothing was kept');
    await set('bmc/largest', 'x'.repeat(maxSecretBytes));
    assert.equal((await stored('bmc/largest'))?.length, maxSecretBytes);
  });

  it('is deleted only by whoever says so, and only when it is there', async () => {
    const path = 'bmc/m-3';
    await set('bmc/m-3', value);
    await assert.rejects(remove({ path, yes: false }, shell()), refused('INVALID_INPUT', /needs --yes/, 'needs-yes'));
    await assert.rejects(
      remove({ path, yes: false }, shell(undefined, [false])),
      refused('CANCELLED', /nothing was changed/, 'not-confirmed'),
    );
    assert.equal(await stored('bmc/m-3'), value);
    await remove({ path, yes: false }, shell(undefined, [true]));
    await assert.rejects(remove({ path }, shell()), refused('NOT_FOUND', /there is no secret:\/\/bmc\/m-3/, 'unknown-secret'));
    await assert.rejects(remove({ path: 'a b' }, shell()), refused('INVALID_INPUT', /is no path of a secret/, 'secret-path'));
    const none = shell();
    await secretsListRun({ prefix: path, json: false }, none.ports);
    assert.deepEqual([none.io.stdout(), none.io.stderr()], ['', 'no secret; keep one with: better-compute secrets set\n']);
    assert.equal((await set(path, value)).stdout(), 'secret://bmc/m-3 version 2\n', 'no number is used twice');
    // A path that looks like what the trail calls a deletion.
    await set(`${path}/deleted`, value);
    await set(`${path}/deleted`, value);
    await remove({ path }, shell());
    assert.equal(await stored(path), undefined);
  });

  it('SEC-028 no answer and no refusal holds a value, and a page goes on behind the last path', async () => {
    const encoded = Buffer.from(value).toString('base64');
    const answers = [
      await call('/v1/secrets', { body: { path: 'a/1', value: encoded } }),
      await call('/v1/secrets', { body: { path: 'a/2', value: encoded } }),
      await call('/v1/secrets', { body: { path: 'a b', value: encoded } }),
      await call('/v1/secrets', { body: { path: 'a/1', value } }),
      await call('/v1/secrets', { body: { path: 'a/1', value: encoded, [value]: 1 } }),
      await call('/v1/secrets?limit=1&prefix=a/', {}),
      await call('/v1/secrets?limit=1&after=a/1&prefix=a/', {}),
      await call('/v1/secrets?limit=2&after=a/2&prefix=a/', {}),
    ];
    assert.deepEqual(
      answers.map(({ status }) => status),
      [201, 201, 400, 400, 400, 200, 200, 200],
    );
    assert.match(answers[3]?.body.detail, /value: is base64/);
    assert.deepEqual(
      answers.slice(5).map(({ body }) => [body.secrets.map(({ path }: { path: string }) => path), body.next]),
      [[['a/1'], 'a/1'], [['a/2'], 'a/2'], [[], null]], // biome-ignore format: one row
    );
    for (const { text } of [...answers.slice(0, 4), ...answers.slice(5)]) assert.ok(!text.includes(value) && !text.includes(encoded), text);
  });

  it('takes whoever operates the deployment: no person of one tenant sets, sees or deletes one', async () => {
    const body = { path: 'bmc/m-4', value: Buffer.from(value).toString('base64') };
    const asks = (token: string) => [
      call('/v1/secrets', { token, body }),
      call('/v1/secrets', { token }),
      call('/v1/secrets/delete', { token, body: { path: 'bmc/m-4' } }),
    ];
    const statuses = async (token: string) => (await Promise.all(asks(token))).map(({ status }) => status);
    assert.deepEqual(
      await statuses(await api.sign({ sub: 'eve', bc_tenants: ['acme'], bc_permissions: ['deployment.operate'] })),
      [403, 403, 403],
    );
    assert.deepEqual(
      await statuses(await api.sign({ sub: 'eve', bc_tenants: 'all', bc_permissions: ['machines.operate'] })),
      [403, 403, 403],
    );
    const before = (await trail()).length;
    const kept = await call('/v1/secrets', {
      token: await api.sign({ sub: 'pia', bc_tenants: 'all', bc_permissions: ['deployment.operate'] }),
      body,
    });
    assert.equal(kept.status, 201, kept.text);
    assert.equal(((await trail())[before] as { actor: string }).actor, 'pia', 'by the name that the identity provider says');
    const posed = await call('/v1/secrets', {
      token: await api.sign({ sub: 'pia', bc_tenants: 'all', bc_permissions: ['deployment.operate'] }),
      body: { ...body, actor: 'olga' },
    });
    assert.deepEqual([posed.status, posed.body.details.reason], [400, 'actor']);
  });

  it('a deployment without BETTER_COMPUTE_SECRET says that it keeps none', async () => {
    const without = await startBatchApi(used.db, { secret: null });
    try {
      const io = createTestIo({ env: { ...envFor(without.url), BETTER_COMPUTE_OPERATOR_TOKEN: operatorToken }, input: value });
      const kept = secretsSetRun({ path: 'a', file: null, actor: 'olga', json: false }, createTestPorts(io));
      await assert.rejects(kept, refused('UNSUPPORTED', /BETTER_COMPUTE_SECRET is not set for the api/, 'no-deployment-secret'));
    } finally {
      await without.close();
    }
  });
});
