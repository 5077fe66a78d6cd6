import assert from 'node:assert/strict';
import { Gauge } from 'prom-client';
import { ControlError } from '../../domain/errors.ts';
import { createHealth, type HealthServer } from '../../runtime/health.ts';

describe('runtime/health', () => {
  const servers: HealthServer[] = [];
  const listening = async (health: ReturnType<typeof createHealth>): Promise<(path: string, method?: string) => Promise<Response>> => {
    const server = await health.listen({ host: '127.0.0.1', port: 0 });
    servers.push(server);
    return (path, method = 'GET') => fetch(`http://${server.address}${path}`, { method });
  };
  afterEach(async () => {
    await Promise.all(servers.splice(0).map((server) => server.close()));
  });

  it('is healthy while it runs and ready when every check passes', async () => {
    const health = createHealth({ process: 'gateway' });
    let up = false;
    health.check('database', () => {
      if (!up) throw new ControlError('UNAVAILABLE', 'no connection to postgres://u:hunter2@h/db');
    });
    health.check('temporal', async () => undefined);
    const get = await listening(health);
    assert.deepEqual([(await get('/healthz')).status, await (await get('/healthz')).json()], [200, { status: 'ok', process: 'gateway' }]);
    const notReady = await get('/readyz');
    assert.equal(notReady.status, 503);
    assert.deepEqual(await notReady.json(), {
      status: 'not ready',
      process: 'gateway',
      checks: { database: 'UNAVAILABLE: no connection to postgres://u:[redacted]@h/db', temporal: 'ok' },
    });
    up = true;
    const ready = await get('/readyz');
    assert.equal(ready.status, 200);
    assert.deepEqual(await ready.json(), { status: 'ready', process: 'gateway', checks: { database: 'ok', temporal: 'ok' } });
  });

  it('serves its own metrics with those of further sources, and survives a source that fails', async () => {
    const health = createHealth({ process: 'worker' });
    new Gauge({ name: 'bc_sessions', help: 'open sessions', registers: [health.registry] }).set(3);
    health.addSource(async () => 'temporal_requests 7');
    health.addSource(() => Promise.reject(new Error('gone')));
    const get = await listening(health);
    const text = await (await get('/metrics')).text();
    assert.match(text, /^bc_sessions\{process="worker"\} 3$/m);
    assert.match(text, /^temporal_requests 7$/m);
    assert.match(text, /^process_cpu_seconds_total\{process="worker"\}/m);
  });

  it('answers 404 to other paths and methods, saying which exist', async () => {
    const get = await listening(createHealth({ process: 'x' }));
    for (const [path, method] of [
      ['/', 'GET'],
      ['/constructor', 'GET'],
      ['/healthz', 'POST'],
    ] as const) {
      const answer = await get(path, method);
      assert.equal(answer.status, 404);
      assert.deepEqual(await answer.json(), { status: 'unknown path', paths: ['/healthz', '/readyz', '/metrics'] });
    }
  });

  it('names who asked when its port is taken', async () => {
    const first = await createHealth({ process: 'one' }).listen({ host: '127.0.0.1', port: 0 });
    servers.push(first);
    const port = Number(first.address.split(':')[1]);
    await assert.rejects(createHealth({ process: 'two' }).listen({ host: '127.0.0.1', port }), (error: ControlError) => {
      assert.equal(error.code, 'PORT_TAKEN');
      assert.equal(error.message, `port 127.0.0.1:${port} is taken; the metrics of two asked for it (set by BETTER_COMPUTE_METRICS_PORT)`);
      assert.equal(error.details['reason'], 'port-in-use');
      return true;
    });
  });
});
