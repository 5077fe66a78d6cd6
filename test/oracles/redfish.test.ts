/**
 * Two implementations of Redfish that nobody here wrote: sushy-emulator as a controller for our handlers, and DMTF's client in Python as
 * a client of the controller that our other tests trust.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout } from 'node:timers/promises';
import { promisify } from 'node:util';
import type { DescMessage, MessageShape } from '@bufbuild/protobuf';
import { createBmcHandlers } from '../../daemon/site/bmc/handlers.ts';
import type { BmcKind } from '../../daemon/site/bmc/ports.ts';
import { site } from '../../proto/index.ts';
import { findPythonJudges } from '../../scripts/engines/python-judges.mjs';
import { claimPort } from '../../scripts/lib/free-port.mjs';
import { payloadOf, valueOf } from '../daemon/bmc-stage.ts';
import { startFakeBmc } from '../fakes/bmc/server.ts';
import { eventually } from '../harness/eventually.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';

const run = promisify(execFile);
const { BootTarget, PowerAction, PowerState } = site;

describe('Redfish of others (skipped where its Python programs are absent)', function () {
  this.timeout(60_000);
  let judges: { readonly path: string } | { readonly why: string };
  before(async function () {
    judges = await findPythonJudges({ fetch: false });
    if ('why' in judges) {
      process.stderr.write(`skipped: ${judges.why}\n`);
      this.skip();
    }
  });
  const env = () => ({ ...process.env, PYTHONPATH: 'path' in judges ? judges.path : '' });

  describe('sushy-emulator as a controller', () => {
    let emulator: ChildProcess;
    let address = '';
    let sleptMs = 0;
    before(async () => {
      const port = await claimPort({ port: 0, who: 'sushy-emulator', setBy: 'the test' });
      address = `127.0.0.1:${port}`;
      // Its machines take up to eleven seconds for a change of power, by dice.
      const program = 'import random; random.randint = lambda least, most: 1; from sushy_tools.emulator.main import main; main()';
      // It keeps the state of its machines in the folder for temporary files.
      const own = { ...env(), TMPDIR: scratchFolder() };
      emulator = spawn('python3', ['-c', program, '--fake', '-i', '127.0.0.1', '-p', String(port)], { env: own, stdio: 'ignore' });
      await eventually('the emulator answers', async () => (await fetch(`http://${address}/redfish/v1/`).catch(() => undefined))?.ok);
    });
    after(async () => {
      emulator?.kill('SIGKILL');
      if (emulator?.exitCode === null) await once(emulator, 'exit');
      removeScratchFolders();
    });

    async function perform<D extends DescMessage>(
      kind: BmcKind,
      schema: D,
      payload: Record<string, unknown> = {},
    ): Promise<MessageShape<D>> {
      const handlers = createBmcHandlers({
        secrets: { read: async () => Buffer.from('{"username":"admin","password":"password"}') },
        now: () => Date.now() + sleptMs,
        config: { insecureHttp: [address] },
        // Its states take a second or two of real time; most of what is slept is only counted.
        sleep: async (ms) => {
          sleptMs += ms;
          await setTimeout(Math.min(ms, 200));
        },
      });
      const now = Date.now;
      const context = { commandId: 'machine/m-1/provision/run-1/step.1', signal: new AbortController().signal, now };
      const message = payloadOf(kind, { address, pinSha256: '' }, payload);
      const note = (await handlers[kind].prepare?.(message, { ...context, progress: () => undefined })) ?? {};
      return valueOf(schema, await handlers[kind].run(message, { ...context, note, progress: () => undefined }));
    }

    it('is turned on, off, on again and cycled', async () => {
      const seen: unknown[] = [];
      for (const action of [
        PowerAction.ON,
        PowerAction.OFF_HARD,
        PowerAction.OFF_HARD,
        PowerAction.ON,
        PowerAction.CYCLE,
        PowerAction.OFF_SOFT,
      ]) {
        const { state, already, resetType } = await perform('bmc.power', site.BmcPowerResultSchema, { action });
        seen.push([PowerState[state], already, resetType]);
      }
      assert.deepEqual(seen, [
        ['ON', false, 'On'],
        ['OFF', false, 'ForceOff'],
        ['OFF', true, ''],
        ['ON', false, 'On'],
        ['ON', false, 'ForceRestart'],
        ['OFF', false, 'GracefulShutdown'],
      ]);
    });

    it('M24 is told what to boot from, and says so when it is read back', async () => {
      const network = await perform('bmc.boot', site.BmcBootResultSchema, { target: BootTarget.NETWORK });
      assert.deepEqual([network.target, network.already], ['Pxe', false]);
      const url = `http://${address}/nowhere/snp.efi`;
      await assert.rejects(
        perform('bmc.boot', site.BmcBootResultSchema, { target: BootTarget.HTTP, uefiHttpUrl: url }),
        /with 400: "Failed to download and attach HttpBootUri\."; request [0-9a-f]{8}-\d+$/,
        'M24 its own words: it fetches the file, which is not there',
      );
      const disk = await perform('bmc.boot', site.BmcBootResultSchema, { target: BootTarget.DISK });
      assert.equal(disk.target, 'Hdd');
    });

    it('is read: its system, and what it can do', async () => {
      const report = await perform('bmc.inventory', site.BmcInventoryReportSchema);
      assert.equal(report.manufacturer, 'Sushy Emulator');
      assert.match(report.uuid, /^[0-9a-f-]{36}$/);
      assert.ok(report.profile?.resetTypes.includes('ForceOff') && report.profile.bootTargets.includes('UefiHttp'));
      assert.deepEqual([report.profile?.httpBootUrl, report.profile?.virtualMedia], [true, true]);
    });
  });

  it('DMTF’s client logs in to our fake, follows it, patches it with its tag, resets it and logs out', async () => {
    const credential = { username: 'root', password: 'correct-horse-1' };
    const bmc = await startFakeBmc({ tree: 'minimal', credential, quirks: ['etag-required'], sessionsMax: 1, tls: false });
    const script = `
import json, sys, redfish
client = redfish.redfish_client(base_url=sys.argv[1], username="root", password="correct-horse-1", default_prefix="/redfish/v1")
client.login(auth="session")
told = {}
system = client.get(client.get("/redfish/v1/Systems").dict["Members"][0]["@odata.id"])
told["power"] = system.dict["PowerState"]
told["patched"] = client.patch("/redfish/v1/Systems/1", body={"Boot": {"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Pxe"}}, headers={"If-Match": system.getheader("ETag")}).status
told["untagged"] = client.patch("/redfish/v1/Systems/1", body={"Boot": {"BootSourceOverrideTarget": "Hdd"}}).status
told["reset"] = client.post("/redfish/v1/Systems/1/Actions/ComputerSystem.Reset", body={"ResetType": "ForceOff"}).status
told["expanded"] = len(client.get("/redfish/v1/Systems/1/EthernetInterfaces?$expand=.($levels=1)").dict["Members"][0])
client.logout()
json.dump(told, sys.stdout)
`;
    try {
      const { stdout } = await run('python3', ['-c', script, `http://${bmc.address}`], { env: env() });
      assert.deepEqual(JSON.parse(stdout), { power: 'On', patched: 200, untagged: 428, reset: 204, expanded: 6 });
      assert.deepEqual([bmc.state.power, bmc.state.boot.target, bmc.effects.sessionsOpen], ['Off', 'Pxe', 0]);
    } finally {
      await bmc.close();
    }
  });
});
