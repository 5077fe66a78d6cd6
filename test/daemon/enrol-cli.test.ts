import assert from 'node:assert/strict';
import { createPrivateKey } from 'node:crypto';
import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { createSecureServer } from 'node:http2';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { enrolmentPath, findEnrolment } from '../../daemon/enrol/file.ts';
import { saveIdentity } from '../../daemon/state/identity.ts';
import { lockFolder } from '../../daemon/state/lock.ts';
import { daemonVersion } from '../../daemon/version.ts';
import { minute } from '../../domain/time.ts';
import { parseCsr, spkiOf } from '../../pki/x509/index.ts';
import { decodeMessage, type JoinRequest, JoinRequestSchema } from '../../proto/index.ts';
import { createDeployment, joinedNode, sha256, type TestDeployment } from '../harness/deployment.ts';
import { CallRefusal, type FakeGateway, startFakeGateway } from '../harness/fake-gateway.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { bcdHere as bcd, type Ran } from './bcd-here.ts';
import { enrolmentId, evidenceOf, grantNext, type HealthLie, pinsFile, pinsOf, sayHealth } from './enrol-stage.ts';
import { joinRequestsOf } from './join-stage.ts';

describe('bcd enrol', function () {
  this.timeout(30_000);
  let deployment: TestDeployment;
  let gateway: FakeGateway;
  let answer: (request: JoinRequest) => Promise<Uint8Array>;
  let pins: string;

  before(async () => {
    deployment = await createDeployment();
  });
  beforeEach(async () => {
    answer = (request) => sayHealth(deployment, request);
    gateway = await startFakeGateway({ deployment, onJoin: (bytes) => answer(decodeMessage(JoinRequestSchema, bytes, 'joinRequest')) });
    pins = await pinsFile(pinsOf(deployment, gateway.url));
  });
  afterEach(() => gateway.close());
  after(removeScratchFolders);

  /** A machine of node-1 whose daemon runs: it holds the folder. */
  async function machine(): Promise<{ dataDir: string; release(): Promise<void> }> {
    const dataDir = scratchFolder();
    await saveIdentity(dataDir, await joinedNode(deployment, { gatewayUrl: gateway.url, generation: 4n }));
    const lock = await lockFolder(dataDir);
    return { dataDir, release: () => lock.release() };
  }
  const factsOf = ({ code, out, err }: Ran): Record<string, unknown> => {
    assert.equal(code, 0, err);
    return JSON.parse(out) as Record<string, unknown>;
  };
  const errorOf = ({ code, out }: Ran): { code: string; reason: unknown } => {
    assert.notEqual(code, 0);
    const { error } = JSON.parse(out) as { error: { code: string; details: Record<string, unknown> } };
    return { code: error.code, reason: error.details['reason'] };
  };
  const enrol = (dataDir: string, verb: string, flags: readonly string[] = ['--id', enrolmentId]): Promise<Ran> =>
    bcd(['enrol', verb, '--data-dir', dataDir, ...flags, '--json']);
  const prepare = (dataDir: string, id = enrolmentId, file = pins): Promise<Ran> =>
    enrol(dataDir, 'prepare', ['--id', id, '--role', 'node', '--pins', file]);
  const arm = (dataDir: string, id = enrolmentId, within = '60'): Promise<Ran> => enrol(dataDir, 'arm', ['--id', id, '--within', within]);
  const check = (dataDir: string, file = pins, more: readonly string[] = []): Promise<Ran> =>
    enrol(dataDir, 'check', ['--id', enrolmentId, '--pins', file, ...more]);
  const others = async (dataDir: string): Promise<Record<string, string>> =>
    Object.fromEntries(
      await Promise.all(
        (await readdir(dataDir))
          .filter((name) => !name.startsWith('enrolment'))
          .map(async (name) => [name, await readFile(join(dataDir, name), 'utf8')] as const),
      ),
    );

  it('XC-040 XC-033 prepare makes key and request beside the identity in force, while its daemon runs, and touches nothing else', async () => {
    const { dataDir, release } = await machine();
    const before = await others(dataDir);
    const facts = factsOf(await prepare(dataDir));
    const pending = await findEnrolment(dataDir);
    assert.ok(pending);
    assert.deepEqual(facts, {
      id: enrolmentId,
      version: daemonVersion,
      csrSha256: sha256(pending.csr).toString('hex'),
      spkiSha256: sha256(spkiOf(pending.key)).toString('hex'),
      nodeId: 'node-1',
      generation: '4',
    });
    assert.deepEqual(Buffer.from(parseCsr(pending.csr).spki), Buffer.from(spkiOf(pending.key)));
    assert.equal((await stat(enrolmentPath(dataDir))).mode & 0o777, 0o600);
    assert.deepEqual(await others(dataDir), before);
    assert.equal(gateway.joins.length, 0, 'and asks nobody');
    await release();
  });

  it('a machine without an identity says so, and one whose identity is damaged no less: an enrolment is its cure', async () => {
    const dataDir = join(scratchFolder(), 'new');
    const fresh = factsOf(await prepare(dataDir));
    assert.deepEqual([fresh['nodeId'], fresh['generation']], [null, null]);
    assert.equal((await stat(dataDir)).mode & 0o777, 0o700);
    const broken = scratchFolder();
    await writeFile(join(broken, 'identity.json'), '{');
    assert.equal(factsOf(await prepare(broken))['nodeId'], null);
  });

  it('XC-040 the private key is in no output of any command, also when one fails', async () => {
    const { dataDir, release } = await machine();
    const said = [await prepare(dataDir), await prepare(dataDir, 'enr-another-one'), await prepare(dataDir)];
    const { key } = JSON.parse(await readFile(enrolmentPath(dataDir), 'utf8')) as { key: string };
    said.push(await check(dataDir), await arm(dataDir), await enrol(dataDir, 'show', []));
    said.push(await prepare(dataDir, 'enr-another-one'), await arm(dataDir, 'enr-another-one'));
    for (const verb of ['prepare', 'check', 'arm', 'show']) said.push(await bcd(['enrol', verb, '--data-dir', dataDir]));
    await writeFile(enrolmentPath(dataDir), (await readFile(enrolmentPath(dataDir), 'utf8')).replace('BEGIN PRIVATE', 'BEGIN'));
    said.push(await enrol(dataDir, 'show', []), await arm(dataDir), await enrol(dataDir, 'abandon'));
    const secrets = key.split('\n').filter((line) => line.length > 20 && !line.startsWith('-----'));
    secrets.push(createPrivateKey(key).export({ format: 'jwk' }).d as string);
    assert.ok(secrets.length >= 3);
    const all = said.map(({ out, err }) => out + err).join('\n');
    for (const secret of [...secrets, 'PRIVATE KEY']) assert.ok(!all.includes(secret));
    await release();
  });

  it('the same id again is the same key and request; another id takes the place of one that is only prepared', async () => {
    const dataDir = scratchFolder();
    const first = factsOf(await prepare(dataDir));
    assert.deepEqual(factsOf(await prepare(dataDir)), first);
    const other = factsOf(await prepare(dataDir, 'enr-another-one'));
    assert.notEqual(other['csrSha256'], first['csrSha256']);
    assert.deepEqual((factsOf(await enrol(dataDir, 'show', []))['enrolment'] as { id: string }).id, 'enr-another-one');
    const role = await enrol(dataDir, 'prepare', ['--id', 'enr-another-one', '--role', 'site', '--pins', pins]);
    assert.deepEqual(errorOf(role), { code: 'CONFLICT', reason: 'enrolment-differs' });
    const elsewhere = await pinsFile({ ...pinsOf(deployment, gateway.url), gateway: 'https://other.example' });
    assert.deepEqual(errorOf(await prepare(dataDir, 'enr-another-one', elsewhere)), { code: 'CONFLICT', reason: 'enrolment-differs' });
    await writeFile(enrolmentPath(dataDir), '{');
    assert.notEqual(
      factsOf(await prepare(dataDir, 'enr-another-one'))['csrSha256'],
      other['csrSha256'],
      'what does not read back is made anew',
    );
  });

  it('two that prepare at once get one key', async () => {
    const dataDir = scratchFolder();
    const all = await Promise.all(Array.from({ length: 6 }, () => prepare(dataDir)));
    assert.equal(new Set(all.map((ran) => factsOf(ran)['csrSha256'])).size, 1);
  });

  it('arm gives it until a deadline, half an hour at most and once; an armed one is not replaced before it is over', async () => {
    const dataDir = scratchFolder();
    assert.deepEqual(errorOf(await arm(dataDir)), { code: 'NOT_FOUND', reason: 'enrolment-unknown' });
    await prepare(dataDir);
    assert.equal((await arm(dataDir, enrolmentId, '1801')).code, 2);
    assert.deepEqual(errorOf(await arm(dataDir, 'enr-another-one')), { code: 'NOT_FOUND', reason: 'enrolment-unknown' });
    const before = Date.now();
    const armed = factsOf(await arm(dataDir));
    const deadline = (await findEnrolment(dataDir))?.deadlineMs ?? 0;
    assert.ok(deadline >= before + minute && deadline <= Date.now() + minute);
    assert.deepEqual(factsOf(await arm(dataDir, enrolmentId, '600')), armed, 'the deadline does not move');
    assert.equal(factsOf(await prepare(dataDir))['id'], enrolmentId);
    assert.equal(factsOf(await enrol(dataDir, 'show', []))['generation'], null);
    assert.deepEqual(errorOf(await prepare(dataDir, 'enr-another-one')), { code: 'CONFLICT', reason: 'enrolment-armed' });
    await endDeadline(dataDir);
    assert.deepEqual(errorOf(await arm(dataDir)), { code: 'INVALID_STATE', reason: 'enrolment-over' });
    assert.equal(factsOf(await prepare(dataDir, 'enr-another-one'))['id'], 'enr-another-one');
  });

  async function endDeadline(dataDir: string): Promise<void> {
    const stored = JSON.parse(await readFile(enrolmentPath(dataDir), 'utf8')) as object;
    await writeFile(enrolmentPath(dataDir), JSON.stringify({ ...stored, deadlineMs: Date.now() - 1 }));
  }

  it('abandon throws it away, prepared or armed, and says whether there was one', async () => {
    const dataDir = scratchFolder();
    assert.deepEqual(factsOf(await enrol(dataDir, 'abandon')), { id: enrolmentId, removed: false });
    await prepare(dataDir);
    assert.deepEqual(factsOf(await enrol(dataDir, 'abandon', ['--id', 'enr-another-one'])), { id: 'enr-another-one', removed: false });
    await arm(dataDir);
    assert.deepEqual(factsOf(await enrol(dataDir, 'abandon')), { id: enrolmentId, removed: true });
    assert.deepEqual(factsOf(await enrol(dataDir, 'show', [])), {
      enrolment: null,
      nodeId: null,
      generation: null,
      version: daemonVersion,
    });
    assert.deepEqual(
      (await readdir(dataDir)).filter((name) => name !== 'enrolment.lock'),
      [],
    );
  });

  it('speaks to people without --json, and refuses what is no id', async () => {
    const dataDir = scratchFolder();
    const flags = ['--data-dir', dataDir, '--id', enrolmentId];
    const prepared = await bcd(['enrol', 'prepare', ...flags, '--role', 'node', '--pins', pins]);
    assert.match(prepared.out, /^enrolment enr-\w+ is prepared: request [0-9a-f]{64}, of key [0-9a-f]{64}\nthis machine has no identity/);
    assert.match((await bcd(['enrol', 'check', ...flags, '--pins', pins])).out, /^the control plane of test\.example is there, and knows/);
    assert.match((await bcd(['enrol', 'arm', ...flags, '--within', '60'])).out, /is armed until 20.*Z: restart the daemon/);
    assert.match((await bcd(['enrol', 'show', '--data-dir', dataDir])).out, /^enrolment enr-\w+ is armed until 20/);
    assert.match((await bcd(['enrol', 'abandon', ...flags])).out, /is abandoned/);
    assert.match((await bcd(['enrol', 'abandon', '--data-dir', dataDir, '--id', 'check:x'])).err, /8 to 64 letters, digits and hyphens/);
  });

  describe('check', () => {
    const prepared = async (file = pins): Promise<string> => {
      const dataDir = scratchFolder();
      factsOf(await prepare(dataDir, enrolmentId, file));
      return dataDir;
    };

    it('XC-041 proves the signed word of the pinned control plane about this enrolment, with a key that is thrown away', async () => {
      const dataDir = await prepared();
      const serverTimeMs = Date.now() + 5 * minute;
      answer = (request) => sayHealth(deployment, request, { serverTimeMs });
      const { clockOffMs, ...facts } = factsOf(await check(dataDir));
      assert.deepEqual(facts, { healthy: true, trustDomain: 'test.example', serverTimeMs });
      assert.ok(Math.abs(Number(clockOffMs) - 5 * minute) < minute);
      const [request] = joinRequestsOf(gateway);
      assert.ok(request);
      assert.deepEqual([evidenceOf(request), request.role], [{ asks: 'health', id: enrolmentId }, 'node']);
      const pending = await findEnrolment(dataDir);
      assert.notDeepEqual(Buffer.from(request.csr), Buffer.from(pending?.csr ?? []), 'the gateway has not seen the real request');
      assert.equal(pending?.state, 'prepared');
      factsOf(await check(dataDir));
      const [, again] = joinRequestsOf(gateway);
      assert.notDeepEqual(Buffer.from(again?.nonce ?? []), Buffer.from(request.nonce));
    });

    it('needs what was prepared, with the same pins', async () => {
      assert.deepEqual(errorOf(await check(scratchFolder())), { code: 'NOT_FOUND', reason: 'enrolment-unknown' });
      const other = await pinsFile(pinsOf(deployment, 'https://other.example'));
      assert.deepEqual(errorOf(await check(await prepared(), other)), { code: 'CONFLICT', reason: 'enrolment-differs' });
      assert.equal(gateway.joins.length, 0);
    });

    const lies: [title: string, lie: (request: JoinRequest) => HealthLie | Promise<HealthLie>, code: string, reason: string][] = [
      ['another nonce: an old answer', () => ({ nonce: Buffer.alloc(32, 1) }), 'REPLAYED', 'join-answer'],
      [
        'another deployment’s signature',
        async () => ({ signer: (await createDeployment()).bundle.joinSigning.signer() }),
        'BAD_SIGNATURE',
        'other-key',
      ],
      ['another enrolment', () => ({ about: 'enr-another-one' }), 'INVALID_RESPONSE', 'other-enrolment'],
      ['no enrolment: a deferral as of any join', () => ({ about: '' }), 'INVALID_RESPONSE', 'other-enrolment'],
    ];
    for (const [title, lie, code, reason] of lies)
      it(`enrolment 43 refuses a health with ${title}`, async () => {
        answer = async (request) => sayHealth(deployment, request, await lie(request));
        assert.deepEqual(errorOf(await check(await prepared())), { code, reason });
      });

    it('enrolment 43 refuses a grant in its place, and what is no answer at all', async () => {
      const dataDir = await prepared();
      answer = (request) => grantNext(deployment, request);
      assert.deepEqual(errorOf(await check(dataDir)), { code: 'INVALID_RESPONSE', reason: 'other-enrolment' });
      answer = async () => Buffer.from('<html>Welcome to our network</html>');
      assert.equal(errorOf(await check(dataDir)).code, 'MALFORMED');
      answer = async () =>
        Promise.reject(new CallRefusal({ 'grpc-status': '7', 'x-bc-reason': 'enrolment-over', 'grpc-message': 'it is over' }));
      assert.deepEqual(errorOf(await check(dataDir)), { code: 'PERMISSION_DENIED', reason: 'enrolment-over' });
      answer = (request) => sayHealth(deployment, request);
      factsOf(await check(dataDir));
    });

    it('enrolment 43 refuses a gateway that is reachable and has another key, before it is told anything', async () => {
      const other = await createDeployment();
      const impostor = await startFakeGateway({ deployment: other, onJoin: async (bytes) => bytes });
      const dataDir = await prepared(await pinsFile(pinsOf(deployment, impostor.url)));
      const ran = await check(dataDir, await pinsFile(pinsOf(deployment, impostor.url)));
      assert.deepEqual(errorOf(ran), { code: 'PERMISSION_DENIED', reason: 'wrong-pin' });
      assert.equal(impostor.joins.length, 0);
      await impostor.close();
    });

    it('enrolment 43 takes a captive portal’s 200 for nothing: over TLS it has the wrong key, without TLS it is no gateway', async () => {
      const { serving } = await createDeployment();
      const portals = [
        createSecureServer({ ...serving }, (_, response) => void response.end('<html>Log in to the network</html>')),
        createServer((_, response) => void response.end('<html>Log in to the network</html>')),
      ];
      const expected = [
        ['https', { code: 'PERMISSION_DENIED', reason: 'wrong-pin' }],
        ['http', { code: 'UNAVAILABLE', reason: 'dial-failed' }],
      ] as const;
      for (const [index, portal] of portals.entries()) {
        await new Promise<void>((resolve) => void portal.listen(0, '127.0.0.1', resolve));
        const file = await pinsFile(pinsOf(deployment, `https://127.0.0.1:${(portal.address() as AddressInfo).port}`));
        assert.deepEqual(errorOf(await check(await prepared(file), file)), expected[index]?.[1]);
        await new Promise((resolve) => void portal.close(resolve));
      }
    });

    it('tries again while it cannot be reached, as long as --wait says, and never what a retry cannot cure', async () => {
      const dataDir = await prepared();
      answer = async (request) => {
        if (gateway.joins.length < 2) throw new CallRefusal({ 'grpc-status': '14', 'x-bc-reason': 'services-unavailable' });
        return sayHealth(deployment, request);
      };
      assert.deepEqual(errorOf(await check(dataDir)), { code: 'UNAVAILABLE', reason: 'services-unavailable' });
      gateway.joins.splice(0);
      assert.equal(factsOf(await check(dataDir, pins, ['--wait', '60']))['healthy'], true);
      gateway.joins.splice(0);
      answer = async () => Promise.reject(new CallRefusal({ 'grpc-status': '7', 'x-bc-reason': 'enrolment-unknown' }));
      assert.deepEqual(errorOf(await check(dataDir, pins, ['--wait', '60'])), { code: 'PERMISSION_DENIED', reason: 'enrolment-unknown' });
      assert.equal(gateway.joins.length, 1);
    });
  });
});
