/** Attestor enrolment over a real database: what a machine gets by an enrolment over SSH, and what nobody gets by it. */
import assert from 'node:assert/strict';
import { toBinary } from '@bufbuild/protobuf';
import { encodeEnrolmentEvidence } from '../../domain/enrolment/evidence.ts';
import { completesWithinMs } from '../../domain/enrolment/states.ts';
import { day, hour } from '../../domain/time.ts';
import { changeIdentity, lockNode, type NodeState, readNodeFacts } from '../../drizzle/queries/nodes.ts';
import { openSession } from '../../drizzle/queries/sessions.ts';
import type { PkiBundle } from '../../pki/bundle/index.ts';
import { verifyJoinResponse } from '../../pki/enroll/index.ts';
import { parseCertificate, spkiOf } from '../../pki/x509/index.ts';
import { type JoinRequest, JoinRequestSchema, type JoinResponseBody } from '../../proto/index.ts';
import { createGatewayServices } from '../../services/gateway-services.ts';
import { askOperators } from '../../services/join/approvals.ts';
import { offeredAttestors } from '../../services/join/join.ts';
import { issuerOf } from '../../services/node-certs.ts';
import { revokeNode } from '../../services/revocation.ts';
import { createJoinToken } from '../../services/tokens.ts';
import { settleAndPublish } from '../../services/trust-publication.ts';
import { useDatabase } from '../harness/postgres.ts';
import { addEnrolment, type EnrolmentInit } from './enrolment-rows.ts';
import { certificatesOf, joinRequest } from './identity-support.ts';
import {
  addNode,
  csrOf,
  enrol,
  type NodeKey,
  newKey,
  randomBytes,
  recordingLog,
  refused,
  sessionOf,
  sha256,
  t0,
  testBundle,
  trustDomain,
} from './support.ts';

