/** The deployment's own secrets, and the other places they come from: Vault's protocol over a real HTTP server, named variables. */
import assert from 'node:assert/strict';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { hour } from '../../../domain/time.ts';
import { createSecretResolver, type SecretSettings } from '../../../services/secrets/providers.ts';
import { deleteSecret, listSecrets, readSecret, setSecret } from '../../../services/secrets/store.ts';
import { useDatabase } from '../../harness/postgres.ts';
import { refused, t0 } from '../support.ts';

const secret = 'a secret of thirty-two characters at least';

describe('the secrets of the deployment', () => {
  const used = useDatabase({ max: 20 });
  const set = (path: string, text: string, now = t0): Promise<number> =>
    used.db.transaction((tx) => setSecret(tx, { path, value: Buffer.from(text), secret, actor: 'olga', now }));
  const read = async (path: string): Promise<string | undefined> => {
    const found = await readSecret(used.db, { path, secret });
    return found === undefined ? undefined : Buffer.from(found.value).toString();
  };
  const remove = (path: string): Promise<boolean> => used.db.transaction((tx) => deleteSecret(tx, { path, actor: 'olga', now: t0 }));

  it('SEC-028 keeps every version sealed, reads the newest, and lists paths without values', async () => {
    assert.deepEqual([await set('bmc/m-1', 'one'), await set('bmc/m-1', 'two', t0 + hour)], [1, 2]);
    await set('site/berlin/header', 'Bearer x');
    assert.equal(await read('bmc/m-1'), 'two');
    assert.equal(await read('bmc/m-2'), undefined);
    const rows = await used.db.query<{ sealed: Uint8Array }>({
      text: `select sealed from secrets where path = 'bmc/m-1' order by version`,
    });
    assert.deepEqual(
      rows.map(({ sealed }) => Buffer.from(sealed).includes('two')),
      [false, false],
    );
    assert.deepEqual(await listSecrets(used.db, { limit: 10 }), [
      { path: 'bmc/m-1', version: 2, createdBy: 'olga', createdAt: t0 + hour },
      { path: 'site/berlin/header', version: 1, createdBy: 'olga', createdAt: t0 },
    ]);
    assert.deepEqual(
      (await listSecrets(used.db, { prefix: 'site/', limit: 10 })).map(({ path }) => path),
      ['site/berlin/header'],
    );
    assert.deepEqual(
      (await listSecrets(used.db, { after: 'bmc/m-1', limit: 1 })).map(({ path }) => path),
      ['site/berlin/header'],
    );
    const [event] = await used.db.query<{ action: string; details: unknown }>({
      text: `select action, details from audit_events where key = 'secret/bmc/m-1/2'`,
    });
    assert.deepEqual(event, { action: 'secret.set', details: { version: 2 } }, 'the trail names it and holds no value');
  });

  it('SEC-028 a row moved to another path or number opens for nobody, and an older version is never taken for the newest one', async () => {
    await set('moved/a', 'of a');
    await set('moved/b', 'of b');
    await used.db.query({ text: `update secrets set sealed = (select sealed from secrets where path = 'moved/a') where path = 'moved/b'` });
    await assert.rejects(read('moved/b'), refused('INVALID_CONFIG', /version 1 of secret moved\/b does not open/, 'secret-seal'));
    await set('moved/a', 'newer');
    await used.db.query({
      text: `update secrets set sealed = (select sealed from secrets where path = 'moved/a' and version = 1) where path = 'moved/a' and version = 2`,
    });
    await assert.rejects(read('moved/a'), refused('INVALID_CONFIG', /does not open/, 'secret-seal'));
  });

  it('forgets every version of what is deleted, once, and never uses its numbers again', async () => {
    await set('gone/x', 'one');
    await set('gone/x', 'two');
    assert.deepEqual([await remove('gone/x'), await remove('gone/x')], [true, false]);
    assert.equal(await read('gone/x'), undefined);
    assert.equal((await used.db.query({ text: `select 1 from secrets where path = 'gone/x' and sealed is not null` })).length, 0);
    assert.deepEqual(await listSecrets(used.db, { prefix: 'gone/', limit: 10 }), []);
    assert.equal(await set('gone/x', 'three'), 3);
    assert.equal(await read('gone/x'), 'three');
  });

  it('twenty writers at once make twenty versions', async () => {
    const versions = await Promise.all(Array.from({ length: 20 }, (_, at) => set('race/x', `value ${at}`)));
    assert.deepEqual(
      [...versions].sort((a, b) => a - b),
      Array.from({ length: 20 }, (_, at) => at + 1),
    );
  });

  it('refuses a path that could be read as another one, and a value that is none', async () => {
    for (const path of ['', '/a', 'a/', 'a//b', '../a', 'a/./b', 'a b', 'ä', 'a/b/c/d/e/f/g/h/i', 'a'.repeat(257)])
      await assert.rejects(set(path, 'x'), refused('INVALID_INPUT', /is no path of a secret/, 'secret-path'), path);
    await assert.rejects(set('a', ''), refused('INVALID_INPUT', /1 to 65536 bytes, not 0/, 'secret-size'));
    await assert.rejects(set('a', 'x'.repeat(65_537)), refused('INVALID_INPUT', /not 65537/, 'secret-size'));
  });
});

