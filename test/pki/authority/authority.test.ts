import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { day, hour } from '../../../domain/time.ts';
import { type Authorities, certificateAuthorityOf, createAuthorities } from '../../../pki/authority/index.ts';
import { createBundleWithOfflineRoot, type PkiBundle } from '../../../pki/bundle/index.ts';
import { nodeIdentityOf, parseCertificate, spkiOf, verifyChain } from '../../../pki/x509/index.ts';
import { now, refusal, sharedBundle, trustDomain } from '../support.ts';

const spki = spkiOf(generateKeyPairSync('ec', { namedCurve: 'P-256' }).publicKey);
const identity = { trustDomain, siteId: 'eu-1', nodeId: 'n1' };

describe('the authorities of a bundle', () => {
  let bundle: PkiBundle;
  let authorities: Authorities;
  before(async () => {
    bundle = await sharedBundle();
    authorities = createAuthorities(bundle);
  });

  it('KEY-012 JOIN-003 JOIN-004 each role has its longest life, whatever is asked', async () => {
    for (const [role, longest] of [
      ['node', day],
      ['site', day],
      ['ramdisk', 2 * hour],
      ['node-tenant', day],
    ] as const) {
      const { certificate } = await authorities.issueNode({ spki, now, identity, role, lifetimeMs: 365 * day });
      assert.equal(certificate.notAfter - now, longest, role);
      assert.equal(nodeIdentityOf(certificate, trustDomain).role, role);
    }
    assert.equal((await authorities.issueGateway({ spki, now, dns: ['gw'], lifetimeMs: 365 * day })).certificate.notAfter - now, 90 * day);
    assert.equal(
      (await authorities.issueInternal({ spki, now, dns: ['api'], lifetimeMs: 365 * day })).certificate.notAfter - now,
      30 * day,
    );
  });

  it('KEY-008 TRN-010 TRN-013 what the node CA issues is no server, and what the serving CA issues is no node', async () => {
    const node = await authorities.issueNode({ spki, now, identity, role: 'node' });
    const gateway = await authorities.issueGateway({ spki, now, dns: ['gw.example.com'] });
    const [nodeCa, servingCa] = [bundle.nodeCa, bundle.servingCa].map(({ certificate }) => certificate.der) as [Uint8Array, Uint8Array];
    const leaf = (chain: readonly Uint8Array[]): Uint8Array[] => chain.slice(0, 1);
    assert.ok(verifyChain(leaf(node.chain), { anchors: [nodeCa], now, purpose: 'client' }));
    assert.ok(verifyChain(leaf(gateway.chain), { anchors: [servingCa], now, purpose: 'server', serverName: 'gw.example.com' }));
    assert.deepEqual(parseCertificate(node.chain[0] as Uint8Array).ekus, ['1.3.6.1.5.5.7.3.2'], 'clientAuth alone');
    assert.throws(() => verifyChain(leaf(node.chain), { anchors: [nodeCa], now, purpose: 'server' }));
    assert.throws(() => verifyChain(leaf(gateway.chain), { anchors: [servingCa], now, purpose: 'client' }));
    assert.throws(() => verifyChain(leaf(gateway.chain), { anchors: [nodeCa], now, purpose: 'server' }));
  });

  it('CLI-025 a chain is the leaf and its authority, without the root', async () => {
    const { certificate, chain } = await authorities.issueGateway({ spki, now, dns: ['gw'] });
    assert.deepEqual(chain, [certificate.der, bundle.servingCa.certificate.der]);
  });

  it('H-13 an authority with under ten minutes left refuses', async () => {
    const late = bundle.servingCa.certificate.notAfter - 9 * 60_000;
    await assert.rejects(authorities.issueGateway({ spki, now: late, dns: ['gw'] }), refusal('CA_EXPIRED', 'ca-expired', /.+/));
  });

  it('KEY-045 CLI-011 an offline root cannot issue, and everything below it can', async () => {
    const { bundle: offline } = await createBundleWithOfflineRoot({ trustDomain, now });
    assert.throws(() => certificateAuthorityOf(offline.rootCa), refusal('INVALID_STATE', 'key-offline', /rootCa/));
    assert.ok(await createAuthorities(offline).issueGateway({ spki, now, dns: ['gw'] }));
  });
});
