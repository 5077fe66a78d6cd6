import assert from 'node:assert/strict';
import { create, fromBinary, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import type { NodeRole } from '../../domain/commands/kinds.ts';
import type { Code } from '../../domain/errors.ts';
import { day, hour, minute, second } from '../../domain/time.ts';
import { openSession } from '../../drizzle/queries/sessions.ts';
import { createBundle, type PkiBundle } from '../../pki/bundle/index.ts';
import { renewStatement, signRenewProof } from '../../pki/enroll/index.ts';
import { agentProfiles, issueLeaf, parseCertificate, signerFromPrivateKey, spkiOf, tpmAkUri } from '../../pki/x509/index.ts';
import { bounds, KeyAttestationSchema, type RenewRequest, RenewRequestSchema, RenewResponseSchema } from '../../proto/index.ts';
import { createGatewayServices } from '../../services/gateway-services.ts';
import { revokeNode } from '../../services/revocation.ts';
import { createSoftwareAk, type SoftwareAk } from '../fakes/attestation-key.ts';
import { useDatabase } from '../harness/postgres.ts';
import { createRenewal, type Renewal, type RenewalChanges } from './identity-support.ts';
import {
  authorityOf,
  csrOf,
  type EnrolledNode,
  enrol,
  newKey,
  randomBytes,
  recordingLog,
  refused,
  sessionOf,
  t0,
  testBundle,
  trustDomain,
} from './support.ts';

describe('renewal', () => {
  const used = useDatabase({ max: 20 });
  let bundle: PkiBundle;
  let now = t0;
  before(async () => {
    bundle = await testBundle();
  });
  beforeEach(() => {
    now = t0 + hour;
  });
  const services = () => createGatewayServices({ db: used.db, bundle: () => bundle, log: recordingLog(), now: () => now });

  const renewal = (node: EnrolledNode, changes: RenewalChanges = {}) => createRenewal(node, { timeMs: now, ...changes });
  const send = ({ request, peer }: Pick<Renewal, 'request' | 'peer'>) => services().renew(toBinary(RenewRequestSchema, request), peer);

  it('RENEW-002 RENEW-011 gives the new key a certificate of the same identity, stored and usable at once', async () => {
    const node = await enrol(used.db, 'renews');
    const sent = await renewal(node);
    const answer = fromBinary(RenewResponseSchema, await send(sent));
    const leaf = parseCertificate(answer.chain[0]!);
    assert.deepEqual([answer.chain.length, answer.serverTimeMs], [2, BigInt(now)]);
    assert.deepEqual(Buffer.from(leaf.spki), Buffer.from(spkiOf(sent.next.publicKey)));
    assert.deepEqual([leaf.uriSans, leaf.role, leaf.notAfter - now], [node.certificate.uriSans, 'node', day]);
    assert.equal((await openSession(used.db, sessionOf({ ...node, certificate: leaf }))).epoch, 1);
  });

  it('RENEW-007 refuses the same statement for 120 s, by whatever replica and signature, and forgets it then', async () => {
    const node = await enrol(used.db, 'replays');
    const sent = await renewal(node, { timeMs: now });
    await send(sent);
    const replayed = refused('REPLAYED', /this renewal was used before/, 'replayed');
    await assert.rejects(send(sent), replayed);
    const { csr, timeMs } = sent.request;
    const otherSignature = await signRenewProof(signerFromPrivateKey(node.key.privateKey), { csr, nodeId: node.id, timeMs });
    assert.notDeepEqual(Buffer.from(otherSignature.sig), Buffer.from(sent.request.proof!.sig));
    await assert.rejects(send({ ...sent, request: { ...sent.request, proof: otherSignature } }), replayed);
    now += 60 * second;
    await assert.rejects(send(sent), replayed);
    assert.equal((await used.db.query({ text: 'select 1 from renew_replays' })).length, 2);
    now += 61 * second;
    await send(await renewal(node));
    assert.equal((await used.db.query({ text: 'select 1 from renew_replays' })).length, 1, 'old entries leave with the next renewal');
  });

  it('RENEW-007 remembers a statement from the future edge of the window until it is outside of it', async () => {
    const node = await enrol(used.db, 'replays-edge');
    const sent = await renewal(node, { timeMs: now + minute });
    await send(sent);
    now += 2 * minute;
    await assert.rejects(send(sent), refused('REPLAYED', /used before/, 'replayed'));
    now += 1;
    await assert.rejects(send(sent), refused('CLOCK_SKEW', /-60 s off/, 'clock-skew'));
  });

  it('RENEW-007 twenty parallel replays give one certificate', async function () {
    this.timeout(20_000);
    const node = await enrol(used.db, 'replays-parallel');
    const sent = await renewal(node);
    const answers = await Promise.allSettled(Array.from({ length: 20 }, () => send(sent)));
    assert.equal(answers.filter((answer) => answer.status === 'fulfilled').length, 1);
    assert.equal((await used.db.query({ text: 'select 1 from node_certs where node_id = $1' }, [node.id])).length, 2);
  });

  it('RENEW-006 C45 takes a clock within 60 s, answers server time to any other, and burns nothing', async () => {
    const node = await enrol(used.db, 'clocks');
    for (const offset of [-60, 60]) await send(await renewal(node, { timeMs: now + offset * second }));
    for (const offset of [-61, 61, 36_000]) {
      const sent = await renewal(node, { timeMs: now + offset * second });
      await assert.rejects(send(sent), (error: unknown) => {
        refused('CLOCK_SKEW', new RegExp(`the clock of the node is ${offset} s off`), 'clock-skew')(error);
        assert.equal((error as { details: { serverTimeMs: number } }).details.serverTimeMs, now);
        return true;
      });
      const corrected = await renewal(node, { timeMs: now });
      await send(corrected);
      now += second;
    }
  });

  it('RENEW-002 refuses a proof over another CSR, node or time, or by another key', async () => {
    const node = await enrol(used.db, 'proofs');
    const good = await renewal(node);
    const bad: [string, RenewRequest][] = [
      ['another CSR', { ...good.request, csr: await csrOf(newKey()) }],
      ['another time', { ...good.request, timeMs: BigInt(now + 1) }],
      ['another node', (await renewal(node, { nodeId: 'someone-else' })).request],
      ['another key', (await renewal(node, { key: newKey() })).request],
    ];
    for (const [what, request] of bad) await assert.rejects(send({ ...good, request }), refused('BAD_SIGNATURE', /./), what);
    const { proof: _proof, ...unsigned } = good.request;
    await assert.rejects(send({ ...good, request: unsigned }), refused('BAD_SIGNATURE', /is not signed/, 'unsigned'));
    await send(good);
  });

  it('RENEW-003 refuses a chain of another authority, and an expired certificate', async () => {
    const node = await enrol(used.db, 'chains');
    const other = await createBundle({ trustDomain, now: t0 - day });
    const identity = { trustDomain, siteId: 'berlin', nodeId: node.id };
    const foreign = await issueLeaf({ ca: authorityOf(other), profile: 'node', spki: spkiOf(node.key.publicKey), identity, now });
    const sent = await renewal(node, { certificate: foreign });
    await assert.rejects(send(sent), (error) => {
      assert.ok(['BAD_SIGNATURE', 'PERMISSION_DENIED'].includes((error as { code: string }).code));
      return true;
    });
    now = t0 + day + minute;
    await assert.rejects(send(await renewal(node)), refused('CERTIFICATE_EXPIRED', /./));
  });

  it('RENEW-004 REV-001 refuses a revoked certificate and a revoked node', async () => {
    const node = await enrol(used.db, 'revoked-renewal');
    const sent = await renewal(node);
    await revokeNode({ db: used.db, nodeId: node.id, actor: 'olga', reason: 'lost', now });
    await assert.rejects(send(sent), refused('REVOKED', /certificate [0-9a-f]+ was revoked/, 'certificate-revoked'));
    await used.db.query({ text: 'update node_certs set revoked_at = null where node_id = $1' }, [node.id]);
    await assert.rejects(send(sent), refused('REVOKED', /node revoked-renewal was revoked/, 'node-revoked'));
  });

  it('RENEW-005 RENEW-009 refuses a certificate that chains but is not the one stored, or was never stored', async () => {
    const node = await enrol(used.db, 'forged-leaf');
    const authority = authorityOf(bundle);
    const identity = { trustDomain, siteId: 'berlin', nodeId: node.id };
    const spki = spkiOf(node.key.publicKey);
    const twin = await issueLeaf({ ca: authority, profile: 'node', spki, identity, now, serial: node.certificate.serial });
    await assert.rejects(
      send(await renewal(node, { certificate: twin })),
      refused('PERMISSION_DENIED', /is not the one that was issued/, 'certificate-differs'),
    );
    const unknown = await issueLeaf({ ca: authority, profile: 'node', spki, identity, now });
    await assert.rejects(
      send(await renewal(node, { certificate: unknown })),
      refused('PERMISSION_DENIED', /was not issued here/, 'unknown-certificate'),
    );
    const elsewhere = await issueLeaf({
      ca: authority,
      profile: 'node',
      spki,
      identity: { ...identity, trustDomain: 'other.example' },
      now,
    });
    await assert.rejects(
      send(await renewal(node, { certificate: elsewhere })),
      refused('PERMISSION_DENIED', /of trust domain other\.example/, 'wrong-trust-domain'),
    );
  });

  it('A-PRO-21 refuses a certificate of an earlier generation, and a node that is not active', async () => {
    const node = await enrol(used.db, 'old-generation');
    const sent = await renewal(node);
    await used.db.query({ text: `update nodes set state = 'quarantined' where id = $1` }, [node.id]);
    await assert.rejects(send(sent), refused('PERMISSION_DENIED', /node old-generation is quarantined/, 'node-not-active'));
    await used.db.query({ text: `update nodes set state = 'active', identity_generation = 4 where id = $1` }, [node.id]);
    await assert.rejects(
      send(sent),
      refused('INVALID_STATE', /of identity generation 1, node old-generation is at 4/, 'generation-superseded'),
    );
  });

  describe('of a key that a TPM attests', () => {
    const ak = createSoftwareAk();
    /** As enrol makes one, with a statement. */
    async function attested(id: string, { role = 'node', name = ak.name }: { role?: NodeRole; name?: Uint8Array } = {}) {
      const node = await enrol(used.db, id, { role });
      const certificate = await issueLeaf({
        ca: authorityOf(bundle),
        profile: agentProfiles[role],
        spki: spkiOf(node.key.publicKey),
        identity: { trustDomain, siteId: 'berlin', nodeId: node.id },
        sans: { uris: [tpmAkUri(name)] },
        now,
        serial: node.certificate.serial,
      });
      await used.db.query({ text: 'update node_certs set cert_der = $1 where serial = $2' }, [certificate.der, certificate.serial]);
      return { ...node, certificate };
    }
    const with_ = (sent: Renewal, attestation: MessageInitShape<typeof KeyAttestationSchema>): Renewal => ({
      ...sent,
      request: { ...sent.request, keyAttestation: toBinary(KeyAttestationSchema, create(KeyAttestationSchema, attestation)) },
    });
    const statementOf = (node: EnrolledNode, { request: { csr, timeMs } }: Renewal) => renewStatement({ csr, nodeId: node.id, timeMs });
    const by = (key: SoftwareAk, node: EnrolledNode, sent: Renewal) => key.attest(spkiOf(sent.next.publicKey), statementOf(node, sent));

    it('RENEW-008 RENEW-010 with the word of that TPM’s key for the new one, the certificate goes on and states the same', async () => {
      const node = await attested('attested');
      const sent = await renewal(node);
      const answer = fromBinary(RenewResponseSchema, await send(with_(sent, by(ak, node, sent))));
      assert.deepEqual(parseCertificate(answer.chain[0]!).uriSans, node.certificate.uriSans);
      assert.deepEqual(node.certificate.uriSans.slice(1), [tpmAkUri(ak.name)]);
    });

    it('RENEW-008 without it, by another key, about another key, request or moment: refused, and nothing is used up', async () => {
      const node = await attested('attested-2');
      const sent = await renewal(node);
      const [spki, statement] = [spkiOf(sent.next.publicKey), statementOf(node, sent)];
      const other = createSoftwareAk();
      const good = by(ak, node, sent);
      const movable = createSoftwareAk({ attributes: 0x0005_0060 });
      const later = renewStatement({ csr: sent.request.csr, nodeId: node.id, timeMs: Number(sent.request.timeMs) + 1 });
      const tries: [MessageInitShape<typeof KeyAttestationSchema>, Code, RegExp, string][] = [
        [by(other, node, sent), 'PERMISSION_DENIED', /another attestation key speaks/, 'tpm-other-ak'],
        [{ ...by(other, node, sent), akPublic: ak.akPublic }, 'BAD_SIGNATURE', /did not sign this quote/, 'tpm-signature'],
        [ak.attest(spkiOf(newKey().publicKey), statement), 'PERMISSION_DENIED', /about another key/, 'tpm-other-key'],
        [ak.attest(spki, later), 'PERMISSION_DENIED', /or another request/, 'tpm-other-key'],
        [ak.attest(spki, renewStatement({ ...sent.request, nodeId: 'else' })), 'PERMISSION_DENIED', /or another request/, 'tpm-other-key'],
        [{ ...good, quote: Buffer.concat([good.quote, Buffer.from([0])]) }, 'BAD_SIGNATURE', /did not sign/, 'tpm-signature'],
        [{ ...good, akPublic: new Uint8Array() }, 'MALFORMED', /akPublic.size is cut short/, 'tpm'],
      ];
      for (const [attestation, code, message, reason] of tries)
        await assert.rejects(send(with_(sent, attestation)), refused(code, message, reason));
      await assert.rejects(send(sent), refused('PERMISSION_DENIED', /needs that TPM's attestation/, 'key-attestation'));
      const broken = { ...sent, request: { ...sent.request, keyAttestation: Buffer.from([0xff]) } };
      await assert.rejects(send(broken), refused('MALFORMED', /./, 'request'));
      const weak = await attested('attested-3', { name: movable.name });
      const weakly = await renewal(weak);
      await assert.rejects(
        send(with_(weakly, by(movable, weak, weakly))),
        refused('PERMISSION_DENIED', /is not fixedTPM, fixedParent/, 'tpm-ak-attributes'),
      );
      await send(with_(sent, good));
    });

    it('RENEW-009 RENEW-010 an attestation alone states nothing: the certificate that is shown decides', async () => {
      const node = await enrol(used.db, 'attests-unasked');
      const sent = await renewal(node);
      const answer = fromBinary(RenewResponseSchema, await send(with_(sent, by(ak, node, sent))));
      assert.deepEqual(parseCertificate(answer.chain[0]!).uriSans, node.certificate.uriSans);
      assert.equal(node.certificate.uriSans.length, 1);
    });

    it('ID-034 a tenant’s machine never attests: not with a statement, and not without', async () => {
      const attests = refused('PERMISSION_DENIED', /is a tenant's: it attests nothing/, 'tenant-attests');
      const plain = await enrol(used.db, 'let-plain', { role: 'node-tenant' });
      const sent = await renewal(plain);
      await assert.rejects(send(with_(sent, by(ak, plain, sent))), attests);
      const stated = await attested('let-stated', { role: 'node-tenant' });
      const its = await renewal(stated);
      await assert.rejects(send(with_(its, by(ak, stated, its))), attests);
      await assert.rejects(send(its), attests);
      await send(sent);
    });
  });

  it('RENEW-010 copies other statements from the presented leaf, never from the CSR', async () => {
    const node = await enrol(used.db, 'statements');
    const statement = 'urn:bc:enclave:abc';
    const certificate = await issueLeaf({
      ca: authorityOf(bundle),
      profile: 'node',
      spki: spkiOf(node.key.publicKey),
      identity: { trustDomain, siteId: 'berlin', nodeId: node.id },
      sans: { uris: [statement] },
      now,
      serial: node.certificate.serial,
    });
    await used.db.query({ text: 'update node_certs set cert_der = $1 where serial = $2' }, [certificate.der, certificate.serial]);
    const answer = fromBinary(RenewResponseSchema, await send(await renewal(node, { certificate })));
    assert.deepEqual(parseCertificate(answer.chain[0]!).uriSans, [node.certificate.uriSans[0], statement]);
  });

  it('refuses another certificate than the connection shows, and requests that are none', async () => {
    const [node, other] = [await enrol(used.db, 'peer'), await enrol(used.db, 'peer-other')];
    const sent = await renewal(node);
    const peer = { chain: [other.certificate.der] };
    await assert.rejects(
      send({ ...sent, peer }),
      refused('PERMISSION_DENIED', /for another certificate than the connection shows/, 'peer-differs'),
    );
    await assert.rejects(send({ ...sent, peer: { chain: [] } }), refused('PERMISSION_DENIED', /than the connection shows/, 'peer-differs'));
    await assert.rejects(
      send({ ...sent, request: { ...sent.request, chain: [] } }),
      refused('MALFORMED', /carries 0 certificates/, 'renew-chain'),
    );
    await assert.rejects(
      send({ ...sent, request: { ...sent.request, chain: Array.from({ length: 5 }, () => sent.peer.chain[0]!) } }),
      refused('MALFORMED', /carries 5/, 'renew-chain'),
    );
    await assert.rejects(services().renew(randomBytes(40), sent.peer), refused('MALFORMED', /does not decode/, 'request'));
    await assert.rejects(
      services().renew(new Uint8Array(bounds.renewRequest + 1), sent.peer),
      refused('FRAME_TOO_LARGE', /exceeds the bound/, 'request'),
    );
  });

  it('C42 H-13 refuses while the CA has under ten minutes left, with a code that says try again', async () => {
    const end = bundle.nodeCa.certificate.notAfter;
    const node = await enrol(used.db, 'ca-ends', { now: end - hour });
    now = end - 9 * minute;
    await assert.rejects(send(await renewal(node)), refused('CA_EXPIRED', /./, 'ca-expired'));
    now = end - 11 * minute;
    const answer = fromBinary(RenewResponseSchema, await send(await renewal(node)));
    assert.ok(parseCertificate(answer.chain[0]!).notAfter <= end);
  });

  it('a revocation between reservation and signature wins: no certificate comes out', async () => {
    const node = await enrol(used.db, 'revoked-meanwhile');
    const nodeCa = {
      ...bundle.nodeCa,
      signer: () => {
        const signer = bundle.nodeCa.signer();
        return {
          spki: signer.spki,
          async sign(input: Uint8Array) {
            await revokeNode({ db: used.db, nodeId: node.id, actor: 'olga', reason: 'lost', now });
            return signer.sign(input);
          },
        };
      },
    };
    const slow = createGatewayServices({ db: used.db, bundle: () => ({ ...bundle, nodeCa }), log: recordingLog(), now: () => now });
    const sent = await renewal(node);
    await assert.rejects(
      slow.renew(toBinary(RenewRequestSchema, sent.request), sent.peer),
      refused('REVOKED', /identity of node revoked-meanwhile ended/, 'identity-ended'),
    );
    const rows = await used.db.query<{ issued: boolean; revoked: boolean }>(
      {
        text: 'select cert_der is not null as issued, revoked_at is not null as revoked from node_certs where node_id = $1 order by reserved_at',
      },
      [node.id],
    );
    assert.deepEqual(rows, [
      { issued: true, revoked: true },
      { issued: false, revoked: true },
    ]);
  });
});