describe('where secrets come from', () => {
  const used = useDatabase();
  let server: Server;
  let url: string;
  let asked: { path: string; token: unknown; namespace: unknown }[] = [];
  let respond: (request: IncomingMessage, response: ServerResponse) => void;

  before(async () => {
    server = createServer((request, response) => {
      asked.push({ path: request.url ?? '', token: request.headers['x-vault-token'], namespace: request.headers['x-vault-namespace'] });
      respond(request, response);
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  });
  after(
    () =>
      new Promise<void>((resolve) => {
        server.closeAllConnections();
        server.close(() => resolve());
      }),
  );
  beforeEach(() => {
    asked = [];
  });

  const json = (status: number, body: unknown) => (_: IncomingMessage, response: ServerResponse) =>
    void response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  const resolver = (changes: Partial<SecretSettings> = {}) =>
    createSecretResolver(used.db, {
      secret,
      vault: { url, token: 's.token' },
      environment: { allowed: ['SITE_TOKEN', 'EMPTY'], values: { SITE_TOKEN: 'from outside', EMPTY: '', HOME: '/root' } },
      ...changes,
    });
  const textOf = async (ref: string, changes?: Partial<SecretSettings>): Promise<string | undefined> => {
    const value = await resolver(changes)(ref);
    return value === undefined ? undefined : Buffer.from(value).toString();
  };

  it('SEC-028 secret:// reads the sealed row', async () => {
    await used.db.transaction((tx) => setSecret(tx, { path: 'a/b', value: Buffer.from('mine'), secret, actor: 'olga', now: t0 }));
    assert.equal(await textOf('secret://a/b'), 'mine');
    assert.equal(await textOf('secret://a/b', { secret: null }), undefined, 'a deployment without a secret keeps none');
  });

  it('SEC-028 vault:// reads one field of a KV version 2 entry, with the token, in the namespace', async () => {
    respond = json(200, { data: { data: { password: 'calvin', port: 22 }, metadata: { version: 4 } } });
    assert.equal(await textOf('vault://kv/bmc/m-1#password'), 'calvin');
    assert.deepEqual(asked, [{ path: '/v1/kv/data/bmc/m-1', token: 's.token', namespace: undefined }]);
    const named = { vault: { url, token: 't', namespace: 'fleet' } };
    assert.equal(await textOf('vault://kv/bmc/m-1#nothing', named), undefined);
    assert.equal(asked[1]?.namespace, 'fleet');
    assert.equal(await textOf('vault://kv/bmc/m-1#port'), undefined, 'what is not text has no one form as bytes');
    assert.equal(await textOf('vault://kv/bmc/m-1#password', { vault: null }), undefined);
  });

  it('SEC-028 vault:// an entry that is not there, or was deleted, is not found', async () => {
    respond = json(404, { data: { data: null, metadata: { deletion_time: '2026-01-01T00:00:00Z' } } });
    assert.equal(await textOf('vault://kv/gone#x'), undefined);
  });

  it('SEC-009 vault:// what it refuses, cannot say, says too much of or says in another form is unavailable, and its words go nowhere', async () => {
    const cases: [typeof respond, RegExp][] = [
      [json(403, { errors: ['permission denied: s.token'] }), /^vault answered 403 for \/v1\/kv\/data\/x$/],
      [json(503, { errors: ['sealed'] }), /^vault answered 503/],
      [(_, response) => void response.writeHead(200).end('<html>'), /not JSON/],
      [(_, response) => void response.writeHead(200).end(Buffer.alloc(300_000, 0x20)), /more than 262144 bytes/],
      [(_, response) => void response.writeHead(302, { location: 'http://127.0.0.1:1/' }).end(), /does not answer/],
      [(request) => void request.socket.destroy(), /does not answer/],
      [json(200, { data: { data: { x: 'y'.repeat(70_000) } } }), /has 70000 bytes/],
    ];
    for (const [answer, message] of cases) {
      respond = answer;
      await assert.rejects(textOf('vault://kv/x#x'), (error: Error) => {
        assert.ok(refused('UNAVAILABLE', message)(error));
        return !error.message.includes('s.token');
      });
    }
  });

  it('SEC-028 env:// reads a variable that is on the list, and no other', async () => {
    assert.equal(await textOf('env://SITE_TOKEN'), 'from outside');
    assert.equal(await textOf('env://HOME'), undefined, 'the process has it, and it is not on the list');
    assert.equal(await textOf('env://constructor'), undefined);
    await assert.rejects(textOf('env://EMPTY'), refused('UNAVAILABLE', /has 0 bytes/, 'secret-provider'));
  });

  it('SEC-028 a scheme or a form that nobody knows is not found', async () => {
    for (const ref of [
      '',
      'secret:',
      'SECRET://a',
      'http://a/b',
      'vault://kv#x',
      'vault://kv/a',
      'vault://kv/../sys#x',
      'env://lower',
      'secret://a?b',
    ])
      assert.equal(await textOf(ref), undefined, ref);
    assert.deepEqual(asked, []);
  });
});
