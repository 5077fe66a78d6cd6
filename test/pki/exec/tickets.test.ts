/** Exec tickets: what the api issues, what gateway and node take, and what jose makes of both. */
import assert from 'node:assert/strict';
import { decodeJwt, decodeProtectedHeader, importJWK, jwtVerify, SignJWT } from 'jose';
import { second } from '../../../domain/time.ts';
import { newSigningKey } from '../../../pki/bundle/create.ts';
import {
  createTicketGuard,
  encodeTicketKeys,
  execTicketIssuer,
  parseTicketKeys,
  ticketType,
  tunnelsOptions,
  type VerifyTicketOptions,
  verifyExecTicket,
} from '../../../pki/exec/index.ts';
import { encodePublicJwk, jwkThumbprint } from '../../../pki/jose/index.ts';
import { now, refusal, sharedBundle } from '../support.ts';

const issuerUrl = 'https://compute.example.com';
const subject = { nodeId: 'node-7', sessionId: 's-1', operation: 'node.shell', actor: 'olga' };

const issuerOf = async (at = now) => execTicketIssuer(await sharedBundle(), { issuer: issuerUrl, now: () => at });
const check = (issuer: Awaited<ReturnType<typeof issuerOf>>, changes: Partial<VerifyTicketOptions> = {}): VerifyTicketOptions => ({
  keys: parseTicketKeys(encodeTicketKeys(issuer.jwks())),
  issuer: issuerUrl,
  nodeId: subject.nodeId,
  now,
  guard: createTicketGuard(),
  ...changes,
});

/** A ticket as somebody with the deployment's key would forge it: jose signs whatever it is given. */
async function forged(claims: Record<string, unknown>, header: object = {}): Promise<string> {
  const { execTicketKey } = await sharedBundle();
  assert.ok(execTicketKey?.privateKey !== undefined);
  const kid = jwkThumbprint(execTicketKey.spki);
  return new SignJWT({ ...claims }).setProtectedHeader({ alg: 'ES256', kid, typ: ticketType, ...header }).sign(execTicketKey.privateKey);
}

const iat = now / second;
const good = { iss: issuerUrl, aud: 'node:node-7', sub: 'olga', sid: 's-1', op: 'node.shell', iat, exp: iat + 60, jti: 'A'.repeat(22) };

