/** The metadata service over real HTTP from addresses of this machine: who is served, what a request must bring, and what a guest may not do to others. */
import assert from 'node:assert/strict';
import type { Server } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { createMetadataHttp } from '../../daemon/imds/http.ts';
import { createInstanceTurns } from '../../daemon/imds/instance-turns.ts';
import type { InstanceRuntime } from '../../daemon/imds/runtime.ts';
import { createSessionTokens, longestSessionSeconds } from '../../daemon/imds/session-tokens.ts';
import type { IssuedToken, TokenOrder } from '../../daemon/workload/token-client.ts';
import { type Code, ControlError } from '../../domain/errors.ts';
import { second } from '../../domain/time.ts';
import { workloadErrors } from '../../domain/workload/errors.ts';
import { httpFrom, metadataSession } from '../harness/http-from.ts';

const [guest, neighbour, stranger] = ['127.0.0.11', '127.0.0.12', '127.0.0.99'];
const expiresAt = Date.UTC(2030, 0, 1);

describe('the metadata service of a host', () => {
  let holders: Map<string, string>;
  let runtime: InstanceRuntime;
  let ask: (order: TokenOrder, signal: AbortSignal) => Promise<IssuedToken>;
  let asked: TokenOrder[];
  let clock: number;
  let server: Server;
  let base: string;

  beforeEach(async () => {
    holders = new Map([
      [guest, 'i-1'],
      [neighbour, 'i-2'],
    ]);
    runtime = {
      findByAddress: async (address) => {
        const instanceId = holders.get(address);
        return instanceId === undefined ? null : { instanceId, reservationId: null };
      },
      listRunning: async () => [],
    };
    [asked, clock] = [[], 0];
    ask = async ({ instanceId }) => ({ token: `token of ${instanceId}`, expiresAt });
    const silent = { debug: () => undefined, info: () => undefined, warn: () => undefined, error: () => undefined };
    server = createMetadataHttp({
      runtime: { findByAddress: (address) => runtime.findByAddress(address), listRunning: () => runtime.listRunning() },
      sessions: createSessionTokens({ key: Buffer.alloc(32, 1), steadyMs: () => clock }),
      turns: createInstanceTurns({ steadyMs: () => clock }),
      ask: (order, signal) => {
        asked.push(order);
        return ask(order, signal);
      },
      log: silent,
    });
    await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
    base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  });
  afterEach(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });

  const tokenOf = async (from: string, query = '', session?: string) =>
    httpFrom(`${base}/v1/identity-token${query}`, { from, headers: { 'metadata-token': session ?? (await metadataSession(base, from)) } });
  const failing = (code: Code, reason: string) => async () => {
    throw new ControlError(code, 'told', { details: { reason } });
  };

  it('WID-027 WID-040 serves the instance that holds the source address, its own token and no other', async () => {
    for (const [from, instanceId] of holders) {
      const answer = await tokenOf(from);
      assert.deepEqual([answer.status, answer.body], [200, { token: `token of ${instanceId}`, expiresAt: '2030-01-01T00:00:00.000Z' }]);
      assert.equal(answer.headers['cache-control'], 'no-store');
      const told = await httpFrom(`${base}/v1/instance`, { from, headers: { 'metadata-token': await metadataSession(base, from) } });
      assert.deepEqual(told.body, { instanceId });
    }
    await tokenOf(guest, '?audience=https://db.example.com');
    assert.deepEqual(asked, [
      { instanceId: 'i-1', audience: '' },
      { instanceId: 'i-2', audience: '' },
      { instanceId: 'i-1', audience: 'https://db.example.com' },
    ]);
  });

  it('WID-040 refuses an unknown source address, whatever it asks for and brings', async () => {
    const session = await metadataSession(base, guest);
    for (const [method, path] of [
      ['PUT', '/v1/token'],
      ['GET', '/v1/identity-token'],
      ['GET', '/v1/instance'],
      ['GET', '/nothing'],
    ] as const) {
      const headers = { 'metadata-token': session, 'metadata-token-expiry-seconds': '60', 'x-forwarded-for': guest };
      const answer = await httpFrom(`${base}${path}`, { from: stranger, method, headers });
      assert.deepEqual([answer.status, answer.body['code']], [403, 'PERMISSION_DENIED'], path);
      assert.match(String(answer.body['message']), /no running instance of this machine holds the address 127\.0\.0\.99/);
    }
    assert.deepEqual(asked, []);
  });

  it('WID-040 an instance that stops, or whose address changes hands while the broker is asked, gets none', async () => {
    const session = await metadataSession(base, guest);
    ask = async () => {
      holders.set(guest, 'i-3');
      return { token: 'of i-1', expiresAt };
    };
    const answer = await tokenOf(guest, '', session);
    assert.deepEqual([answer.status, answer.text.includes('of i-1')], [403, false]);
    assert.equal((await tokenOf(guest, '', session)).status, 401, 'the session token was the former instance’s');
    holders.delete(guest);
    assert.equal((await tokenOf(guest, '', session)).status, 403);
    runtime = { ...runtime, findByAddress: async () => Promise.reject(new Error('the hypervisor is away')) };
    const away = await httpFrom(`${base}/v1/instance`, { from: guest });
    assert.deepEqual([away.status, away.headers['retry-after'], away.text.includes('hypervisor')], [503, '5', false]);
  });

  it('gives nothing without a session token that a PUT fetched: not one of a neighbour, not one that is over, not one that was changed', async () => {
    const without = await httpFrom(`${base}/v1/identity-token`, { from: guest });
    assert.deepEqual([without.status, without.body['code']], [401, 'UNAUTHENTICATED']);
    assert.match(String(without.body['message']), /fetch one by PUT \/v1\/token/);
    const session = await metadataSession(base, guest, 30);
    assert.equal((await tokenOf(neighbour, '', session)).status, 401);
    const changed = `${session.slice(0, -1)}${session.endsWith('A') ? 'B' : 'A'}`;
    for (const wrong of [changed, '', session.slice(1), `${session}A`, `${session}, ${session}`])
      assert.equal((await tokenOf(guest, '', wrong)).status, 401, wrong);
    clock = 30 * second - 1;
    assert.equal((await tokenOf(guest, '', session)).status, 200);
    clock = 30 * second;
    assert.equal((await tokenOf(guest, '', session)).status, 401);
    assert.equal(asked.length, 1);
  });

  it('takes the word for a session by PUT alone, from 1 second to 6 hours', async () => {
    const put = (seconds: string | undefined, method = 'PUT') =>
      httpFrom(`${base}/v1/token`, {
        from: guest,
        method,
        headers: seconds === undefined ? {} : { 'metadata-token-expiry-seconds': seconds },
      });
    for (const seconds of [undefined, '', '0', '-1', '1.5', '21601', '99999', '1e3', ' 60 60']) {
      const answer = await put(seconds);
      assert.deepEqual([answer.status, answer.body['code']], [400, 'INVALID_INPUT'], seconds);
    }
    assert.equal(longestSessionSeconds, 6 * 3_600);
    assert.equal((await put('21600')).headers['metadata-token-expiry-seconds'], '21600');
    for (const method of ['GET', 'POST']) {
      const answer = await put('60', method);
      assert.deepEqual([answer.status, answer.headers.allow], [405, 'PUT']);
    }
  });

  it('refuses what a server inside an instance could be made to send: through a proxy, or to a host by name', async () => {
    const session = await metadataSession(base, guest);
    for (const name of ['X-Forwarded-For', 'Forwarded', 'Via', 'X-Real-IP', 'X-Forwarded-Host']) {
      const put = { from: guest, method: 'PUT', headers: { 'metadata-token-expiry-seconds': '60', [name]: '10.0.0.1' } };
      const answer = await httpFrom(`${base}/v1/token`, put);
      assert.deepEqual([answer.status, (answer.body['details'] as { reason: string }).reason], [403, 'proxied'], name);
      const got = await httpFrom(`${base}/v1/identity-token`, { from: guest, headers: { 'metadata-token': session, [name]: '10.0.0.1' } });
      assert.equal(got.status, 403, name);
    }
    for (const host of ['metadata.example.com', 'rebind.example.com:80', 'localhost', '127.0.0.1.nip.io']) {
      const answer = await httpFrom(`${base}/v1/identity-token`, { from: guest, headers: { 'metadata-token': session, host } });
      assert.deepEqual([host, answer.status], [host, 403]);
    }
    const literal = { from: guest, headers: { 'metadata-token': session, host: '[fd00:ec2::254]:80' } };
    assert.equal((await httpFrom(`${base}/v1/instance`, literal)).status, 200);
    assert.deepEqual(asked, []);
  });

  it("WID-036 passes the broker's word on with its status, and says when to ask again", async () => {
    const statuses = { 'not-bound': 403, disabled: 400, audience: 403, 'rate-limited': 429, 'access-denied': 403, unavailable: 503 };
    for (const [word, { code }] of Object.entries(workloadErrors)) {
      ask = failing(code, word);
      const { status, body, headers } = await tokenOf(guest);
      assert.deepEqual([status, (body['details'] as { reason: string }).reason], [statuses[word as keyof typeof statuses], word]);
      assert.equal(headers['retry-after'], { 429: '60', 503: '5' }[status as 429 | 503]);
    }
    for (const reason of ['no-answer', 'not-connected']) {
      ask = failing('UNAVAILABLE', reason);
      const { status, headers } = await tokenOf(guest);
      assert.deepEqual([status, headers['retry-after']], [503, '5'], reason);
    }
  });

  it('WID-039 an answer that cannot be used is a token that cannot be had: never the fault of who asked, and without its cause', async () => {
    for (const code of ['UNAUTHENTICATED', 'PERMISSION_DENIED', 'MALFORMED', 'INTERNAL'] as const) {
      ask = failing(code, 'expired');
      const { status, body, text } = await tokenOf(guest);
      assert.deepEqual([status, body['code'], text.includes('told')], [503, 'UNAVAILABLE', false], code);
    }
  });

  it('asks the broker for nothing that the question could not hold', async () => {
    for (const query of ['?audience=a&audience=b', '?audience=%0d%0a', `?audience=${'a'.repeat(257)}`, '?audience=a%20b', '?aud=a']) {
      const answer = await tokenOf(guest, query);
      assert.deepEqual([answer.status, answer.body['code']], [400, 'INVALID_INPUT'], query);
    }
    assert.equal((await tokenOf(guest, '?audience=')).status, 200);
    assert.deepEqual(asked, [{ instanceId: 'i-1', audience: '' }]);
  });

  it('stops asking when the one who asked has hung up', async () => {
    const session = await metadataSession(base, guest);
    const aborted = new Promise<void>((resolve) => {
      ask = (_order, signal) =>
        new Promise((_resolve, reject) => {
          signal.addEventListener('abort', () => {
            reject(new ControlError('CANCELLED', 'gone', { details: { reason: 'cancelled' } }));
            resolve();
          });
          socket.destroy();
        });
    });
    const { port } = server.address() as AddressInfo;
    const socket = connect({ port, host: '127.0.0.1', localAddress: guest });
    socket.write(`GET /v1/identity-token HTTP/1.1\r\nHost: 127.0.0.1\r\nMetadata-Token: ${session}\r\n\r\n`);
    await aborted;
  });

  it('an instance that holds its connections open keeps no other out', async () => {
    const { port } = server.address() as AddressInfo;
    const sockets = Array.from({ length: 40 }, () => connect({ port, host: '127.0.0.1', localAddress: guest }));
    const ends = sockets.map((socket) => new Promise((resolve) => socket.on('error', resolve).on('close', resolve)));
    await Promise.any(ends);
    assert.equal((await tokenOf(neighbour)).status, 200);
    for (const socket of sockets) socket.destroy();
    await Promise.all(ends);
  });
});
