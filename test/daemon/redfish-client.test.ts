import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { createBmcQueue } from '../../daemon/site/bmc/bmc-queue.ts';
import { ownPath, parseBmcAddress } from '../../daemon/site/redfish/address.ts';
import { depthOf, parseAnswer, printable } from '../../daemon/site/redfish/resource.ts';
import { judgeTask, retryAfterMs } from '../../daemon/site/redfish/tasks.ts';
import { createTransport } from '../../daemon/site/redfish/transport.ts';
import { site } from '../../proto/index.ts';
import type { Fault, FaultScript } from '../fakes/bmc/server.ts';
import { account, credentialRef, setBmcStage, valueOf } from './bmc-stage.ts';

const on = { payload: { action: site.PowerAction.ON } };
const off = { payload: { action: site.PowerAction.OFF_HARD } };

/** Numbers that look random and are the same every time. */
function dice(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1_103_515_245 + 12_345) % 2 ** 31;
    return state / 2 ** 31;
  };
}

describe('a controller that is broken or hostile', () => {
  const stage = setBmcStage();

  it('is refused when it shows another key than the pinned one, before a byte goes out; first contact reports what it shows', async () => {
    const bmc = await stage.bmcWith({ tls: true });
    const pin = bmc.pinSha256;
    const report = valueOf(
      site.BmcInventoryReportSchema,
      await stage.perform('bmc.inventory', { ...bmc, address: bmc.address, pinSha256: '' }),
    );
    assert.equal(report.pinSha256, pin);
    assert.equal((await stage.perform('bmc.power', bmc, on)).kind, 'succeeded');
    const before = bmc.requests.length;
    bmc.changeCertificate();
    await assert.rejects(stage.perform('bmc.power', { ...bmc, address: bmc.address, pinSha256: pin }, on), {
      code: 'PERMISSION_DENIED',
      message: new RegExp(`shows key [0-9a-f]{64}, not ${pin} as it is known: nothing was sent`),
    });
    assert.equal(bmc.requests.length, before);
  });

  it('is spoken to in the clear only where the configuration names it, and never without a pin', async () => {
    const bmc = await stage.bmcWith({ tls: true });
    await assert.rejects(stage.perform('bmc.power', { ...bmc, address: bmc.address, pinSha256: '' }, on), {
      code: 'INVALID_INPUT',
      message: /^the pin of /,
    });
    assert.equal(parseBmcAddress('BMC-1.rack', []).origin, 'https://bmc-1.rack:443');
    assert.equal(parseBmcAddress('127.0.0.1:8000', ['127.0.0.1:8000']).origin, 'http://127.0.0.1:8000');
    assert.equal(parseBmcAddress('[fe80::1]:8443').key, '[fe80::1]:8443');
    for (const bad of [
      '',
      'a b',
      'user@host',
      'host/path',
      'host:0',
      'host:70000',
      'https://host',
      '[::1',
      'host:443:1',
      '-x',
      'a..b',
      'x#y',
      'ho\u017ft',
    ])
      assert.throws(() => parseBmcAddress(bad), { code: 'INVALID_INPUT', message: /is not the address of a controller/ }, bad);
  });

  it('is not followed out of itself', () => {
    const address = parseBmcAddress('bmc-1');
    assert.equal(ownPath('/redfish/v1/Systems/1', address), '/redfish/v1/Systems/1');
    assert.equal(ownPath('https://bmc-1/redfish/v1/TaskService/Tasks/1', address), '/redfish/v1/TaskService/Tasks/1');
    assert.equal(ownPath('/redfish/v1/Chassis/1#/Fans/0', address), '/redfish/v1/Chassis/1');
    const foreign = [
      '//evil/redfish',
      'https://evil/redfish/v1',
      'http://bmc-1/redfish/v1',
      '/etc/passwd',
      '/redfish/../x',
      '/redfish/%2e%2e/x',
    ];
    for (const link of [
      ...foreign,
      '/redfish\\@evil',
      'https://a@bmc-1/redfish/v1',
      ' /redfish/v1',
      '/redfish/v1\r\nX: 1',
      '',
      7,
      null,
      {},
    ])
      assert.equal(ownPath(link, address), null, JSON.stringify(link));
  });

  const lies: readonly (readonly [string, Fault, RegExp])[] = [
    ['that is not JSON', { kind: 'answer', status: 200, body: 'Welcome to SuperBMC' }, /the answer is not JSON: "Welcome to SuperBMC"$/],
    ['that is empty', { kind: 'answer', status: 200, body: '' }, /the answer is empty$/],
    ['that is a list', { kind: 'answer', status: 200, body: '[]' }, /the answer is no JSON object$/],
    ['that is nested a million times', { kind: 'answer', status: 200, body: '['.repeat(1e6) }, /the answer is nested deeper than 64$/],
    ['of 100 MiB', { kind: 'flood', bytes: 100 * 2 ** 20 }, /answered GET .* with more than 8388608 bytes$/],
    ['without an end', { kind: 'flood', bytes: Number.POSITIVE_INFINITY }, /answered GET .* with more than 8388608 bytes$/],
    [
      'that is compressed',
      { kind: 'answer', status: 200, body: '{}', headers: { 'content-encoding': 'gzip' } },
      /the answer is compressed \(gzip\)/,
    ],
    [
      'that leads elsewhere',
      { kind: 'answer', status: 200, body: '{"Members":[{"@odata.id":"http://10.9.9.9/redfish/v1/x"}]}' },
      /leads "http:\/\/10\.9\.9\.9\/redfish\/v1\/x", out of the controller; it is not followed$/,
    ],
    ['that redirects', { kind: 'answer', status: 302, body: '', headers: { location: 'http://10.9.9.9/' } }, /with 302: without a word/],
  ];
  for (const [what, fault, message] of lies) {
    it(`gives an answer ${what}: an error that says so`, async () => {
      const bmc = await stage.bmcWith({ quirks: ['no-expand'], script: ({ path }) => (path.endsWith('/Systems') ? fault : undefined) });
      await assert.rejects(stage.perform('bmc.power', bmc, on), { code: 'INVALID_RESPONSE', message });
      assert.equal(bmc.effects.sessionsOpen, 0);
    });
  }

  it('says nothing: the end of the command ends the wait, for its handshake, its head or the rest of its answer alike', async () => {
    const answers = ['', 'HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{'];
    for (const [says, scheme] of [...answers.map((text) => [text, 'http'] as const), ['', 'https'] as const]) {
      const heard = new AbortController();
      const server = createServer((socket) => {
        socket.on('error', () => undefined);
        socket.once('data', () => {
          socket.write(says);
          heard.abort();
        });
      });
      server.listen(0, '127.0.0.1');
      await once(server, 'listening');
      const { port } = server.address() as AddressInfo;
      const silent = `127.0.0.1:${port}`;
      const transport = createTransport({ address: parseBmcAddress(silent, scheme === 'http' ? [silent] : []), pinSha256: null });
      const command = new AbortController();
      const asked = transport.send({ method: 'GET', path: '/redfish/v1/', headers: {} }, command.signal);
      const reason = new Error('the command was cancelled');
      heard.signal.addEventListener('abort', () => command.abort(reason));
      await assert.rejects(asked, reason);
      await transport.close();
      const ended = once(server, 'close');
      server.close();
      // Given up on our side too: nothing holds its connection.
      await ended;
    }
  });

  it('leads in circles: each is read once', async () => {
    const bmc = await stage.bmcWith({ overrides: { '/redfish/v1/Systems': { 'Members@odata.nextLink': '/redfish/v1/Systems' } } });
    assert.equal((await stage.perform('bmc.power', bmc, on)).kind, 'succeeded');
  });

  it('cannot write on the terminal of who reads its words', () => {
    assert.equal(printable('a\u001b[2J\u202eb\r\nc', 50), 'a [2J b c');
    assert.equal(printable('x'.repeat(100), 10), `${'x'.repeat(9)}…`);
    assert.equal(depthOf('{"a":"[[[[","b":[{"c\\"":1}]}'), 3);
    assert.throws(() => parseAnswer({ status: 200, headers: {}, text: '{"a":' }, 'it'), {
      code: 'INVALID_RESPONSE',
      message: /^it: the answer is not JSON/,
    });
  });

  it('M44 has four sessions; a thousand operations with random failures leave none open and lock nobody out', async function () {
    this.timeout(240_000);
    const random = dice(7);
    const faults: readonly Fault[] = [
      { kind: 'cut-before' },
      { kind: 'cut-after' },
      { kind: 'answer', status: 500, body: 'oops' },
      { kind: 'answer-after', status: 504, body: '<html>late</html>' },
    ];
    // Random failures of everything; a lost end of a session is asked for three times, so only two in a row fail.
    let deletesFailed = 0;
    const script: FaultScript = ({ method, path }) => {
      const fails = random() < 0.15;
      if (method === 'DELETE' || (path.includes('/Sessions') && method === 'GET')) {
        deletesFailed = fails && deletesFailed < 2 ? deletesFailed + 1 : 0;
        return deletesFailed > 0 ? { kind: 'cut-before' } : undefined;
      }
      return fails ? faults[Math.floor(random() * faults.length)] : undefined;
    };
    const bmc = await stage.bmcWith({ sessionsMax: 4, script });
    const handlers = stage.handlers();
    let failed = 0;
    for (let n = 0; n < 1000; n += 1) {
      const kind = n % 3 === 0 ? 'bmc.boot' : 'bmc.power';
      const payload = kind === 'bmc.boot' ? { target: site.BootTarget.NETWORK } : n % 10 === 0 ? off.payload : on.payload;
      await stage.perform(kind, bmc, { payload, handlers, how: 'recover' }).catch(() => {
        failed += 1;
        // Two logins whose answers were lost stop for an hour.
        stage.clock.advance(3_600_000);
      });
      assert.ok(bmc.effects.sessionsOpen === 0, `operation ${n} left ${bmc.effects.sessionsOpen} open`);
    }
    assert.ok(failed >= 10 && failed < 700, `${failed} failed`);
    assert.deepEqual([bmc.effects.loginsFailed, bmc.state.lockedUntilMs, bmc.effects.overlaps], [0, 0, 0]);
  });

  it('M44 without a session left it is asked with the password itself, and no session is opened', async () => {
    const bmc = await stage.bmcWith({ sessionsMax: 0 });
    const end = valueOf(site.BmcPowerResultSchema, await stage.perform('bmc.power', bmc, off));
    assert.match(end.notes.join(), /has no session left: asked with the password itself/);
    assert.equal(bmc.requests.filter(({ path }) => path.endsWith('/Sessions')).length, 2, 'asked for once by each of prepare and run');
    assert.deepEqual([bmc.effects.loginsFailed, bmc.state.power], [0, 'Off']);
  });

  it('opens a session once more when it ran out, and then stops', async () => {
    let cut = 0;
    const bmc = await stage.bmcWith({
      script: ({ path, headers }) =>
        path.includes('/Systems') && headers['x-auth-token'] !== undefined && cut++ === 0
          ? { kind: 'answer', status: 401, body: '' }
          : undefined,
    });
    assert.equal((await stage.perform('bmc.power', bmc, { ...on, how: 'recover' })).kind, 'succeeded');
    assert.equal(bmc.effects.sessionsOpened, 2);
    const never = await stage.bmcWith({
      script: ({ path }) => (path.includes('/Systems') ? { kind: 'answer', status: 401, body: '' } : undefined),
    });
    await assert.rejects(stage.perform('bmc.power', never, { ...on, how: 'recover' }), { code: 'UNAUTHENTICATED' });
    assert.equal(never.effects.sessionsOpened, 2);
  });

  it('M14 falls silent when two requests overlap: a queue for each controller, with a pause between operations', async () => {
    const bmc = await stage.bmcWith({ quirks: ['wedges-on-overlap'] });
    const handlers = stage.handlers();
    const ends = await Promise.all(
      [on, off, on, off].map((options) => stage.perform('bmc.power', bmc, { ...options, handlers, how: 'recover' })),
    );
    assert.deepEqual(
      ends.map(({ kind }) => kind),
      ['succeeded', 'succeeded', 'succeeded', 'succeeded'],
    );
    assert.deepEqual([bmc.state.wedged, bmc.effects.overlaps, bmc.effects.resets], [false, 0, ['ForceOff', 'On', 'ForceOff']]);
    assert.ok(stage.clock.slept.filter((ms) => ms > 0 && ms <= 250).length >= 3, 'a pause before each but the first');
    let at = 0;
    const paused: number[] = [];
    const queue = createBmcQueue({ now: () => at, pause: async (ms) => void (paused.push(ms), (at += ms)), spacingMs: 100 });
    await queue.run('a', async () => void (at += 5));
    await assert.rejects(queue.run('a', async () => Promise.reject(new Error('no'))));
    await queue.run('b', async () => undefined);
    assert.deepEqual(paused, [100], 'another controller is not waited for');
    assert.equal(await queue.run('a', async () => 'after a failure'), 'after a failure');
  });

  it('M14 is written to with a pause between two writes of one operation, a longer one where its maker’s need it', async () => {
    for (const [vendor, pauseMs] of [
      ['Contoso', 500],
      ['AMI', 1000],
    ] as const) {
      stage.clock.slept.length = 0;
      // Set, forgotten, and set once more: two writes.
      const bmc = await stage.bmcWith({ quirks: ['override-ignored-once'], overrides: { '/redfish/v1': { Vendor: vendor } } });
      const ended = await stage.perform('bmc.boot', bmc, { payload: { target: site.BootTarget.NETWORK } });
      assert.equal(ended.kind, 'succeeded');
      assert.equal(bmc.requests.filter(({ method }) => method === 'PATCH').length, 2);
      assert.deepEqual(stage.clock.slept, [pauseMs], vendor);
    }
  });

  it('judges tasks and Retry-After as makers send them', () => {
    const now = Date.parse('2026-01-01T00:00:00Z');
    assert.deepEqual(
      ['5', 'Thu, 01 Jan 2026 00:00:10 GMT', undefined, 'soon', '99999', '0'].map((text) => retryAfterMs(text, now)),
      [5000, 10_000, 1000, 1000, 30_000, 1000],
    );
    const answer = (status: number, body: unknown) =>
      judgeTask({ status, headers: {}, text: JSON.stringify(body) ?? '' }, ['hunter22'])?.kind ?? null;
    assert.equal(answer(202, {}), null);
    assert.equal(answer(200, { TaskState: 'Running' }), null);
    assert.equal(answer(200, { TaskState: 'Completed', TaskStatus: 'OK' }), 'completed');
    assert.equal(answer(200, { TaskState: 'Completed', TaskStatus: 'Critical' }), 'failed');
    assert.equal(answer(200, { TaskState: 'Exception', Messages: [{ MessageId: 'A.1.B', Message: 'no' }] }), 'failed');
    assert.equal(answer(204, undefined), 'completed');
    assert.equal(answer(404, {}), 'unknown');
    const failed = judgeTask(
      { status: 200, headers: {}, text: '{"TaskState":"Killed","Messages":[{"MessageId":"A.1.B","Message":"hunter22 is bad"}]}' },
      ['hunter22'],
    );
    assert.equal(failed?.kind === 'failed' ? failed.message : '', '[secret] is bad');
  });

  it('answers 202 and names no task: it is looked at what became of it, and said', async () => {
    const bmc = await stage.bmcWith({
      script: ({ path }) => (path.endsWith('ComputerSystem.Reset') ? { kind: 'answer-after', status: 202, body: '' } : undefined),
    });
    const end = valueOf(site.BmcPowerResultSchema, await stage.perform('bmc.power', bmc, off));
    assert.equal(bmc.state.power, 'Off');
    assert.match(end.notes.join(), /answered 202 and named no task; its effect was looked at instead/);
  });

  it('is not told an account that is none', async () => {
    const bmc = await stage.bmcWith();
    for (const value of ['', 'null', '{}', '{"username":"","password":"x"}', '{"username":"root"}']) {
      stage.secrets.set(credentialRef, value);
      await assert.rejects(stage.perform('bmc.power', bmc, on), {
        code: 'INVALID_INPUT',
        message: `the secret ${credentialRef} is not an account of a controller: JSON with "username" and "password"`,
      });
    }
    assert.equal(bmc.requests.length, 0);
    stage.secrets.set(credentialRef, account);
  });
});