describe('exec tickets', () => {
  it('EXEC-001 TUN-002 are ES256 JWTs of type bc-exec+jwt that name node, session, operation and caller', async () => {
    const issuer = await issuerOf();
    const { ticket, jti, expiresAt } = await issuer.issue(subject);
    assert.deepEqual(decodeProtectedHeader(ticket), { alg: 'ES256', kid: issuer.kid, typ: 'bc-exec+jwt' });
    assert.deepEqual(decodeJwt(ticket), { ...good, jti });
    assert.equal(expiresAt, now + 60 * second);
    const key = await importJWK(issuer.jwks().keys[0] as never, 'ES256');
    await jwtVerify(ticket, key, { issuer: issuerUrl, audience: 'node:node-7', typ: 'bc-exec+jwt', currentDate: new Date(now) });
    assert.equal(verifyExecTicket(ticket, check(issuer)).kid, issuer.kid);
  });

  it('EXEC-001 takes no token of another type, though the key is right', async () => {
    const issuer = await issuerOf();
    for (const typ of ['JWT', 'bc-exec', 'at+jwt']) {
      const ticket = await forged(good, { typ });
      assert.throws(() => verifyExecTicket(ticket, check(issuer)), refusal('PERMISSION_DENIED', 'typ', /not bc-exec\+jwt/));
    }
    verifyExecTicket(await forged(good), check(issuer));
  });

  it('EXEC-002 live at most 60 s: none longer is issued, none longer is taken, none is taken at its end', async () => {
    const issuer = await issuerOf();
    for (const lifetimeSeconds of [61, 0, -1, 1.5, Number.NaN])
      await assert.rejects(
        issuer.issue({ ...subject, lifetimeSeconds }),
        refusal('INVALID_INPUT', 'ticket-lifetime', /lives 1 to 60 s, not/),
      );
    const long = await forged({ ...good, exp: iat + 61 });
    assert.throws(() => verifyExecTicket(long, check(issuer)), refusal('PERMISSION_DENIED', 'ticket-lifetime', /lives 61 s/));
    const { ticket, expiresAt } = await issuer.issue({ ...subject, lifetimeSeconds: 60 });
    verifyExecTicket(ticket, check(issuer, { now: expiresAt - 1 }));
    assert.throws(
      () => verifyExecTicket(ticket, check(issuer, { now: expiresAt })),
      refusal('UNAUTHENTICATED', 'ticket-expired', /is over/),
    );
    assert.throws(
      () => verifyExecTicket(ticket, check(issuer, { now: now - 31 * second })),
      refusal('UNAUTHENTICATED', 'ticket-early', /from the future/),
    );
  });

  it('EXEC-003 name one node: another node refuses them, and a list of nodes is no audience', async () => {
    const issuer = await issuerOf();
    const { ticket } = await issuer.issue(subject);
    assert.throws(
      () => verifyExecTicket(ticket, check(issuer, { nodeId: 'node-8' })),
      refusal('PERMISSION_DENIED', 'ticket-audience', /for node:node-7, not for node:node-8/),
    );
    for (const aud of [['node:node-7'], ['node:node-7', 'node:node-8'], 'node:', 'node-7', 7]) {
      const list = await forged({ ...good, aud });
      assert.throws(
        () => verifyExecTicket(list, check(issuer)),
        refusal('MALFORMED', 'field', /^ticket\.aud is missing or not of its form$/),
      );
    }
    await assert.rejects(issuer.issue({ ...subject, nodeId: 'a/b' }), refusal('INVALID_INPUT', 'ticket-node', /"a\/b" is no node id/));
  });

  it('EXEC-004 are used once; one that is refused for something else is not used up', async () => {
    const issuer = await issuerOf();
    const guard = createTicketGuard();
    const { ticket } = await issuer.issue(subject);
    assert.throws(
      () => verifyExecTicket(ticket, check(issuer, { guard, nodeId: 'node-8' })),
      refusal('PERMISSION_DENIED', 'ticket-audience', /./),
    );
    verifyExecTicket(ticket, check(issuer, { guard }));
    assert.throws(
      () => verifyExecTicket(ticket, check(issuer, { guard, now: now + 59 * second })),
      refusal('REPLAYED', 'ticket-used', /used before/),
    );
    // Every part that judges remembers for itself.
    verifyExecTicket(ticket, check(issuer));
    const [one, two] = await Promise.all([issuer.issue(subject), issuer.issue(subject)]);
    assert.notEqual(one.jti, two.jti);
  });

  it('EXEC-004 a memory that is full takes none, and has room again when what it holds is over', () => {
    const guard = createTicketGuard({ maxTickets: 2 });
    const times = { expiresAt: now + 60 * second, now };
    assert.ok(guard.claim('a', times) && guard.claim('b', times));
    assert.equal(guard.claim('a', times), false);
    assert.throws(() => guard.claim('c', times), refusal('UNAVAILABLE', 'ticket-guard-full', /2 exec tickets/));
    assert.ok(guard.claim('c', { expiresAt: now + 120 * second, now: now + 60 * second }));
  });

  it("EXEC-006 verify by the keys of the node's spec and by no other: an unknown key, and one under a false name", async () => {
    const issuer = await issuerOf();
    const { ticket } = await issuer.issue(subject);
    const other = newSigningKey('execTicketKey');
    const keys = parseTicketKeys(encodeTicketKeys({ keys: [encodePublicJwk(other.spki, 'sig')] }));
    assert.throws(
      () => verifyExecTicket(ticket, check(issuer, { keys })),
      refusal('BAD_SIGNATURE', 'unknown-key', /names no key of the set/),
    );
    const named = [{ kid: issuer.kid, spki: other.spki }];
    assert.throws(() => verifyExecTicket(ticket, check(issuer, { keys: named })), refusal('BAD_SIGNATURE', 'bad-signature', /./));
    assert.throws(() => verifyExecTicket(ticket, check(issuer, { keys: [] })), refusal('BAD_SIGNATURE', 'unknown-key', /./));
    const [text] = encodeTicketKeys(issuer.jwks()) as [string];
    assert.throws(() => parseTicketKeys([text, text]), refusal('MALFORMED', 'field', /stands twice in the set/));
    assert.throws(() => parseTicketKeys(['{']), refusal('MALFORMED', 'field', /^jwks\.keys\[0\] is not JSON/));
  });

  it('EXEC-007 two processes with one bundle name the key alike, as jose does', async () => {
    const [one, two] = [await issuerOf(), await issuerOf()];
    assert.equal(one.kid, two.kid);
    const { calculateJwkThumbprint } = await import('jose');
    assert.equal(one.kid, await calculateJwkThumbprint(one.jwks().keys[0] as never));
    assert.equal(one.kid, jwkThumbprint((await sharedBundle()).execTicketKey?.spki as Uint8Array));
  });

  it('EXEC-008 rotate() signs with the new key and keeps the one before listed', async () => {
    const issuer = await issuerOf();
    const before = await issuer.issue(subject);
    const kid = issuer.kid;
    const next = issuer.rotate();
    const after = await issuer.issue(subject);
    assert.deepEqual(
      issuer.jwks().keys.map((key) => key.kid),
      [jwkThumbprint(next.spki), kid],
    );
    assert.equal(decodeProtectedHeader(after.ticket).kid, jwkThumbprint(next.spki));
    for (const { ticket } of [before, after]) verifyExecTicket(ticket, check(issuer));
    issuer.rotate(next);
    assert.equal(issuer.jwks().keys.length, 2, 'a repeated rotation changes nothing');
  });

  it("EXEC-009 KEY-034 are taken only from the api's own origin", async () => {
    const issuer = await issuerOf();
    for (const iss of ['https://other.example.com', 'http://compute.example.com', 'https://compute.example.com:8443']) {
      const ticket = await forged({ ...good, iss });
      assert.throws(
        () => verifyExecTicket(ticket, check(issuer)),
        refusal('PERMISSION_DENIED', 'ticket-issuer', /not of https:\/\/compute\.example\.com$/),
      );
    }
    const bundle = await sharedBundle();
    for (const text of [
      'https://compute.example.com/',
      'https://compute.example.com/api',
      'http://compute.example.com',
      'compute.example.com',
      '',
    ])
      assert.throws(
        () => execTicketIssuer(bundle, { issuer: text }),
        refusal('INVALID_CONFIG', 'ticket-issuer', /must be the origin of the api's base URL/),
      );
    for (const text of ['https://compute.example.com:8443', 'http://127.0.0.1:8400']) execTicketIssuer(bundle, { issuer: text });
  });

  it('takes exactly the claims of a ticket', async () => {
    const issuer = await issuerOf();
    for (const [name, value] of [
      ['extra', 1],
      ['nbf', iat],
      ['sub', ''],
      ['sid', undefined],
      ['op', 'Shell'],
      ['jti', 'short'],
      ['iat', '1'],
      ['exp', 1.5],
    ] as const) {
      const ticket = await forged({ ...good, [name]: value });
      assert.throws(() => verifyExecTicket(ticket, check(issuer)), refusal('MALFORMED', 'field', new RegExp(`^ticket\\.${name} `)));
    }
    for (const [name, value] of [
      ['sessionId', 'a b'],
      ['operation', 'x y'],
      ['actor', ''],
    ] as const)
      await assert.rejects(
        issuer.issue({ ...subject, [name]: value }),
        refusal('INVALID_INPUT', 'ticket-claim', /an exec ticket cannot have/),
      );
  });

  it('KEY-038 a bundle without an exec ticket key makes no issuer', async () => {
    const { execTicketKey: _gone, ...older } = await sharedBundle();
    assert.throws(
      () => execTicketIssuer(older, { issuer: issuerUrl }),
      refusal('INVALID_CONFIG', 'no-exec-ticket-key', /has no exec ticket key/),
    );
    assert.throws(
      () => tunnelsOptions(older, { issuer: issuerUrl }),
      refusal('INVALID_CONFIG', 'no-exec-ticket-key', /has no exec ticket key/),
    );
  });

  it('KEY-033 SBX-009 tunnelsOptions is the issuer and the two SSH CAs of the bundle', async () => {
    const bundle = await sharedBundle();
    const options = { issuer: issuerUrl, now: () => now };
    assert.deepEqual(tunnelsOptions(bundle, options), {
      issuer: execTicketIssuer(bundle, options),
      ssh: bundle.sshCa,
      sandboxSsh: bundle.sandboxSshCa,
    });
    assert.equal(tunnelsOptions(bundle, options).issuer.kid, execTicketIssuer(bundle, options).kid);
  });

  it('SBX-011 tunnelsOptions refuses one key for both SSH CAs, whatever the comment says', async () => {
    const bundle = await sharedBundle();
    const { sshCa } = bundle;
    assert.ok(sshCa !== undefined);
    const same = { ...bundle, sandboxSshCa: { ...sshCa, publicKey: `${sshCa.publicKey.split(' ').slice(0, 2).join(' ')} another` } };
    assert.throws(
      () => tunnelsOptions(same, { issuer: issuerUrl }),
      refusal('INVALID_CONFIG', 'same-ssh-ca', /^tunnels\.sandboxSsh must be a different CA from tunnels\.ssh$/),
    );
  });
});
