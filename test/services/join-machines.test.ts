/** Joins that no operator's token stands behind: from the ramdisk by a site agent's word, and by a certificate that ended. */
import assert from 'node:assert/strict';
import { create, toBinary } from '@bufbuild/protobuf';
import type { Code } from '../../domain/errors.ts';
import { day, hour, minute, second } from '../../domain/time.ts';
import { verifyJoinResponse } from '../../pki/enroll/index.ts';
import { signEnvelope } from '../../pki/envelope/index.ts';
import {
  type Certificate,
  issueLeaf,
  nodeIdentityOf,
  parseCertificate,
  signerFromPrivateKey,
  spkiOf,
  tpmAkUri,
} from '../../pki/x509/index.ts';
import { type JoinGranted, type JoinRequest, JoinRequestSchema, SignatureSchema, site, X509PopEvidenceSchema } from '../../proto/index.ts';
import { createGatewayServices } from '../../services/gateway-services.ts';
import { joinNode } from '../../services/join/join.ts';
import type { JoinPolicy } from '../../services/join/types.ts';
import { revokeNode } from '../../services/revocation.ts';
import { settleAndPublish } from '../../services/trust-publication.ts';
import { useDatabase } from '../harness/postgres.ts';
import { certificatesOf, joinRequest } from './identity-support.ts';
import { addBootEntry, type BootRows } from './metal-rows.ts';
import {
  addNode,
  authorityOf,
  csrOf,
  type EnrolledNode,
  enrol,
  type NodeKey,
  newKey,
  recordingLog,
  refused,
  sha256,
  t0,
  testBundle,
  trustDomain,
} from './support.ts';

