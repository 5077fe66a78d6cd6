/** Orders to enrol over SSH, on a real database (XC-033, XC-034, XC-036, XC-038): what they take, what they refuse, and who wins. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { minute } from '../../domain/time.ts';
import {
  draftEnrolment,
  type EnrolmentOrder,
  endEnrolment,
  enrolmentProgress,
  getEnrolment,
  listEnrolments,
  mintEnrolment,
  orderEnrolment,
} from '../../services/enrolments/index.ts';
import { endIdentity } from '../../services/revocation.ts';
import { useDatabase } from '../harness/postgres.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { hasSshKeygen, makeSshKey } from '../harness/sshd.ts';
import { addNode, connect, enrol, randomBytes, refused, t0, trustDomain } from './support.ts';

const hostKey = `SHA256:${'A'.repeat(43)}`;

describe('orders to enrol over SSH', () => {
  const used = useDatabase({ max: 10 });
  after(removeScratchFolders);
  const told = { trustDomain, actor: 'olga', reason: 'ticket 41', now: t0 };
  const fresh = (nodeId: string, over: Partial<EnrolmentOrder> = {}): EnrolmentOrder => ({
    kind: 'enrol',
    nodeId,
    siteId: 'berlin',
    address: '10.0.0.7',
    hostKey,
    credential: 'file://web',
    ...over,
  });
  const order = (one: EnrolmentOrder) => orderEnrolment(used.db, one, told);
  const again = (nodeId: string, over: Partial<EnrolmentOrder> = {}) =>
    order({ kind: 'reenrol', nodeId, address: '10.0.0.7', hostKey, credential: 'file://web', ...over });
  const trailOf = async (nodeId: string): Promise<string[]> =>
    (await used.db.query<{ action: string }>({ text: 'select action from audit_events where subject = $1 order by seq' }, [nodeId])).map(
      ({ action }) => action,
    );

  it('XC-038 keeps whom to dial, by whom it was ordered, and the generation that serves meanwhile', async () => {
    const first = await order(fresh('new-1', { port: 2222, login: 'ops', becomeRoot: true, role: 'site' }));
    assert.match(first.id, /^enr-[0-9a-f]{24}$/);
    assert.deepEqual(
      [first.baseGeneration, first.port, first.login, first.becomeRoot, first.role, first.state, first.deadline, first.createdBy],
      [null, 2222, 'ops', true, 'site', 'open', null, 'olga'],
    );
    await addNode(used.db, 'known-1');
    const next = await again('known-1');
    assert.deepEqual(
      [next.baseGeneration, next.siteId, next.role, next.port, next.login],
      [1, (await used.db.query<{ s: string }>({ text: `select site_id as s from nodes where id = 'known-1'` }))[0]?.s, 'node', 22, 'root'],
    );
    assert.deepEqual(await trailOf('known-1'), ['node.enrolment-ordered']);
    assert.deepEqual(
      (await listEnrolments(used.db, { nodeId: 'known-1', openOnly: true, limit: 9 })).map(({ id }) => id),
      [next.id],
    );
  });

  it('XC-034 enrolment 39 nothing is ordered without a host key; what completed before is known by its own', async () => {
    const { hostKey: _, ...without } = fresh('new-2');
    await assert.rejects(order(without), refused('INVALID_INPUT', /none is trusted on first use/, 'ssh-hostkey-required'));
    await addNode(used.db, 'known-2');
    await assert.rejects(
      order({ kind: 'reenrol', nodeId: 'known-2', address: 'a', credential: 'file://web' }),
      refused('INVALID_INPUT', /none is trusted/, 'ssh-hostkey-required'),
    );
    const { id } = await again('known-2', { address: 'web-2.example.com', port: 2200, login: 'ops', becomeRoot: true });
    await mintEnrolment(used.db, { id, csrSha256: randomBytes(32), now: t0 });
    await used.db.query({ text: `update enrolments set state = 'completed', ended_at = now() where id = $1` }, [id]);
    const known = await order({ kind: 'reenrol', nodeId: 'known-2' });
    assert.deepEqual(
      [known.address, known.port, known.login, known.becomeRoot, known.hostKey, known.credential],
      ['web-2.example.com', 2200, 'ops', true, hostKey, 'file://web'],
    );
    await endEnrolment(used.db, { id: known.id, as: 'cancel', reason: 'over', now: t0 });
    const elsewhere = await again('known-2', { hostKey: `SHA256:${'B'.repeat(42)}A`, credential: 'file://other' });
    await endEnrolment(used.db, { id: elsewhere.id, as: 'fail', reason: 'not there', now: Date.now() });
    const still = await order({ kind: 'reenrol', nodeId: 'known-2' });
    assert.deepEqual([still.hostKey, still.credential], [hostKey, 'file://web'], 'what did not complete is not what worked');
  });

  it('XC-034 the line of a public key is kept as its fingerprint, as ssh-keygen prints it', async function () {
    if (!hasSshKeygen) return this.skip();
    const path = makeSshKey(scratchFolder(), 'host');
    const { hostKey: kept } = await order(fresh('new-3', { hostKey: readFileSync(`${path}.pub`, 'utf8') }));
    assert.equal(kept, execFileSync('ssh-keygen', ['-lf', `${path}.pub`], { encoding: 'utf8' }).split(' ')[1]);
  });

  it('says every problem of an order at once, and writes nothing', async () => {
    await assert.rejects(order(fresh('new-4', { address: 'ssh://x', port: 0, login: '-x', credential: 'env://A' })), (error: Error) => {
      for (const field of ['address', 'port', 'login', 'credential']) assert.match(error.message, new RegExp(`(^|; )${field} `));
      return refused('INVALID_INPUT', /./, 'enrolment-order')(error);
    });
    await assert.rejects(order(fresh('a b')), refused('INVALID_INPUT', /node id "a b"/, 'enrolment-order'));
    await assert.rejects(
      order(fresh('new-4', { tenantId: 'nobody' })),
      refused('NOT_FOUND', /no tenant is called nobody/, 'unknown-tenant'),
    );
    assert.deepEqual(await listEnrolments(used.db, { nodeId: 'new-4', openOnly: false, limit: 9 }), []);
  });

  it('a known node is not enrolled as a new one, nor an unknown one again, nor one to another site', async () => {
    await addNode(used.db, 'known-3');
    await assert.rejects(order(fresh('known-3')), refused('INVALID_STATE', /is known already: it is active/, 'node-known'));
    await assert.rejects(again('nobody-3'), refused('NOT_FOUND', /no node is called nobody-3/, 'unknown-node'));
    await assert.rejects(
      again('known-3', { siteId: 'mars' }),
      refused('INVALID_INPUT', /siteId of a known node stays what it is/, 'enrolment-order'),
    );
    for (const state of ['quarantined', 'retired']) {
      await used.db.query({ text: 'update nodes set state = $1 where id = $2' }, [state, 'known-3']);
      await assert.rejects(again('known-3'), refused('INVALID_STATE', new RegExp(`is ${state}`), 'node-not-active'));
    }
    await addNode(used.db, 'ramdisk-3', 'ramdisk');
    await assert.rejects(again('ramdisk-3'), refused('INVALID_STATE', /is a ramdisk: a run on its machine/, 'wrong-role'));
  });

  it('one that was revoked may come back, from the generation it is at', async () => {
    await addNode(used.db, 'known-4');
    await used.db.transaction((tx) => endIdentity(tx, { nodeId: 'known-4', why: 'revoke', actor: 'olga', reason: 'stolen', now: t0 }));
    assert.equal((await again('known-4')).baseGeneration, 2);
  });

  it('enrolment 45 of twenty orders at once one is taken; the others are told what goes on', async () => {
    const all = await Promise.allSettled(Array.from({ length: 20 }, () => order(fresh('new-5'))));
    assert.equal(all.filter(({ status }) => status === 'fulfilled').length, 1);
    for (const one of all) if (one.status === 'rejected') refused('CONFLICT', /is being enrolled already/, 'enrol-in-progress')(one.reason);
    const [open] = await listEnrolments(used.db, { nodeId: 'new-5', openOnly: true, limit: 9 });
    await endEnrolment(used.db, { id: open?.id ?? '', as: 'cancel', reason: 'over', now: t0 });
    await order(fresh('new-5'));
  });

  it('a dry run says the same, and leaves nothing', async () => {
    const draft = await draftEnrolment(used.db, fresh('new-6'), { trustDomain });
    assert.deepEqual([draft.nodeId, draft.baseGeneration, draft.hostKey], ['new-6', null, hostKey]);
    assert.deepEqual(await listEnrolments(used.db, { nodeId: 'new-6', openOnly: false, limit: 9 }), []);
    assert.deepEqual(await trailOf('new-6'), []);
  });

  it('XC-041 a mint is for one key: again it changes nothing, and another key is refused', async () => {
    const { id } = await order(fresh('new-7'));
    const csrSha256 = randomBytes(32);
    const minted = await mintEnrolment(used.db, { id, csrSha256, now: t0 });
    assert.deepEqual([minted.state, minted.deadline], ['minted', t0 + 30 * minute]);
    assert.deepEqual(await mintEnrolment(used.db, { id, csrSha256, now: t0 + minute }), minted);
    await assert.rejects(
      mintEnrolment(used.db, { id, csrSha256: randomBytes(32), now: t0 }),
      refused('CONFLICT', /for another key/, 'other-key'),
    );
    assert.deepEqual(await enrolmentProgress(used.db, id, t0), {
      state: 'minted',
      deadline: t0 + 30 * minute,
      generation: null,
      connected: false,
    });
  });

  it('XC-043 connected is a session of the next generation: one of the generation before says nothing', async () => {
    const node = await enrol(used.db, 'known-9');
    await connect(used.db, node);
    const { id } = await again('known-9');
    const isConnected = async (now = t0) => (await enrolmentProgress(used.db, id, now)).connected;
    assert.equal(await isConnected(), false);
    await used.db.query({ text: 'update enrolments set base_generation = 0 where id = $1' }, [id]);
    assert.equal(await isConnected(), true);
    assert.equal(await isConnected(t0 + 10 * minute), false, 'nor one that was not heard of since');
  });

  it('XC-036 an end is for good, says why, and leaves the node as it was', async () => {
    await addNode(used.db, 'known-8');
    const before = await used.db.query({ text: `select * from nodes where id = 'known-8'` });
    const { id } = await again('known-8');
    await mintEnrolment(used.db, { id, csrSha256: randomBytes(32), now: t0 });
    assert.equal(await endEnrolment(used.db, { id, as: 'fail', reason: 'the machine is off', now: t0 }), 'failed');
    assert.equal(await endEnrolment(used.db, { id, as: 'cancel', reason: 'again', now: t0 }), 'failed');
    const ended = await getEnrolment(used.db, id);
    assert.deepEqual([ended.state, ended.endReason, ended.endedAt], ['failed', 'the machine is off', t0]);
    await assert.rejects(
      mintEnrolment(used.db, { id, csrSha256: randomBytes(32), now: t0 }),
      refused('INVALID_STATE', /is failed: the machine is off/, 'enrolment-over'),
    );
    assert.deepEqual(await used.db.query({ text: `select * from nodes where id = 'known-8'` }), before);
    assert.deepEqual(await trailOf('known-8'), ['node.enrolment-ordered', 'node.enrolment-minted', 'node.enrolment-failed']);
  });
});
