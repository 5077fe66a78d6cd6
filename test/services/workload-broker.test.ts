/** The broker over a real database: every check, its word, and what a gateway in between gains by meddling. */
import assert from 'node:assert/strict';
import { fromBinary, toBinary } from '@bufbuild/protobuf';
import { decodeJwt } from 'jose';
import { day, minute } from '../../domain/time.ts';
import { workloadLimits } from '../../domain/workload/limits.ts';
import { createWorkloadTokenRequest, openWorkloadTokenResponse, type PendingWorkloadToken } from '../../pki/workload/index.ts';
import { signerFromPrivateKey } from '../../pki/x509/index.ts';
import {
  type WorkloadTokenRequest,
  WorkloadTokenRequestSchema,
  type WorkloadTokenResponse,
  WorkloadTokenResponseSchema,
} from '../../proto/index.ts';
import { createGatewayServices } from '../../services/gateway-services.ts';
import { revokeNode } from '../../services/revocation.ts';
import { brokerWorkloadToken, type WorkloadBrokerOptions } from '../../services/workload-broker.ts';
import { admitTokenRequest, endInstance, placeInstance } from '../../services/workload-instances.ts';
import { ensureWorkloadKeys, readWorkloadIssuer, type WorkloadSettings } from '../../services/workload-keys.ts';
import { useDatabase } from '../harness/postgres.ts';
import { type EnrolledNode, enrol, newKey, recordingLog, refused, t0, testBundle, trustDomain } from './support.ts';

const settings: WorkloadSettings = {
  issuer: 'https://id.example.com',
  defaultAudience: 'https://api.example.com',
  audiences: ['https://db.example.com'],
  secret: 'a secret of thirty-two characters at least',
};

