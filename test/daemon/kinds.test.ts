import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { delimiter, join } from 'node:path';
import { create, type DescMessage, type MessageInitShape } from '@bufbuild/protobuf';
import { parseDaemonConfig, readDaemonConfig } from '../../daemon/config.ts';
import type { KindContext, KindEnd } from '../../daemon/kinds/handler.ts';
import { createKindHandlers, type KindPorts } from '../../daemon/kinds/index.ts';
import { systemdReboot } from '../../daemon/kinds/reboot.ts';
import { simulatedBootId } from '../../daemon/state/boot-id.ts';
import { type CommandKindSpec, commandKinds } from '../../domain/commands/kinds.ts';
import { ControlError } from '../../domain/errors.ts';
import {
  InventoryRefreshSchema,
  InventoryReportSchema,
  LogsCollectSchema,
  NodeRebootSchema,
  ServiceRestartSchema,
} from '../../proto/index.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';

describe('the kinds of commands a machine runs', () => {
  const path = process.env['PATH'];
  let programs: string;

  beforeEach(() => {
    programs = scratchFolder();
    process.env['PATH'] = `${programs}${delimiter}${path}`;
  });
  afterEach(() => {
    process.env['PATH'] = path;
  });
  after(removeScratchFolders);

  /** A program of that name, first on the path, that notes how it was called. */
  async function program(name: string, script: string): Promise<() => Promise<string[]>> {
    const calls = join(programs, `${name}.calls`);
    await writeFile(join(programs, name), `#!/bin/sh\necho "$@" >> ${calls}\n${script}\n`);
    await chmod(join(programs, name), 0o755);
    return async () => (await readFile(calls, 'utf8').catch(() => '')).split('\n').filter((line) => line !== '');
  }

  const withoutPrograms = (): void => void (process.env['PATH'] = scratchFolder());

  const context = (over: Partial<KindContext> = {}): KindContext => ({
    commandId: 'c-1',
    signal: new AbortController().signal,
    now: () => 1_800_000_000_000,
    progress: () => undefined,
    note: {},
    ...over,
  });

  const handlersWith = (over: Partial<KindPorts> = {}) =>
    createKindHandlers({
      host: { root: '/', readBootId: async () => 'boot-1' },
      reboot: { readBootId: async () => 'boot-1', reboot: async () => undefined },
      restart: { restartableUnits: () => ['nginx.service'] },
      logs: { files: {} },
      upgrade: null,
      plugins: null,
      ...over,
    });

  const of = <D extends DescMessage>(schema: D, value: MessageInitShape<D>) => create(schema, value);
  const valueOf = (end: KindEnd): Record<string, unknown> => (end.kind === 'succeeded' ? end.value : assert.fail(JSON.stringify(end)));
  const failsWith =
    (code: string, message: RegExp) =>
    (error: unknown): boolean =>
      error instanceof ControlError && error.code === code && message.test(error.message);

  it('KIND-002 has one handler for each row of the kind table that is for a machine itself, and no other', () => {
    const own = Object.entries<CommandKindSpec>(commandKinds).filter(([, { roles }]) => roles.includes('node'));
    assert.deepEqual(Object.keys(handlersWith()).sort(), own.map(([kind]) => kind).sort());
  });

  describe('inventory.refresh', () => {
    it('reports this machine as the kernel shows it', async () => {
      const end = await handlersWith()['inventory.refresh'].run(of(InventoryRefreshSchema, {}), context());
      const report = create(InventoryReportSchema, valueOf(end));
      assert.ok((report.hardware?.cpus ?? 0) >= 1);
      assert.ok((report.hardware?.memoryBytes ?? 0n) > 1_000_000n);
      assert.equal(report.hardware?.bootId, 'boot-1');
      assert.notEqual(report.hardware?.kernel, '');
      assert.equal(report.collectedAtMs, 1_800_000_000_000n);
    });

    it('reads block devices and names from the tree it is given, and a section alone when asked', async () => {
      const root = scratchFolder();
      await mkdir(join(root, 'sys/block/nvme0n1/device'), { recursive: true });
      await mkdir(join(root, 'sys/block/loop0'), { recursive: true });
      await writeFile(join(root, 'sys/block/nvme0n1/size'), '2048\n');
      await writeFile(join(root, 'sys/block/nvme0n1/device/model'), 'Model X\n');
      const host = { root, readBootId: async () => 'boot-1' };
      const end = await handlersWith({ host })['inventory.refresh'].run(
        of(InventoryRefreshSchema, { sections: ['storage', 'of-a-newer-release'] }),
        context(),
      );
      const { hardware } = create(InventoryReportSchema, valueOf(end));
      assert.deepEqual(
        hardware?.blockDevices.map(({ name, sizeBytes, model }) => [name, sizeBytes, model]),
        [['nvme0n1', 1_048_576n, 'Model X']],
      );
      assert.equal(hardware?.cpus, 0);
    });
  });

  describe('service.restart', () => {
    const restart = (unit: string, over: Partial<KindPorts> = {}, signal = new AbortController().signal) =>
      handlersWith(over)['service.restart'].run(of(ServiceRestartSchema, { unit }), context({ signal }));

    it('restarts an allowed unit and says what became of it', async () => {
      const calls = await program('systemctl', 'test "$1" = show && echo active; exit 0');
      assert.deepEqual(valueOf(await restart('nginx.service')), { activeState: 'active' });
      assert.deepEqual(await calls(), ['restart -- nginx.service', 'show --property=ActiveState --value -- nginx.service']);
    });

    it('a unit that the machine does not allow, and a name that is none, run nothing', async () => {
      const calls = await program('systemctl', 'exit 0');
      await assert.rejects(
        restart('sshd.service'),
        failsWith('PERMISSION_DENIED', /unit sshd\.service is not among those.*\(allowed: nginx\.service\)/),
      );
      await assert.rejects(
        restart('sshd.service', { restart: { restartableUnits: () => [] } }),
        failsWith('PERMISSION_DENIED', /\(none is\)/),
      );
      for (const name of ['', '--force', 'a b', '../x', 'x'.repeat(256), 'a;reboot'])
        await assert.rejects(restart(name), failsWith('INVALID_INPUT', /names no systemd unit/), name);
      assert.deepEqual(await calls(), []);
    });

    it('a failed restart, a machine without systemd and one without systemctl are told apart', async () => {
      await program('systemctl', 'echo "Job for nginx.service failed." >&2; exit 1');
      await assert.rejects(
        restart('nginx.service'),
        failsWith('UNAVAILABLE', /restarting nginx\.service failed with status 1: Job for nginx\.service failed\./),
      );
      await program('systemctl', 'echo "System has not been booted with systemd as init system (PID 1)." >&2; exit 1');
      await assert.rejects(restart('nginx.service'), failsWith('UNSUPPORTED', /systemd does not run on this machine/));
      withoutPrograms();
      await assert.rejects(restart('nginx.service'), failsWith('UNSUPPORTED', /this machine has no systemctl/));
    });

    it('is ended when the command is cancelled', async () => {
      const calls = await program('systemctl', 'exec sleep 60');
      const abort = new AbortController();
      const run = restart('nginx.service', {}, abort.signal);
      while ((await calls()).length === 0) await new Promise((resolve) => setImmediate(resolve));
      abort.abort(new ControlError('CANCELLED', 'cancelled: not needed'));
      await assert.rejects(run, failsWith('CANCELLED', /cancelled: not needed/));
    });
  });

  describe('node.reboot', () => {
    it('notes the boot before it asks for another, and is done in another boot only', async () => {
      const folder = scratchFolder();
      const boot = simulatedBootId(folder);
      const handlers = handlersWith({ reboot: { readBootId: () => boot.read(), reboot: async () => boot.replace() } });
      const handler = handlers['node.reboot'];
      const payload = of(NodeRebootSchema, { reason: 'kernel' });
      const before = await boot.read();
      assert.equal(await boot.read(), before, 'stable between boots');
      const note = await handler.prepare?.(payload, context());
      assert.deepEqual(note, { bootId: before });
      const same = await handler.recover?.(payload, context({ note: note ?? {} }));
      assert.equal(same?.kind, 'interrupted');
      assert.match(same?.kind === 'interrupted' ? same.message : '', /came back in the same boot .* not repeated/);
      void handler.run(payload, context());
      let after = before;
      while (after === before) after = await boot.read().catch(() => before);
      assert.deepEqual(valueOf((await handler.recover?.(payload, context({ note: note ?? {} }))) as KindEnd), {
        bootIdBefore: before,
        bootIdAfter: after,
      });
    });

    it('a delay that is too long and a refusal by systemd are failures', async () => {
      const handler = handlersWith()['node.reboot'];
      await assert.rejects(
        handler.run(of(NodeRebootSchema, { delaySeconds: 301 }), context()),
        failsWith('INVALID_INPUT', /delay_seconds is 301, at most 300/),
      );
      await program('systemctl', 'echo "Call to Reboot failed: Interactive authentication required." >&2; exit 1');
      await assert.rejects(
        systemdReboot(new AbortController().signal),
        failsWith('UNAVAILABLE', /systemctl reboot failed with status 1: Call to Reboot failed/),
      );
    });
  });

  describe('logs.collect', () => {
    let server: Server;
    let received: { method: string; body: Buffer } | undefined;
    let answer: number;

    beforeEach(async () => {
      received = undefined;
      answer = 200;
      server = createServer((request: IncomingMessage, response) => {
        const chunks: Buffer[] = [];
        request.on('data', (chunk: Buffer) => chunks.push(chunk));
        request.on('end', () => {
          received = { method: request.method ?? '', body: Buffer.concat(chunks) };
          response.writeHead(answer, answer === 302 ? { location: 'http://169.254.169.254/' } : {}).end();
        });
      });
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    });
    afterEach(() => new Promise<void>((resolve) => server.close(() => resolve())));

    const url = (): string => `http://127.0.0.1:${(server.address() as AddressInfo).port}/put?signature=x`;
    const collect = (value: Parameters<typeof of<typeof LogsCollectSchema>>[1], files: Record<string, string> = {}) =>
      handlersWith({ logs: { files } })['logs.collect'].run(of(LogsCollectSchema, { uploadUrl: url(), ...value }), context());

    it('BND-006 sends the log to the given address, and only its size, lines and hash over the session', async () => {
      const calls = await program('journalctl', 'echo line 1; echo line 2');
      const value = valueOf(await collect({ unit: 'nginx.service', sinceMs: 1_000n, untilMs: 2_500n }));
      assert.equal(received?.method, 'PUT');
      assert.equal(received?.body.toString(), 'line 1\nline 2\n');
      assert.deepEqual(value, { bytes: 14n, lines: 2n, sha256: createHash('sha256').update('line 1\nline 2\n').digest() });
      assert.deepEqual(await calls(), ['--no-pager --output=short-iso-precise --unit=nginx.service --since=@1.000 --until=@2.500']);
    });

    it('takes the end of a log that is longer than its bound, from a whole line on', async () => {
      const file = join(scratchFolder(), 'app.log');
      const lines = Array.from({ length: 5_000 }, (_, n) => `line ${n}`);
      await writeFile(file, `${lines.join('\n')}\n`);
      const value = valueOf(await collect({ unit: 'app', maxBytes: 1_000n }, { app: file }));
      const sent = received?.body.toString() ?? '';
      assert.ok(sent.length <= 1_000 && sent.length > 900);
      assert.ok(lines.includes(sent.split('\n')[0] ?? ''), 'the first line is whole');
      assert.ok(sent.endsWith('line 4999\n'));
      assert.equal(value['bytes'], BigInt(sent.length));
    });

    it('what cannot be read and what cannot be sent are clear failures', async () => {
      await assert.rejects(
        collect({ unit: 'app' }, { app: '/nonexistent/app.log' }),
        failsWith('UNAVAILABLE', /log file \/nonexistent\/app\.log cannot be read: it does not exist/),
      );
      await assert.rejects(
        collect({ unit: '--vacuum-size=1' }),
        failsWith('INVALID_INPUT', /neither a log of this machine nor a systemd unit/),
      );
      for (const uploadUrl of ['', 'file:///etc/shadow', 'ftp://x/'])
        await assert.rejects(collect({ unit: 'a', uploadUrl }), failsWith('INVALID_INPUT', /must be an http or https URL/));
      await program('journalctl', 'echo "No journal files were found." >&2; exit 1');
      await assert.rejects(
        collect({ unit: 'nginx.service' }),
        failsWith('UNAVAILABLE', /journalctl failed with status 1: No journal files were found\./),
      );
      assert.equal(received, undefined, 'nothing was sent');
      await program('journalctl', 'echo x');
      answer = 403;
      await assert.rejects(collect({ unit: 'nginx.service' }), failsWith('UNAVAILABLE', /upload to 127\.0\.0\.1:\d+ failed: status 403/));
      answer = 302;
      await assert.rejects(
        collect({ unit: 'nginx.service' }),
        failsWith('UNAVAILABLE', /failed: status 302/),
        'a redirect is not followed',
      );
      withoutPrograms();
      await assert.rejects(collect({ unit: 'nginx.service' }), failsWith('UNSUPPORTED', /this machine has no journalctl/));
    });
  });

  describe('what the machine allows', () => {
    it('nothing, unless its configuration says so; a wrong one is refused with every problem', async () => {
      const file = join(scratchFolder(), 'bcd.json');
      assert.deepEqual(await readDaemonConfig(file, { mustExist: false }), { restartableUnits: [], logFiles: {} });
      await assert.rejects(readDaemonConfig(file, { mustExist: true }), failsWith('NOT_FOUND', /no configuration file/));
      assert.deepEqual(
        parseDaemonConfig('f', '{"restartableUnits":["nginx.service"],"logFiles":{"app":"/var/log/app.log"}}').restartableUnits,
        ['nginx.service'],
      );
      assert.throws(() => parseDaemonConfig('f', '{'), failsWith('INVALID_CONFIG', /f is not JSON/));
      assert.throws(
        () => parseDaemonConfig('f', '{"restartableUnits":["-x"],"logFiles":{"a":"relative"},"restartUnits":[]}'),
        failsWith(
          'INVALID_CONFIG',
          /restartableUnits\.0: is not a unit name.*logFiles\.a: must be an absolute path.*"restartUnits" is not a setting/,
        ),
      );
    });
  });
});
