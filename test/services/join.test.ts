import assert from 'node:assert/strict';
import { toBinary } from '@bufbuild/protobuf';
import { day, hour, minute } from '../../domain/time.ts';
import { readNodeFacts } from '../../drizzle/queries/nodes.ts';
import { openSession } from '../../drizzle/queries/sessions.ts';
import { createBundle, type PkiBundle } from '../../pki/bundle/index.ts';
import { sealJoinToken, verifyJoinResponse } from '../../pki/enroll/index.ts';
import { nodeIdentityOf, parseCertificate, spkiOf, verifyChain } from '../../pki/x509/index.ts';
import { bounds, type JoinGranted, type JoinRequest, JoinRequestSchema } from '../../proto/index.ts';
import { enqueueCommands, findCommand } from '../../services/command-queue.ts';
import { createGatewayServices } from '../../services/gateway-services.ts';
import { attestors } from '../../services/join/join.ts';
import { issuerOf } from '../../services/node-certs.ts';
import { revokeNode } from '../../services/revocation.ts';
import { createJoinToken } from '../../services/tokens.ts';
import { settleAndPublish } from '../../services/trust-publication.ts';
import { useDatabase } from '../harness/postgres.ts';
import { certificatesOf, joinRequest } from './identity-support.ts';
import {
  command,
  csrOf,
  keyring,
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

describe('joining by token', () => {
  const used = useDatabase({ max: 20 });
  let bundle: PkiBundle;
  let now = t0;
  before(async () => {
    bundle = await testBundle();
  });
  const services = () => createGatewayServices({ db: used.db, bundle: () => bundle, log: recordingLog(), now: () => now });
  const publish = () =>
    settleAndPublish({ db: used.db, bundle, floorOption: 0, overlapMs: day, processId: 'api', now: t0, log: recordingLog() });

  const token = async (changes: { nodeId?: string; role?: 'node' | 'site'; siteId?: string; lifetimeMs?: number } = {}) =>
    (
      await createJoinToken({
        db: used.db,
        trustDomain,
        joinEncryption: bundle.joinEncryption.spki,
        siteId: 'berlin',
        role: 'node',
        lifetimeMs: hour,
        actor: 'olga',
        now: t0,
        ...changes,
      })
    ).token;

  const send = (message: JoinRequest) => services().join(toBinary(JoinRequestSchema, message));

  function granted(message: JoinRequest, response: Uint8Array): JoinGranted {
    const body = verifyJoinResponse(response, { joinKey: bundle.joinSigning.spki, nonce: message.nonce, csrSha256: sha256(message.csr) });
    assert.equal(body.outcome.case, 'granted');
    assert.equal(body.serverTimeMs, BigInt(now));
    return body.outcome.value;
  }

  const certificates = (nodeId: string) => certificatesOf(used.db, nodeId);

  it('TRUST-008 waits until there is a trust bundle to hand out, and uses nothing up', async () => {
    const message = await joinRequest(newKey(), await token());
    await assert.rejects(send(message), refused('UNAVAILABLE', /no trust bundle is published yet/, 'nothing-published'));
    await publish();
    granted(message, await send(message));
  });

  it('JOIN-001 JOIN-002 JOIN-003 JOIN-012 JOIN-023 JOIN-027 answers with a certificate, its row and the published trust', async () => {
    const key = newKey();
    const message = await joinRequest(key, await token());
    const answer = granted(message, await send(message));
    const chain = answer.chain.map((der) => Buffer.from(der));
    const verified = verifyChain(chain, { anchors: [bundle.nodeCa.certificate.der], now, purpose: 'client' });
    const identity = nodeIdentityOf(verified.leaf, trustDomain);
    assert.deepEqual([identity.nodeId, identity.siteId, identity.role], [answer.nodeId, 'berlin', 'node']);
    assert.equal(verified.leaf.notAfter - now, day);
    assert.deepEqual([answer.trust?.version, answer.generation, answer.chain.length], [1n, 1n, 2]);
    const rows = await certificates(answer.nodeId);
    assert.deepEqual(rows, [{ serial: verified.leaf.serial, issued: true, revoked: false, generation: 1 }]);
    const [{ certDer, ...columns }] = (await used.db.query<{ certDer: Uint8Array }>(
      {
        text: `select issuer, serial, site_id as site, spiffe_id as spiffe, role, generation, uri_sans as uris, encode(spki_sha256, 'hex') as key,
                 cert_der as "certDer", not_before as "notBefore", not_after as "notAfter", reserved_at <= issued_at as reserved, revoke_reason as why
               from node_certs where node_id = $1`,
      },
      [answer.nodeId],
    )) as [{ certDer: Uint8Array }];
    const spiffe = `spiffe://${trustDomain}/site/berlin/node/${answer.nodeId}`;
    assert.deepEqual(Buffer.from(certDer), chain[0], 'byte for byte, for the renewal');
    assert.deepEqual(columns, {
      issuer: issuerOf(bundle.nodeCa.spki),
      serial: verified.leaf.serial,
      site: 'berlin',
      spiffe,
      role: 'node',
      generation: 1,
      uris: [spiffe],
      key: sha256(spkiOf(key.publicKey)).toString('hex'),
      notBefore: verified.leaf.notBefore,
      notAfter: verified.leaf.notAfter,
      reserved: true,
      why: null,
    });
    const node = { id: answer.nodeId, key, certificate: verified.leaf, issuer: issuerOf(bundle.nodeCa.spki) };
    assert.equal((await openSession(used.db, sessionOf(node))).epoch, 1);
    const [row] = await used.db.query<{ hostname: string; hardware: { memoryBytes: string } }>(
      { text: 'select hostname, hardware from nodes where id = $1' },
      [answer.nodeId],
    );
    assert.deepEqual([row?.hostname, row?.hardware.memoryBytes], ['metal-7', String(1n << 40n)]);
  });

  it('C25 fifty parallel joins with one token and fifty keys give one certificate', async function () {
    this.timeout(30_000);
    const evidence = await token();
    const messages = await Promise.all(Array.from({ length: 50 }, () => joinRequest(newKey(), evidence)));
    const answers = await Promise.allSettled(messages.map(send));
    const good = answers.filter((answer) => answer.status === 'fulfilled');
    assert.equal(good.length, 1);
    for (const answer of answers) {
      if (answer.status === 'rejected') refused('PERMISSION_DENIED', /the join token was used by node node-/, 'token-used')(answer.reason);
    }
    const [{ node }] = (await used.db.query<{ node: string }>({
      text: 'select used_by_node as node from join_tokens where secret_sha256 is not null order by created_at desc, used_at desc limit 1',
    })) as [{ node: string }];
    assert.equal((await certificates(node)).length, 1);
  });

  it('C25 fifty parallel joins with one token and one CSR are one machine: one node, one certificate, fifty answers', async function () {
    this.timeout(30_000);
    const key = newKey();
    const [evidence, csr] = [await token(), await csrOf(key)];
    const messages = await Promise.all(Array.from({ length: 50 }, () => joinRequest(key, evidence, { csr })));
    const answers = await Promise.all(messages.map(async (message) => granted(message, await send(message))));
    assert.equal(new Set(answers.map((answer) => answer.nodeId)).size, 1);
    assert.equal(new Set(answers.map((answer) => Buffer.from(answer.chain[0]!).toString('hex'))).size, 1);
    assert.deepEqual(
      (await certificates(answers[0]!.nodeId)).map((row) => row.issued),
      [true],
    );
  });

  it('a lost answer is given again: same token, same CSR, same certificate, also after the token expired', async () => {
    const key = newKey();
    const message = await joinRequest(key, await token({ lifetimeMs: minute }));
    const first = granted(message, await send(message));
    now = t0 + 2 * minute;
    try {
      const again = { ...message, nonce: randomBytes(32) };
      const second = granted(again, await send(again));
      assert.deepEqual([second.nodeId, Buffer.from(second.chain[0]!)], [first.nodeId, Buffer.from(first.chain[0]!)]);
      const other = await joinRequest(newKey(), Buffer.from(message.evidence).toString());
      await assert.rejects(send(other), refused('PERMISSION_DENIED', /was used by node/, 'token-used'));
    } finally {
      now = t0;
    }
  });

  it('C26 H-15 a crash between the claim and the certificate is repaired by the next try, under a new serial', async () => {
    const key = newKey();
    const message = await joinRequest(key, await token());
    const broken = {
      ...bundle,
      nodeCa: { ...bundle.nodeCa, signer: () => ({ spki: bundle.nodeCa.spki, sign: () => Promise.reject(new Error('killed')) }) },
    };
    const dying = createGatewayServices({ db: used.db, bundle: () => broken, log: recordingLog(), now: () => now });
    await assert.rejects(dying.join(toBinary(JoinRequestSchema, message)));
    const [{ node }] = (await used.db.query<{ node: string }>(
      { text: 'select used_by_node as node from join_tokens where used_csr_sha256 = $1' },
      [sha256(message.csr)],
    )) as [{ node: string }];
    const [reserved] = await certificates(node);
    assert.deepEqual([reserved?.issued, (await certificates(node)).length], [false, 1]);
    const answer = granted(message, await send(message));
    assert.equal(answer.nodeId, node);
    const rows = await certificates(node);
    assert.deepEqual(
      rows.map((row) => row.issued),
      [false, true],
    );
    assert.notEqual(parseCertificate(answer.chain[0]!).serial, reserved?.serial);
  });

  it('refuses tokens that do not count, each with its reason', async () => {
    const key = newKey();
    const expired = await token({ lifetimeMs: minute });
    const claims = { tokenId: 'made-up', secret: randomBytes(32), siteId: 'berlin', role: 'node', expiresAt: t0 + hour };
    const forged = sealJoinToken(bundle.joinEncryption.spki, claims, { trustDomain });
    const [known] = await used.db.query<{ id: string }>({ text: 'select id from join_tokens limit 1' });
    const wrongSecret = sealJoinToken(bundle.joinEncryption.spki, { ...claims, tokenId: known!.id }, { trustDomain });
    const other = await createBundle({ trustDomain, now: t0 - day });
    const foreign = sealJoinToken(other.joinEncryption.spki, claims, { trustDomain });
    const elsewhere = sealJoinToken(bundle.joinEncryption.spki, claims, { trustDomain: 'other.example' });
    now = t0 + 2 * minute;
    try {
      const table = [
        [expired, 'PERMISSION_DENIED', /the join token has expired/, 'token-expired'],
        [forged, 'PERMISSION_DENIED', /is not known here/, 'token-unknown'],
        [wrongSecret, 'PERMISSION_DENIED', /is not known here/, 'token-unknown'],
        [foreign, 'UNAUTHENTICATED', /was not made for this deployment/, 'join-token'],
        [elsewhere, 'UNAUTHENTICATED', /was not made for this deployment/, 'join-token'],
        ['bcj1.AAAA', 'MALFORMED', /the join token is not one/, 'join-token'],
        ['', 'MALFORMED', /the join token is not one/, 'join-token'],
      ] as const;
      for (const [evidence, code, message, reason] of table)
        await assert.rejects(send(await joinRequest(key, evidence)), refused(code, message, reason));
    } finally {
      now = t0;
    }
  });

  it('JOIN-016 a machine that takes itself for another node than its token is told so, and the token stays good', async () => {
    const key = newKey();
    const named = await token({ nodeId: 'metal-16' });
    const asking = async (nodeId: string, evidence: string) => {
      const message = { ...(await joinRequest(key, evidence)), nodeId };
      return granted(message, await send(message));
    };
    await assert.rejects(
      asking('metal-17', named),
      refused('PERMISSION_DENIED', /takes itself for node "metal-17", and the join token is for node metal-16/, 'other-node'),
    );
    const open = await token();
    await assert.rejects(asking('metal-17', open), refused('PERMISSION_DENIED', /and the join token names no node/, 'other-node'));
    assert.equal((await asking('metal-16', named)).nodeId, 'metal-16');
    await send(await joinRequest(newKey(), open));
  });

  it('JOIN-010 JOIN-011 refuses requests that are none, before the token is touched', async () => {
    assert.deepEqual(attestors, ['join-token', 'x509pop', 'provisioned', 'discovery', 'cloud-iid', 'tpm', 'enrolment']);
    const evidence = await token();
    const key = newKey();
    const table: [
      Parameters<typeof joinRequest>[2],
      'UNSUPPORTED' | 'INVALID_INPUT' | 'MALFORMED' | 'PERMISSION_DENIED',
      RegExp,
      string,
    ][] = [
      [{ attestor: 'tpm' }, 'UNSUPPORTED', /attestor tpm is not offered here: this deployment lists no TPMs/, 'attestor-unsupported'],
      [{ attestor: 'cloud-iid' }, 'UNSUPPORTED', /attestor cloud-iid is not offered here/, 'attestor-unsupported'],
      [{ attestor: 'x' }, 'UNSUPPORTED', /names no attestor we know/, 'attestor-unknown'],
      [{ role: 'ramdisk' }, 'INVALID_INPUT', /role node or site/, 'wrong-role'],
      [{ role: 'site' }, 'PERMISSION_DENIED', /is for role node, the request for site/, 'wrong-role'],
      [{ nonce: randomBytes(16) }, 'MALFORMED', /the nonce has 16 bytes, not 32/, 'nonce'],
    ];
    for (const [changes, code, message, reason] of table) {
      await assert.rejects(send(await joinRequest(key, evidence, changes)), refused(code, message, reason));
    }
    const csr = Buffer.from(await csrOf(key));
    csr[csr.length - 1]! ^= 1;
    await assert.rejects(send(await joinRequest(key, evidence, { csr })));
    await assert.rejects(services().join(randomBytes(64)), refused('MALFORMED', /JoinRequest does not decode/, 'request'));
    await assert.rejects(
      services().join(new Uint8Array(bounds.joinRequest + 1)),
      refused('FRAME_TOO_LARGE', /exceeds the bound joinRequest/, 'request'),
    );
    const good = await joinRequest(key, evidence);
    assert.equal(granted(good, await send(good)).generation, 1n);
  });

  it('a token that names a node makes that node, and a second one gives it a new identity', async () => {
    const [first, second] = [newKey(), newKey()];
    const message = await joinRequest(first, await token({ nodeId: 'gpu-17' }));
    assert.equal(granted(message, await send(message)).nodeId, 'gpu-17');
    const open = command('gpu-17');
    await enqueueCommands({ db: used.db, worker: await keyring(used.db), trustDomain, now: t0, commands: [open] });
    const again = await joinRequest(second, await token({ nodeId: 'gpu-17' }));
    const answer = granted(again, await send(again));
    assert.deepEqual([answer.nodeId, answer.generation], ['gpu-17', 2n]);
    assert.deepEqual(
      (await certificates('gpu-17')).map(({ generation, revoked }) => [generation, revoked]),
      [
        [1, true],
        [2, false],
      ],
    );
    const ended = await findCommand(used.db, open.id);
    assert.deepEqual([ended?.state, ended?.reason], ['cancelled', 'node joined again']);
    const next = command('gpu-17');
    assert.deepEqual(
      (await enqueueCommands({ db: used.db, worker: await keyring(used.db), trustDomain, now: t0, commands: [next] })).enqueued,
      [next.id],
    );
  });

  it('the first join, repeated after the node joined again, gives the replaced key nothing', async () => {
    const first = await joinRequest(newKey(), await token({ nodeId: 'gpu-21' }));
    granted(first, await send(first));
    await revokeNode({ db: used.db, nodeId: 'gpu-21', actor: 'olga', reason: 'key stolen', now: t0 });
    const second = await joinRequest(newKey(), await token({ nodeId: 'gpu-21' }));
    const answer = granted(second, await send(second));
    await assert.rejects(send({ ...first, nonce: randomBytes(32) }), refused('PERMISSION_DENIED', /used by node gpu-21/, 'token-used'));
    const lost = { ...second, nonce: randomBytes(32) };
    const again = granted(lost, await send(lost));
    assert.deepEqual([again.generation, Buffer.from(again.chain[0]!)], [answer.generation, Buffer.from(answer.chain[0]!)]);
  });

  it('a revoked node joins again only by a token made for it, and its old token gives it nothing', async () => {
    const key = newKey();
    const message = await joinRequest(key, await token({ nodeId: 'gpu-18' }));
    granted(message, await send(message));
    await revokeNode({ db: used.db, nodeId: 'gpu-18', actor: 'olga', reason: 'stolen', now: t0 });
    await assert.rejects(
      send({ ...message, nonce: randomBytes(32) }),
      refused('PERMISSION_DENIED', /used by node gpu-18, which is revoked/, 'token-used'),
    );
    const again = await joinRequest(newKey(), await token({ nodeId: 'gpu-18' }));
    assert.equal(granted(again, await send(again)).generation, 3n);
    assert.equal((await readNodeFacts(used.db, ['gpu-18'])).get('gpu-18')?.state, 'active');
  });

  it('refuses a token that names a node of another site or role, or one that is retired', async () => {
    const make = await joinRequest(newKey(), await token({ nodeId: 'gpu-19' }));
    granted(make, await send(make));
    const elsewhere = await joinRequest(newKey(), await token({ nodeId: 'gpu-19', siteId: 'lisbon' }));
    await assert.rejects(
      send(elsewhere),
      refused('PERMISSION_DENIED', /is a node of site berlin, the join token names a node of lisbon/, 'node-differs'),
    );
    await used.db.query({ text: `update nodes set state = 'retired' where id = 'gpu-19'` });
    const retired = await joinRequest(newKey(), await token({ nodeId: 'gpu-19' }));
    await assert.rejects(send(retired), refused('PERMISSION_DENIED', /node gpu-19 is retired/, 'node-not-active'));
  });

  it('H-13 a CA with under ten minutes left refuses, and the same machine joins later', async () => {
    const key = newKey();
    const message = await joinRequest(key, await token());
    now = bundle.nodeCa.certificate.notAfter - 9 * minute;
    await used.db.query({ text: 'update join_tokens set expires_at = $1' }, [new Date(now + hour)]);
    await assert.rejects(send(message), (error) => refused('CA_EXPIRED', /./)(error));
    now = t0;
    assert.equal(granted(message, await send(message)).generation, 1n);
  });
});
