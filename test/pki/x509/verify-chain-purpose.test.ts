import assert from 'node:assert/strict';
import { type Certificate, issueLeaf, oids, type VerifyChainOptions, verifyChain } from '../../../pki/x509/index.ts';
import { type Authorities, createAuthorities, createKey, createOther, now, refusedWith, trustDomain } from './authorities.ts';

describe('pki/x509 chain verification by purpose', () => {
  let all: Authorities;
  let leaf: Certificate;
  before(async () => {
    all = await createAuthorities();
    const identity = { trustDomain, siteId: 'fra1', nodeId: 'n1' };
    leaf = await issueLeaf({ ca: all.nodeCa, profile: 'node', spki: createKey().spki, identity, now });
  });
  const verify = (chain: readonly Uint8Array[], options: Partial<VerifyChainOptions> = {}): ReturnType<typeof verifyChain> =>
    verifyChain(chain, { anchors: [all.root.certificate], now, purpose: 'client', ...options });

  it("KEY-008 every purpose takes its own leaves and refuses the others'", async () => {
    const gateway = await issueLeaf({ ca: all.servingCa, profile: 'gateway', spki: createKey().spki, sans: { dns: ['gw.example'] }, now });
    const internal = await issueLeaf({
      ca: all.internalCa,
      profile: 'internal',
      spki: createKey().spki,
      sans: { dns: ['localhost'] },
      now,
    });
    const worker = await issueLeaf({ ca: all.commandRoot, profile: 'worker', spki: createKey().spki, now });
    const anchors = [all.root.certificate, all.commandRoot.certificate];
    const chains = {
      client: [leaf.der, all.nodeCa.certificate],
      server: [gateway.der, all.servingCa.certificate],
      internal: [internal.der, all.internalCa.certificate],
      'command-signer': [worker.der],
    };
    const fit = Object.entries(chains).map(([name, chain]) =>
      (['client', 'server', 'internal', 'command-signer'] as const).filter((purpose) => {
        try {
          return verify(chain, { anchors, purpose }).purpose === purpose;
        } catch (error) {
          assert.match((error as { details: { reason: string } }).details.reason, /^(extended-key-usage|wrong-role)$/, name);
          return false;
        }
      }),
    );
    assert.deepEqual(fit, [['client'], ['server'], ['client', 'server', 'internal'], ['command-signer']]);
  });

  it('an authority restricted to one use does not lend another', async () => {
    const mixed = await createOther({ ekus: [oids.clientAuth, oids.serverAuth] }, all.nodeCa);
    assert.throws(
      () => verify([mixed.certificate, all.nodeCa.certificate], { purpose: 'server' }),
      refusedWith('PERMISSION_DENIED', 'extended-key-usage', /authority .* is not for 1\.3\.6\.1\.5\.5\.7\.3\.1/),
    );
  });

  it('SIGN-005 a command signer is a worker directly under its root', async () => {
    const options = { anchors: [all.commandRoot.certificate, all.root.certificate], purpose: 'command-signer' as const };
    assert.throws(
      () => verify([leaf.der, all.nodeCa.certificate], options),
      refusedWith('PERMISSION_DENIED', 'wrong-role', /has role node, not worker/),
    );
    const posing = await createOther({ subject: [{ oid: oids.organizationalUnit, value: 'bc-role:worker' }] }, all.nodeCa);
    assert.throws(
      () => verify([posing.certificate, all.nodeCa.certificate], options),
      refusedWith('PERMISSION_DENIED', 'path-length', /not directly under its root/),
    );
  });

  it('serverName is an exact DNS name or address, never a wildcard or the common name', async () => {
    const gateway = await issueLeaf({
      ca: all.servingCa,
      profile: 'gateway',
      commonName: 'gw.example',
      spki: createKey().spki,
      sans: { dns: ['gw.example'], ips: ['192.0.2.7', '2001:db8::1'] },
      now,
    });
    const named = (serverName: string): unknown => verify([gateway.der, all.servingCa.certificate], { purpose: 'server', serverName });
    for (const name of ['gw.example', 'GW.Example', '192.0.2.7', '2001:DB8:0::1']) named(name);
    for (const name of ['a.gw.example', 'example', '192.0.2.8', '::1', ''])
      assert.throws(() => named(name), refusedWith('PERMISSION_DENIED', 'server-name', /is not for/));
    const posing = await createOther(
      { subject: [{ oid: oids.commonName, value: 'cn.example' }], ekus: [oids.serverAuth], dnsSans: ['gw.example'] },
      all.servingCa,
    );
    assert.throws(
      () => verify([posing.certificate, all.servingCa.certificate], { purpose: 'server', serverName: 'gw.example' }),
      refusedWith('PERMISSION_DENIED', 'common-name', /not among its names/),
    );
  });
});
