/** What operators look at, over a real database. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import type { ControlError } from '../../domain/errors.ts';
import { minute } from '../../domain/time.ts';
import { instant } from '../../drizzle/client.ts';
import * as reads from '../../services/operator-reads.ts';
import { useDatabase } from '../harness/postgres.ts';
import { createAuditKey, goodRotation, signAll } from '../pki/audit/support.ts';

const now = Date.UTC(2030, 0, 1);
const refusal = (code: string, message: RegExp) => (error: ControlError) => error.code === code && message.test(error.message);

describe('operator reads', function () {
  this.timeout(60_000);
  const used = useDatabase();
  const sql = (text: string, values: unknown[] = []): Promise<unknown> => used.db.query({ text }, values);

  const addNode = async (id: string, state = 'active'): Promise<void> => {
    await sql(`insert into sites (id) values ('eu-1') on conflict do nothing`);
    await sql('insert into nodes (id, site_id, role, state, hostname, created_at) values ($1, $2, $3, $4, $5, $6)', [
      id,
      'eu-1',
      'node',
      state,
      `${id}.example`,
      instant(now - 60 * minute),
    ]);
    await sql('insert into node_queue (node_id) values ($1)', [id]);
  };
  const addSession = (
    node: string,
    over: { epoch: number; seenAt?: number; endedAt?: number | null; trustVersion?: number | null },
  ): Promise<unknown> =>
    sql(
      `insert into node_sessions (id, node_id, gateway_id, epoch, role, cert_issuer, cert_serial, started_at, last_seen_at, ended_at, trust_version, daemon_version)
       values ($1, $2, 'gw-1', $3, 'node', 'i', '01', $4, $5, $6, $7, '0.1.0')`,
      [
        randomUUID(),
        node,
        over.epoch,
        instant(now - 30 * minute),
        instant(over.seenAt ?? now),
        over.endedAt == null ? null : instant(over.endedAt),
        over.trustVersion ?? null,
      ],
    );
  const addCommand = (node: string, seq: number, over: { state?: number; id?: string } = {}): Promise<unknown> =>
    sql(
      `insert into node_commands (node_id, seq, id, kind, lane, body, body_sha256, signature, signer_root, signer_not_after, requested_by, created_at, deadline, state)
       values ($1, $2, $3, 'inventory.refresh', 'control', '', '', '', 'aa', $4, 'ann', $5, $4, $6)`,
      [node, seq, over.id ?? `command/x/${node}`, instant(now + minute), instant(now - minute), over.state ?? 0],
    );

  before(async () => {
    await addNode('node-a');
    await addNode('node-b');
    await addNode('node-c', 'revoked');
    await addNode('node-d');
    await addSession('node-a', { epoch: 1, endedAt: now - 20 * minute, trustVersion: 1 });
    await addSession('node-a', { epoch: 2, trustVersion: 2 });
    await addSession('node-b', { epoch: 1, seenAt: now - 5 * minute });
    await addCommand('node-a', 1, { state: 2 });
    await addCommand('node-b', 1);
    await addCommand('node-b', 2, { id: 'command/xy/node-b', state: 1 });
    await sql(
      `insert into node_results (command_id, node_id, outcome, payload, epoch) values ('command/x/node-a', 'node-a', 1, '\\x0102', 2)`,
    );
    for (const [serial, generation, notAfter] of [
      ['01', 1, now - minute],
      ['02', 2, now + minute],
    ] as const) {
      await sql(
        `insert into node_certs (issuer, serial, node_id, site_id, spiffe_id, role, generation, spki_sha256, cert_der, not_before, not_after, issued_at)
         values ('i', $1, 'node-a', 'eu-1', 's', 'node', $2, '', '', $3, $4, $3)`,
        [serial, generation, instant(now - 10 * minute), instant(notAfter)],
      );
    }
  });

  it('shows the newest session and certificate of each node, in pages', async () => {
    const first = await reads.listNodes(used.db, { after: '', limit: 2, now });
    assert.deepEqual(
      first.map(({ id, connected, openCommands }) => [id, connected, openCommands]),
      [
        ['node-a', true, 0],
        ['node-b', false, 2],
      ],
    );
    assert.deepEqual(first[0]?.session && [first[0].session.epoch, first[0].session.trustVersion, first[0].session.lastSeenAt], [
      2,
      2,
      now,
    ]);
    assert.deepEqual(first[0]?.certificate, { serial: '02', notAfter: now + minute, revokedAt: null });
    assert.deepEqual(
      (await reads.listNodes(used.db, { after: 'node-b', limit: 9, now })).map(({ id }) => id),
      ['node-c', 'node-d'],
    );
    assert.deepEqual(
      (await reads.listNodes(used.db, { after: '', limit: 9, now, state: 'revoked' })).map(({ id }) => id),
      ['node-c'],
    );
  });

  it('shows one node, or says that there is none', async () => {
    assert.equal((await reads.getNode(used.db, 'node-d', now)).session, null);
    await assert.rejects(reads.getNode(used.db, 'node-z', now), refusal('NOT_FOUND', /^no node is called node-z$/));
  });

  it('finds a command by its id, and all of a workflow by the workflow’s, and no other workflow’s', async () => {
    const [one] = await reads.getCommands(used.db, 'command/x/node-a', { limit: 10 });
    assert.deepEqual(one && [one.state, one.result], ['done', { outcome: 1, errorCode: '', errorMessage: '', payload: 'AQI=' }]);
    assert.deepEqual(
      (await reads.getCommands(used.db, 'command/x', { limit: 10 })).map(({ id, state }) => [id, state]),
      [
        ['command/x/node-a', 'done'],
        ['command/x/node-b', 'open'],
      ],
    );
    await assert.rejects(reads.getCommands(used.db, 'command/%', { limit: 10 }), refusal('NOT_FOUND', /^no command is called command\/%$/));
  });

  it('ROT-025 lists active nodes that nobody has seen for two minutes, those with work first', async () => {
    assert.deepEqual(
      (await reads.listAbsentNodes(used.db, { now, limit: 10 })).map(({ id, seenAt, openCommands }) => [id, seenAt, openCommands]),
      [
        ['node-b', now - 5 * minute, 2],
        ['node-d', null, 0],
      ],
    );
  });

  it('counts who holds the published version, and says when nothing is published', async () => {
    await assert.rejects(reads.getTrust(used.db, now), refusal('NOT_FOUND', /^no process has published a trust bundle yet$/));
    await sql(
      `insert into trust_bundle_state (id, version, digest, roots, body, signature, published_at, published_by) values (1, 3, 'd', '{aa}', '', '', $1, 'api')`,
      [instant(now)],
    );
    const trust = await reads.getTrust(used.db, now);
    assert.deepEqual([trust.version, trust.connected, trust.behind, trust.publishedAt], [3, 1, 1, now]);
  });

  it('reads the audit trail in its order, and of one subject', async () => {
    for (const [seq, subject] of [
      [1, 'a'],
      [2, 'b'],
      [3, 'a'],
    ] as const) {
      await sql(
        `insert into audit_events (seq, key, at, actor, action, subject, prev_hash, hash) values ($1, $2, $3, 'ann', 'x', $4, '\\x00', '\\xff')`,
        [seq, `k${seq}`, instant(now), subject],
      );
    }
    assert.deepEqual(
      (await reads.listAudit(used.db, { after: 1, limit: 5 })).map(({ seq, hash }) => [seq, hash]),
      [
        [2, 'ff'],
        [3, 'ff'],
      ],
    );
    assert.deepEqual(
      (await reads.listAudit(used.db, { after: 0, limit: 5, subject: 'a' })).map(({ seq }) => seq),
      [1, 3],
    );
  });

  it('hands out evidence in the order the documents number themselves', async () => {
    const signed = await signAll(createAuditKey(), goodRotation.slice(0, 3));
    for (const [index, { document, signature }] of [...signed.entries()].toReversed()) {
      // One instant for all: the clock of the table decides nothing.
      await sql(`insert into rotation_evidence (rotation_id, stage, at, document, signature) values ('r', $1, $2, $3, $4)`, [
        String(index),
        instant(now),
        Buffer.from(document),
        Buffer.from(signature),
      ]);
    }
    assert.deepEqual(await reads.getEvidence(used.db, 'r'), signed);
    assert.deepEqual(
      (await reads.listRotations(used.db, 5)).map(({ id, firstAt }) => [id, firstAt]),
      [['r', now]],
    );
    await assert.rejects(reads.getEvidence(used.db, 'none'), refusal('NOT_FOUND', /^rotation none has left no evidence$/));
  });
});
