/** The pages of machines as bytes: what is on them, and what never is. */
import assert from 'node:assert/strict';
import { type ConsoleWorld, startMachineConsole } from './console-support.ts';
import { aMachine, aWipedMachine } from './machine-support.ts';

describe('the console: machines', () => {
  const worlds: ConsoleWorld[] = [];
  const start = async (...args: Parameters<typeof startMachineConsole>): Promise<ConsoleWorld> => {
    worlds.push(await startMachineConsole(...args));
    return worlds.at(-1) as ConsoleWorld;
  };
  after(() => Promise.all(worlds.map((one) => one.close())));
  const get = async (path: string, from: ConsoleWorld): Promise<Response> =>
    fetch(`${from.url}${path}`, { redirect: 'manual', headers: { cookie: await from.signIn() } });
  const page = async (path: string, from: ConsoleWorld): Promise<string> => (await get(path, from)).text();

  it('shows the fleet by site and state, and one state alone', async () => {
    const world = await start();
    const text = await page('/console/machines', world);
    for (const part of [
      '9 provisioned',
      '4 available',
      '1 quarantined',
      '<code>gpu-0117</code>',
      'provision: wipe',
      '<td class="k">osl-2</td>',
    ])
      assert.ok(text.includes(part), `${part}\n${text}`);
    const some = await page('/console/machines?state=quarantined', world);
    assert.match(some, /gpu-0301/);
    assert.doesNotMatch(some, /gpu-0117/);
    assert.match(await page('/console/machines', await start([])), /No machine yet/);
  });

  it('shows of a machine its phases in time, how far it is, what it waits for, what was answered, and what helps', async () => {
    const text = await page('/console/machines/gpu-0117', await start());
    for (const part of [
      'site hel-1, rack r7, tenant default; provisioning for 10 min 0 s',
      '480.0 GB of 1920.4 GB, 2000 MB/s',
      '<dt>waits for</dt><dd>gpu-0117 to finish disk.wipe, until 2030-01-01T13:00:00Z</dd>',
      '<code>better-compute machine show gpu-0117 --watch</code>',
      'boot (2)',
      'the controller did not answer',
      'UNAVAILABLE: the controller at 10.7.0.17 does not answer',
      '<a href="/console/batches/b-7f3a">',
      'S6CKNT0W',
    ])
      assert.ok(text.includes(part), `${part}\n${text}`);
  });

  it('says loudly why a machine is in quarantine, and 404 of one that is not there', async () => {
    const world = await start();
    assert.match(await page('/console/machines/gpu-0301', world), /<p class="warning">dirty: the wipe of serial S6CKNT0X failed/);
    const none = await get('/console/machines/none', world);
    assert.deepEqual([none.status, /no machine is called none/.test(await none.text())], [404, true]);
  });

  it('BAT-056 writes what controllers and machines said as text, and runs none of it; styles stay in the sheet', async () => {
    const evil = `<script>alert(1)</script>"'&\u202egnirts\u001b[31m`;
    const { machine } = aWipedMachine();
    assert.ok(machine.live !== null);
    const disk = { ...aMachine('x').disks[0], model: evil, serial: evil, wwn: evil } as (typeof machine.disks)[number];
    const live = { ...machine.live, waitsFor: evil, next: evil, last: { commandId: 'x', state: 'failed', message: evil, at: 0 } };
    const world = await start([
      { ...machine, model: evil, rack: evil, siteId: evil, stateReason: evil, bmc: evil, profileName: evil, disks: [disk], live },
    ]);
    for (const path of ['/console/machines', '/console/machines/gpu-0117']) {
      const text = await page(path, world);
      assert.doesNotMatch(text, /<script|\p{Cf}|(?!\n)\p{Cc}|style=/u);
      assert.ok(text.includes('&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;⟨U+202E⟩gnirts⟨U+001B⟩[31m'));
    }
  });
});
