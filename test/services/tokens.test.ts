import assert from 'node:assert/strict';
import { day, hour } from '../../domain/time.ts';
import { openJoinToken } from '../../pki/enroll/index.ts';
import { type CreateTokenOptions, createJoinToken } from '../../services/tokens.ts';
import { useDatabase } from '../harness/postgres.ts';
import { refused, sha256, t0, testBundle, trustDomain } from './support.ts';

describe('join tokens', () => {
  const used = useDatabase();
  const make = async (changes: Partial<CreateTokenOptions> = {}) =>
    createJoinToken({
      db: used.db,
      trustDomain,
      joinEncryption: (await testBundle()).joinEncryption.spki,
      siteId: 'berlin',
      role: 'node',
      lifetimeMs: hour,
      actor: 'olga',
      now: t0,
      ...changes,
    });

  it('JOIN-024 are sealed to the join encryption key; the database keeps the hash of the secret only', async () => {
    const { token, tokenId, expiresAt } = await make({ nodeId: 'gpu-1', role: 'site' });
    const claims = openJoinToken((await testBundle()).joinEncryption.privateKey, token, { trustDomain });
    assert.deepEqual(
      [claims.tokenId, claims.siteId, claims.role, claims.nodeId, claims.expiresAt],
      [tokenId, 'berlin', 'site', 'gpu-1', t0 + hour],
    );
    assert.equal(expiresAt, t0 + hour);
    const [row] = await used.db.query<{ hash: Uint8Array; node: string }>(
      {
        text: 'select secret_sha256 as hash, node_id as node from join_tokens where id = $1',
      },
      [tokenId],
    );
    assert.deepEqual([Buffer.from(row!.hash), row?.node], [sha256(claims.secret), 'gpu-1']);
    const [event] = await used.db.query<{ actor: string; text: string }>(
      { text: 'select actor, details::text as text from audit_events where subject = $1' },
      [tokenId],
    );
    assert.equal(event?.actor, 'olga');
    assert.ok(!event.text.includes(token));
  });

  it('are refused for names no identity can hold, and lifetimes out of bounds', async () => {
    await assert.rejects(make({ siteId: 'a/b' }), refused('INVALID_INPUT', /a SPIFFE id cannot hold/, 'spiffe-id'));
    await assert.rejects(make({ nodeId: '..' }), refused('INVALID_INPUT', /a SPIFFE id cannot hold/, 'spiffe-id'));
    await assert.rejects(
      make({ nodeId: 'n'.repeat(64) }),
      refused('INVALID_INPUT', /a node id has at most 63 characters, not 64/, 'node-id'),
    );
    await assert.rejects(make({ role: 'root' as 'node' }), refused('INVALID_INPUT', /for role node or site, not root/, 'token-role'));
    for (const lifetimeMs of [0, 59_999, 31 * day, Number.NaN]) {
      await assert.rejects(make({ lifetimeMs }), refused('INVALID_INPUT', /a join token lives 1 min to 30 days/, 'token-lifetime'));
    }
  });
});
