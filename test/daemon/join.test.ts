import assert from 'node:assert/strict';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type JoinOptions, joinNode } from '../../daemon/join.ts';
import { generateNodeKey, getIdentity, identityPath, saveIdentity } from '../../daemon/state/identity.ts';
import { openMarks } from '../../daemon/state/marks.ts';
import { type Code, ControlError } from '../../domain/errors.ts';
import { hour, minute } from '../../domain/time.ts';
import { parseCsr, spkiOf } from '../../pki/x509/index.ts';
import { decodeMessage, encodeMessage, type JoinRequest, JoinRequestSchema, JoinResponseSchema } from '../../proto/index.ts';
import { createDeployment, joinBundleOf, joinedNode, nodeChain, type TestDeployment, trustMessage } from '../harness/deployment.ts';
import { CallRefusal, type FakeGateway, startFakeGateway } from '../harness/fake-gateway.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';

import { grantJoin, joinRequestsOf, type Lie } from './join-stage.ts';

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

  const grant = (request: JoinRequest, lie: Lie = {}): Promise<Uint8Array> => grantJoin(deployment, request, lie);
  const requests = (): JoinRequest[] => joinRequestsOf(gateway);

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

  const failsWith =
    (code: Code, message: RegExp) =>
    (error: unknown): boolean => {
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
    assert.deepEqual(
      [identity.nodeId, identity.siteId, identity.role, identity.generation, identity.trust.version],
      ['node-7', 'site-1', 'node', 1n, 3n],
    );
    assert.deepEqual(
      [identity.servingCaPin, identity.gatewayUrl, identity.gatewayServerName],
      [options.bundle.servingCaPin, gateway.url, 'gw.test'],
    );
    assert.equal(identity.signaturesRequired, true);
    assert.equal((await getIdentity(options.dataDir)).identity.trust.commandRoots.length, 2);
    assert.deepEqual(
      (await readdir(options.dataDir)).filter((name) => name.startsWith('join-pending')),
      [],
    );
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
    answer = async (request) =>
      grant(request, gateway.joins.length === 1 ? { body: { outcome: { case: 'deferral', value: { retryAfterSeconds: 7 } } } } : {});
    await joinNode(optionsFor({ patienceMs: minute, sleep: async (ms) => void waits.push(ms) }));
    const [first, second] = requests();
    assert.deepEqual(waits, [7_000]);
    assert.deepEqual(Buffer.from(first?.csr ?? []), Buffer.from(second?.csr ?? [0]));
    answer = (request) => grant(request, { body: { outcome: { case: 'deferral', value: { retryAfterSeconds: 3_600 } } } });
    await assert.rejects(
      joinNode(optionsFor({ patienceMs: minute })),
      failsWith('NOT_YET', /deferred the join by 3600 s, longer than --wait allows/),
    );
  });

  it('JOIN-019 an attestor that asks back is a clear error', async () => {
    answer = (request) => grant(request, { body: { outcome: { case: 'deferral', value: { challenge: Buffer.from('?') } } } });
    await assert.rejects(joinNode(optionsFor({ patienceMs: hour })), failsWith('UNSUPPORTED', /asks the attestor a question/));
    assert.equal(gateway.joins.length, 1);
  });

  it('a refusal that no retry can cure is not retried; one that it can is, while patience lasts', async () => {
    answer = async () =>
      Promise.reject(new CallRefusal({ 'grpc-status': '7', 'x-bc-reason': 'token-used', 'grpc-message': 'the join token was used' }));
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
    [
      'JOIN-023 signed by another key',
      async (request) => grant(request, { signer: (await createDeployment()).bundle.joinSigning.signer() }),
      'BAD_SIGNATURE',
      /names key .*, not/,
    ],
    [
      'TRN-004 an answer that was changed on the way',
      async (request) => {
        const { body, signature } = decodeMessage(JoinResponseSchema, await grant(request), 'joinResponse');
        body[body.length - 1] = (body.at(-1) ?? 0) ^ 1;
        return encodeMessage(JoinResponseSchema, { body, ...(signature === undefined ? {} : { signature }) }, 'joinResponse');
      },
      'BAD_SIGNATURE',
      /the signature of the join-response does not match its bytes/,
    ],
    [
      'JOIN-014 an answer to another nonce',
      (request) => grant(request, { body: { nonce: Buffer.alloc(32, 1) } }),
      'REPLAYED',
      /belongs to another request/,
    ],
    [
      'an answer to another CSR',
      (request) => grant(request, { body: { csrSha256: Buffer.alloc(32, 1) } }),
      'REPLAYED',
      /belongs to another request/,
    ],
    [
      'a certificate for another key',
      (request) => grant(request, { key: spkiOf(generateNodeKey()) }),
      'PERMISSION_DENIED',
      /certificate is for another key/,
    ],
    [
      'a certificate for another node than the answer names',
      (request) => grant(request, { granted: { nodeId: 'node-8' } }),
      'PERMISSION_DENIED',
      /certificate is for spiffe:.*node-7, the answer for node node-8/,
    ],
    ['no trust bundle', (request) => grant(request, { granted: { trust: undefined } }), 'PERMISSION_DENIED', /carries no trust bundle/],
    [
      'a trust bundle of another domain',
      async (request) =>
        grant(request, {
          granted: { trust: trustMessage(await createDeployment({ trustDomain: 'other.example' }), { version: 1, roots: [] }) },
        }),
      'PERMISSION_DENIED',
      /trust domain other\.example, not test\.example/,
    ],
    [
      'a root that is none',
      (request) =>
        grant(request, {
          granted: { trust: { ...trustMessage(deployment, { version: 1, roots: [] }), commandRoots: [Buffer.from('x')] } },
        }),
      'PERMISSION_DENIED',
      /command root 1 of 1 does not parse/,
    ],
    [
      'a chain that does not hold',
      async (request) =>
        grant(request, {
          granted: {
            chain: [
              ...(await nodeChain(deployment, { nodeId: 'node-7', spki: parseCsr(request.csr).spki, now })).slice(0, 1),
              deployment.bundle.internalCa.certificate.der,
            ],
          },
        }),
      'BAD_SIGNATURE',
      /trust anchor|not signed/,
    ],
    ['bytes that do not decode', async () => Buffer.from([0xff, 0xff]), 'MALFORMED', /does not decode/],
  ];
  for (const [title, lie, code, message] of lies) {
    it(`refuses ${title}, and holds nothing afterwards`, async () => {
      answer = lie;
      const options = optionsFor();
      await assert.rejects(joinNode(options), failsWith(code, message));
      assert.deepEqual(
        (await readdir(options.dataDir)).filter((name) => name.startsWith('identity')),
        [],
      );
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
      await assert.rejects(
        joinNode(optionsFor({ dataDir })),
        (error: ControlError) =>
          failsWith('INVALID_STATE', /has joined already, as node node-1 of test\.example/)(error) &&
          /--replace/.test(String(error.details['hint'])),
      );
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

    it('B52 the same node counts its sessions anew when it joins again, and takes the time from the answer', async () => {
      const dataDir = await joined();
      await (await openMarks(dataDir)).raise({ epoch: 2n ** 52n, timeFloorMs: now + 31 * 24 * hour });
      await writeFile(join(dataDir, 'desired-state.json'), '{}');
      answer = async (request) => {
        const chain = await nodeChain(deployment, { nodeId: 'node-1', spki: parseCsr(request.csr).spki, now });
        return grant(request, { granted: { nodeId: 'node-1', generation: 2n, chain } });
      };
      const identity = await joinNode(optionsFor({ dataDir, replace: true }));
      assert.deepEqual([identity.nodeId, identity.generation], ['node-1', 2n]);
      assert.deepEqual((await openMarks(dataDir)).current, { epoch: 0n, timeFloorMs: 0 });
      assert.ok((await readdir(dataDir)).includes('desired-state.json'), 'it is for the same node still');
    });

    it('H-06 C30 does not stop requiring signatures by joining the same deployment again', async () => {
      const dataDir = await joined();
      answer = (request) => grant(request, { granted: { trust: trustMessage(deployment, { version: 9, roots: [] }) } });
      await assert.rejects(
        joinNode(optionsFor({ dataDir, replace: true })),
        failsWith('PERMISSION_DENIED', /holds no command root, and this machine already required signatures/),
      );
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
});
