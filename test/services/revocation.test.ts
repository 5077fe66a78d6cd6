import assert from 'node:assert/strict';
import { day } from '../../domain/time.ts';
import { readNodeFacts } from '../../drizzle/queries/nodes.ts';
import { readRevocationsAfter } from '../../drizzle/queries/revocations.ts';
import { verifyAuditChain } from '../../services/audit.ts';
import { enqueueCommands, findCommand } from '../../services/command-queue.ts';
import { registerWait, takeDueCompletions } from '../../services/outbox.ts';
import { revokeNode } from '../../services/revocation.ts';
import { useDatabase } from '../harness/postgres.ts';
import { addNode, certify, command, connect, enrol, keyring, newKey, refused, t0, trustDomain } from './support.ts';

describe('revoking a node', () => {
  const used = useDatabase({ max: 20 });
  const revoke = (nodeId: string, now = t0) => revokeNode({ db: used.db, nodeId, actor: 'olga', reason: 'stolen', now });

  it('REV-001 REV-002 REV-015 ends everything that speaks for it in one transaction', async () => {
    const node = await enrol(used.db, 'gone');
    const second = await certify(used.db, { id: node.id, key: newKey(), now: t0 });
    await used.db.query(
      {
        text: `insert into node_certs select issuer, 'expired', node_id, site_id, spiffe_id, role, generation, uri_sans, spki_sha256, cert_der, not_before, $1 from node_certs where serial = $2`,
      },
      [new Date(t0 - 1), second.serial],
    );
    await connect(used.db, node);
    const waited = command(node.id);
    await enqueueCommands({ db: used.db, worker: await keyring(used.db), trustDomain, now: t0, commands: [waited] });
    await registerWait(used.db, { commandId: waited.id, workflowId: 'w', runId: 'r', activityId: 'a', now: t0 });

    const revoked = await revoke(node.id);
    assert.deepEqual([...revoked.serials].sort(), [node.certificate.serial, second.serial].sort());
    assert.deepEqual([revoked.generation, revoked.cancelledCommands, revoked.already], [2, 1, false]);
    const facts = (await readNodeFacts(used.db, [node.id])).get(node.id);
    assert.deepEqual([facts?.state, facts?.identityGeneration], ['revoked', 2]);
    const feed = await readRevocationsAfter(used.db, 0);
    assert.deepEqual(new Set(feed.map((entry) => entry.seq)), new Set([1]));
    assert.deepEqual(
      feed.map((entry) => [entry.nodeId, entry.reason, entry.revokedAt]),
      [
        ['gone', 'stolen', t0],
        ['gone', 'stolen', t0],
      ],
    );
    assert.deepEqual(
      [(await findCommand(used.db, waited.id))?.state, (await findCommand(used.db, waited.id))?.reason],
      ['cancelled', 'node revoked'],
    );
    assert.deepEqual(
      (await takeDueCompletions(used.db, { now: t0, limit: 5 })).map((row) => row.commandId),
      [waited.id],
    );
    const [event] = await used.db.query<{ action: string; actor: string; details: { reason: string } }>({
      text: `select action, actor, details from audit_events where subject = 'gone'`,
    });
    assert.deepEqual([event?.action, event?.actor, event?.details.reason], ['node.revoke', 'olga', 'stolen']);
  });

  it('REV-003 a deleted node has no certificate left and never joins again', async () => {
    const node = await enrol(used.db, 'scrapped');
    const del = () => revokeNode({ db: used.db, nodeId: 'scrapped', actor: 'olga', reason: 'scrapped', retire: true, now: t0 });
    assert.deepEqual((await del()).serials, [node.certificate.serial]);
    const left = await used.db.query({ text: `select 1 from node_certs where node_id = 'scrapped' and revoked_at is null` });
    assert.deepEqual([left.length, (await readNodeFacts(used.db, ['scrapped'])).get('scrapped')?.state], [0, 'retired']);
    assert.equal((await del()).already, true);
    await assert.rejects(revoke('scrapped'), refused('INVALID_STATE', /^node scrapped is deleted$/, 'node-retired'));
    // One that was revoked before is deleted too, and both are in the trail.
    await enrol(used.db, 'first-revoked');
    await revoke('first-revoked');
    await revokeNode({ db: used.db, nodeId: 'first-revoked', actor: 'olga', reason: 'scrapped', retire: true, now: t0 });
    const events = await used.db.query<{ action: string }>({
      text: `select action from audit_events where subject = 'first-revoked' order by seq`,
    });
    assert.deepEqual(
      events.map((event) => event.action),
      ['node.revoke', 'node.delete'],
    );
  });

  it('repeated, or by twenty at once, revokes once', async function () {
    this.timeout(20_000);
    const node = await enrol(used.db, 'once');
    const answers = await Promise.all(Array.from({ length: 20 }, () => revoke(node.id)));
    assert.equal(answers.filter((answer) => !answer.already).length, 1);
    assert.equal((await revoke(node.id, t0 + day)).already, true);
    assert.equal((await used.db.query({ text: `select 1 from audit_events where subject = 'once'` })).length, 1);
    assert.equal((await readNodeFacts(used.db, ['once'])).get('once')?.identityGeneration, 2);
  });

  it('a node without a certificate is revoked without raising the feed', async () => {
    await addNode(used.db, 'bare');
    const seq = async () => (await used.db.query<{ seq: number }>({ text: 'select seq from revocation_counter' }))[0]?.seq;
    const before = await seq();
    assert.deepEqual((await revoke('bare')).serials, []);
    assert.equal(await seq(), before);
  });

  it('H-20 refuses an unknown node, a retired one, and a call without actor or reason', async () => {
    await assert.rejects(revoke('nobody'), refused('NOT_FOUND', /no node is called nobody/, 'unknown-node'));
    await addNode(used.db, 'retired');
    await used.db.query({ text: `update nodes set state = 'retired' where id = 'retired'` });
    await assert.rejects(revoke('retired'), refused('INVALID_STATE', /node retired is deleted/, 'node-retired'));
    await assert.rejects(
      revokeNode({ db: used.db, nodeId: 'bare', actor: ' ', reason: 'x', now: t0 }),
      refused('INVALID_INPUT', /needs an actor and a reason/, 'reason-needed'),
    );
    await assert.rejects(
      revokeNode({ db: used.db, nodeId: 'bare', actor: 'x', reason: '', now: t0 }),
      refused('INVALID_INPUT', /needs an actor and a reason/, 'reason-needed'),
    );
  });

  it('leaves a whole audit chain behind', async () => {
    assert.ok((await verifyAuditChain(used.db)).events >= 3);
  });
});