describe('joining by an enrolment over SSH', () => {
  const used = useDatabase({ max: 20 });
  let bundle: PkiBundle;
  let now = t0;
  let count = 0;
  before(async () => {
    bundle = await testBundle();
    await settleAndPublish({ db: used.db, bundle, floorOption: 0, overlapMs: day, processId: 'api', now: t0, log: recordingLog() });
  });
  beforeEach(() => void (now = t0));

  const nextId = (): string => `ssh-${(count += 1)}`;
  const ask = async (message: JoinRequest, under: PkiBundle = bundle): Promise<JoinResponseBody> => {
    const services = createGatewayServices({ db: used.db, bundle: () => under, log: recordingLog(), now: () => now });
    const answer = await services.join(toBinary(JoinRequestSchema, message));
    return verifyJoinResponse(answer, { joinKey: bundle.joinSigning.spki, nonce: message.nonce, csrSha256: sha256(message.csr) });
  };
  const join = async (message: JoinRequest) => {
    const { outcome } = await ask(message);
    assert.equal(outcome.case, 'granted');
    return outcome.value;
  };
  const requestOf = async (
    key: NodeKey,
    enrolment: { readonly id: string; readonly asks?: 'health' | 'identity'; readonly csr?: Uint8Array; readonly role?: string },
  ): Promise<JoinRequest> => {
    const { id, asks = 'identity', ...changes } = enrolment;
    const message = await joinRequest(key, '', { attestor: 'enrolment', ...changes });
    return { ...message, evidence: encodeEnrolmentEvidence({ asks, id }) };
  };
  /** An enrolment whose key the hosts worker read from the machine. */
  const minted = async (init: EnrolmentInit): Promise<{ id: string; key: NodeKey; csr: Uint8Array }> => {
    const key = newKey();
    const csr = await csrOf(key);
    return { id: await addEnrolment(used.db, { ...init, csr }), key, csr };
  };
  const rowOf = async (id: string) =>
    (
      await used.db.query<{ state: string; ended: number | null }>(
        { text: 'select state, ended_at as ended from enrolments where id = $1' },
        [id],
      )
    )[0];
  const dump = async (): Promise<unknown> =>
    Promise.all(
      ['enrolments', 'nodes', 'node_certs', 'audit_events', 'node_queue', 'sites'].map((table) =>
        used.db.query({ text: `select * from ${table} order by 1` }),
      ),
    );
  const generations = async (nodeId: string) =>
    (await certificatesOf(used.db, nodeId)).filter(({ issued }) => issued).map(({ generation, revoked }) => [generation, revoked]);

  describe('the health that a machine asks for first', () => {
    it('XC-041 enrolment 43 is signed for this nonce and this CSR, repeats the enrolment’s id, and writes nothing', async () => {
      const nodeId = nextId();
      await enrol(used.db, nodeId);
      const id = await addEnrolment(used.db, { nodeId, baseGeneration: 1 });
      const before = await dump();
      const { outcome, serverTimeMs } = await ask(await requestOf(newKey(), { id, asks: 'health' }));
      assert.equal(outcome.case, 'deferral');
      assert.equal(Buffer.from(outcome.value.challenge).toString(), id);
      assert.equal(serverTimeMs, BigInt(t0));
      assert.deepEqual(await dump(), before);
    });

    it('is answered by one that is minted too, for any key; and by none that is over or unknown', async () => {
      const made = await minted({ nodeId: nextId(), baseGeneration: null });
      assert.equal((await ask(await requestOf(newKey(), { id: made.id, asks: 'health' }))).outcome.case, 'deferral');
      now = t0 + completesWithinMs;
      await assert.rejects(
        ask(await requestOf(newKey(), { id: made.id, asks: 'health' })),
        refused('PERMISSION_DENIED', /had to complete by/, 'enrolment-over'),
      );
      now = t0;
      for (const state of ['failed', 'cancelled'] as const) {
        const id = await addEnrolment(used.db, { nodeId: nextId(), baseGeneration: null, state });
        await assert.rejects(
          ask(await requestOf(newKey(), { id, asks: 'health' })),
          refused('PERMISSION_DENIED', new RegExp(`is ${state}: it is over`), 'enrolment-over'),
        );
      }
      await assert.rejects(
        ask(await requestOf(newKey(), { id: 'never-made-1', asks: 'health' })),
        refused('PERMISSION_DENIED', /no enrolment never-made-1 is known here/, 'enrolment-unknown'),
      );
    });
  });

  it('XC-033 XC-038 XC-042 XC-043 a node that serves gets the next generation by this very join, and the one before is over', async () => {
    const nodeId = nextId();
    const node = await enrol(used.db, nodeId);
    const { id, key, csr } = await minted({ nodeId, baseGeneration: 1 });
    assert.deepEqual(await generations(nodeId), [[1, false]], 'minted: nothing of it is there before the machine comes');
    const granted = await join(await requestOf(key, { id, csr }));
    assert.deepEqual([granted.nodeId, granted.siteId, granted.generation], [nodeId, 'berlin', 2n]);
    const leaf = parseCertificate(granted.chain[0]!);
    assert.deepEqual(Buffer.from(leaf.spki), Buffer.from(spkiOf(key.publicKey)));
    assert.deepEqual(await generations(nodeId), [
      [1, true],
      [2, false],
    ]);
    assert.deepEqual(await rowOf(id), { state: 'completed', ended: t0 });
    assert.deepEqual((await readNodeFacts(used.db, [nodeId])).get(nodeId)?.state, 'active');
    await assert.rejects(openSession(used.db, sessionOf(node)), 'the certificate of the generation before opens no session');
    const next = { id: nodeId, key, certificate: leaf, issuer: issuerOf(bundle.nodeCa.spki) };
    assert.equal((await openSession(used.db, sessionOf(next))).epoch, 1);
    const [event] = await used.db.query<{ actor: string; action: string; details: Record<string, unknown> }>(
      { text: 'select actor, action, details from audit_events where subject = $1 order by seq desc limit 1' },
      [nodeId],
    );
    assert.deepEqual(
      [event?.actor, event?.action, event?.details['enrolment'], event?.details['attestor'], event?.details['generation']],
      ['olga', 'node.rejoin', id, 'enrolment', 2],
    );
  });

  it('XC-042 a node that is not known is made, in generation 1, of its site, role and tenant', async () => {
    const nodeId = nextId();
    const { id, key, csr } = await minted({ nodeId, baseGeneration: null, role: 'site', siteId: 'lisbon' });
    const granted = await join(await requestOf(key, { id, csr, role: 'site' }));
    assert.deepEqual([granted.nodeId, granted.siteId, granted.generation], [nodeId, 'lisbon', 1n]);
    assert.deepEqual([parseCertificate(granted.chain[0]!).role, (await rowOf(id))?.state], ['site', 'completed']);
  });

  it('a node that was revoked comes back by an enrolment that was made since', async () => {
    const nodeId = nextId();
    await enrol(used.db, nodeId);
    await revokeNode({ db: used.db, nodeId, actor: 'olga', reason: 'stolen', now: t0 });
    const { id, key, csr } = await minted({ nodeId, baseGeneration: 2 });
    assert.equal((await join(await requestOf(key, { id, csr }))).generation, 3n);
  });

  it('the generation before repeats its own join in vain: its token is over', async () => {
    const nodeId = nextId();
    const { token } = await createJoinToken({
      db: used.db,
      trustDomain,
      joinEncryption: bundle.joinEncryption.spki,
      siteId: 'berlin',
      role: 'node',
      nodeId,
      lifetimeMs: hour,
      actor: 'olga',
      now: t0,
    });
    const first = await joinRequest(newKey(), token);
    assert.equal((await join(first)).generation, 1n);
    const { id, key, csr } = await minted({ nodeId, baseGeneration: 1 });
    assert.equal((await join(await requestOf(key, { id, csr }))).generation, 2n);
    await assert.rejects(join({ ...first, nonce: randomBytes(32) }), refused('PERMISSION_DENIED', /was used by node/, 'token-used'));
  });

  it('JOIN-014 an answer that got lost is given again, also behind the deadline: the same certificate', async () => {
    const nodeId = nextId();
    await addNode(used.db, nodeId);
    const { id, key, csr } = await minted({ nodeId, baseGeneration: 1 });
    const first = await join(await requestOf(key, { id, csr }));
    now = t0 + completesWithinMs + hour;
    const again = await join(await requestOf(key, { id, csr }));
    assert.deepEqual([again.generation, Buffer.from(again.chain[0]!)], [2n, Buffer.from(first.chain[0]!)]);
    assert.equal((await certificatesOf(used.db, nodeId)).length, 1);
  });

  it('a later identity closes it: repeated, it gives its key nothing', async () => {
    const nodeId = nextId();
    await addNode(used.db, nodeId);
    const [first, second] = [await minted({ nodeId, baseGeneration: 1 }), newKey()];
    await join(await requestOf(first.key, first));
    const csr = await csrOf(second);
    const id = await addEnrolment(used.db, { nodeId, baseGeneration: 2, csr });
    assert.equal((await join(await requestOf(second, { id, csr }))).generation, 3n);
    await assert.rejects(
      join(await requestOf(first.key, first)),
      refused('PERMISSION_DENIED', /gave generation 2 of node ssh-\d+, which is active in generation 3/, 'enrolment-over'),
    );
    await revokeNode({ db: used.db, nodeId, actor: 'olga', reason: 'stolen', now: t0 });
    await assert.rejects(
      join(await requestOf(second, { id, csr })),
      refused('PERMISSION_DENIED', /which is revoked in generation 4/, 'enrolment-over'),
    );
  });

  it('C26 a crash between the claim and the certificate is repaired by the next try: one generation, one certificate', async () => {
    const nodeId = nextId();
    await enrol(used.db, nodeId);
    const { id, key, csr } = await minted({ nodeId, baseGeneration: 1 });
    const signer = () => ({ spki: bundle.nodeCa.spki, sign: () => Promise.reject(new Error('killed')) });
    await assert.rejects(ask(await requestOf(key, { id, csr }), { ...bundle, nodeCa: { ...bundle.nodeCa, signer } }));
    assert.deepEqual(await generations(nodeId), [[1, true]]);
    assert.equal((await join(await requestOf(key, { id, csr }))).generation, 2n);
    assert.deepEqual(await generations(nodeId), [
      [1, true],
      [2, false],
    ]);
  });

  for (const known of [true, false])
    it(`enrolment 45 of fifty joins at once, of a node that is ${known ? '' : 'not '}known, exactly one is the next generation; all get its one certificate`, async function () {
      this.timeout(60_000);
      const nodeId = nextId();
      if (known) await enrol(used.db, nodeId);
      const { id, key, csr } = await minted({ nodeId, baseGeneration: known ? 1 : null });
      const messages = await Promise.all(Array.from({ length: 50 }, () => requestOf(key, { id, csr })));
      const answers = await Promise.all(messages.map(join));
      assert.deepEqual([...new Set(answers.map(({ generation }) => generation))], [known ? 2n : 1n]);
      assert.equal(new Set(answers.map(({ chain }) => Buffer.from(chain[0]!).toString('hex'))).size, 1);
      const [, ...more] = (await generations(nodeId)).toReversed();
      assert.deepEqual(more, known ? [[1, true]] : []);
      const [{ events }] = (await used.db.query<{ events: number }>(
        { text: `select count(*)::int as events from audit_events where subject = $1 and details->>'enrolment' = $2` },
        [nodeId, id],
      )) as [{ events: number }];
      assert.equal(events, 1);
    });

  describe('enrolment 42 a join that does not count', () => {
    const setState = (nodeId: string, state: NodeState) =>
      used.db.transaction(async (tx) => {
        const node = await lockNode(tx, nodeId);
        assert.ok(node);
        await changeIdentity(tx, { node, state, now: t0 });
      });
    const untouched = async (message: JoinRequest, refusal: ReturnType<typeof refused>): Promise<void> => {
      const before = await dump();
      await assert.rejects(ask(message), refusal);
      assert.deepEqual(await dump(), before, 'the node, its certificates, the enrolment and the trail are as they were');
    };
    const denied = (message: JoinRequest, text: RegExp, reason: string): Promise<void> =>
      untouched(message, refused('PERMISSION_DENIED', text, reason));

    it('by another key than the one that was read on the machine', async () => {
      const nodeId = nextId();
      await enrol(used.db, nodeId);
      const { id } = await minted({ nodeId, baseGeneration: 1 });
      await denied(await requestOf(newKey(), { id }), /is for another key than that of the request/, 'other-key');
    });

    it('XC-041 before the machine’s key is known: nothing was minted', async () => {
      const nodeId = nextId();
      await enrol(used.db, nodeId);
      const id = await addEnrolment(used.db, { nodeId, baseGeneration: 1 });
      await denied(await requestOf(newKey(), { id }), /does not know the machine's key yet/, 'enrolment-open');
    });

    it('behind the deadline, or when it failed or was called off', async () => {
      const nodeId = nextId();
      await enrol(used.db, nodeId);
      const late = await minted({ nodeId, baseGeneration: 1 });
      now = t0 + completesWithinMs;
      await denied(await requestOf(late.key, late), /had to complete by 2026-03-01T12:30/, 'enrolment-over');
      now = t0;
      for (const state of ['failed', 'cancelled']) {
        await used.db.query({ text: 'update enrolments set state = $2 where id = $1' }, [late.id, state]);
        await denied(await requestOf(late.key, late), new RegExp(`is ${state}: it is over`), 'enrolment-over');
      }
    });

    it('of another role, or by a machine that takes itself for another node', async () => {
      const nodeId = nextId();
      const { id, key, csr } = await minted({ nodeId, baseGeneration: null });
      await denied(await requestOf(key, { id, csr, role: 'site' }), /is for role node, the request for site/, 'wrong-role');
      const other = { ...(await requestOf(key, { id, csr })), nodeId: 'someone-else' };
      await denied(other, /takes itself for node "someone-else", and enrolment \S+ is for another$/, 'other-node');
      const tenant = await requestOf(key, { id, csr, role: 'node-tenant' });
      await untouched(tenant, refused('INVALID_INPUT', /attestor enrolment admits role node or site/, 'wrong-role'));
    });

    it('H-20 when the node is in another generation by now, or came to be meanwhile', async () => {
      const nodeId = nextId();
      await enrol(used.db, nodeId);
      const { id, key, csr } = await minted({ nodeId, baseGeneration: 1 });
      await setState(nodeId, 'active');
      await denied(
        await requestOf(key, { id, csr }),
        /was made for generation 1, and node ssh-\d+ is in generation 2/,
        'generation-superseded',
      );
      const newcomer = nextId();
      const made = await minted({ nodeId: newcomer, baseGeneration: null });
      await addNode(used.db, newcomer);
      await denied(
        await requestOf(made.key, made),
        /made for a node that is not known yet, and node .* is in generation 1/,
        'generation-superseded',
      );
      const gone = await minted({ nodeId: nextId(), baseGeneration: 4 });
      await denied(await requestOf(gone.key, gone), /made for generation 4, and node ssh-\d+ is gone/, 'generation-superseded');
    });

    it('when the node is quarantined or retired, of another site, role or tenant', async () => {
      for (const state of ['quarantined', 'retired'] as const) {
        const nodeId = nextId();
        await enrol(used.db, nodeId);
        await setState(nodeId, state);
        const { id, key, csr } = await minted({ nodeId, baseGeneration: 2 });
        await denied(await requestOf(key, { id, csr }), new RegExp(`is ${state}`), 'node-not-active');
      }
      const nodeId = nextId();
      await enrol(used.db, nodeId);
      const elsewhere = await minted({ nodeId, baseGeneration: 1, siteId: 'lisbon' });
      await denied(
        await requestOf(elsewhere.key, elsewhere),
        /is a node of site berlin, enrolment .* names a node of lisbon/,
        'node-differs',
      );
      await used.db.query({ text: `update enrolments set state = 'failed' where id = $1` }, [elsewhere.id]);
      const agent = await minted({ nodeId, baseGeneration: 1, role: 'site' });
      await denied(await requestOf(agent.key, { ...agent, role: 'site' }), /is a node of site berlin/, 'node-differs');
    });

    it('by evidence that names no enrolment', async () => {
      for (const evidence of ['', 'x', 'check:', 'check:check:12345678', 'a'.repeat(65), 'über-uns-allen', 'a b c d e f g h']) {
        const message = { ...(await requestOf(newKey(), { id: 'never-made-1' })), evidence: Buffer.from(evidence) };
        await untouched(message, refused('MALFORMED', /the evidence names no enrolment/, 'evidence'));
      }
      await denied(await requestOf(newKey(), { id: 'never-made-1' }), /no enrolment never-made-1 is known here/, 'enrolment-unknown');
    });
  });

  it('JOIN-011 JOIN-013 is offered, and asks no operator a second time unless the deployment says so', async () => {
    assert.ok(offeredAttestors.includes('enrolment'));
    const facts = { attestor: 'enrolment', role: 'node', nodeId: 'n', siteId: 's', csrSha256: '00', hardware: undefined, now: t0 } as const;
    assert.deepEqual(await askOperators(used.db, ['join-token', 'provisioned'])(facts), { kind: 'admitted' });
  });
});
