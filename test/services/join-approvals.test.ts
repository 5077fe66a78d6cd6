/** Joins that wait for an operator's word: asked of the real JoinService, over a real database. */
import assert from 'node:assert/strict';
import { toBinary } from '@bufbuild/protobuf';
import { readApiConfig } from '../../api/config.ts';
import { day, hour } from '../../domain/time.ts';
import type { PkiBundle } from '../../pki/bundle/index.ts';
import { verifyJoinResponse } from '../../pki/enroll/index.ts';
import { type JoinRequest, JoinRequestSchema } from '../../proto/index.ts';
import { createGatewayServices } from '../../services/gateway-services.ts';
import { askOperators, decideJoin, listJoinRequests } from '../../services/join/approvals.ts';
import type { JoinFacts } from '../../services/join/types.ts';
import { createJoinToken } from '../../services/tokens.ts';
import { settleAndPublish } from '../../services/trust-publication.ts';
import { useDatabase } from '../harness/postgres.ts';
import { joinRequest } from './identity-support.ts';
import { newKey, recordingLog, refused, sha256, t0, testBundle, trustDomain } from './support.ts';

describe('joins that wait for a person', () => {
  const used = useDatabase({ max: 10 });
  let bundle: PkiBundle;
  let now = t0;
  before(async () => {
    bundle = await testBundle();
    await settleAndPublish({ db: used.db, bundle, floorOption: 0, overlapMs: day, processId: 'api', now: t0, log: recordingLog() });
  });
  const tokenOf = async (role: 'node' | 'site' = 'node'): Promise<string> => {
    const { joinEncryption } = bundle;
    const order = { siteId: 'berlin', role, lifetimeMs: 30 * day, actor: 'olga', now: t0 };
    return (await createJoinToken({ db: used.db, trustDomain, joinEncryption: joinEncryption.spki, ...order })).token;
  };
  const send = async (message: JoinRequest) => {
    const joinPolicy = askOperators(used.db, ['join-token']);
    const services = createGatewayServices({ db: used.db, bundle: () => bundle, joinPolicy, log: recordingLog(), now: () => now });
    const answer = await services.join(toBinary(JoinRequestSchema, message));
    return verifyJoinResponse(answer, { joinKey: bundle.joinSigning.spki, nonce: message.nonce, csrSha256: sha256(message.csr) }).outcome;
  };
  const waiting = (message: JoinRequest) =>
    listJoinRequests(used.db, { state: null, limit: 1_000 }).then((all) => {
      const found = all.filter(({ csrSha256 }) => csrSha256 === sha256(message.csr).toString('hex'));
      assert.equal(found.length, 1);
      return found[0] as (typeof found)[number];
    });
  const decide = (id: string, as: 'approved' | 'refused') => decideJoin(used.db, { id, as, actor: 'ann', reason: 'ticket 812', now });
  const trailOf = (id: string) =>
    used.db.query({ text: `select actor, action, details->>'reason' as reason from audit_events where key like $1` }, [`join/${id}/%`]);

  it('JOIN-013 JOIN-014 a machine is deferred until it is approved, its token unused, and then admitted by the same request', async () => {
    const [token, stolen] = [await tokenOf(), newKey()];
    const message = await joinRequest(newKey(), token);
    const copy = await joinRequest(stolen, token);
    for (let times = 0; times < 2; times += 1) {
      const outcome = await send(message);
      assert.deepEqual([outcome.case, outcome.case === 'deferral' && outcome.value.retryAfterSeconds], ['deferral', 30]);
    }
    assert.equal((await send(copy)).case, 'deferral', 'whoever has the token waits too');
    const asked = await waiting(message);
    assert.deepEqual(
      [asked.state, asked.attestor, asked.role, asked.siteId, asked.nodeId, asked.hardware['hostname']],
      ['waiting', 'join-token', 'node', 'berlin', null, message.hardware?.hostname],
    );
    const decided = await decide(asked.id, 'approved');
    assert.deepEqual([decided.state, decided.decidedBy, decided.reason, decided.decidedAt], ['approved', 'ann', 'ticket 812', now]);
    assert.deepEqual(await trailOf(asked.id), [{ actor: 'ann', action: 'join.approve', reason: 'ticket 812' }]);
    assert.equal((await send(copy)).case, 'deferral', 'a word for one key is none for another');
    assert.equal((await send(message)).case, 'granted');
    assert.equal((await send(message)).case, 'granted', 'an answer that was lost is given again');
    await decide((await waiting(copy)).id, 'approved');
    await assert.rejects(send(copy), refused('PERMISSION_DENIED', /used/), 'the token is');
  });

  it('JOIN-013 a machine that was refused is told so, and its request stays refused', async () => {
    const message = await joinRequest(newKey(), await tokenOf());
    await send(message);
    const { id } = await waiting(message);
    await decide(id, 'refused');
    for (let times = 0; times < 2; times += 1)
      await assert.rejects(send(message), refused('PERMISSION_DENIED', /an operator refused this join: ticket 812/, 'join-refused'));
    await assert.rejects(decide(id, 'approved'), refused('INVALID_STATE', /was refused by ann/, 'join-decided'));
    await assert.rejects(decide('0'.repeat(32), 'approved'), refused('NOT_FOUND', /no join waits under the id/, 'unknown-join'));
    assert.deepEqual(await trailOf(id), [{ actor: 'ann', action: 'join.refuse', reason: 'ticket 812' }]);
  });

  const factsOf = (n: number, over: Partial<JoinFacts> = {}): JoinFacts => ({
    attestor: 'join-token',
    role: 'node',
    nodeId: null,
    siteId: 'berlin',
    csrSha256: sha256(Buffer.from(`request ${n}`)).toString('hex'),
    hardware: undefined,
    now,
    ...over,
  });

  it('JOIN-013 asks for those alone that it is told to ask for, and again for another role, node or site of the same request', async () => {
    const policy = askOperators(used.db, ['join-token']);
    assert.deepEqual(await policy(factsOf(1, { attestor: 'x509pop' })), { kind: 'admitted' });
    assert.equal((await policy(factsOf(1))).kind, 'deferred');
    const all = await listJoinRequests(used.db, { state: 'waiting', limit: 1_000 });
    const first = all.find(({ csrSha256 }) => csrSha256 === factsOf(1).csrSha256);
    assert.ok(first);
    await decide(first.id, 'approved');
    assert.equal((await policy(factsOf(1))).kind, 'admitted');
    for (const over of [{ role: 'site' }, { nodeId: 'gpu-1' }, { siteId: 'oslo' }] as const)
      assert.equal((await policy(factsOf(1, over))).kind, 'deferred', JSON.stringify(over));
  });

  it('JOIN-013 keeps a thousand that wait and no more, and forgets what nobody asked for in a week', async () => {
    const policy = askOperators(used.db, ['join-token']);
    await used.db.query(
      {
        text: `insert into join_requests (id, attestor, role, site_id, csr_sha256, hardware, first_asked_at, last_asked_at, state)
             select 'flood-' || n, 'join-token', 'node', 'berlin', '\\x00', '{}', $1, $1, 'waiting' from generate_series(1, 1000) n`,
      },
      [new Date(now)],
    );
    await assert.rejects(
      async () => policy(factsOf(2)),
      refused('RATE_LIMITED', /1000 joins wait for an operator already/, 'too-many-joins-wait'),
    );
    now += 7 * day + hour;
    assert.equal((await policy(factsOf(2, { now }))).kind, 'deferred');
    assert.deepEqual(
      (await listJoinRequests(used.db, { state: null, limit: 1_000 })).map(({ csrSha256 }) => csrSha256),
      [factsOf(2).csrSha256],
    );
  });

  it('JOIN-013 which joins wait is said in the environment of the api, by attestor', () => {
    const env = { BETTER_COMPUTE_DATABASE_URL: 'postgres://x', BETTER_COMPUTE_OPERATOR_TOKEN: 'a'.repeat(43) };
    assert.deepEqual(readApiConfig(env).joinApproval, []);
    const read = (text: string) => readApiConfig({ ...env, BETTER_COMPUTE_JOIN_APPROVAL: text }).joinApproval;
    assert.deepEqual(read(' join-token, tpm '), ['join-token', 'tpm']);
    for (const bad of ['everybody', 'cloud-iid', 'join-token;tpm'])
      assert.throws(() => read(bad), refused('INVALID_CONFIG', /BETTER_COMPUTE_JOIN_APPROVAL.* must be names of attestors: join-token, /));
  });
});
