/** What a gateway hands out of the trust bundle: the settled bytes, or nothing; and how a change reaches who is connected. */
import assert from 'node:assert/strict';
import { hour } from '../../domain/time.ts';
import { fleetFacts } from '../../drizzle/queries/sessions.ts';
import { publishedTrust } from '../../drizzle/queries/trust.ts';
import { createGateway, type Gateway } from '../../gateway/gateway.ts';
import { createPostgresStore } from '../../gateway/session/store-postgres.ts';
import { addCommandRoot, nextGeneration, type PkiBundle } from '../../pki/bundle/index.ts';
import { encodePem, issueLeaf, kidOf, spkiOf } from '../../pki/x509/index.ts';
import type { SignedTrustBundle } from '../../proto/index.ts';
import { settleAndPublish } from '../../services/trust-publication.ts';
import { openAgent, type TestLeaf } from '../harness/agent.ts';
import { eventually } from '../harness/eventually.ts';
import { useDatabase } from '../harness/postgres.ts';
import { addNode, certify, newKey, recordingLog, testBundle, trustDomain } from '../services/support.ts';
import { noServices } from './start-gateway.ts';

describe('the published trust bundle', function () {
  this.timeout(60_000);
  // Before useDatabase, whose own hook drops the database that the gateway listens on.
  after(() => gateway.close());
  const used = useDatabase({ max: 20 });
  let keys: PkiBundle;
  let gateway: Gateway;
  let port: number;

  before(async () => {
    keys = await testBundle();
    const key = newKey();
    const ca = { certificate: keys.servingCa.certificate.der, signer: keys.servingCa.signer() };
    const leaf = { profile: 'gateway', spki: spkiOf(key.publicKey), sans: { dns: ['gw.test'] }, now: Date.now() } as const;
    const { der } = await issueLeaf({ ca, ...leaf });
    gateway = createGateway({
      tls: {
        key: String(key.privateKey.export({ type: 'pkcs8', format: 'pem' })),
        cert: encodePem('CERTIFICATE', der) + encodePem('CERTIFICATE', keys.servingCa.certificate.der),
        ca: encodePem('CERTIFICATE', keys.nodeCa.certificate.der),
      },
      trustDomain,
      gatewayId: 'gw-1',
      store: createPostgresStore(used.db, Date.now),
      connectListener: () => used.db.connect(),
      services: noServices,
    });
    port = (await gateway.listen({ host: '127.0.0.1', port: 0 })).port;
  });
  const publish = async (bundle: PkiBundle): Promise<number> =>
    (
      await settleAndPublish({
        db: used.db,
        bundle,
        floorOption: 0,
        overlapMs: 24 * hour,
        processId: 'test',
        now: Date.now(),
        log: recordingLog(),
      })
    ).version;

  async function enrolled(id: string): Promise<TestLeaf> {
    const key = newKey();
    await addNode(used.db, id);
    const { der, serial, notAfter } = await certify(used.db, { id, key, now: Date.now() });
    const chain = [der, keys.nodeCa.certificate.der];
    return {
      key: key.privateKey,
      keyPem: String(key.privateKey.export({ type: 'pkcs8', format: 'pem' })),
      chainPem: chain.map((each) => encodePem('CERTIFICATE', each)).join(''),
      chain,
      serial,
      issuer: kidOf(keys.nodeCa.spki),
      notAfter,
    };
  }

  const assertPublished = async (trust: SignedTrustBundle | undefined): Promise<void> => {
    const published = await publishedTrust(used.db);
    assert.ok(published !== null && trust?.signature !== undefined);
    assert.deepEqual(Buffer.from(trust.body), Buffer.from(published.body));
  };

  it('TRUST-008 JOIN-028 TRUST-022 is nothing before it is settled, then byte for byte what is settled, and a change reaches an open session', async () => {
    const { agent, welcome } = await openAgent({ port, leaf: await enrolled('early') });
    assert.equal(welcome.trust, undefined);
    assert.equal(await publish(keys), 1);
    await assertPublished((await agent.expect('welcome')).trust);

    const later = await openAgent({ port, leaf: await enrolled('later') });
    await assertPublished(later.welcome.trust);

    const added = nextGeneration((await addCommandRoot(keys, { rotationId: 'r', now: Date.now() })).bundle);
    assert.equal(await publish(added), 2);
    for (const each of [agent, later.agent]) {
      await assertPublished((await each.expect('welcome')).trust);
      each.send({ frame: { case: 'status', value: { trustVersion: 2n } } });
    }
    await eventually('both report the new version', async () => {
      const facts = await fleetFacts(used.db, { version: 2 });
      return facts.connected === 2 && facts.behind === 0;
    });
    agent.close();
    later.agent.close();
  });
});
