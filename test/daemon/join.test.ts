import assert from 'node:assert/strict';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { type Code, ControlError } from '../../domain/errors.ts';
import { hour, minute } from '../../domain/time.ts';
import { encodeJoinBundle, signJoinResponse } from '../../pki/enroll/index.ts';
import { parseCsr, type Signer, spkiOf } from '../../pki/x509/index.ts';
import { decodeMessage, type JoinGrantedSchema, type JoinRequest, JoinRequestSchema, type JoinResponseBodySchema } from '../../proto/index.ts';
import { runBcd } from '../../daemon/cli/program.ts';
import { type JoinOptions, joinNode } from '../../daemon/join.ts';
import { generateNodeKey, getIdentity, identityPath, saveIdentity } from '../../daemon/state/identity.ts';
import { openMarks } from '../../daemon/state/marks.ts';
import { createDeployment, joinBundleOf, joinedNode, nodeChain, sha256, type TestDeployment, trustMessage } from '../harness/deployment.ts';
import { CallRefusal, type FakeGateway, startFakeGateway } from '../harness/fake-gateway.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';

describe('bcd join', () => {
  let deployment: TestDeployment;
  let gateway: FakeGateway;
  let answer: (request: JoinRequest) => Promise<Uint8Array>;
  const now = Date.now();

  before(async () => {
    deployment = await createDeployment({ now: now - minute });
  });
  beforeEach(async () => {
    answer = (request) => grant(request);
    gateway = await startFakeGateway({ deployment, onJoin: (bytes) => answer(decodeMessage(JoinRequestSchema, bytes, 'joinRequest')) });
  });
  afterEach(() => gateway.close());
  after(removeScratchFolders);

  interface Lie {
    readonly granted?: MessageInitShape<typeof JoinGrantedSchema>;
    readonly body?: MessageInitShape<typeof JoinResponseBodySchema>;
    readonly signer?: Signer;
    readonly key?: Uint8Array;
  }

  async function grant(request: JoinRequest, lie: Lie = {}): Promise<Uint8Array> {
    const chain = await nodeChain(deployment, { nodeId: 'node-7', spki: lie.key ?? parseCsr(request.csr).spki, now, role: request.role === 'site' ? 'site' : 'node' });
    const trust = trustMessage(deployment, { version: 3, roots: [deployment.rootA, deployment.rootB] });
    const granted = { nodeId: 'node-7', siteId: 'site-1', chain, trust, generation: 1n, ...lie.granted };
    const body = { nonce: request.nonce, csrSha256: sha256(request.csr), serverTimeMs: BigInt(now), outcome: { case: 'granted' as const, value: granted }, ...lie.body };
    return signJoinResponse(lie.signer ?? deployment.bundle.joinSigning.signer(), body);
  }

  const requests = (): JoinRequest[] => gateway.joins.map((bytes) => decodeMessage(JoinRequestSchema, bytes, 'joinRequest'));

  const optionsFor = (over: Partial<JoinOptions> = {}): JoinOptions => ({
    dataDir: scratchFolder(),
    bundle: joinBundleOf(deployment, gateway.url),
    role: 'node',
    attestor: 'join-token',
    evidence: null,
    replace: false,
    patienceMs: 0,
    host: { root: '/', readBootId: async () => 'boot-1' },
    random: () => 0,
    now: Date.now,
    say: () => undefined,
    sleep: async () => undefined,
    ...over,
  });

  const failsWith = (code: Code, message: RegExp) => (error: unknown): boolean => {
    assert.ok(error instanceof ControlError, String(error));
    assert.equal(error.code, code);
    assert.match(error.message, message);
    return true;
  };

  it('JOIN-008 JOIN-009 JOIN-010 JOIN-012 JOIN-015 asks without a certificate, with token, role, version, hardware and a key of its own', async () => {
    const options = optionsFor();
    await joinNode(options);
    const [request] = requests();
    assert.deepEqual([request?.attestor, request?.role], ['join-token', 'node']);
    assert.equal(Buffer.from(request?.evidence ?? []).toString(), options.bundle.token);
    assert.match(request?.daemonVersion ?? '', /^\d+\.\d+\.\d+/);
    assert.ok((request?.hardware?.memoryBytes ?? 0n) > 0n);
    assert.equal(request?.nonce.length, 32);
    const { key } = await getIdentity(options.dataDir);
    assert.deepEqual(Buffer.from(parseCsr(request?.csr ?? new Uint8Array()).spki), Buffer.from(spkiOf(key)));
  });

  it('JOIN-025 JOIN-027 SIGN-008 holds from then on what the answer said, and the pins of the join string', async () => {
    const options = optionsFor();
    const identity = await joinNode(options);
    assert.deepEqual([identity.nodeId, identity.siteId, identity.role, identity.generation, identity.trust.version], ['node-7', 'site-1', 'node', 1n, 3n]);
    assert.deepEqual([identity.servingCaPin, identity.gatewayUrl, identity.gatewayServerName], [options.bundle.servingCaPin, gateway.url, 'gw.test']);
    assert.equal(identity.signaturesRequired, true);
    assert.equal((await getIdentity(options.dataDir)).identity.trust.commandRoots.length, 2);
    assert.deepEqual((await readdir(options.dataDir)).filter((name) => name.startsWith('join-pending')), []);
  });

  it('JOIN-014 an answer that got lost: asks again with the same CSR and another nonce, also after a restart', async () => {
    let lost = true;
    answer = async (request) => {
      if (lost) throw new CallRefusal({ 'grpc-status': '14', 'x-bc-reason': 'services-unavailable' });
      return grant(request);
    };
    const options = optionsFor();
    await assert.rejects(joinNode(options), failsWith('UNAVAILABLE', /status 14/));
    await assert.rejects(joinNode(options), failsWith('UNAVAILABLE', /status 14/));
    lost = false;
    await joinNode(options);
    const all = requests();
    assert.equal(all.length, 3);
    assert.equal(new Set(all.map(({ csr }) => Buffer.from(csr).toString('hex'))).size, 1);
    assert.equal(new Set(all.map(({ nonce }) => Buffer.from(nonce).toString('hex'))).size, 3);
  });

  it('JOIN-013 JOIN-014 a deferred join waits as long as it is told and asks again with the same CSR', async () => {
    const waits: number[] = [];
    answer = async (request) => grant(request, gateway.joins.length === 1 ? { body: { outcome: { case: 'deferral', value: { retryAfterSeconds: 7 } } } } : {});
    await joinNode(optionsFor({ patienceMs: minute, sleep: async (ms) => void waits.push(ms) }));
    const [first, second] = requests();
    assert.deepEqual(waits, [7_000]);
    assert.deepEqual(Buffer.from(first?.csr ?? []), Buffer.from(second?.csr ?? [0]));
    answer = (request) => grant(request, { body: { outcome: { case: 'deferral', value: { retryAfterSeconds: 3_600 } } } });
    await assert.rejects(joinNode(optionsFor({ patienceMs: minute })), failsWith('NOT_YET', /deferred the join by 3600 s, longer than --wait allows/));
  });

  it('JOIN-019 an attestor that asks back is a clear error', async () => {
    answer = (request) => grant(request, { body: { outcome: { case: 'deferral', value: { challenge: Buffer.from('?') } } } });
    await assert.rejects(joinNode(optionsFor({ patienceMs: hour })), failsWith('UNSUPPORTED', /asks the attestor a question/));
    assert.equal(gateway.joins.length, 1);
  });

  it('a refusal that no retry can cure is not retried; one that it can is, while patience lasts', async () => {
    answer = async () => Promise.reject(new CallRefusal({ 'grpc-status': '7', 'x-bc-reason': 'token-used', 'grpc-message': 'the join token was used' }));
    await assert.rejects(joinNode(optionsFor({ patienceMs: hour })), failsWith('PERMISSION_DENIED', /the join token was used/));
    assert.equal(gateway.joins.length, 1);
    const waits: number[] = [];
    answer = async (request) => {
      if (gateway.joins.length < 4) throw new CallRefusal({ 'grpc-status': '14', 'grpc-retry-pushback-ms': '1500' });
      return grant(request);
    };
    await joinNode(optionsFor({ patienceMs: hour, sleep: async (ms) => void waits.push(ms) }));
    assert.deepEqual(waits, [1_500, 1_500]);
  });

  const lies: [title: string, lie: (request: JoinRequest) => Promise<Uint8Array>, code: Code, message: RegExp][] = [
    ['JOIN-023 signed by another key', async (request) => grant(request, { signer: (await createDeployment()).bundle.joinSigning.signer() }), 'BAD_SIGNATURE', /names key .*, not/],
    ['JOIN-014 an answer to another nonce', (request) => grant(request, { body: { nonce: Buffer.alloc(32, 1) } }), 'REPLAYED', /belongs to another request/],
    ['an answer to another CSR', (request) => grant(request, { body: { csrSha256: Buffer.alloc(32, 1) } }), 'REPLAYED', /belongs to another request/],
    ['a certificate for another key', (request) => grant(request, { key: spkiOf(generateNodeKey()) }), 'PERMISSION_DENIED', /certificate is for another key/],
    ['a certificate for another node than the answer names', (request) => grant(request, { granted: { nodeId: 'node-8' } }), 'PERMISSION_DENIED', /certificate is for spiffe:.*node-7, the answer for node node-8/],
    ['no trust bundle', (request) => grant(request, { granted: { trust: undefined } }), 'PERMISSION_DENIED', /carries no trust bundle/],
    ['a trust bundle of another domain', async (request) => grant(request, { granted: { trust: trustMessage(await createDeployment({ trustDomain: 'other.example' }), { version: 1, roots: [] }) } }), 'PERMISSION_DENIED', /trust domain other\.example, not test\.example/],
    ['a root that is none', (request) => grant(request, { granted: { trust: { ...trustMessage(deployment, { version: 1, roots: [] }), commandRoots: [Buffer.from('x')] } } }), 'PERMISSION_DENIED', /command root 1 of 1 does not parse/],
    ['a chain that does not hold', async (request) => grant(request, { granted: { chain: [...(await nodeChain(deployment, { nodeId: 'node-7', spki: parseCsr(request.csr).spki, now })).slice(0, 1), deployment.bundle.internalCa.certificate.der] } }), 'BAD_SIGNATURE', /trust anchor|not signed/],
    ['bytes that do not decode', async () => Buffer.from([0xff, 0xff]), 'MALFORMED', /does not decode/],
  ];
  for (const [title, lie, code, message] of lies) {
    it(`refuses ${title}, and holds nothing afterwards`, async () => {
      answer = lie;
      const options = optionsFor();
      await assert.rejects(joinNode(options), failsWith(code, message));
      assert.deepEqual((await readdir(options.dataDir)).filter((name) => name.startsWith('identity')), []);
    });
  }

  it('TRN-011 another serving CA than the pinned one never sees the token', async () => {
    const other = await createDeployment();
    const bundle = { ...joinBundleOf(deployment, gateway.url), servingCaPin: joinBundleOf(other, gateway.url).servingCaPin };
    await assert.rejects(joinNode(optionsFor({ bundle })), failsWith('PERMISSION_DENIED', /pinned serving CA/));
    assert.equal(gateway.joins.length, 0);
  });

  describe('a machine that has joined already', () => {
    const joined = async (): Promise<string> => {
      const dataDir = scratchFolder();
      await saveIdentity(dataDir, await joinedNode(deployment, { gatewayUrl: gateway.url }));
      return dataDir;
    };

    it('is not given another identity by accident', async () => {
      const dataDir = await joined();
      await assert.rejects(joinNode(optionsFor({ dataDir })), (error: ControlError) => failsWith('INVALID_STATE', /has joined already, as node node-1 of test\.example/)(error) && /--replace/.test(String(error.details['hint'])));
      assert.equal(gateway.joins.length, 0);
    });

    it('gets one with --replace: another node starts without the epochs and the desired state of the former, the journal stays', async () => {
      const dataDir = await joined();
      await (await openMarks(dataDir)).raise({ epoch: 9n });
      await writeFile(join(dataDir, 'desired-state.json'), '{}');
      await joinNode(optionsFor({ dataDir, replace: true }));
      assert.equal((await getIdentity(dataDir)).identity.nodeId, 'node-7');
      assert.equal((await openMarks(dataDir)).current.epoch, 0n);
      assert.ok(!(await readdir(dataDir)).includes('desired-state.json'));
      assert.match(await readFile(`${identityPath(dataDir)}.previous`, 'utf8'), /"node-1"/);
    });

    it('H-06 C30 does not stop requiring signatures by joining the same deployment again', async () => {
      const dataDir = await joined();
      answer = (request) => grant(request, { granted: { trust: trustMessage(deployment, { version: 9, roots: [] }) } });
      await assert.rejects(joinNode(optionsFor({ dataDir, replace: true })), failsWith('PERMISSION_DENIED', /holds no command root, and this machine already required signatures/));
      assert.equal((await getIdentity(dataDir)).identity.nodeId, 'node-1');
    });

    it('with a damaged identity is repaired by --replace alone', async () => {
      const dataDir = await joined();
      await writeFile(identityPath(dataDir), '{');
      await assert.rejects(joinNode(optionsFor({ dataDir })), failsWith('DATA_CORRUPT', /identity\.json is damaged/));
      await joinNode(optionsFor({ dataDir, replace: true }));
      assert.equal(await readFile(`${identityPath(dataDir)}.previous`, 'utf8'), '{');
    });
  });

  describe('on the command line', () => {
    async function bcd(args: readonly string[], stdin = ''): Promise<{ code: number; out: string; err: string }> {
      let out = '';
      let err = '';
      const io = { out: (text: string) => void (out += `${text}\n`), err: (text: string) => void (err += `${text}\n`), env: {}, now: Date.now, readStdin: async () => stdin };
      return { code: await runBcd(args, io), out, err };
    }
    const joinString = (): string => encodeJoinBundle(joinBundleOf(deployment, gateway.url));

    it('takes the join string as an argument, from standard input or from a file, and says what to do next', async () => {
      const file = join(scratchFolder(), 'join');
      await writeFile(file, `${joinString()}\n`);
      for (const [args, stdin] of [[[joinString()], ''], [['-'], joinString()], [[], `${joinString()}\n`], [[`@${file}`], '']] as const) {
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
      const { code, out } = await bcd(['join', joinString(), '--data-dir', scratchFolder(), '--role', 'site', '--attestor', 'cloud-iid', '--evidence-file', evidence, '--json']);
      assert.equal(code, 0);
      assert.deepEqual(requests().map((request) => [request.role, request.attestor, Buffer.from(request.evidence).toString()]), [['site', 'cloud-iid', 'proof']]);
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
});
