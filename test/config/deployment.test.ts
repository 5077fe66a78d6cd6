/** A deployment in code: the sample module loads, and processes built from its options serve a machine from the first join on. */
import assert from 'node:assert/strict';
import { createHash, generateKeyPairSync } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { toBinary } from '@bufbuild/protobuf';
import {
  auditModule,
  createGatewayServices,
  type DeploymentOptions,
  defineConfig,
  initialise,
  loadConfig,
  loadPkiBundle,
  pkiJoinCrypto,
  type TunnelsOptions,
  type VpsModule,
  vps,
} from '../../config/index.ts';
import { joinNode } from '../../daemon/join.ts';
import { startDaemon } from '../../daemon/run.ts';
import { findIdentity, type StoredIdentity } from '../../daemon/state/identity.ts';
import { callGateway } from '../../daemon/transport/call.ts';
import { dialPinned } from '../../daemon/transport/pinned-connection.ts';
import { productionTimes } from '../../domain/rotation/gates.ts';
import { day, hour } from '../../domain/time.ts';
import { createGateway, type Gateway } from '../../gateway/gateway.ts';
import { createSystemScheduler } from '../../gateway/scheduler.ts';
import { createPostgresStore } from '../../gateway/session/store-postgres.ts';
import { createAuthorities } from '../../pki/authority/index.ts';
import { createBundle, encodeBundle, type PkiBundle } from '../../pki/bundle/index.ts';
import { signRenewProof, verifyJoinResponse } from '../../pki/enroll/index.ts';
import { createCsr, encodePem, parseCertificate, signerFromPrivateKey, spkiOf, spkiPin, verifyChain } from '../../pki/x509/index.ts';
import { bounds, decodeMessage, JoinRequestSchema, RenewRequestSchema, RenewResponseSchema } from '../../proto/index.ts';
import { createJoinToken } from '../../services/tokens.ts';
import { settleAndPublish } from '../../services/trust-publication.ts';
import { createWorkerKeyring } from '../../services/worker-keys.ts';
import { operatorToken, startBatchApi } from '../api/batch-api.ts';
import { eventually } from '../harness/eventually.ts';
import { useDatabase } from '../harness/postgres.ts';
import { refusal, secret, trustDomain } from '../pki/support.ts';
import { joinRequest } from '../services/identity-support.ts';
import { addNode, newKey, recordingLog } from '../services/support.ts';

