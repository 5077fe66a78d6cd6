/** The listening connection, through a proxy that can cut it or let it hang. */
import assert from 'node:assert/strict';
import { type AddressInfo, createServer, type Server, type Socket, connect as tcpConnect } from 'node:net';
import pg from 'pg';
import { listenTiming } from '../../drizzle/listener.ts';
import { createNotifications } from '../../gateway/session/notifications.ts';
import { announceSpecs } from '../../services/poke.ts';
import { eventually } from '../harness/eventually.ts';
import { useDatabase } from '../harness/postgres.ts';
import { ManualScheduler, turns } from './manual-scheduler.ts';

describe('the listening connection', function () {
  this.timeout(60_000);
  const used = useDatabase();
  let proxy: Server;
  const sockets = new Set<Socket>();
  let isBlackHole = false;
  let proxied: string;
  before(async () => {
    const target = new URL(used.url);
    const host = target.searchParams.get('host') ?? target.hostname;
    const path = host.startsWith('/') ? `${host}/.s.PGSQL.${target.port || 5432}` : null;
    proxy = createServer((client) => {
      const server = path === null ? tcpConnect(Number(target.port || 5432), host) : tcpConnect(path);
      for (const [from, to] of [
        [client, server],
        [server, client],
      ] as const) {
        sockets.add(from);
        from.on('data', (chunk: Buffer) => void (isBlackHole || to.write(chunk)));
        from.on('error', () => undefined);
        from.on('close', () => {
          sockets.delete(from);
          to.destroy();
        });
      }
    });
    await new Promise<void>((resolve) => void proxy.listen(0, '127.0.0.1', resolve));
    const url = new URL(used.url);
    url.searchParams.delete('host');
    url.hostname = '127.0.0.1';
    url.port = String((proxy.address() as AddressInfo).port);
    proxied = url.href;
  });
  after(() => {
    for (const socket of sockets) socket.destroy();
    proxy.close();
  });

  it('B65, B67, B68 hears pokes, is never in a transaction, notices a cut and a silent death, listens again and sweeps', async () => {
    const scheduler = new ManualScheduler();
    const heard: unknown[] = [];
    const lost: string[] = [];
    const connect = async (): Promise<pg.Client> => {
      const client = new pg.Client({ connectionString: proxied, application_name: 'listener-under-test' });
      await client.connect();
      return client;
    };
    const notifications = createNotifications({
      gatewayId: 'gw-1',
      scheduler,
      connect,
      onPoke: (nodeIds) => void heard.push(nodeIds),
      onTrust: () => void heard.push('trust'),
      onRevocation: () => void heard.push('revocation'),
      onSpecs: (ids) => void heard.push(`specs ${ids === 'sweep' ? ids : ids.join()}`),
      onLost: (error) => void lost.push((error as Error).message),
    });
    const notify = (channel: string, payload: string): Promise<unknown> =>
      used.db.query({ text: 'select pg_notify($1, $2)' }, [channel, payload]);
    const hears = async (what: unknown): Promise<void> => {
      await eventually(`hears ${JSON.stringify(what)}`, () => heard.some((one) => JSON.stringify(one) === JSON.stringify(what)));
      heard.length = 0;
    };
    notifications.start();
    await hears('specs sweep');
    await notify('bc_gateway', '["a","b"]');
    await hears(['a', 'b']);
    await notify('bc_trust', '');
    await hears('trust');
    await notify('bc_revocation', '');
    await hears('revocation');
    await announceSpecs(used.db, ['a', 'b']);
    await hears('specs a,b');
    const [state] = await used.db.query<{ open: boolean }>({
      text: `select xact_start is not null as open from pg_stat_activity where application_name = 'listener-under-test'`,
    });
    assert.equal(state?.open, false);
    // The canary comes back: nothing happens.
    await eventually('the first canary is back', () => notifications.isHeard);
    scheduler.advance(listenTiming.canaryMs);
    await eventually('the canary is back', () => scheduler.pending === 1 && notifications.isListening);
    await turns(50);
    assert.deepEqual(lost, []);
    // Cut by the server.
    await used.db.query({ text: `select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'listener-under-test'` });
    await eventually('the cut is noticed', () => lost.length > 0);
    scheduler.advance(listenTiming.retryMaxMs);
    await hears('sweep');
    // Kept open to nowhere: only the canary tells.
    lost.length = 0;
    await eventually('it is heard again', () => notifications.isHeard);
    isBlackHole = true;
    scheduler.advance(listenTiming.canaryMs);
    await turns(20);
    scheduler.advance(listenTiming.answerWithinMs);
    assert.deepEqual(lost, ['the canary did not come back']);
    isBlackHole = false;
    scheduler.advance(listenTiming.retryMaxMs);
    await hears('sweep');
    await eventually('it is heard again', () => notifications.isHeard);
    await notifications.close();
  });

  it('leaves no connection behind when it is connected but cannot listen', async () => {
    const scheduler = new ManualScheduler();
    const clients: pg.Client[] = [];
    const ended: boolean[] = [];
    const notifications = createNotifications({
      gatewayId: 'gw-1',
      scheduler,
      connect: async () => {
        const client = new pg.Client({ connectionString: used.url });
        await client.connect();
        // Every statement fails from here on, and the connection lives.
        await client.query('begin');
        await client.query('select 1/0').catch(() => undefined);
        client.on('end', () => void ended.push(true));
        clients.push(client);
        return client;
      },
      onPoke: () => undefined,
      onTrust: () => undefined,
      onRevocation: () => undefined,
      onSpecs: () => undefined,
      onLost: () => undefined,
    });
    notifications.start();
    for (const tries of [1, 2, 3]) {
      await eventually('its connection ends', () => ended.length === tries);
      scheduler.advance(listenTiming.retryMaxMs);
    }
    await notifications.close();
    await eventually('all are ended', () => ended.length === clients.length);
  });

  for (const [when, at] of [
    ['connects', 'connected'],
    ['asks to listen', 'listening'],
  ] as const)
    it(`closes only after its connection, closed while it ${when}`, async () => {
      let client: pg.Client | undefined;
      let isEnded = false;
      let reached = (): void => undefined;
      const until = new Promise<void>((resolve) => {
        reached = resolve;
      });
      const notifications = createNotifications({
        gatewayId: 'gw-1',
        scheduler: new ManualScheduler(),
        connect: async () => {
          client = new pg.Client({ connectionString: used.url });
          client.on('end', () => {
            isEnded = true;
          });
          if (at === 'connected') reached();
          await client.connect();
          // One statement is on its way, and its LISTENs wait behind it.
          if (at === 'listening') {
            client.query('select pg_sleep(0.5)').catch(() => undefined);
            setImmediate(reached);
          }
          return client;
        },
        onPoke: () => undefined,
        onTrust: () => undefined,
        onRevocation: () => undefined,
        onSpecs: () => undefined,
        onLost: () => undefined,
      });
      notifications.start();
      await until;
      await notifications.close();
      assert.equal(isEnded, true);
      assert.equal(notifications.isListening, false);
    });
});
