/** Reservations over a real database, from the signed report of a node to the row: whose word counts, once, and what a gateway gains by meddling. */
import assert from 'node:assert/strict';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { day, minute } from '../../domain/time.ts';
import { createEventReport, verifyEventReport } from '../../pki/events/index.ts';
import { parseCertificate, signerFromPrivateKey } from '../../pki/x509/index.ts';
import {
  decodeMessage,
  type EventBodySchema,
  EventReceiptSchema,
  type EventReport,
  EventReportSchema,
  SignatureSchema,
} from '../../proto/index.ts';
import { verifyAuditChain } from '../../services/audit.ts';
import { pkiAllocationBindingCheck } from '../../services/capacity/binding-check.ts';
import { activateReservation, createReservation, endReservation, findReservation } from '../../services/capacity/reservations.ts';
import { createGatewayServices } from '../../services/gateway-services.ts';
import { revokeNode } from '../../services/revocation.ts';
import { isPlaced } from '../../services/workload-instances.ts';
import { useDatabase } from '../harness/postgres.ts';
import { certify, type EnrolledNode, enrol, newKey, recordingLog, refused, testBundle, trustDomain } from './support.ts';

type Event = MessageInitShape<typeof EventBodySchema>;

describe('reservations of a node', () => {
  const used = useDatabase();
  let count = 0;
  let host: EnrolledNode;
  let other: EnrolledNode;
  let reservationId: string;
  let allocationId: string;
  let log: ReturnType<typeof recordingLog>;

  beforeEach(async () => {
    count += 1;
    [reservationId, allocationId] = [`r-${count}`, `i-${count}`];
    [host, other] = [
      await enrol(used.db, `cap-${count}`, { now: Date.now() }),
      await enrol(used.db, `cap-other-${count}`, { now: Date.now() }),
    ];
    await createReservation(used.db, { id: reservationId, tenantId: 'default', nodeId: host.id, allocationId, actor: 'ann' }, Date.now());
    log = recordingLog();
  });

  interface Said {
    readonly trustDomain?: string;
    readonly nodeId?: string;
    readonly allocation?: string;
    readonly reservation?: string;
  }
  const bound = (said: Said = {}): Event => ({
    trustDomain: said.trustDomain ?? trustDomain,
    nodeId: said.nodeId ?? host.id,
    occurredAtMs: BigInt(Date.now()),
    event: {
      case: 'allocationBound',
      value: { reservationId: said.reservation ?? reservationId, allocationId: said.allocation ?? allocationId },
    },
  });
  const reportBy = async (key: EnrolledNode['key'], event: Event = bound()): Promise<EventReport> =>
    (await createEventReport(signerFromPrivateKey(key.privateKey), event)).request;

  /** The word of the receipt; empty for none. */
  async function send(report: EventReport, from: EnrolledNode = host): Promise<string> {
    const bundle = await testBundle();
    const services = createGatewayServices({
      db: used.db,
      bundle: () => bundle,
      attestedBindings: pkiAllocationBindingCheck(),
      log,
      now: Date.now,
    });
    const chain = [from.certificate.der, bundle.nodeCa.certificate.der];
    const receipt = fromBinary(EventReceiptSchema, (await services.event?.(toBinary(EventReportSchema, report), { chain })) as Uint8Array);
    assert.equal(receipt.requestId, report.requestId);
    return receipt.error;
  }
  const state = async (): Promise<string | undefined> => (await findReservation(used.db, reservationId))?.state;
  const placed = (): Promise<boolean> => isPlaced(used.db, { instanceId: allocationId, nodeId: host.id });

  it('SIGN-014 by its own key: active, with the statement and the certificate kept, and its instance runs on that node', async () => {
    assert.deepEqual([await state(), await placed()], ['pending', false]);
    assert.equal(await send(await reportBy(host.key)), '');
    assert.deepEqual([await state(), await placed()], ['active', true]);
    const [kept] = await used.db.query<{ body: Uint8Array; signature: Uint8Array; der: Uint8Array }>(
      {
        text: `select bound_body as body, bound_signature as signature, cert_der as der from reservations r
               join node_certs c on c.issuer = r.bound_cert_issuer and c.serial = r.bound_cert_serial where r.id = $1`,
      },
      [reservationId],
    );
    assert.ok(kept);
    // Anybody can check it again from the row alone.
    verifyEventReport(
      { body: kept.body, signature: decodeMessage(SignatureSchema, kept.signature, 'certificate') },
      parseCertificate(kept.der).spki,
    );
    await verifyAuditChain(used.db);
  });

  it('SIGN-014 by another node’s key: it stays pending, on either node’s session', async () => {
    assert.equal(await send(await reportBy(other.key)), 'access-denied');
    assert.equal(await send(await reportBy(other.key), other), 'access-denied', 'it is the word of host, and not signed by it');
    assert.equal(await send(await reportBy(host.key), other), 'access-denied', 'a gateway passes it off as another’s');
    assert.equal(
      await send(await reportBy(other.key, bound({ nodeId: other.id })), other),
      'not-bound',
      'its own word about a reservation of others',
    );
    assert.equal(await send(await reportBy(newKey())), 'access-denied');
    assert.deepEqual([await state(), await placed()], ['pending', false]);
  });

  it('SIGN-014 by a key that names the node’s, without having it', async () => {
    const honest = await reportBy(host.key);
    const forged = await reportBy(other.key);
    const kid = honest.signature?.kid ?? '';
    const pretending = create(EventReportSchema, {
      ...forged,
      signature: create(SignatureSchema, { sig: forged.signature?.sig ?? new Uint8Array(64), kid }),
    });
    assert.equal(await send(pretending), 'access-denied');
    const swapped = await reportBy(host.key, bound({ allocation: 'i-of-others' }));
    for (const changed of [{ body: swapped.body }, { signature: swapped.signature }])
      assert.equal(
        await send(create(EventReportSchema, { ...honest, ...changed })),
        changed.body === undefined ? 'access-denied' : 'not-bound',
      );
    assert.equal(await send(create(EventReportSchema, { requestId: honest.requestId, body: honest.body })), 'access-denied', 'unsigned');
    assert.equal(await state(), 'pending');
  });

  it('SIGN-014 by a certificate that is over, revoked, or of a former identity', async () => {
    const report = await reportBy(host.key);
    const spki = { text: 'update node_certs set not_after = clock_timestamp() where node_id = $1' };
    // Another certificate carries the session; the key that signed has none any more.
    const session = { ...host, certificate: await certify(used.db, { id: host.id, key: newKey(), now: Date.now() }) };
    await used.db.query({ text: `${spki.text} and serial = $2` }, [host.id, host.certificate.serial]);
    assert.equal(await send(report, session), 'access-denied');
    await used.db.query(
      { text: 'update node_certs set not_after = $2, revoked_at = clock_timestamp() where node_id = $1 and serial = $3' },
      [host.id, new Date(Date.now() + day), host.certificate.serial],
    );
    assert.equal(await send(report, session), 'access-denied');
    assert.equal(await state(), 'pending');
    await revokeNode({ db: used.db, nodeId: host.id, actor: 'ann', reason: 'stolen', now: Date.now() });
    assert.equal(await send(report, session), 'access-denied');
    assert.equal(await state(), 'pending');
  });

  it('SIGN-014 a swapped allocation, an unknown reservation, another deployment', async () => {
    assert.equal(await send(await reportBy(host.key, bound({ allocation: 'i-of-others' }))), 'not-bound');
    assert.equal(await send(await reportBy(host.key, bound({ reservation: 'r-none' }))), 'not-bound');
    assert.equal(await send(await reportBy(host.key, bound({ trustDomain: 'other.example' }))), 'access-denied');
    assert.equal(await send(await reportBy(host.key, { trustDomain, nodeId: host.id })), 'unsupported', 'an event of a newer daemon');
    assert.equal(await state(), 'pending');
  });

  it('SIGN-014 a report that is repeated is taken and changes nothing; after the end it brings nothing back', async () => {
    const report = await reportBy(host.key);
    assert.deepEqual(await Promise.all([send(report), send(report), send(report)]), ['', '', '']);
    const { activatedAt } = (await findReservation(used.db, reservationId)) ?? {};
    assert.equal(await send(report), '');
    assert.equal((await findReservation(used.db, reservationId))?.activatedAt, activatedAt);
    assert.equal(await endReservation(used.db, { id: reservationId, actor: 'ann' }, Date.now()), true);
    assert.equal(await endReservation(used.db, { id: reservationId, actor: 'ann' }, Date.now()), false);
    assert.equal(await send(report), 'ended');
    assert.deepEqual([await state(), await placed()], ['ended', false]);
  });

  it('SIGN-014 what changed between the check and the write is not written over', async () => {
    const evidence = await evidenceOf();
    await revokeNode({ db: used.db, nodeId: host.id, actor: 'ann', reason: 'stolen', now: Date.now() });
    const activation = { reservationId, allocationId, nodeId: host.id, evidence };
    await assert.rejects(
      activateReservation(used.db, activation, Date.now()),
      refused('CONFLICT', /cannot become active/, 'reservation-changed'),
    );
    await assert.rejects(
      activateReservation(used.db, { ...activation, evidence: null }, Date.now()),
      refused('CONFLICT', /cannot become active/, 'reservation-changed'),
    );
    assert.deepEqual([await state(), await placed()], ['pending', false]);
  });

  it('SIGN-014 a certificate that ends or is revoked between the check and the write writes nothing', async () => {
    const activation = { reservationId, allocationId, nodeId: host.id, evidence: await evidenceOf() };
    const changes = [
      'revoked_at = clock_timestamp()',
      "revoked_at = null, not_after = clock_timestamp() - interval '1 second'",
      'not_after = $2, generation = generation + 1',
    ];
    for (const change of changes) {
      const values = change.includes('$2') ? [host.id, new Date(Date.now() + day)] : [host.id];
      await used.db.query({ text: `update node_certs set ${change} where node_id = $1` }, values);
      await assert.rejects(
        activateReservation(used.db, activation, Date.now()),
        refused('CONFLICT', /the certificate changed/, 'reservation-changed'),
        change,
      );
    }
    assert.equal(await state(), 'pending');
    await used.db.query({ text: 'update node_certs set generation = generation - 1 where node_id = $1' }, [host.id]);
    assert.equal(await activateReservation(used.db, activation, Date.now()), 'bound');
  });

  async function evidenceOf() {
    const { body, signature } = await reportBy(host.key);
    const statement = { trustDomain, nodeId: host.id, reservationId, allocationId };
    return pkiAllocationBindingCheck()(used.db, { nodeId: host.id, statement, body, signature }, Date.now());
  }

  it('SIGN-013 without the check no report is taken, and the deployment’s own code says what is bound', async () => {
    const bundle = await testBundle();
    assert.equal(createGatewayServices({ db: used.db, bundle: () => bundle, log, now: Date.now }).event, undefined);
    assert.equal(await activateReservation(used.db, { reservationId, allocationId, nodeId: host.id, evidence: null }, Date.now()), 'bound');
    assert.equal(await state(), 'active');
  });

  it('refuses reservations that name nothing, or that are there', async () => {
    const again = { id: reservationId, tenantId: 'default', nodeId: host.id, allocationId: 'i-new', actor: 'ann' };
    const now = Date.now() + minute;
    await assert.rejects(createReservation(used.db, again, now), refused('CONFLICT', /is there already/, 'reservation-exists'));
    await assert.rejects(
      createReservation(used.db, { ...again, id: 'r-new', allocationId }, now),
      refused('CONFLICT', /is there already/, 'reservation-exists'),
    );
    await assert.rejects(
      createReservation(used.db, { ...again, id: 'r-new', nodeId: 'nowhere' }, now),
      refused('NOT_FOUND', /no node is called nowhere/, 'unknown-node'),
    );
    await assert.rejects(
      createReservation(used.db, { ...again, id: 'r-new', tenantId: 'nobody' }, now),
      refused('NOT_FOUND', /no tenant is called nobody/, 'unknown-tenant'),
    );
    await assert.rejects(createReservation(used.db, { ...again, id: 'r-new', allocationId: 'a:b' }, now), refused('INVALID_INPUT', /./));
    await assert.rejects(createReservation(used.db, { ...again, id: 'a b' }, now), refused('INVALID_INPUT', /printable/, 'reservation-id'));
    await assert.rejects(
      endReservation(used.db, { id: 'r-none', actor: 'ann' }, now),
      refused('NOT_FOUND', /there is no reservation r-none/, 'unknown-reservation'),
    );
  });
});
