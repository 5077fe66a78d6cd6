import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { runBcd } from '../../daemon/cli/program.ts';
import { encodeJoinBundle, encodePinsFile } from '../../pki/enroll/index.ts';
import { decodeMessage, type JoinRequest, JoinRequestSchema } from '../../proto/index.ts';
import { createDeployment, joinBundleOf, type TestDeployment } from '../harness/deployment.ts';
import { type FakeGateway, startFakeGateway } from '../harness/fake-gateway.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';

import { grantJoin, joinRequestsOf } from './join-stage.ts';

describe('bcd on the command line', () => {
  let deployment: TestDeployment;
  let gateway: FakeGateway;

  before(async () => {
    deployment = await createDeployment();
  });
  beforeEach(async () => {
    gateway = await startFakeGateway({
      deployment,
      onJoin: (bytes) => grantJoin(deployment, decodeMessage(JoinRequestSchema, bytes, 'joinRequest')),
    });
  });
  afterEach(() => gateway.close());
  after(removeScratchFolders);

  const requests = (): JoinRequest[] => joinRequestsOf(gateway);

  async function bcd(args: readonly string[], stdin = ''): Promise<{ code: number; out: string; err: string }> {
    let out = '';
    let err = '';
    const io = {
      out: (text: string) => void (out += `${text}\n`),
      err: (text: string) => void (err += `${text}\n`),
      env: {},
      now: Date.now,
      readStdin: async () => stdin,
    };
    return { code: await runBcd(args, io), out, err };
  }
  const joinString = (): string => encodeJoinBundle(joinBundleOf(deployment, gateway.url));

  it('JOIN-016 --node-id sends attestor provisioned and the node that this system is; another one is not taken', async () => {
    const dataDir = scratchFolder();
    const joined = await bcd(['join', '--node-id', 'node-7', '--data-dir', dataDir, joinString()]);
    assert.equal(joined.code, 0, joined.err);
    assert.deepEqual(
      requests().map(({ attestor, nodeId }) => [attestor, nodeId]),
      [['provisioned', 'node-7']],
    );
    const other = await bcd(['join', '--node-id', 'node-8', '--data-dir', scratchFolder(), joinString()]);
    assert.notEqual(other.code, 0);
    assert.match(other.err, /it is for node node-7, and this machine is to be node-8/);
  });

  it('JOIN-016 JOIN-017 flags that do not go together are refused before anything is asked', async () => {
    const tries: [string[], RegExp][] = [
      [['--node-id', 'node-7', '--attestor', 'tpm'], /--node-id: it is for attestor provisioned, not for tpm/],
      [['--node-id', 'a b'], /--node-id: "a b" cannot be the id of a node/],
      [['--attestor', 'tpm', '--evidence-file', '/x'], /--evidence-file: the evidence of attestor tpm comes from the TPM/],
      [['--attestor', 'tpm', '--tpm', '--help'], /It must be a TCTI/],
      [['--attestor', 'tpm', '--tpm-ek', 'dsa'], /Allowed choices are rsa, ecc/],
    ];
    for (const [flags, message] of tries) {
      const { code, err } = await bcd(['join', ...flags, '--data-dir', scratchFolder(), joinString()]);
      assert.notEqual(code, 0, flags.join(' '));
      assert.match(err, message);
    }
    assert.equal(requests().length, 0);
  });

  it('CLI-020 with the pins of the machine a token alone joins, and a string for another control plane does not', async () => {
    const { token, ...pins } = joinBundleOf(deployment, gateway.url);
    const file = join(scratchFolder(), 'pins.json');
    await writeFile(file, encodePinsFile(pins));
    const joined = await bcd(['join', token, '--pins', file, '--data-dir', scratchFolder()]);
    assert.deepEqual([joined.code, joined.out], [0, 'joined as node node-7 of site site-1 in test.example\n'], joined.err);
    await writeFile(file, encodePinsFile({ ...pins, servingCaPin: `sha256/${Buffer.alloc(32, 1).toString('base64')}` }));
    const refused = await bcd(['join', joinString(), '--pins', file, '--data-dir', scratchFolder()]);
    assert.deepEqual([refused.code, /for another control plane than this machine's pins: servingCaPin/.test(refused.err)], [6, true]);
    const absent = await bcd(['join', token, '--pins', `${file}.none`, '--data-dir', scratchFolder()]);
    assert.deepEqual([absent.code, /there is no file .*pins\.json\.none/.test(absent.err)], [5, true]);
  });

  it('takes the join string as an argument, from standard input or from a file, and says what to do next', async () => {
    const file = join(scratchFolder(), 'join');
    await writeFile(file, `${joinString()}\n`);
    for (const [args, stdin] of [
      [[joinString()], ''],
      [['-'], joinString()],
      [[], `${joinString()}\n`],
      [[`@${file}`], ''],
    ] as const) {
      const dataDir = scratchFolder();
      const { code, out, err } = await bcd(['join', ...args, '--data-dir', dataDir], stdin);
      assert.equal(code, 0, err);
      assert.equal(out, 'joined as node node-7 of site site-1 in test.example\n');
      assert.match(err, new RegExp(`next: bcd run --data-dir ${dataDir}`));
    }
  });

  it('JOIN-017 --role, --attestor and --evidence-file reach the request; --json is for machines', async () => {
    const evidence = join(scratchFolder(), 'evidence');
    await writeFile(evidence, 'proof');
    const { code, out } = await bcd([
      'join',
      joinString(),
      '--data-dir',
      scratchFolder(),
      '--role',
      'site',
      '--attestor',
      'cloud-iid',
      '--evidence-file',
      evidence,
      '--json',
    ]);
    assert.equal(code, 0);
    assert.deepEqual(
      requests().map((request) => [request.role, request.attestor, Buffer.from(request.evidence).toString()]),
      [['site', 'cloud-iid', 'proof']],
    );
    const facts = JSON.parse(out);
    assert.deepEqual([facts.nodeId, facts.role, facts.trustVersion, facts.commandRoots.length], ['node-7', 'site', '3', 2]);
  });

  it('bad input: what, which value, what to do, and an exit code from the table; the token is never repeated', async () => {
    const cut = joinString().slice(0, -9);
    const cases: [string[], number, RegExp][] = [
      [['join', 'bcjoin2.x'], 2, /error: the join bundle is not one: it must start with bcjoin1\./],
      [['join', cut], 2, /error: the join bundle is not one: .*was all of it copied\?/],
      [['join', joinString(), '--role', 'king'], 2, /error: option '--role <role>' argument 'king' is invalid.*node, site/],
      [['join', joinString(), '--wait', 'long'], 2, /It must be a number of seconds/],
      [['join', joinString(), '--gateway', 'http://x'], 2, /--gateway "http:\/\/x" must be an https URL/],
      [['join', '@/nonexistent'], 5, /error: there is no file \/nonexistent/],
      [['join', joinString(), '--evidence-file', '/nonexistent'], 5, /error: there is no file \/nonexistent/],
      [['jion'], 2, /unknown command 'jion'\nhint: did you mean join\?/],
      [['run', '--data-dir'], 2, /argument missing/],
      [['status', '--data-dir', join(scratchFolder(), 'none')], 5, /this machine has not joined\nhint: bcd join/],
    ];
    for (const [args, exitCode, message] of cases) {
      const withFolder = args.includes('--data-dir') ? args : [...args, ...(args[0] === 'join' ? ['--data-dir', scratchFolder()] : [])];
      const { code, err, out } = await bcd(withFolder);
      assert.equal(code, exitCode, `${args[0]} ${args[2]}: ${err}`);
      assert.match(err, message);
      assert.match(err, /^hint: /m);
      assert.ok(!err.includes(joinString().slice(8, 40)) && out === '', 'no part of the join string is shown');
      const json = JSON.parse((await bcd([...withFolder, '--json'])).out);
      assert.equal(json.error.exitCode, exitCode);
    }
    assert.equal(gateway.joins.length, 0);
  });

  it('--version, --help with examples', async () => {
    assert.match((await bcd(['--version'])).out, /^\d+\.\d+\.\d+\n$/);
    for (const command of [[], ['join'], ['run'], ['status']]) {
      const { code, out } = await bcd([...command, '--help']);
      assert.equal(code, 0);
      assert.match(out, /Examples:\n {2}\$ bcd /);
    }
  });
});