describe('a deployment in code', function () {
  this.timeout(30_000);
  const used = useDatabase({ max: 20 });
  let folder: string;
  let bundle: PkiBundle;
  let options: DeploymentOptions;
  before(async () => {
    folder = mkdtempSync(join(tmpdir(), 'deployment-'));
    bundle = await createBundle({ trustDomain, now: Date.now() });
    writeFileSync(join(folder, 'pki.json'), encodeBundle(bundle, { secret }));
    const before = { ...process.env };
    Object.assign(process.env, { BETTER_COMPUTE_PKI: join(folder, 'pki.json'), BETTER_COMPUTE_SECRET: secret });
    try {
      options = await loadConfig(join(import.meta.dirname, 'fixtures/deployment.ts'));
    } finally {
      for (const name of ['BETTER_COMPUTE_PKI', 'BETTER_COMPUTE_SECRET']) delete process.env[name];
      Object.assign(process.env, before);
    }
    const { db } = used;
    await settleAndPublish({ db, bundle, floorOption: 0, overlapMs: day, processId: 'api', now: Date.now(), log: recordingLog() });
  });
  after(() => rmSync(folder, { recursive: true, force: true }));

  const services = (crypto = options.pki.join) =>
    createGatewayServices({ db: used.db, crypto: () => crypto, log: recordingLog(), now: Date.now });
  const token = async (): Promise<string> => {
    const { joinEncryption } = bundle;
    const created = await createJoinToken({
      db: used.db,
      trustDomain,
      joinEncryption: joinEncryption.spki,
      siteId: 'fra1',
      role: 'node',
      lifetimeMs: hour,
      actor: 'ann',
      now: Date.now(),
    });
    return created.token;
  };

  it('KEY-047 KEY-029 KEY-033 KEY-035 the sample loads: its options are the bundle’s keys, each in its place', () => {
    assert.equal(options.pki.join.trustDomain, trustDomain);
    assert.deepEqual(options.pki.nodeCa.spki, bundle.nodeCa.spki);
    assert.equal(options.pki.commandSigning?.id, bundle.commandSigning?.id);
    assert.equal(options.tunnels?.ssh?.publicKey, bundle.sshCa?.publicKey);
    assert.equal(options.tunnels?.sandboxSsh?.publicKey, bundle.sandboxSshCa?.publicKey);
    assert.deepEqual(
      options.modules?.map(({ name }) => name),
      ['audit', 'vps'],
    );
  });

  it('SBX-012 SBX-023 vps has the key of tunnels.sandboxSsh, and certifies host keys by it', async () => {
    const module = options.modules?.find(({ name }) => name === 'vps') as VpsModule;
    assert.equal(module.sandboxCa, bundle.sandboxSshCa?.publicKey);
    const now = Date.now();
    const made = await module.guestUserData({ instanceId: 'i-1', account: 'sandbox', keyId: 'ada', endsAt: now + hour, now });
    assert.match(made.userData, /^#cloud-config\n/);
    assert.ok(made.validBefore > now && made.validBefore <= now + hour);
  });

  it('SBX-008 SBX-012 refuses guests that would trust the break-glass CA, or one that nobody signs with', async () => {
    const other = await createBundle({ trustDomain, now: Date.now() });
    const certifyHostKey = () => assert.fail('not asked');
    const attempt = (caPublicKey: string, tunnels = options.tunnels) =>
      initialise(
        defineConfig(() => ({
          ...options,
          ...(tunnels === undefined ? {} : { tunnels }),
          modules: [vps({ sandboxExec: { caPublicKey, certifyHostKey } })],
        })),
      );
    const refused = (message: RegExp) => refusal('INVALID_CONFIG', 'options', message);
    const [own, breakGlass] = [bundle.sandboxSshCa?.publicKey ?? '', bundle.sshCa?.publicKey ?? ''];
    await attempt(`${own.split(' ').slice(0, 2).join(' ')} another comment`);
    await assert.rejects(attempt(breakGlass), refused(/vps\.sandboxExec\.caPublicKey is the break-glass CA/));
    await assert.rejects(attempt(other.sandboxSshCa?.publicKey ?? ''), refused(/must be the key of tunnels\.sandboxSsh/));
    const { issuer, ssh } = options.tunnels as TunnelsOptions;
    await assert.rejects(attempt(own, { issuer, ssh, sandboxSsh: undefined }), refused(/must be the key of tunnels\.sandboxSsh/));
  });

  it('KEY-027 KEY-028 KEY-003 loadPkiBundle opens with the secret of the environment, or the process does not start', async () => {
    const path = join(folder, 'pki.json');
    const loaded = await loadPkiBundle(path, { BETTER_COMPUTE_SECRET: secret });
    for (const name of ['nodeCa', 'joinSigning', 'commandSigning', 'auditSigning', 'execTicketKey'] as const) {
      assert.equal((await loaded[name]?.signer().sign(Buffer.from('x')))?.length, 64, name);
    }
    await assert.rejects(loadPkiBundle(path, {}), refusal('MISSING_ENV', 'secret-missing', /BETTER_COMPUTE_SECRET is not set/));
    await assert.rejects(loadPkiBundle(join(folder, 'none.json'), {}), refusal('NOT_FOUND', 'no-bundle', /there is no key bundle at/));
    const plain = join(folder, 'plain.json');
    writeFileSync(plain, encodeBundle(bundle, { plaintext: true }));
    await assert.rejects(
      loadPkiBundle(plain, { BETTER_COMPUTE_SECRET: secret }),
      refusal('INVALID_CONFIG', 'unauthenticated', /nothing vouches/),
    );
    const allowed = { BETTER_COMPUTE_SECRET: secret, BETTER_COMPUTE_PKI_ALLOW_UNAUTHENTICATED: '1' };
    assert.equal((await loadPkiBundle(plain, allowed)).seal, 'plaintext');
  });

  it('KEY-031 pkiJoinCrypto joins: by its own keys alone the answer verifies and the certificate is of the node CA', async () => {
    const request = await joinRequest(newKey(), await token());
    const response = await services().join(toBinary(JoinRequestSchema, request));
    const csrSha256 = createHash('sha256').update(request.csr).digest();
    const body = verifyJoinResponse(response, { joinKey: bundle.joinSigning.spki, nonce: request.nonce, csrSha256 });
    const chain = body.outcome.case === 'granted' ? body.outcome.value.chain : [];
    assert.ok(verifyChain(chain, { anchors: [bundle.nodeCa.certificate.der], now: Date.now(), purpose: 'client' }));
    const wrong = pkiJoinCrypto({
      trustDomain,
      nodeCa: bundle.nodeCa,
      signingKey: bundle.joinSigning,
      encryptionKey: bundle.rekeyEncryption.privateKey,
    });
    const again = toBinary(JoinRequestSchema, await joinRequest(newKey(), await token()));
    await assert.rejects(services(wrong).join(again), /the join token was not made for this deployment, or was changed/);
  });

  it('KEY-030 an agent of another CA is refused; without pki.nodeCa nothing starts', async () => {
    const other = await createBundle({ trustDomain, now: Date.now() });
    const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const identity = { trustDomain, siteId: 'fra1', nodeId: 'node-1' };
    const stranger = await createAuthorities(other).issueNode({ spki: spkiOf(publicKey), identity, role: 'node', now: Date.now() });
    const csr = await createCsr({ key: newKey().privateKey });
    const timeMs = Date.now();
    const proof = await signRenewProof(signerFromPrivateKey(privateKey), { csr, nodeId: 'node-1', timeMs });
    const request = { chain: [...stranger.chain], csr, timeMs: BigInt(timeMs), proof };
    const bytes = toBinary(RenewRequestSchema, { $typeName: RenewRequestSchema.typeName, ...request } as never);
    await assert.rejects(services().renew(bytes, { chain: stranger.chain }), (error: { code?: string }) => error.code === 'BAD_SIGNATURE');
    const { nodeCa: _none, ...pki } = options.pki;
    await assert.rejects(
      initialise(defineConfig(() => ({ ...options, pki: pki as never }))),
      refusal('INVALID_CONFIG', 'options', /pki\.nodeCa must be the node CA of a bundle: without it no agent can be believed/),
    );
  });

  it('KEY-032 commandSigning signs what the queue writes; without it there is no key to sign with, and no unsigned path', async () => {
    const keyring = (of: PkiBundle) =>
      createWorkerKeyring({ db: used.db, processId: 'w', bundle: () => of, times: productionTimes, now: Date.now, catchUpMs: 0 });
    assert.equal((await keyring(bundle).current()).rootId, options.pki.commandSigning?.id);
    const { commandSigning: _none, ...unsigned } = bundle;
    await assert.rejects(
      keyring(unsigned).current(),
      refusal('INVALID_CONFIG', 'no-command-signing', /the key bundle has no command-signing root/),
    );
  });

  it('KEY-047 names everything that is wrong with options at once, and what was probably meant', async () => {
    const wrong: object = {
      pki: { nodeCa: {}, join: {}, comandSigning: {}, trustVersion: -1 },
      tunnel: {},
      tunnels: {},
      modules: [auditModule({ signer: undefined }), auditModule({ signer: undefined }), {}],
    };
    await assert.rejects(initialise(defineConfig(() => wrong as never)), (error: { details: { problems: string[] } }) => {
      assert.deepEqual(error.details.problems, [
        'tunnel is no option: did you mean tunnels?',
        'pki.comandSigning is no option: did you mean pki.commandSigning?',
        'pki.nodeCa must be the node CA of a bundle: without it no agent can be believed',
        'pki.join must come from pkiJoinCrypto',
        'pki.trustVersion must be a whole number',
        'tunnels must come from tunnelsOptions',
        'modules[2] is no module',
        'module audit is there twice',
      ]);
      return true;
    });
    const other = await createBundle({ trustDomain, now: Date.now() });
    await assert.rejects(
      initialise(defineConfig(() => ({ pki: { ...options.pki, nodeCa: other.nodeCa } }))),
      refusal('INVALID_CONFIG', 'options', /pki\.join certifies by another node CA than pki\.nodeCa/),
    );
    for (const none of [undefined, null, {}, () => options]) {
      await assert.rejects(initialise(none), refusal('INVALID_CONFIG', 'no-config', /export default defineConfig/));
    }
  });

  it('BAT-001 one without modules has the tables of batches, and its api makes and lists them', async () => {
    const { modules: _none, ...bare } = options;
    const deployment = await initialise(defineConfig(() => bare));
    assert.equal(deployment.modules, undefined);
    await addNode(used.db, 'machine-1');
    const api = await startBatchApi(used.db);
    try {
      const headers = { authorization: `Bearer ${operatorToken}`, 'content-type': 'application/json' };
      const body = JSON.stringify({ reason: 'kernel update', scope: [{ subject: 'machine-1', kind: 'node.reboot' }] });
      const made = await fetch(`${api.url}/v1/batches`, { method: 'POST', headers, body });
      const { batchId } = (await made.json()) as { batchId: string };
      const { batches } = (await (await fetch(`${api.url}/v1/batches`, { headers })).json()) as { batches: { id: string }[] };
      assert.deepEqual([made.status, batches.map(({ id }) => id)], [201, [batchId]]);
      const rows = await used.db.query({ text: 'select 1 from command_batch_scope where batch_id = $1' }, [batchId]);
      assert.equal(rows.length, 1);
    } finally {
      await api.close();
    }
  });

  describe('a gateway beside it', () => {
    let gateway: Gateway;
    let url: string;
    before(async () => {
      const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
      const issued = await createAuthorities(bundle).issueGateway({ spki: spkiOf(publicKey), now: Date.now(), dns: ['localhost'] });
      const scheduler = createSystemScheduler();
      // Its own leaf, and certificates: nothing of the bundle's private half (KEY-013).
      gateway = createGateway({
        tls: {
          key: String(privateKey.export({ type: 'pkcs8', format: 'pem' })),
          cert: issued.chain.map((der) => encodePem('CERTIFICATE', der)).join(''),
          ca: options.pki.join.anchors.map((der) => encodePem('CERTIFICATE', der)).join(''),
        },
        trustDomain: options.pki.join.trustDomain,
        gatewayId: 'gw-1',
        store: createPostgresStore(used.db, scheduler.now),
        services: services(),
        scheduler,
      });
      const { port } = await gateway.listen({ host: '127.0.0.1', port: 0 });
      url = `https://localhost:${port}`;
    });
    after(() => gateway.close());

    it('KEY-048 KEY-013 KEY-001 JOIN-022 handed the services of its own process, it serves Join, Renew and Session to a machine that has its certificate alone, and holds no key of the bundle', async () => {
      const dataDir = join(folder, 'node');
      const pins = { gateway: url, servingCaPin: spkiPin(bundle.servingCa.spki), joinKey: bundle.joinSigning.spki, trustDomain };
      await joinNode({
        dataDir,
        bundle: { ...pins, token: await token() },
        role: 'node',
        attestor: 'join-token',
        evidence: null,
        replace: false,
        patienceMs: 0,
        host: { root: '/', readBootId: async () => 'boot-1' },
        random: () => 0,
        now: Date.now,
        say: () => undefined,
        sleep: async () => undefined,
      });
      const { identity, key } = (await findIdentity(dataDir)) as StoredIdentity;
      const csr = await createCsr({ key: newKey().privateKey });
      const timeMs = Date.now();
      const proof = await signRenewProof(signerFromPrivateKey(key), { csr, nodeId: identity.nodeId, timeMs });
      const dial = { gatewayUrl: url, gatewayServerName: null, servingCaPin: pins.servingCaPin };
      const connection = await dialPinned({ gateway: dial, client: { chain: identity.chain, key }, now: Date.now(), timeoutMs: 5_000 });
      const message = { $typeName: RenewRequestSchema.typeName, chain: [...identity.chain], csr, timeMs: BigInt(timeMs), proof };
      const answer = await callGateway(connection, {
        method: 'Renew',
        request: toBinary(RenewRequestSchema, message as never),
        maxAnswerBytes: bounds.renewResponse,
        timeoutMs: 5_000,
      });
      connection.destroy();
      const renewed = decodeMessage(RenewResponseSchema, answer, 'renewResponse');
      assert.equal(
        parseCertificate(renewed.chain[0] as Uint8Array).uriSans[0],
        parseCertificate(identity.chain[0] as Uint8Array).uriSans[0],
      );
      const daemon = await startDaemon({
        dataDir,
        config: { restartableUnits: [], logFiles: {} },
        simulateReboot: true,
        minOverlapMs: day,
        log: recordingLog() as never,
        crash: () => undefined,
        onFailed: (error) => assert.fail(String(error)),
      });
      try {
        await eventually('a session', () => daemon.isConnected());
      } finally {
        await daemon.stop();
      }
    });
  });
});