describe('joining without a token', () => {
  const used = useDatabase({ max: 10 });
  let now = t0;
  let agent: EnrolledNode;
  let count = 0;

  before(async () => {
    const bundle = await testBundle();
    await settleAndPublish({ db: used.db, bundle, floorOption: 0, overlapMs: day, processId: 'api', now: t0, log: recordingLog() });
    agent = await enrol(used.db, 'agent-1', { role: 'site' });
  });
  beforeEach(() => void (now = t0));

  async function send(message: JoinRequest): Promise<JoinGranted> {
    const bundle = await testBundle();
    const services = createGatewayServices({ db: used.db, bundle: () => bundle, log: recordingLog(), now: () => now });
    const response = await services.join(toBinary(JoinRequestSchema, message));
    const body = verifyJoinResponse(response, { joinKey: bundle.joinSigning.spki, nonce: message.nonce, csrSha256: sha256(message.csr) });
    assert.equal(body.outcome.case, 'granted');
    return body.outcome.value;
  }
  const leafOf = ({ chain }: JoinGranted): Certificate => parseCertificate(chain[0] as Uint8Array);
  const standing = async (id: string) =>
    (
      await used.db.query<{ state: string; role: string; generation: number; machine: string }>(
        {
          text: `select n.state, n.role, n.identity_generation as generation, m.state as machine
                 from nodes n left join machines m on m.id = n.id where n.id = $1`,
        },
        [id],
      )
    )[0];
  const actionsOn = async (id: string): Promise<string[]> =>
    (await used.db.query<{ action: string }>({ text: 'select action from audit_events where subject = $1 order by seq' }, [id])).map(
      ({ action }) => action,
    );

  describe('from the ramdisk', () => {
    interface Said {
      readonly changes?: Partial<Omit<site.DiscoveryAssertion, '$typeName' | '$unknown'>>;
      readonly by?: EnrolledNode;
      /** Signs in place of the agent's own. */
      readonly signedBy?: NodeKey;
    }

    async function machine(): Promise<{ nodeId: string; rows: BootRows }> {
      count += 1;
      const nodeId = `machine-${count}`;
      await addNode(used.db, nodeId);
      return { nodeId, rows: await addBootEntry(used.db, { nodeId }) };
    }

    async function request(
      { nodeId, rows }: { nodeId: string; rows: BootRows },
      key: NodeKey,
      { changes = {}, by = agent, signedBy = by.key }: Said = {},
    ): Promise<JoinRequest> {
      const csr = await csrOf(key);
      const body = toBinary(
        site.DiscoveryAssertionSchema,
        create(site.DiscoveryAssertionSchema, {
          trustDomain,
          siteId: 'berlin',
          agentNodeId: by.id,
          nodeId,
          runId: rows.runId,
          entryId: rows.entryId,
          bootNonce: rows.bootNonce,
          macAddress: '02:00:00:00:00:07',
          csrSha256: sha256(csr),
          tokenSha256: sha256(rows.token),
          issuedAtMs: BigInt(now),
          expiresAtMs: BigInt(now + 5 * minute),
          ...changes,
        }),
      );
      const made = await signEnvelope(signerFromPrivateKey(signedBy.privateKey), 'discovery', [body]);
      const chain = [by.certificate.der, (await testBundle()).nodeCa.certificate.der];
      const evidence = toBinary(
        site.SignedDiscoveryAssertionSchema,
        create(site.SignedDiscoveryAssertionSchema, { body, signature: create(SignatureSchema, { ...made, chain }) }),
      );
      return { ...(await joinRequest(key, '', { attestor: 'discovery', role: 'ramdisk', csr })), evidence };
    }

    it('JOIN-004 JOIN-018 a site agent’s word for an open boot entry gives the next identity, as a ramdisk, for two hours', async () => {
      const booted = await machine();
      const answer = await send(await request(booted, newKey()));
      const leaf = leafOf(answer);
      const identity = nodeIdentityOf(leaf, trustDomain);
      assert.deepEqual([identity.nodeId, identity.role, answer.generation], [booted.nodeId, 'ramdisk', 2n]);
      assert.equal(leaf.notAfter - now, 2 * hour);
      assert.deepEqual(await standing(booted.nodeId), { state: 'active', role: 'ramdisk', generation: 2, machine: 'provisioning' });
      assert.ok((await actionsOn(booted.nodeId)).includes('node.discovered'));
    });

    it('JOIN-018 the same machine that asks again gets the same certificate, and no further generation', async () => {
      const booted = await machine();
      const key = newKey();
      const csr = await request(booted, key);
      const [first, second_] = [await send(csr), await send(csr)];
      assert.deepEqual(leafOf(second_).serial, leafOf(first).serial);
      assert.equal((await standing(booted.nodeId))?.generation, 2);
    });

    it('M68 a second key with one token is refused, the machine quarantined, and what the first was given revoked', async () => {
      const booted = await machine();
      await send(await request(booted, newKey()));
      await assert.rejects(
        send(await request(booted, newKey())),
        refused('PERMISSION_DENIED', /was used before, with another key/, 'entry-reused'),
      );
      const after = await standing(booted.nodeId);
      assert.deepEqual([after?.state, after?.machine], ['quarantined', 'quarantined']);
      assert.deepEqual(
        (await certificatesOf(used.db, booted.nodeId)).map(({ issued, revoked }) => [issued, revoked]),
        [[true, true]],
      );
      assert.ok((await actionsOn(booted.nodeId)).includes('node.discovery-reused'));
      await assert.rejects(
        send(await request(booted, newKey())),
        refused('PERMISSION_DENIED', /was closed: its run is over/, 'entry-over'),
      );
    });

    it('M68 of two machines with one token at once, one joins', async () => {
      const booted = await machine();
      const requests = [await request(booted, newKey()), await request(booted, newKey())];
      const ends = await Promise.allSettled(requests.map(send));
      assert.deepEqual(ends.map(({ status }) => status).sort(), ['fulfilled', 'rejected']);
      assert.equal((await standing(booted.nodeId))?.state, 'quarantined');
    });

    it('JOIN-018 refuses every assertion that is not of this agent, machine, key, entry and time, and uses nothing up', async () => {
      const booted = await machine();
      const other = await enrol(used.db, `node-${count}`);
      const stranger = await machine();
      await used.db.query({ text: `insert into sites (id) values ('oslo') on conflict do nothing` });
      await used.db.query({ text: `update nodes set site_id = 'oslo' where id = $1` }, [stranger.nodeId]);
      const key = newKey();
      const cases: [Said, code: Code, message: RegExp, reason: string][] = [
        [{ signedBy: newKey() }, 'BAD_SIGNATURE', /discovery/, 'other-key'],
        [{ by: other }, 'PERMISSION_DENIED', /role node vouches for nobody/, 'wrong-role'],
        [{ changes: { agentNodeId: 'agent-2' } }, 'PERMISSION_DENIED', /names another agent/, 'agent-differs'],
        [{ changes: { trustDomain: 'other.example' } }, 'PERMISSION_DENIED', /another deployment/, 'wrong-trust-domain'],
        [{ changes: { csrSha256: sha256(Buffer.from('x')) } }, 'PERMISSION_DENIED', /another key/, 'other-key'],
        [{ changes: { tokenSha256: sha256(Buffer.from('x')) } }, 'PERMISSION_DENIED', /no boot entry .* has this token/, 'entry-unknown'],
        [{ changes: { bootNonce: Buffer.alloc(16) } }, 'PERMISSION_DENIED', /no boot entry/, 'entry-unknown'],
        [{ changes: { runId: 'ffffffffffff' } }, 'PERMISSION_DENIED', /no boot entry/, 'entry-unknown'],
        [{ changes: { expiresAtMs: BigInt(now) } }, 'PERMISSION_DENIED', /is over, or not yet in force/, 'assertion-expired'],
        [{ changes: { expiresAtMs: BigInt(now + hour) } }, 'PERMISSION_DENIED', /lives longer than 10 minutes/, 'assertion-lifetime'],
        [{ changes: { nodeId: stranger.nodeId } }, 'PERMISSION_DENIED', /of which machine-\d+ is none/, 'other-site'],
      ];
      for (const [said, code, message, reason] of cases)
        await assert.rejects(send(await request(booted, key, said)), refused(code, message, reason), reason);
      assert.equal((await standing(booted.nodeId))?.generation, 1);
      await send(await request(booted, key));
    });

    it('JOIN-018 an entry lets nobody in at its end, and a site agent that was revoked vouches for nobody', async () => {
      const booted = await machine();
      now = t0 + hour;
      await assert.rejects(send(await request(booted, newKey())), refused('PERMISSION_DENIED', /has expired/, 'entry-expired'));
      now = t0;
      const leaving = await enrol(used.db, 'agent-9', { role: 'site' });
      await revokeNode({ db: used.db, nodeId: 'agent-9', reason: 'stolen', actor: 'olga', now });
      await assert.rejects(
        send(await request(booted, newKey(), { by: leaving })),
        refused('PERMISSION_DENIED', /was not issued here, or was revoked/, 'agent-not-valid'),
      );
      // By its row alone, whatever became of its certificate.
      const suspect = await enrol(used.db, 'agent-10', { role: 'site' });
      await used.db.query({ text: `update nodes set state = 'quarantined' where id = 'agent-10'` });
      await assert.rejects(
        send(await request(booted, newKey(), { by: suspect })),
        refused('PERMISSION_DENIED', /site agent agent-10 is quarantined, or has another identity now/, 'agent-not-valid'),
      );
    });
  });

  describe('by a certificate that ended', () => {
    async function request(node: EnrolledNode, { by = node.key }: { by?: NodeKey } = {}): Promise<JoinRequest> {
      const message = await joinRequest(newKey(), '', { attestor: 'x509pop' });
      const proof = await signEnvelope(signerFromPrivateKey(by.privateKey), 'x509pop', [message.nonce, message.csr]);
      const chain = [node.certificate.der, (await testBundle()).nodeCa.certificate.der];
      return { ...message, evidence: toBinary(X509PopEvidenceSchema, create(X509PopEvidenceSchema, { chain, proof })) };
    }
    const away = async (): Promise<EnrolledNode> => {
      count += 1;
      return enrol(used.db, `away-${count}`);
    };

    it('JOIN-005 the node that it was, in its generation, with a new certificate', async () => {
      const node = await away();
      now = node.certificate.notAfter + hour;
      const answer = await send(await request(node));
      assert.deepEqual([answer.nodeId, answer.generation, leafOf(answer).notAfter - now], [node.id, 1n, day]);
      assert.notEqual(leafOf(answer).serial, node.certificate.serial);
      assert.ok((await actionsOn(node.id)).includes('node.rejoin-by-certificate'));
    });

    it('JOIN-007 C49 seven days after its end, and not a second more', async () => {
      const node = await away();
      now = node.certificate.notAfter + 7 * day - minute;
      await send(await request(node));
      now = node.certificate.notAfter + 7 * day + second;
      await assert.rejects(send(await request(node)), refused('CERTIFICATE_EXPIRED', /needs a new join token/, 're-join-token-needed'));
    });

    it('JOIN-006 C49 an earlier generation, and a revoked one, are refused at any age', async () => {
      const superseded = await away();
      await used.db.query({ text: 'update nodes set identity_generation = 2 where id = $1' }, [superseded.id]);
      await assert.rejects(
        send(await request(superseded)),
        refused('PERMISSION_DENIED', /is of generation 1 of node away-\d+, which is in generation 2/, 'generation-superseded'),
      );
      const revoked = await away();
      await revokeNode({ db: used.db, nodeId: revoked.id, reason: 'stolen', actor: 'olga', now });
      for (const at of [t0, revoked.certificate.notAfter + day]) {
        now = at;
        await assert.rejects(send(await request(revoked)), refused('REVOKED', /was revoked at/, 'revoked'));
      }
    });

    it('JOIN-005 the proof is of the certificate’s own key, for this request alone', async () => {
      const node = await away();
      await assert.rejects(send(await request(node, { by: newKey() })), refused('BAD_SIGNATURE', /x509pop/, 'other-key'));
      const { evidence } = await request(node);
      const replayed = { ...(await joinRequest(newKey(), '', { attestor: 'x509pop' })), evidence };
      await assert.rejects(send(replayed), refused('BAD_SIGNATURE', /x509pop/, 'bad-signature'));
    });

    it('ID-013 states nothing of a TPM, which only a TPM says: a key that one attests joins again by it alone', async () => {
      const node = await away();
      const stated = await issueLeaf({
        ca: authorityOf(await testBundle()),
        profile: 'node',
        spki: spkiOf(node.key.publicKey),
        identity: { trustDomain, siteId: 'berlin', nodeId: node.id },
        sans: { uris: [tpmAkUri(Buffer.concat([Buffer.from([0, 11]), Buffer.alloc(32, 7)]))] },
        now,
        serial: node.certificate.serial,
      });
      await used.db.query({ text: 'update node_certs set cert_der = $1 where serial = $2' }, [stated.der, stated.serial]);
      await assert.rejects(
        send(await request({ ...node, certificate: stated })),
        refused('PERMISSION_DENIED', /is attested by a TPM: this machine joins again with attestor tpm/, 'key-attestation'),
      );
    });

    it('JOIN-013 a policy may say not yet: signed, without a certificate, and nothing is used up', async () => {
      const bundle = await testBundle();
      const node = await away();
      const message = await request(node);
      const policy: JoinPolicy = ({ attestor, nodeId, siteId }) => {
        assert.deepEqual([attestor, nodeId, siteId], ['x509pop', node.id, 'berlin']);
        return { kind: 'deferred', retryAfterSeconds: 90 };
      };
      const response = await joinNode(toBinary(JoinRequestSchema, message), {
        db: used.db,
        trustDomain,
        nodeCa: authorityOf(bundle),
        anchors: [bundle.nodeCa.certificate.der],
        joinSigner: bundle.joinSigning.signer(),
        joinEncryption: bundle.joinEncryption,
        policy,
        quarantine: () => assert.fail('nobody is suspected'),
        log: recordingLog(),
        now,
      });
      const { outcome } = verifyJoinResponse(response, {
        joinKey: bundle.joinSigning.spki,
        nonce: message.nonce,
        csrSha256: sha256(message.csr),
      });
      assert.deepEqual([outcome.case, outcome.case === 'deferral' && outcome.value.retryAfterSeconds], ['deferral', 90]);
      assert.equal((await certificatesOf(used.db, node.id)).length, 1);
      await send(message);
    });
  });
});