describe('the broker of workload tokens', () => {
  const used = useDatabase();
  let host: EnrolledNode;
  let log: ReturnType<typeof recordingLog>;
  let count = 0;

  beforeEach(async () => {
    await used.db.query({ text: 'truncate workload_instances, workload_issuers' });
    await ensureWorkloadKeys(used.db, settings);
    count += 1;
    host = await enrol(used.db, `host-${count}`, { now: Date.now() });
    await placeInstance(used.db, { instanceId: 'i-1', tenantId: 'acme', nodeId: host.id }, t0);
    log = recordingLog();
  });

  const issuer = () => readWorkloadIssuer(used.db, settings);

  const ask = (options: { instanceId?: string; audience?: string; node?: EnrolledNode } = {}): Promise<PendingWorkloadToken> => {
    const { node = host, ...rest } = options;
    return createWorkloadTokenRequest({ signer: signerFromPrivateKey(node.key.privateKey), instanceId: 'i-1', ...rest });
  };
  const encode = (request: WorkloadTokenRequest): Uint8Array => toBinary(WorkloadTokenRequestSchema, request);
  async function send(
    bytes: Uint8Array,
    changes: Partial<WorkloadBrokerOptions> & { chain?: Uint8Array[] } = {},
  ): Promise<WorkloadTokenResponse> {
    const keys = await testBundle();
    const { chain = [host.certificate.der, keys.nodeCa.certificate.der], ...rest } = changes;
    const options = {
      db: used.db,
      trustDomain,
      anchors: [keys.nodeCa.certificate.der],
      nodeCa: keys.nodeCa.spki,
      issuer,
      log,
      ...rest,
    };
    return fromBinary(WorkloadTokenResponseSchema, await brokerWorkloadToken(bytes, { chain }, options));
  }
  const wordOf = async (pending: PendingWorkloadToken, changes?: Parameters<typeof send>[1]): Promise<string> => {
    const { error, jwe, requestId } = await send(encode(pending.request), changes);
    assert.deepEqual([jwe, requestId], ['', pending.request.requestId]);
    return error;
  };
  const tokenOf = async (pending: PendingWorkloadToken): Promise<string> =>
    openWorkloadTokenResponse(await send(encode(pending.request)), { pending, now: Date.now() }).token;

  it('WID-001 WID-030 WID-041 a host gets the token of an instance that runs on it, with the tenant of the record', async () => {
    const claims = decodeJwt(await tokenOf(await ask()));
    assert.deepEqual([claims.sub, claims.aud, claims['tenant_id']], ['t:acme:instance:i-1', 'https://api.example.com', 'acme']);
    assert.deepEqual(decodeJwt(await tokenOf(await ask({ audience: 'https://db.example.com' }))).aud, 'https://db.example.com');
    assert.ok(!JSON.stringify(log.lines).includes('eyJ'), 'no token is logged');
  });

  it('WID-036 WID-041 not-bound: an instance of another node, one that ended, one that nobody knows', async () => {
    const other = await enrol(used.db, `other-${count}`, { now: Date.now() });
    await placeInstance(used.db, { instanceId: 'i-2', tenantId: 'acme', nodeId: other.id }, t0);
    assert.equal(await wordOf(await ask({ instanceId: 'i-2' })), 'not-bound');
    assert.equal(await wordOf(await ask({ instanceId: 'i-9' })), 'not-bound');
    await placeInstance(used.db, { instanceId: 'i-1', tenantId: 'acme', nodeId: other.id }, t0);
    assert.equal(await wordOf(await ask()), 'not-bound', 'it moved away');
    await placeInstance(used.db, { instanceId: 'i-1', tenantId: 'acme', nodeId: host.id }, t0);
    assert.equal(await endInstance(used.db, { instanceId: 'i-1', nodeId: host.id }, t0), true);
    assert.equal(await wordOf(await ask()), 'not-bound');
    assert.equal(await endInstance(used.db, { instanceId: 'i-1', nodeId: host.id }, t0), false);
  });

  it('WID-004 WID-036 disabled: a deployment without an issuer', async () => {
    assert.equal(await wordOf(await ask(), { issuer: null }), 'disabled');
  });

  it('WID-007 WID-036 audience: one that is not allowed, told to nobody whose instance it is not', async () => {
    assert.equal(await wordOf(await ask({ audience: 'https://evil.example.com' })), 'audience');
    assert.equal(await wordOf(await ask({ instanceId: 'i-9', audience: 'https://evil.example.com' })), 'not-bound');
    const [row] = await used.db.query<{ tokens: number }>({ text: 'select window_tokens as tokens from workload_instances' });
    assert.equal(row?.tokens, 0, 'what is refused is not counted');
  });

  it('WID-036 WID-041 rate-limited: more tokens for one instance than a minute has room for, whatever replica is asked', async () => {
    const asked = { instanceId: 'i-1', nodeId: host.id };
    const all = await Promise.all(Array.from({ length: workloadLimits.tokensPerMinute + 5 }, () => admitTokenRequest(used.db, asked, t0)));
    assert.equal(all.filter(({ kind }) => kind === 'admitted').length, workloadLimits.tokensPerMinute);
    assert.equal((await admitTokenRequest(used.db, asked, t0 + minute - 1)).kind, 'rate-limited');
    assert.equal((await admitTokenRequest(used.db, asked, t0 + minute)).kind, 'admitted');
    await used.db.query({ text: 'update workload_instances set window_start = clock_timestamp(), window_tokens = $1' }, [
      workloadLimits.tokensPerMinute,
    ]);
    assert.equal(await wordOf(await ask()), 'rate-limited');
  });

  it('WID-022 WID-036 access-denied: a question that the node did not sign, and nothing is counted', async () => {
    const stranger = { ...host, key: newKey() };
    assert.equal(await wordOf(await ask({ node: stranger })), 'access-denied');
    const { request } = await ask();
    assert.equal((await send(encode({ ...request, instanceId: 'i-2' }))).error, 'access-denied');
    const [row] = await used.db.query<{ tokens: number }>({ text: 'select window_tokens as tokens from workload_instances' });
    assert.equal(row?.tokens, 0);
  });

  it('WID-036 WID-041 access-denied: a certificate that is over, of another CA, not issued here, or revoked', async () => {
    const pending = await ask();
    const over = await enrol(used.db, `over-${count}`, { now: Date.now() - day - minute });
    await placeInstance(used.db, { instanceId: 'i-over', tenantId: 'acme', nodeId: over.id }, t0);
    const late = await ask({ instanceId: 'i-over', node: over });
    const { nodeCa } = await testBundle();
    assert.equal(await wordOf(late, { chain: [over.certificate.der, nodeCa.certificate.der] }), 'access-denied');
    const { internalCa } = await testBundle();
    assert.equal(await wordOf(pending, { anchors: [internalCa.certificate.der] }), 'access-denied');
    assert.equal(await wordOf(pending, { chain: [] }), 'access-denied');
    assert.equal(await wordOf(pending, { trustDomain: 'other.example' }), 'access-denied');
    await used.db.query({ text: 'update node_certs set cert_der = $2 where node_id = $1' }, [host.id, Buffer.from('other')]);
    assert.equal(await wordOf(pending), 'access-denied');
    await used.db.query({ text: 'update node_certs set cert_der = $2 where node_id = $1' }, [host.id, host.certificate.der]);
    assert.match(await tokenOf(await ask()), /^eyJ/);
    await revokeNode({ db: used.db, nodeId: host.id, reason: 'stolen', actor: 'olga', now: t0 });
    assert.equal(await wordOf(pending), 'access-denied');
  });

  it('WID-038 access-denied always: a session that a tenant controls, and every role but a host, before anything else is looked at', async () => {
    for (const role of ['node-tenant', 'site', 'ramdisk'] as const) {
      const node = await enrolAs(role);
      await placeInstance(used.db, { instanceId: 'i-3', tenantId: 'acme', nodeId: node.id }, t0);
      const chain = [node.certificate.der, (await testBundle()).nodeCa.certificate.der];
      const pending = await ask({ node, instanceId: 'i-3' });
      assert.equal(await wordOf(pending, { chain }), 'access-denied', role);
      assert.equal(await wordOf(pending, { chain, issuer: null }), 'access-denied', role);
    }
  });

  it('WID-036 unavailable: a fault of ours is no verdict on the host, and is in the log', async () => {
    await used.db.query({ text: 'truncate workload_issuers' });
    assert.equal(await wordOf(await ask()), 'unavailable');
    assert.equal(log.lines.at(-1)?.level, 'error');
  });

  it('refuses bytes that are no request, for then there is nothing to answer to', async () => {
    await assert.rejects(send(Uint8Array.of(255)), refused('MALFORMED', /does not decode/, 'request'));
    await assert.rejects(send(new Uint8Array(16 * 1_024 + 1)), refused('FRAME_TOO_LARGE', /exceeds the bound/, 'request'));
  });

  it('keeps an instance with its tenant: another tenant cannot take its name', async () => {
    const placement = { instanceId: 'i-1', tenantId: 'evil', nodeId: host.id };
    await assert.rejects(
      placeInstance(used.db, placement, t0),
      refused('CONFLICT', /belongs to another tenant than evil/, 'instance-tenant'),
    );
    await assert.rejects(
      placeInstance(used.db, { ...placement, instanceId: 'a:b' }, t0),
      refused('INVALID_INPUT', /no instance id/, 'instance-id'),
    );
    assert.equal(decodeJwt(await tokenOf(await ask()))['tenant_id'], 'acme');
  });

  it('WID-025 JOIN-021 is behind the one port of the gateway', async () => {
    const keys = await testBundle();
    const services = createGatewayServices({ db: used.db, bundle: () => keys, workload: issuer, log, now: () => t0 });
    const pending = await ask();
    const bytes = await services.workloadToken?.(encode(pending.request), { chain: [host.certificate.der, keys.nodeCa.certificate.der] });
    assert.ok(bytes !== undefined);
    assert.match(openWorkloadTokenResponse(fromBinary(WorkloadTokenResponseSchema, bytes), { pending, now: Date.now() }).token, /^eyJ/);
  });

  /** A node of another role, with a certificate that says so. */
  async function enrolAs(role: 'node-tenant' | 'site' | 'ramdisk'): Promise<EnrolledNode> {
    const id = `${role}-${count}`;
    return enrol(used.db, id, { role });
  }
});
