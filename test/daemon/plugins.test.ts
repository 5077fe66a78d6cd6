import assert from 'node:assert/strict';
import { chmodSync, chownSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { create } from '@bufbuild/protobuf';
import fc from 'fast-check';
import { driverInvokeHandler } from '../../daemon/kinds/driver-invoke.ts';
import type { KindEnd } from '../../daemon/kinds/handler.ts';
import { judgeInvocation } from '../../daemon/plugins/judge.ts';
import { processesOf } from '../../daemon/plugins/leftovers.ts';
import { parseManifest } from '../../daemon/plugins/manifest.ts';
import { problemOfEntry } from '../../daemon/plugins/trusted-path.ts';
import { harmOf } from '../../domain/commands/harm.ts';
import { ControlError } from '../../domain/errors.ts';
import { driver } from '../../proto/index.ts';
import { eventually } from '../harness/eventually.ts';
import { type PluginInit, sha256Of, type WrittenPlugin, writePlugin } from '../harness/plugins.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { context } from './boot-stage.ts';

const failsWith = (code: string, reason: string, message: RegExp) => (error: unknown) => {
  assert.ok(error instanceof ControlError, String(error));
  assert.deepEqual([error.code, error.details['reason']], [code, reason], error.message);
  assert.match(error.message, message);
  return true;
};

describe('plugins of a machine', () => {
  let plugins: string;
  const logged: Record<string, unknown>[] = [];
  const log = {
    debug: () => undefined,
    info: (facts: Record<string, unknown>) => void logged.push(facts),
    warn: () => undefined,
    error: () => undefined,
  };
  let counted = 0;

  beforeEach(() => {
    plugins = join(scratchFolder(), 'plugins');
    mkdirSync(plugins);
    logged.length = 0;
  });
  after(removeScratchFolders);

  const write = (init: PluginInit): WrittenPlugin => writePlugin(plugins, init);
  type Asked = Partial<Omit<driver.DriverInvoke, '$typeName'>>;
  async function call(written: Pick<WrittenPlugin, 'manifestSha256'>, over: Asked = {}, signal = new AbortController().signal) {
    const payload = create(driver.DriverInvokeSchema, {
      plugin: 'psu',
      method: 'read',
      manifestSha256: written.manifestSha256,
      harmless: true,
      ...over,
    });
    const handler = driverInvokeHandler({ folder: plugins, log });
    const around = { ...context('c'), commandId: `c-${process.pid}-${(counted += 1)}`, signal };
    await handler.prepare?.(payload, around);
    return { commandId: around.commandId, end: await handler.run(payload, around) };
  }
  const outputOf = ({ end }: { end: KindEnd }): string =>
    Buffer.from(
      create(driver.DriverInvokeResultSchema, end.kind === 'succeeded' ? (end.value as never) : assert.fail(JSON.stringify(end))).output,
    ).toString();

  describe('a call', () => {
    it('KIND-008 runs the method in its plugin: input on stdin, the answer from stdout, one argument, a small environment', async () => {
      const written = write({ script: 'echo "talk" >&2; printf "%s %s|" "$#" "$1"; cat; printf "|"; pwd; env | sort' });
      const [given, folder, ...env] = outputOf(await call(written, { input: Buffer.from('in $(put)') }))
        .trimEnd()
        .split('\n');
      assert.equal(`${given}`, `1 read|in $(put)|${written.folder}`);
      const names = [folder, ...env].map((line) => (line ?? '').split('=')[0]);
      assert.deepEqual(names, ['BC_COMMAND_ID', 'BC_METHOD', 'BC_PLUGIN', 'LANG', 'PATH', 'PWD']);
      assert.deepEqual(
        logged.map(({ plugin, said }) => [plugin, said]),
        [['psu', 'talk']],
      );
    });

    it('KIND-008 without a folder of plugins it is UNSUPPORTED, and says what the owner would have to do', async () => {
      const handler = driverInvokeHandler(null);
      assert.equal(handler.isOffered, false);
      await assert.rejects(
        handler.run(create(driver.DriverInvokeSchema, {}), context('c')),
        failsWith('UNSUPPORTED', 'no-plugins', /pluginsFolder of config\.json/),
      );
    });

    it('says everything that is wrong with the call itself at once', async () => {
      await assert.rejects(
        call({ manifestSha256: 'AB' }, { plugin: '../psu', method: '--help', input: new Uint8Array(512 * 1024 + 1) }),
        failsWith('INVALID_INPUT', 'driver-payload', /plugin must be .*; manifest_sha256 must be .*; method must be .*; input has 524289/),
      );
    });

    it('a plugin, a method or an input that the machine does not have or take is refused by name', async () => {
      const written = write({ script: 'cat' });
      await assert.rejects(call(written, { plugin: 'fan' }), failsWith('NOT_FOUND', 'no-plugin', /no plugin fan: it has psu/));
      await assert.rejects(
        call(written, { method: 'constructor' }),
        failsWith('UNSUPPORTED', 'no-method', /has no method constructor; it has read/),
      );
      await assert.rejects(
        call(written, { input: Buffer.alloc(1025) }),
        failsWith('INVALID_INPUT', 'plugin-input', /takes 1024 bytes, and input has 1025/),
      );
    });

    it('another manifest than the one that is meant is refused: it says what is destructive', async () => {
      const before = write({ script: 'cat', methods: { read: { destructive: true } } });
      const now = write({ script: 'cat', methods: { read: {} } });
      await assert.rejects(
        call(before),
        failsWith(
          'INVALID_STATE',
          'other-manifest',
          new RegExp(`has the manifest ${now.manifestSha256} .* means ${before.manifestSha256}`),
        ),
      );
    });

    it('a method that the manifest calls destructive runs only for a command that does not call it harmless', async () => {
      const mark = join(scratchFolder(), 'mark');
      const written = write({ script: `touch ${mark}`, methods: { flash: { destructive: true } } });
      await assert.rejects(
        call(written, { method: 'flash', harmless: true }),
        failsWith(
          'PERMISSION_DENIED',
          'method-destructive',
          /calls flash of plugin psu harmless, and this machine's manifest calls it destructive/,
        ),
      );
      assert.equal(existsSync(mark), false, 'nothing was run');
      await call(written, { method: 'flash', harmless: false });
      assert.equal(existsSync(mark), true);
    });

    it('whatever a control plane claims, no destructive method gets past both the quorum and the manifest', () => {
      const manifest = parseManifest('m', JSON.stringify({ ...bare, methods: { soft: method, hard: { ...method, destructive: true } } }));
      fc.assert(
        fc.property(fc.boolean(), fc.constantFrom('soft', 'hard'), (harmless, name) => {
          const asksApprovers = harmOf('driver.invoke', { harmless }) !== 'none';
          const judge = () =>
            judgeInvocation(
              { manifest, manifestSha256: 'a' },
              { plugin: 'psu', manifestSha256: 'a', method: name, input: Buffer.alloc(0), harmless },
            );
          if (name === 'hard' && !asksApprovers) assert.throws(judge, failsWith('PERMISSION_DENIED', 'method-destructive', /./));
          else assert.equal(judge().destructive, name === 'hard');
        }),
      );
    });
  });

  describe('a plugin that does not do as it should', () => {
    const fails = (init: PluginInit, [code, reason, message]: [string, string, RegExp], over: Asked = {}) =>
      assert.rejects(call(write(init), over), failsWith(code, reason, message));
    /** Nothing of the last call is there any more. */
    const gone = async () => assert.deepEqual(await processesOf(`c-${process.pid}-${counted}`, null), []);

    it('a status that is not 0, a signal, and a program that is none, each with what it said last', async () => {
      await fails({ script: 'echo "no such PSU" >&2; exit 3' }, [
        'UNAVAILABLE',
        'plugin-status',
        /read of plugin psu ended with status 3: no such PSU$/,
      ]);
      await fails({ script: 'kill -SEGV $$' }, ['UNAVAILABLE', 'plugin-killed', /was ended by SIGSEGV/]);
      const written = write({ script: 'cat' });
      chmodSync(written.executable, 0o644);
      await assert.rejects(call(written), failsWith('UNAVAILABLE', 'plugin-not-started', /EACCES/));
    });

    it('one that hangs is ended in its time, with its children, also where it does not let itself be asked', async () => {
      const stubborn = 'trap "" TERM; sleep 600 & wait; sleep 600; sleep 600';
      await fails({ script: stubborn, methods: { read: { timeoutSeconds: 1 } } }, [
        'UNAVAILABLE',
        'plugin-late',
        /did not end within 1 s and was ended/,
      ]);
      await gone();
    }).timeout(20_000);

    it('one that answers without end is ended at its bound; one that talks without end is not, and costs no memory', async () => {
      await fails({ script: 'exec yes' }, ['FRAME_TOO_LARGE', 'plugin-output', /more than the 4096 bytes of its manifest/]);
      await gone();
      const written = write({
        script: 'i=0; while [ $i -lt 2000 ]; do echo "line $i aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" >&2; i=$((i+1)); done; echo ok',
      });
      assert.equal(outputOf(await call(written)), 'ok\n');
      assert.match(String(logged[0]?.['said']), /line 1999 a+$/);
    });

    it('one that leaves processes behind has failed, and they are ended: in its group, in a session of their own, holding its output open', async () => {
      for (const left of ['sleep 600 &', 'setsid sleep 600 &', '(setsid setsid sleep 600 >/dev/null 2>&1 &) ; sleep 0.1']) {
        await fails({ script: `${left}\necho done` }, [
          'UNAVAILABLE',
          'plugin-left-processes',
          /left 1 process\(es\) behind, which were ended/,
        ]);
        await gone();
      }
      const pipe = write({ script: '(sleep 0.2; echo late) & echo early' });
      assert.match(outputOf(await call(pipe)), /early\nlate\n/, 'a child that ends by itself a moment later is no fault');
    }).timeout(30_000);

    it('one that does not read its input may end well', async () => {
      const written = write({ script: 'echo ok', methods: { read: { maxInputBytes: 512 * 1024 } } });
      assert.equal(outputOf(await call(written, { input: Buffer.alloc(512 * 1024, 1) })), 'ok\n');
    });

    it('a cancelled command ends it at once', async () => {
      const abort = new AbortController();
      const pid = join(scratchFolder(), 'pid');
      const running = call(write({ script: `trap "" TERM; echo $$ > ${pid}; sleep 600` }), {}, abort.signal);
      await eventually('the plugin runs', () => existsSync(pid) && readFileSync(pid, 'utf8') !== '');
      abort.abort(new ControlError('CANCELLED', 'cancelled: not needed'));
      await assert.rejects(running, /cancelled: not needed/);
      await gone();
    });
  });

  describe('whom its files belong to', () => {
    it('is root, or who runs bcd: nobody else may write a file or a folder on the way to it', () => {
      const folder = { type: 'folder', uid: 0, mode: 0o755 } as const;
      const cases: [
        entry: Parameters<typeof problemOfEntry>[0],
        wanted: 'file' | 'folder' | 'above',
        ownUid: number,
        problem: RegExp | null,
      ][] = [
        [folder, 'folder', 0, null],
        [{ ...folder, uid: 1000 }, 'above', 0, /belongs to user 1000: chown it to root$/],
        [{ ...folder, uid: 1000 }, 'above', 1000, null],
        [{ ...folder, uid: 1001 }, 'above', 1000, /belongs to user 1001: chown it to root or to user 1000, who runs bcd/],
        [{ ...folder, mode: 0o775 }, 'folder', 0, /can be written by others \(mode 775\)/],
        [{ ...folder, mode: 0o757 }, 'above', 0, /can be written by others/],
        [{ ...folder, mode: 0o1777 }, 'above', 0, null],
        [{ ...folder, mode: 0o1777 }, 'folder', 0, /can be written by others \(mode 1777\)/],
        [{ ...folder, uid: 1000, mode: 0o1777 }, 'above', 1000, /can be written by others/],
        [{ ...folder, type: 'link' }, 'above', 0, /is a symbolic link/],
        [{ ...folder, type: 'file' }, 'above', 0, /is no folder/],
        [folder, 'file', 0, /is no regular file/],
        [{ ...folder, type: 'other' }, 'file', 0, /is no regular file/],
      ];
      for (const [entry, wanted, ownUid, problem] of cases) {
        const said = problemOfEntry(entry, wanted, ownUid);
        if (problem === null) assert.equal(said, null, JSON.stringify([entry, wanted, ownUid]));
        else assert.match(said ?? '', problem);
      }
    });

    const untrusted = (message: RegExp) => failsWith('INVALID_STATE', 'plugin-untrusted', message);

    it('a file or folder that others may write runs nothing', async () => {
      for (const path of ['plugins', 'folder', 'manifestPath', 'executable'] as const) {
        const written = write({ script: 'cat' });
        const loose = path === 'plugins' ? plugins : written[path];
        chmodSync(loose, 0o777);
        await assert.rejects(call(written), untrusted(/can be written by others \(mode 777\): chmod go-w; nothing of it is run/), path);
        chmodSync(loose, 0o755);
        assert.equal(outputOf(await call(written)), '');
      }
    });

    it('a symbolic link runs nothing, wherever it stands', async () => {
      const written = write({ script: 'cat' });
      const elsewhere = join(scratchFolder(), 'it');
      for (const path of [written.executable, written.manifestPath, written.folder, plugins]) {
        renameSync(path, elsewhere);
        symlinkSync(elsewhere, path);
        await assert.rejects(call(written), untrusted(/is a symbolic link/), path);
        rmSync(path);
        renameSync(elsewhere, path);
      }
      assert.equal(outputOf(await call(written)), '');
    });

    it('what belongs to another account runs nothing (needs root, who may give files away)', async function () {
      if (process.getuid?.() !== 0) this.skip();
      const written = write({ script: 'cat' });
      for (const path of [written.executable, written.manifestPath, written.folder, plugins]) {
        chownSync(path, 65_534, 65_534);
        await assert.rejects(call(written), untrusted(/belongs to user 65534/), path);
        chownSync(path, 0, 0);
      }
    });

    it('a program that is not the one of its manifest is not run', async () => {
      const written = write({ script: 'cat' });
      writeFileSync(written.executable, '#!/bin/sh\nrm -rf /tmp/of-somebody-else\n');
      await assert.rejects(
        call(written),
        failsWith('INVALID_STATE', 'plugin-program', /has SHA-256 [0-9a-f]{64}, and its manifest names [0-9a-f]{64}; nothing of it is run/),
      );
    });
  });

  const bare = { name: 'psu', version: '1', executable: 'plugin', sha256: sha256Of('') };
  const method = { destructive: false, timeoutSeconds: 1, maxInputBytes: 0, maxOutputBytes: 0 };

  describe('a manifest', () => {
    it('says everything that is wrong with it at once', () => {
      const text = JSON.stringify({
        ...bare,
        name: '../psu',
        executable: '/bin/sh',
        sha256: 'AB',
        shell: true,
        methods: {
          read: { ...method, timeoutSeconds: 1741, maxOutputBytes: 512 * 1024 + 1 },
          '-x': method,
          flash: { timeoutSeconds: 1, maxInputBytes: 0, maxOutputBytes: 0 },
        },
      });
      assert.throws(
        () => parseManifest('m.json', text),
        (error: unknown) => {
          const problems = (error as ControlError).details['problems'] as string[];
          const places = [
            'name',
            'executable',
            'sha256',
            'methods.read.timeoutSeconds',
            'methods.read.maxOutputBytes',
            'methods.-x',
            'methods.flash.destructive',
            'the manifest',
          ];
          for (const place of places)
            assert.ok(
              problems.some((one) => one.startsWith(`${place}: `)),
              `${place} in ${problems.join('\n')}`,
            );
          return (error as ControlError).code === 'INVALID_CONFIG';
        },
      );
      assert.throws(() => parseManifest('m.json', JSON.stringify({ ...bare, methods: {} })), /at least one method is needed/);
      assert.throws(() => parseManifest('m.json', 'no JSON'), /m\.json is not JSON/);
    });

    it('of another name than its folder is refused', async () => {
      const written = write({ script: 'cat', manifest: { name: 'fan' } });
      await assert.rejects(call(written), failsWith('INVALID_CONFIG', 'plugin-manifest', /name is fan, and its folder is called psu/));
    });

    it('arbitrary bytes in its place are refused with a message, and run nothing', () => {
      fc.assert(
        fc.property(fc.oneof(fc.string(), fc.json()), (text) => {
          assert.throws(() => parseManifest('m.json', text), ControlError);
        }),
      );
    });
  });
});
