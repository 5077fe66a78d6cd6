/** `tunnels.open` and `sandboxes.exec` at the api: who is given what, and what the trail says. */
import assert from 'node:assert/strict';
import { decodeJwt } from 'jose';
import { hour, second } from '../../domain/time.ts';
import { createBundle, type PkiBundle } from '../../pki/bundle/index.ts';
import { createTicketGuard, encodeTicketKeys, execTicketIssuer, parseTicketKeys, verifyExecTicket } from '../../pki/exec/index.ts';
import { parseSshCertificateLine, parseSshKeyLine, verifySshCertificate } from '../../pki/ssh/index.ts';
import { spkiPin } from '../../pki/x509/index.ts';
import { useDatabase } from '../harness/postgres.ts';
import { createPair } from '../pki/ssh/support.ts';
import { addNodes } from '../services/batch-support.ts';
import { trustDomain } from '../services/support.ts';
import { type BatchApi, operatorToken, startBatchApi } from './batch-api.ts';

const issuer = 'https://compute.example.com';

describe('tunnels at the api', function () {
  this.timeout(60_000);
  const used = useDatabase();
  let api: BatchApi;
  let bundle: PkiBundle;
  const user = createPair('ed25519', 'ada');
  before(async () => {
    bundle = await createBundle({ trustDomain, now: Date.now() });
    await addNodes(used.db, ['a0', 'a1', 'a2'], 'acme');
    await addNodes(used.db, ['b0'], 'bravo');
    await online('a0', ['tunnel.node-ssh', 'tunnel.instance-dial']);
    await online('b0', ['tunnel.node-ssh']);
    await online('a1', ['inventory.refresh']);
    api = await startBatchApi(used.db, { bundle, ticketIssuer: issuer, gatewayUrl: 'https://gw.example:443', gatewayName: 'gw.example' });
    await place({ instanceId: 'i-1', tenantId: 'acme', nodeId: 'a0', address: '10.0.0.5' });
    await place({ instanceId: 'i-2', tenantId: 'bravo', nodeId: 'b0', address: '10.0.0.6' });
    await place({ instanceId: 'i-3', tenantId: 'acme', nodeId: 'a0' });
    await place({ instanceId: 'i-4', tenantId: 'acme', nodeId: 'a1', address: '10.0.0.7' });
    const sandbox = { endsAt: Date.now() + hour };
    await place({ instanceId: 's-1', tenantId: 'acme', nodeId: 'a0', address: '10.0.0.8', sandbox });
    await place({ instanceId: 's-2', tenantId: 'acme', nodeId: 'a0', address: '10.0.0.9', sandbox: { ...sandbox, capturedOn: 's-1' } });
    await place({ instanceId: 's-3', tenantId: 'acme', nodeId: 'a0', address: '10.0.0.9', sandbox: { endsAt: Date.now() + 120 * second } });
  });
  after(() => api.close());

  /** A session that is open, as a gateway records it. */
  const online = async (nodeId: string, capabilities: readonly string[]): Promise<void> => {
    await used.db.query(
      {
        text: `insert into node_sessions (id, node_id, gateway_id, epoch, role, cert_issuer, cert_serial, capabilities)
               values (gen_random_uuid(), $1, 'gw-1', 1, 'node', 'i', 's', $2)`,
      },
      [nodeId, capabilities],
    );
  };
  const post = async (path: string, body: unknown, token = operatorToken) => {
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
    const response = await fetch(`${api.url}${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
    return { status: response.status, body: (await response.json()) as any };
  };
  const place = async (body: unknown): Promise<void> => {
    const answer = await post('/v1/instances', body);
    assert.equal(answer.status, 201, JSON.stringify(answer.body));
  };
  const ada = (over: object = {}, claims: { expiresIn?: string } = {}) =>
    api.sign({ sub: 'ada', bc_tenants: ['acme'], bc_permissions: ['tunnels.open', 'sandboxes.exec'], ...over }, claims);
  const toNode = (nodeId = 'a0') => ({ operation: 'node.ssh', nodeId });
  const trail = (action: string) =>
    used.db.query<{ actor: string; subject: string; tenant: string; details: any }>(
      { text: 'select actor, subject, tenant_id as tenant, details from audit_events where action = $1 order by seq' },
      [action],
    );
  const tickets = async () => (await trail('tunnels.open')).length;
  const verified = (ticket: string, nodeId = 'a0') =>
    verifyExecTicket(ticket, {
      keys: parseTicketKeys(encodeTicketKeys(execTicketIssuer(bundle, { issuer }).jwks())),
      issuer,
      nodeId,
      now: Date.now(),
      guard: createTicketGuard(),
    });

  it('EXEC-005 TUN-002 gives who is allowed a ticket for one node, and the trail says so', async () => {
    const { status, body } = await post('/v1/tunnels', toNode(), await ada());
    assert.equal(status, 201, JSON.stringify(body));
    const { sub, op, aud, sid, jti, iat, exp, dst } = verified(body.ticket);
    assert.deepEqual([sub, op, aud, exp - iat, dst], ['ada', 'node.ssh', 'node:a0', 60, undefined]);
    assert.deepEqual(body.gateway, {
      url: 'https://gw.example:443',
      name: 'gw.example',
      servingCaPin: spkiPin(bundle.servingCa.certificate.spki),
    });
    const last = (await trail('tunnels.open')).at(-1);
    assert.deepEqual(last, {
      actor: 'ada',
      subject: 'a0',
      tenant: 'acme',
      details: { operation: 'node.ssh', nodeId: 'a0', destination: '', session: sid, jti },
    });
  });

  it('EXEC-005 gives no ticket to who is not allowed, and the trail says that too', async () => {
    const refusals: readonly (readonly [string, object, string])[] = [
      [await ada({ bc_permissions: ['sandboxes.exec', 'machines.operate'] }), toNode(), 'permission'],
      [await ada({ bc_tenants: ['bravo'] }), toNode(), 'tenant'],
      [await ada(), toNode('b0'), 'tenant'],
      [await ada(), { operation: 'instance.ssh', instanceId: 'i-2' }, 'tenant'],
      [await ada({ bc_permissions: [] }), { operation: 'instance.ssh', instanceId: 'i-1' }, 'permission'],
    ];
    const before = await tickets();
    const denied = (await trail('tunnels.denied')).length;
    for (const [token, request, reason] of refusals) {
      const { status, body } = await post('/v1/tunnels', request, token);
      assert.deepEqual([status, body.details?.reason, body.ticket], [403, reason, undefined], JSON.stringify(body));
      const last = (await trail('tunnels.denied')).at(-1);
      assert.deepEqual([last?.actor, last?.details.reason], ['ada', reason]);
    }
    assert.equal((await trail('tunnels.denied')).length, denied + refusals.length);
    assert.equal(await tickets(), before);
    assert.equal((await post('/v1/tunnels', toNode(), 'nobody')).status, 401);
  });

  it('TUN-012 opens a tunnel to an instance only where its node advertises tunnel.instance-dial', async () => {
    const opened = await post('/v1/tunnels', { operation: 'instance.ssh', instanceId: 'i-1' }, await ada());
    assert.equal(verified(opened.body.ticket).dst, 'i-1@10.0.0.5:22');
    const tcp = await post('/v1/tunnels', { operation: 'instance.tcp', instanceId: 'i-1', port: 5_432 }, await ada());
    assert.equal(verified(tcp.body.ticket).dst, 'i-1@10.0.0.5:5432');
    for (const operation of ['instance.ssh', 'instance.tcp'] as const) {
      const request = { operation, instanceId: 'i-4', ...(operation === 'instance.tcp' ? { port: 80 } : {}) };
      const { status, body } = await post('/v1/tunnels', request, await ada());
      assert.deepEqual([status, body.details.reason], [400, 'no-capability'], JSON.stringify(body));
    }
    assert.equal((await post('/v1/tunnels', toNode('a1'), await ada())).body.details.reason, 'no-capability');
  });

  it('refuses what leads nowhere, by what is wrong with it', async () => {
    const attempts: readonly (readonly [object, number, string])[] = [
      [toNode('nobody'), 404, 'unknown-node'],
      [{ operation: 'instance.ssh', instanceId: 'i-9' }, 404, 'unknown-instance'],
      [toNode('a2'), 409, 'not-connected'],
      [{ operation: 'instance.ssh', instanceId: 'i-3' }, 409, 'no-address'],
      [{ operation: 'node.ssh', instanceId: 'i-1' }, 400, 'tunnel-request'],
      [{ operation: 'node.ssh', nodeId: 'a0', port: 22 }, 400, 'tunnel-request'],
      [{ operation: 'instance.ssh', nodeId: 'a0' }, 400, 'tunnel-request'],
      [{ operation: 'instance.ssh', instanceId: 'i-1', port: 23 }, 400, 'tunnel-request'],
      [{ operation: 'instance.tcp', instanceId: 'i-1' }, 400, 'tunnel-request'],
      [{ operation: 'node.root', nodeId: 'a0' }, 400, 'bad-input'],
    ];
    const before = await tickets();
    for (const [request, status, reason] of attempts) {
      const answer = await post('/v1/tunnels', request, await ada());
      assert.deepEqual([answer.status, answer.body.details.reason], [status, reason], JSON.stringify([request, answer.body]));
    }
    assert.equal(await tickets(), before);
  });

  it('EXEC-005 a ticket does not outlive the session of its caller', async () => {
    const { body } = await post('/v1/tunnels', toNode(), await ada({}, { expiresIn: '20s' }));
    const { iat = 0, exp = 0 } = decodeJwt(body.ticket);
    assert.ok(exp - iat <= 20 && exp > iat, `${exp - iat} s`);
  });

  it('an instance that ended is no place to go, and only the deployment says where instances are', async () => {
    await place({ instanceId: 'i-5', tenantId: 'acme', nodeId: 'a0', address: '10.0.0.11' });
    const open = async () => (await post('/v1/tunnels', { operation: 'instance.ssh', instanceId: 'i-5' }, await ada())).status;
    assert.equal(await open(), 201);
    assert.deepEqual((await post('/v1/instances/i-5/end', { nodeId: 'a0' })).body, { ended: true });
    assert.equal(await open(), 404);
    const mine = { instanceId: 'i-6', tenantId: 'acme', nodeId: 'a0', address: '10.0.0.12' };
    assert.equal((await post('/v1/instances', mine, await ada())).status, 403);
    assert.equal((await post('/v1/instances', { ...mine, address: 'example.com' })).status, 400);
  });

  describe('sandboxes.exec', () => {
    const exec = async (instanceId: string, { token, ...body }: { token?: string; ttlSeconds?: number; account?: string } = {}) =>
      post(`/v1/sandboxes/${instanceId}/exec`, { account: 'sandbox', publicKey: user.line, ...body }, token ?? (await ada()));
    const authorities = () => [parseSshKeyLine(bundle.sandboxSshCa?.publicKey ?? '')];

    it('SBX-001 SBX-002 SBX-005 gives a certificate of the sandbox authority for one principal, and the line that pins its host', async () => {
      const { status, body } = await exec('s-1', { ttlSeconds: 60 });
      assert.equal(status, 201, JSON.stringify(body));
      const certificate = parseSshCertificateLine(body.certificate);
      verifySshCertificate(certificate, { authorities: authorities(), kind: 'user', principal: 'sandbox@s-1', now: Date.now() });
      assert.deepEqual([certificate.principals, certificate.keyId, body.host], [['sandbox@s-1'], 'ada', 's-1']);
      const ca = (bundle.sandboxSshCa?.publicKey ?? '').split(' ').slice(0, 2).join(' ');
      assert.match(body.knownHosts, new RegExp(`^@cert-authority s-1 ${ca.replaceAll('+', '\\+')}`, 'u'));
      const last = (await trail('sandboxes.exec')).at(-1);
      assert.deepEqual([last?.actor, last?.subject, last?.tenant, last?.details.principal], ['ada', 's-1', 'acme', 'sandbox@s-1']);
    });

    it('SBX-003 SBX-004 not past the session of the caller, nor past the end of the sandbox', async () => {
      const brief = await exec('s-1', { token: await ada({}, { expiresIn: '100s' }) });
      assert.ok(brief.body.validBefore <= Date.now() + 100 * second, JSON.stringify(brief.body));
      const ending = await exec('s-3');
      assert.ok(ending.body.validBefore <= Date.now() + 120 * second);
      assert.equal((await exec('s-1', { token: await ada({}, { expiresIn: '50s' }) })).body.details.reason, 'session-over');
    });

    it('SBX-006 goes to a restored sandbox by the name of the instance it was captured on', async () => {
      const { body } = await exec('s-2');
      assert.deepEqual([body.principal, body.host], ['sandbox@s-1', 's-1']);
    });

    it('refuses who may not, what is no sandbox, and what is not one account and one key', async () => {
      const attempts: readonly (readonly [string, Parameters<typeof exec>[1], number, string])[] = [
        ['s-1', { token: await ada({ bc_permissions: ['tunnels.open'] }) }, 403, 'permission'],
        ['s-1', { token: await ada({ bc_tenants: ['bravo'] }) }, 403, 'tenant'],
        ['i-1', {}, 409, 'no-sandbox'],
        ['s-9', {}, 404, 'unknown-instance'],
        ['s-1', { account: 'a,b' }, 400, 'bad-input'],
        ['s-1', { ttlSeconds: 59 }, 400, 'bad-input'],
        ['s-1', { ttlSeconds: 901 }, 400, 'bad-input'],
      ];
      const issued = (await trail('sandboxes.exec')).length;
      for (const [instance, request, status, reason] of attempts) {
        const answer = await exec(instance, request);
        assert.deepEqual([answer.status, answer.body.details.reason], [status, reason], JSON.stringify([instance, answer.body]));
      }
      assert.equal((await trail('sandboxes.exec')).length, issued);
      assert.deepEqual(
        (await trail('sandboxes.denied')).map(({ details }) => details.reason),
        ['permission', 'tenant'],
      );
    });

    it('SBX-010 is UNSUPPORTED without tunnels.sandboxSsh', async () => {
      const { sandboxSshCa: _none, ...old } = bundle;
      const without = await startBatchApi(used.db, { bundle: old, ticketIssuer: issuer, gatewayUrl: 'https://gw.example' });
      try {
        const headers = { authorization: `Bearer ${operatorToken}`, 'content-type': 'application/json' };
        const body = JSON.stringify({ account: 'sandbox', publicKey: user.line });
        const response = await fetch(`${without.url}/v1/sandboxes/s-1/exec`, { method: 'POST', headers, body });
        const answer = (await response.json()) as { code: string; details: { reason: string } };
        assert.deepEqual([response.status, answer.code, answer.details.reason], [400, 'UNSUPPORTED', 'no-sandbox-ssh']);
      } finally {
        await without.close();
      }
    });
  });

  it('is UNSUPPORTED in a deployment whose api names no issuer of tickets', async () => {
    const without = await startBatchApi(used.db, { bundle, gatewayUrl: 'https://gw.example' });
    try {
      const headers = { authorization: `Bearer ${operatorToken}`, 'content-type': 'application/json' };
      const response = await fetch(`${without.url}/v1/tunnels`, { method: 'POST', headers, body: JSON.stringify(toNode()) });
      assert.deepEqual([response.status, ((await response.json()) as { details: { reason: string } }).details.reason], [400, 'no-tunnels']);
    } finally {
      await without.close();
    }
  });
});
