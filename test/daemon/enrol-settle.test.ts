/** What `bcd run` decides about an armed enrolment, against control planes that lie, and machines that are not as they were. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { armEnrolment, enrolmentPath, findEnrolment, prepareEnrolment } from '../../daemon/enrol/file.ts';
import { type SettleOptions, settleEnrolment } from '../../daemon/enrol/settle.ts';
import { neverCrash } from '../../daemon/state/crash-points.ts';
import { findIdentity, getIdentity, identityPath, saveIdentity } from '../../daemon/state/identity.ts';
import { lockFolder } from '../../daemon/state/lock.ts';
import { hour, minute } from '../../domain/time.ts';
import type { ControlPlanePins } from '../../pki/enroll/index.ts';
import { approverSetDigest, type QuorumFields } from '../../pki/trust/index.ts';
import { decodeMessage, type JoinRequest, JoinRequestSchema } from '../../proto/index.ts';
import { createApprover, quorumOfApprovers, signedSet } from '../harness/approvers.ts';
import { createDeployment, joinedNode, type NodeInit, type TestDeployment, trustMessage } from '../harness/deployment.ts';
import { CallRefusal, type FakeGateway, startFakeGateway } from '../harness/fake-gateway.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { recordingLog } from '../services/support.ts';
import { evidenceOf, grantNext, pinsOf } from './enrol-stage.ts';
import { joinRequestsOf } from './join-stage.ts';

describe('an armed enrolment', function () {
  this.timeout(60_000);
  let deployment: TestDeployment;
  let gateway: FakeGateway;
  let answer: (request: JoinRequest) => Promise<Uint8Array>;
  let log: ReturnType<typeof recordingLog>;
  const id = `enr-${randomUUID()}`;

  before(async () => {
    deployment = await createDeployment({ now: Date.now() - minute });
  });
  beforeEach(async () => {
    log = recordingLog();
    answer = (request) => grantNext(deployment, request);
    gateway = await startFakeGateway({ deployment, onJoin: (bytes) => answer(decodeMessage(JoinRequestSchema, bytes, 'joinRequest')) });
  });
  afterEach(() => gateway.close());
  after(removeScratchFolders);

  interface Init extends Partial<NodeInit> {
    readonly pins?: Partial<ControlPlanePins>;
    readonly withinMs?: number;
  }
  /** A machine of node-1, generation 1, and an enrolment that is armed there. */
  async function machine({ pins = {}, withinMs = hour, ...init }: Init = {}): Promise<string> {
    const dataDir = scratchFolder();
    await saveIdentity(dataDir, await joinedNode(deployment, { gatewayUrl: gateway.url, ...init }));
    await prepareEnrolment(dataDir, { id, role: 'node', pins: { ...pinsOf(deployment, gateway.url), ...pins }, now: Date.now() });
    await armEnrolment(dataDir, { id, withinMs, now: Date.now() });
    return dataDir;
  }
  const settle = (dataDir: string, over: Partial<SettleOptions> = {}): Promise<boolean> =>
    settleEnrolment({
      dataDir,
      log: { ...log, debug: () => undefined },
      crash: neverCrash,
      random: () => 0,
      stopped: new AbortController().signal,
      lastResort: false,
      ...over,
    });
  const generationOf = async (dataDir: string): Promise<bigint> => (await getIdentity(dataDir)).identity.generation;
  const said = (): string => log.lines.map(({ message }) => message).join('\n');
  const stored = async (dataDir: string): Promise<Record<string, unknown>> =>
    JSON.parse(await readFile(enrolmentPath(dataDir), 'utf8')) as Record<string, unknown>;
  async function endDeadline(dataDir: string): Promise<void> {
    await writeFile(enrolmentPath(dataDir), JSON.stringify({ ...(await stored(dataDir)), deadlineMs: Date.now() - 1 }));
  }

  it('XC-043 is completed by the prepared key, under the id alone, and its file goes with it', async () => {
    const dataDir = await machine();
    const pending = await findEnrolment(dataDir);
    assert.equal(await settle(dataDir), true);
    const [request] = joinRequestsOf(gateway);
    assert.ok(request && pending);
    assert.deepEqual(evidenceOf(request), { asks: 'identity', id });
    assert.deepEqual(Buffer.from(request.csr), Buffer.from(pending.csr));
    const { identity, key } = await getIdentity(dataDir);
    assert.deepEqual([identity.generation, key.equals(pending.key)], [2n, true]);
    assert.equal(await findEnrolment(dataDir), undefined);
    assert.equal(await settle(dataDir), false, 'nothing is left to do');
  });

  it('is left alone while it is only prepared, and when another bcd holds the folder', async () => {
    const dataDir = scratchFolder();
    await saveIdentity(dataDir, await joinedNode(deployment, { gatewayUrl: gateway.url }));
    await prepareEnrolment(dataDir, { id, role: 'node', pins: pinsOf(deployment, gateway.url), now: Date.now() });
    assert.equal(await settle(dataDir), false);
    const held = await machine();
    const lock = await lockFolder(held);
    assert.equal(await settle(held), false);
    await lock.release();
    assert.match(said(), /is in use by another bcd \(pid \d+\)/);
    assert.equal(gateway.joins.length, 0);
  });

  it('a file that does not read back, or that others can read, is told and not used', async () => {
    const dataDir = await machine();
    await writeFile(enrolmentPath(dataDir), '{"format":"better-compute/enrolment/1"}');
    assert.equal(await settle(dataDir), false);
    assert.equal(log.lines.at(-1)?.level, 'error');
    assert.deepEqual([await generationOf(dataDir), gateway.joins.length], [1n, 0]);
  });

  it('enrolment 42 is tried until its deadline while nobody answers, and then the machine goes on as it is', async () => {
    const dataDir = await machine({ withinMs: 3_000 });
    answer = async () => Promise.reject(new CallRefusal({ 'grpc-status': '14', 'grpc-retry-pushback-ms': '400' }));
    assert.equal(await settle(dataDir), false);
    assert.ok(gateway.joins.length >= 2, 'more than once');
    assert.match(said(), /trying again/);
    assert.match(said(), /is not completed: .*; going on as node node-1, generation 1/);
    assert.equal(await generationOf(dataDir), 1n);
    assert.equal((await findEnrolment(dataDir))?.state, 'armed');
  });

  it('behind its deadline it is asked for by nobody but a machine whose identity is over, and once', async () => {
    const dataDir = await machine();
    await endDeadline(dataDir);
    assert.equal(await settle(dataDir), false);
    assert.equal(gateway.joins.length, 0);
    answer = async () => Promise.reject(new CallRefusal({ 'grpc-status': '14' }));
    assert.equal(await settle(dataDir, { lastResort: true }), false);
    assert.equal(gateway.joins.length, 1);
    answer = (request) => grantNext(deployment, request);
    assert.equal(await settle(dataDir, { lastResort: true }), true);
    assert.equal(await generationOf(dataDir), 2n);
  });

  it('a deadline far ahead, as of a clock that was put back, is half an hour at most', async () => {
    const dataDir = await machine();
    await writeFile(enrolmentPath(dataDir), JSON.stringify({ ...(await stored(dataDir)), deadlineMs: Date.now() + 9_000 * hour }));
    answer = (request) => {
      const outcome = { case: 'deferral' as const, value: { retryAfterSeconds: 1_801 } };
      return grantNext(deployment, request, { body: { outcome } });
    };
    assert.equal(await settle(dataDir), false);
    assert.match(said(), /deferred the join by 1801 s, longer than/);
  });

  it('its identity is there already: nobody is asked', async () => {
    const dataDir = await machine();
    const before = await readFile(enrolmentPath(dataDir));
    await settle(dataDir);
    await writeFile(enrolmentPath(dataDir), before, { mode: 0o600 });
    assert.equal(await settle(dataDir), true);
    assert.equal(await findEnrolment(dataDir), undefined);
    assert.equal(gateway.joins.length, 1);
  });

  it('gives up at once when it is told to stop', async () => {
    const dataDir = await machine();
    const stop = new AbortController();
    answer = async () => {
      stop.abort();
      return new Promise<Uint8Array>(() => undefined);
    };
    assert.equal(await settle(dataDir, { stopped: stop.signal }), false);
    assert.equal(await generationOf(dataDir), 1n);
  });

  const lies: [title: string, lie: (request: JoinRequest) => Promise<Uint8Array>, message: RegExp][] = [
    ['another deployment’s signature', async (request) => grantNext(await createDeployment(), request), /names key/],
    ['an old answer', (request) => grantNext(deployment, request, { body: { nonce: Buffer.alloc(32, 1) } }), /belongs to another request/],
    [
      'no command root, where this machine required signatures',
      (request) => grantNext(deployment, request, { granted: { trust: trustMessage(deployment, { version: 9, roots: [] }) } }),
      /no-roots|holds no command root/,
    ],
    ['a page of HTML', async () => Buffer.from('<html></html>'), /does not decode/],
  ];
  for (const [title, lie, message] of lies)
    it(`enrolment 43 an answer with ${title} leaves the machine what it is`, async () => {
      const dataDir = await machine();
      const before = await readFile(identityPath(dataDir));
      answer = lie;
      assert.equal(await settle(dataDir), false);
      assert.match(said(), message);
      assert.deepEqual(await readFile(identityPath(dataDir)), before);
    });

  describe('and the approvers that this machine enforces', () => {
    const [ann, bob, eve, mallory] = [createApprover(), createApprover(), createApprover(), createApprover()];
    const held = quorumOfApprovers({ approvers: [ann, bob] });
    const enforced = async (dataDir: string): Promise<readonly [string, number]> => {
      const { quorum } = (await getIdentity(dataDir)).identity;
      assert.equal(quorum.kind, 'held');
      return [approverSetDigest(quorum.fields), quorum.epoch];
    };
    const trustOf = (quorum?: QuorumFields) =>
      trustMessage(deployment, {
        version: 9,
        roots: [deployment.rootA],
        ...(quorum === undefined ? {} : { quorum: { ...quorum, changes: [] } }),
      });
    const offering = (quorum?: QuorumFields) => (request: JoinRequest) =>
      grantNext(deployment, request, { granted: { trust: trustOf(quorum) } });
    const enforcing = () => machine({ trust: { version: 3, roots: [deployment.rootA], quorum: { ...held, changes: [] } } });

    it('DMN-022 APPR-002 no enrolment changes or removes the set: an operator’s word over SSH is none of theirs', async () => {
      for (const offered of [quorumOfApprovers({ approvers: [eve, mallory], approverSetEpoch: 2 }), undefined]) {
        const dataDir = await enforcing();
        answer = offering(offered);
        assert.equal(await settle(dataDir), true);
        assert.deepEqual(await enforced(dataDir), [approverSetDigest(held), 1]);
        assert.equal(await generationOf(dataDir), 2n);
        assert.match(said(), /its approver set is not taken/);
      }
    });

    it('APPR-008 a set that they signed is taken', async () => {
      const dataDir = await enforcing();
      const next = await signedSet(
        quorumOfApprovers({ approvers: [ann, bob, eve], approverSetEpoch: 2 }),
        [ann, bob],
        deployment.trustDomain,
      );
      answer = offering(next);
      assert.equal(await settle(dataDir), true);
      assert.deepEqual(await enforced(dataDir), [approverSetDigest(next), 2]);
    });

    it('PIN-007 the pin stays, of the pins or else of the identity before', async () => {
      const pin = approverSetDigest(held);
      for (const init of [{ approverSetPin: pin }, { pins: { approverSetSha256: pin } }]) {
        const dataDir = await machine(init);
        answer = offering(quorumOfApprovers({ approvers: [eve, mallory] }));
        assert.equal(await settle(dataDir), true);
        const { identity } = await getIdentity(dataDir);
        assert.deepEqual(
          [identity.approverSetPin, identity.quorum.kind === 'held' && identity.quorum.fields.approverKeys.length],
          [pin, 0],
        );
      }
    });

    it('DMN-034 a set that does not read back, with no pin, is a person’s to put right: nobody is asked', async () => {
      const dataDir = await enforcing();
      const identity = JSON.parse(await readFile(identityPath(dataDir), 'utf8')) as Record<string, unknown>;
      await writeFile(identityPath(dataDir), JSON.stringify({ ...identity, quorum: { approverKeys: 'x' } }));
      assert.equal((await findIdentity(dataDir))?.identity.quorum.kind, 'unreadable');
      assert.equal(await settle(dataDir), false);
      assert.equal(gateway.joins.length, 0);
      assert.match(said(), /the approver set of this machine does not read back, and none is pinned/);
    });
  });
});
