/** `nodes enrol`, `nodes reenrol` and `enrolments …` as an operator types them, over a real API whose machines are kept in memory. */
import assert from 'node:assert/strict';
import type { EnrolmentAnswer } from '../../cli/api-client.ts';
import { runCli } from '../../cli/program.ts';
import { createDeployment, type RunningApi, startApi } from '../api/support.ts';
import { createTestIo, envFor, type TestIo, type TestIoOptions } from './support.ts';

const key = `SHA256:${'A'.repeat(43)}`;
const access = ['--address', '10.0.0.7', '--expect-hostkey', key, '--credential', 'file://web', '--reason', 'new rack'];
const ids = [1, 2, 3].map((number) => `enr-${String(number).padStart(24, '0')}`);
const failed = 'failed: the machine cannot be enrolled: it has no node';
const asItWas = 'hint: what these nodes were before, they are still; correct the cause and order it again\n';

describe('enrolments over SSH on the command line', () => {
  let api: RunningApi;
  beforeEach(async () => {
    api = await startApi(createDeployment());
  });
  afterEach(() => api.close());

  const run = async (argv: string[], more: TestIoOptions = {}): Promise<{ exit: number; io: TestIo; out: string; err: string }> => {
    const io = createTestIo({ env: envFor(api.url), ...more });
    const exit = await runCli(argv, io);
    return { exit, io, out: io.stdout(), err: io.stderr() };
  };
  const said = async (argv: string[], more: TestIoOptions = {}): Promise<[number, string, string]> => {
    const { exit, out, err } = await run(argv, more);
    return [exit, out, err];
  };
  const ordered = async (): Promise<string[]> => {
    const { io } = await run(['enrolments', 'list', '--json']);
    return (io.json() as { enrolments: EnrolmentAnswer[] }).enrolments.map(({ nodeId }) => nodeId);
  };
  const enrol = (node: string, ...more: string[]): string[] => ['nodes', 'enrol', node, ...access, ...more];
  const again = (...words: string[]): string[] => ['nodes', 'reenrol', ...words, '--reason', 'its key was copied'];

  it('nodes enrol orders it and says where to look; with --wait, how it ended', async () => {
    assert.deepEqual(await said(enrol('good-1')), [
      0,
      `${ids[0]} of good-1 is under way: better-compute enrolments show ${ids[0]}\n`,
      `enrolling good-1: workflow node/good-1/identity (${ids[0]})\n`,
    ]);
    assert.deepEqual(await said(enrol('good-2', '--wait')), [
      0,
      'good-2 has its first identity\n',
      `enrolling good-2: workflow node/good-2/identity (${ids[1]})\n`,
    ]);
    const bad = await run(enrol('bad-3', '--wait'));
    assert.deepEqual([bad.exit, bad.out, bad.io.slept], [4, '', [2_000]]);
    assert.equal(bad.err, `enrolling bad-3: workflow node/bad-3/identity (${ids[2]})\nerror: bad-3: ${failed}\n${asItWas}`);
  });

  it('XC-034 enrolment 39 what the api refuses is said as it is', async () => {
    const { exit, err } = await run(['nodes', 'enrol', 'good-1', '--address', '10.0.0.7', '--reason', 'x']);
    assert.deepEqual([exit, err.split('\n')[0]], [2, 'error: the host key is not known, and none is trusted on first use']);
    assert.deepEqual(await ordered(), []);
  });

  it('in JSON one enrolment is itself, and several are a list', async () => {
    const { exit, io, err } = await run(enrol('good-1', '--wait', '--json'));
    assert.deepEqual([exit, (io.json() as EnrolmentAnswer).state, err], [0, 'completed', '']);
    const two = await run(again('good-1', 'good-2', '--json'));
    const { enrolments } = two.io.json() as { enrolments: { node: string; error: string | null }[] };
    assert.deepEqual(
      enrolments.map(({ node, error }) => [node, error]),
      [
        ['good-1', null],
        ['good-2', null],
      ],
    );
  });

  it('enrolment 49 of several nodes the first that fails stops the rest', async () => {
    const { exit, out, err } = await run(again('good-1', 'bad-2', 'good-3'));
    assert.deepEqual([exit, out], [4, 'good-1 has its next identity\n']);
    assert.equal(
      err,
      [
        `enrolling again good-1: workflow node/good-1/identity (${ids[0]})\n`,
        `enrolling again bad-2: workflow node/bad-2/identity (${ids[1]})\n`,
        `error: bad-2: ${failed}; 1 node(s) were left as they are\n${asItWas}`,
      ].join(''),
    );
    assert.deepEqual(await ordered(), ['good-1', 'bad-2']);
  });

  it('enrolment 49 with --go-on the others are done, and the failure is told all the same', async () => {
    const { exit, out, err } = await run(again('bad-1', 'good-2', 'good-3', '--go-on'));
    assert.deepEqual([exit, out], [4, 'good-2 has its next identity\ngood-3 has its next identity\n']);
    assert.ok(err.endsWith(`error: bad-1: ${failed}\n${asItWas}`), err);
    assert.deepEqual(await ordered(), ['bad-1', 'good-2', 'good-3']);
  });

  it('enrolment 49 Ctrl-C orders nothing more, with --go-on neither', async () => {
    for (const goOn of [[], ['--go-on']]) {
      const interrupt = new AbortController();
      const before = (await ordered()).length;
      let looks = 0;
      const { exit, err } = await run(again('good-1', 'good-2', 'good-3', ...goOn), {
        signal: interrupt.signal,
        onSleep: () => {
          looks += 1;
          if (looks === 2) interrupt.abort();
        },
      });
      assert.equal(exit, 130);
      assert.match(
        err,
        /error: stopped waiting; node good-3 and what follows are left as they are\nhint: better-compute enrolments list --open\n$/,
      );
      assert.deepEqual((await ordered()).slice(before), ['good-1', 'good-2']);
    }
  });

  it('enrolment 49 a dry run says of each whom it would dial and as what, and orders nothing', async () => {
    assert.deepEqual(await said(again('good-1', 'bad-2', '--login', 'ops', '--dry-run')), [
      0,
      ['good-1', 'bad-2'].map((node) => `${node}: ops@10.0.0.7:22, host key ${key}, credential file://web; generation 4\n`).join(''),
      'nothing was connected to, and nothing ordered\n',
    ]);
    assert.deepEqual(await ordered(), []);
  });

  it('what names one machine is not taken for several', async () => {
    const { exit, err } = await run(again('good-1', 'good-2', '--address', '10.0.0.7', '--expect-hostkey', key, '--dry-run'));
    assert.equal(exit, 2);
    assert.match(err, /^error: --address and --expect-hostkey would be that of 2 nodes: each is a machine of its own\n/);
  });

  it('enrolments list shows whom each reaches and how it ended, those that are open alone, and none', async () => {
    assert.deepEqual(await said(['enrolments', 'list']), [0, '', 'no enrolment; order one with: better-compute nodes enrol\n']);
    await run(enrol('good-1', '--login', 'ops', '--port', '2222'));
    await run(enrol('bad-2', '--wait'));
    const { out } = await run(['enrolments', 'list']);
    const [heading, ...rows] = out.trimEnd().split('\n');
    assert.match(heading ?? '', /^ENROLMENT +NODE +KIND +AT +STATE +SINCE +BY +END$/);
    assert.match(rows[0] ?? '', new RegExp(`^${ids[0]}  good-1  enrol  ops@10\\.0\\.0\\.7:2222  open    .* ago  ann.*  -$`));
    assert.match(
      rows[1] ?? '',
      new RegExp(`^${ids[1]}  bad-2   enrol  root@10\\.0\\.0\\.7:22   failed  .*  the machine cannot be enrolled: it has no node$`),
    );
    const named = async (...flags: string[]): Promise<(string | undefined)[]> =>
      (await run(['enrolments', 'list', ...flags])).out
        .trimEnd()
        .split('\n')
        .slice(1)
        .map((row) => row.split('  ')[1]);
    assert.deepEqual(await named('--open'), ['good-1']);
    assert.deepEqual(await named('--node', 'bad-2'), ['bad-2']);
  });

  it('enrolments show says whom it reaches, by which host key and credential, and how it ended', async () => {
    await run(enrol('bad-1', '--sudo'));
    const { exit, out } = await run(['enrolments', 'show', ids[0] ?? '']);
    assert.equal(exit, 0);
    assert.equal(
      out,
      [
        'node        bad-1 (node of site eu-1, tenant default)',
        'kind        enrol: generation 1 is its first',
        'at          root@10.0.0.7:22, with sudo',
        `host key    ${key}`,
        'credential  file://web',
        `state       ${failed}`,
        'ordered     1970-01-01T00:00:00Z by ann: new rack',
        'ended       1970-01-01T00:00:00Z',
        'workflow    node/bad-1/identity',
        '',
      ].join('\n'),
    );
    const unknown = await run(['enrolments', 'show', 'enr-none']);
    assert.deepEqual([unknown.exit, unknown.err.split('\n')[0]], [5, 'error: no enrolment is called enr-none']);
  });

  it('no word of whoever cancelled it turns the terminal around', async () => {
    await run(enrol('good-1'));
    await run(['enrolments', 'cancel', ids[0] ?? '', '--reason', 'a\u009b2Jb', '--yes']);
    for (const what of [['list'], ['show', ids[0] ?? '']]) {
      const { out } = await run(['enrolments', ...what]);
      assert.ok(out.includes('a\\u{9b}2Jb'), out);
    }
    const { err } = await run(['enrolments', 'show', 'enr-\u202enone']);
    assert.equal(err.split('\n')[0], 'error: no enrolment is called enr-\\u{202e}none');
  });

  it('enrolments cancel ends what is open, once, and only for somebody who meant it', async () => {
    await run(enrol('good-1'));
    const cancel = ['enrolments', 'cancel', ids[0] ?? '', '--reason', 'wrong machine'];
    assert.notEqual((await run(cancel)).exit, 0, 'nobody was there to confirm it');
    assert.deepEqual(await said([...cancel, '--yes']), [
      0,
      `enrolment ${ids[0]} of good-1 is cancelled\n`,
      'its workflow takes away what was prepared on the machine: node/good-1/identity\n',
    ]);
    const { exit, err } = await run([...cancel, '--yes']);
    assert.deepEqual([exit, err.split('\n')[0]], [4, `error: enrolment ${ids[0]} is cancelled`]);
  });
});
