import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { fileURLToPath } from 'node:url';

const entry = fileURLToPath(new URL('./fixtures/process.ts', import.meta.url));

interface Sample {
  readonly child: ChildProcess;
  readonly ready: Promise<{ ready: boolean; process: string; addresses: Record<string, string> }>;
  readonly ended: Promise<{ code: number | null; out: string; err: string }>;
}

const children: ChildProcess[] = [];

function sample(args: string[], env: NodeJS.ProcessEnv = {}): Sample {
  const child = spawn(process.execPath, ['--import', 'tsx', entry, ...args], {
    stdio: ['pipe', 'pipe', 'pipe'],
    env: { ...process.env, BETTER_COMPUTE_READY: 'json', BETTER_COMPUTE_EXIT_WITH_PARENT: '1', ...env },
  });
  children.push(child);
  let out = '';
  let err = '';
  const ready = new Promise<Awaited<Sample['ready']>>((resolve) => {
    child.stdout.on('data', (data: Buffer) => {
      out += data.toString();
      const [line] = out.split('\n');
      if (out.includes('\n') && line?.startsWith('{')) resolve(JSON.parse(line) as Awaited<Sample['ready']>);
    });
  });
  child.stderr.on('data', (data: Buffer) => void (err += data.toString()));
  const ended = once(child, 'close').then(([code]) => ({ code: code as number | null, out, err }));
  return { child, ready, ended };
}

describe('runtime/lifecycle', function () {
  this.timeout(30_000);
  afterEach(() => {
    for (const child of children.splice(0)) child.kill('SIGKILL');
  });

  it('prints its bound addresses as one line of JSON, and stops on SIGTERM', async () => {
    const { child, ready, ended } = sample(['run']);
    const line = await ready;
    assert.equal(line.ready, true);
    assert.equal(line.process, 'sample');
    assert.match(line.addresses['sample'] ?? '', /^127\.0\.0\.1:[1-9]\d*$/);
    child.kill('SIGTERM');
    const { code, out } = await ended;
    assert.equal(code, 0);
    assert.match(out, /\nstopped\n$/);
  });

  it('stops when its stdin closes, as it does when the parent is killed', async () => {
    const { child, ready, ended } = sample(['run']);
    await ready;
    child.stdin?.end();
    const { code, out, err } = await ended;
    assert.equal(code, 0);
    assert.match(out, /\nstopped\n$/);
    assert.match(err, /"reason":"the parent is gone"/);
  });

  it('lives on without a stdin when it was not told to end with its parent', async () => {
    const { child, ready, ended } = sample(['run'], { BETTER_COMPUTE_EXIT_WITH_PARENT: '' });
    child.stdin?.end();
    await ready;
    assert.equal(child.exitCode, null);
    child.kill('SIGINT');
    assert.equal((await ended).code, 0);
  });

  it('leaves one error line, one hint line and the exit code of the table when it cannot start', async () => {
    const { code, out, err } = await sample(['refuse']).ended;
    assert.equal(code, 3);
    assert.equal(out, '');
    assert.match(err, /^error: the sample is configured wrong\nhint: correct the configuration, or restore the bundle from a backup$/m);
  });

  it('names who asked for a port that is taken', async () => {
    const holder = createServer().listen(0, '127.0.0.1');
    await once(holder, 'listening');
    const { port } = holder.address() as { port: number };
    const { code, err } = await sample(['run', String(port)]).ended;
    await new Promise((resolve) => holder.close(resolve));
    assert.equal(code, 3);
    assert.match(err, new RegExp(`^error: port 127\\.0\\.0\\.1:${port} is taken; the sample asked for it \\(set by --port\\)$`, 'm'));
  });

  it('stops in order and exits by the table when a fault shows later', async () => {
    const { code, out, err } = await sample(['fail-later']).ended;
    assert.equal(code, 8);
    assert.match(out, /stopped\n$/);
    assert.match(err, /^error: the database went away$/m);
  });

  it('does not survive a rejection nobody caught', async () => {
    const { code, out, err } = await sample(['reject-later']).ended;
    assert.equal(code, 70);
    assert.match(out, /stopped\n$/);
    assert.match(err, /^error: nobody caught this$/m);
  });
});
