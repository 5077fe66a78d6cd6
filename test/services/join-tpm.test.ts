/** Attestor tpm with machines that have TPMs (swtpm): what they get, and when they stay out. */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { tpmAnswer } from '../../daemon/tpm/attest.ts';
import { second } from '../../domain/time.ts';
import { parseEndorsementRoots, parseTpmPublic } from '../../pki/tpm/index.ts';
import { tpmAkUri } from '../../pki/x509/index.ts';
import { revokeNode } from '../../services/revocation.ts';
import { scratchFolder } from '../harness/scratch.ts';
import { endorse, makerOf } from '../harness/tpm-makers.ts';
import { certificatesOf } from './identity-support.ts';
import { addNode, csrOf, newKey, refused } from './support.ts';
import { changed, deferredOf, evidenceOf, grantedOf, leafOf, useTpmStage } from './tpm-stage.ts';

describe('joining by a TPM', function () {
  this.timeout(180_000);
  const stage = useTpmStage();

  it('JOIN-026 ID-013 ID-014 JOIN-013 is asked back first, then gets the identity beside its key, which the certificate ties to its TPM', async () => {
    const nodeId = stage.list(stage.machine);
    const { granted } = await stage.join(stage.machine);
    const ak = parseTpmPublic(readFileSync(join(stage.machine.dataDir, 'tpm', 'ak.pub')), 'ak');
    assert.deepEqual([granted.nodeId, granted.siteId, granted.generation], [nodeId, 'berlin', 1n]);
    assert.deepEqual(leafOf(granted).uriSans.slice(1), [tpmAkUri(ak.name)]);
    assert.equal(leafOf(granted).role, 'node');
    const [event] = await stage.used.db.query<{ action: string; details: Record<string, unknown> }>(
      { text: `select action, details from audit_events where subject = $1` },
      [nodeId],
    );
    assert.equal(event?.action, 'node.join');
    assert.equal(event?.details['endorsementKey'], stage.machine.ekSha256);
    assert.equal(event?.details['attestationKey'], Buffer.from(ak.name).toString('hex'));
  });

  it('is named after its endorsement key where the inventory gives no name, and is what the inventory says', async () => {
    stage.list(stage.adversary, { nodeId: null, role: 'site', siteId: 'fra1' });
    const key = newKey();
    const csr = await csrOf(key);
    const { challenge } = deferredOf(await stage.ask(key, stage.adversary.shown, { csr, role: 'site' }));
    const evidence = await tpmAnswer(stage.at(stage.adversary), { challenge, csr });
    const { nodeId, siteId } = grantedOf(await stage.ask(key, evidence, { csr, role: 'site' }));
    assert.deepEqual([nodeId, siteId], [`site-${stage.adversary.ekSha256.slice(0, 20)}`, 'fra1']);
    await assert.rejects(
      stage.ask(newKey(), stage.adversary.shown),
      refused('PERMISSION_DENIED', /lists .* for role site, the request is for node/, 'wrong-role'),
    );
  });

  it('an RSA endorsement key names the same machine no less', async () => {
    const rsa = await stage.machineWith(stage.machine.tpm, { ek: 'rsa' });
    assert.notEqual(rsa.ekSha256, stage.machine.ekSha256);
    const nodeId = stage.list(rsa);
    const { key, csr, evidence } = await stage.answered(rsa);
    assert.equal(grantedOf(await stage.ask(key, evidence, { csr })).nodeId, nodeId);
  });

  it('JOIN-011 nobody joins by a TPM where none is listed: not offered, or not known', async () => {
    await assert.rejects(
      stage.ask(newKey(), stage.machine.shown),
      refused('PERMISSION_DENIED', /lists no endorsement key [0-9a-f]{64}/, 'tpm-unknown'),
    );
    stage.trust = null;
    await assert.rejects(
      stage.ask(newKey(), stage.machine.shown),
      refused('UNSUPPORTED', /attestor tpm is not offered here/, 'attestor-unsupported'),
    );
  });

  it('JOIN-014 an answer that got lost: the same request again, or a new challenge with the same CSR, gets the same certificate', async () => {
    const nodeId = stage.list(stage.machine);
    const { key, csr, evidence, granted } = await stage.join(stage.machine);
    const again = grantedOf(await stage.ask(key, evidence, { csr }));
    assert.deepEqual(Buffer.from(again.chain[0] as Uint8Array), Buffer.from(granted.chain[0] as Uint8Array));
    const { challenge } = deferredOf(await stage.ask(key, stage.machine.shown, { csr }));
    const anew = grantedOf(await stage.ask(key, await tpmAnswer(stage.at(stage.machine), { challenge, csr }), { csr }));
    assert.deepEqual(Buffer.from(anew.chain[0] as Uint8Array), Buffer.from(granted.chain[0] as Uint8Array));
    assert.equal((await certificatesOf(stage.used.db, nodeId)).length, 1);
  });

  it('joining again with a new key is the next identity, and the answer that led to the one before is over', async () => {
    const nodeId = stage.list(stage.machine);
    const first = await stage.join(stage.machine);
    stage.now += second;
    const { granted } = await stage.join(stage.machine);
    assert.deepEqual([granted.nodeId, granted.generation], [nodeId, 2n]);
    await assert.rejects(
      stage.ask(first.key, first.evidence, first),
      refused('PERMISSION_DENIED', /identity that this gave is over/, 'tpm-challenge-used'),
    );
    assert.deepEqual(
      (await certificatesOf(stage.used.db, nodeId)).map(({ generation, revoked }) => [generation, revoked]),
      [
        [1, true],
        [2, false],
      ],
    );
  });

  it('a policy that defers uses nothing up', async () => {
    const nodeId = stage.list(stage.machine);
    let open = false;
    stage.policy = ({ attestor, nodeId: named }) => {
      assert.deepEqual([attestor, named], ['tpm', nodeId]);
      return open ? { kind: 'admitted' } : { kind: 'deferred', retryAfterSeconds: 7 };
    };
    const { key, csr, evidence } = await stage.answered(stage.machine);
    const deferral = deferredOf(await stage.ask(key, evidence, { csr }));
    assert.deepEqual([deferral.retryAfterSeconds, deferral.challenge.length], [7, 0]);
    open = true;
    assert.equal(grantedOf(await stage.ask(key, evidence, { csr })).nodeId, nodeId);
  });

  describe('a machine whose identity somebody ended', () => {
    it('stays out: a TPM is no way back from a revocation', async () => {
      const nodeId = stage.list(stage.machine);
      await stage.join(stage.machine);
      await revokeNode({ db: stage.used.db, nodeId, actor: 'olga', reason: 'stolen', now: stage.now });
      const { key, csr, evidence } = await stage.answered(stage.machine);
      await assert.rejects(
        stage.ask(key, evidence, { csr }),
        refused('PERMISSION_DENIED', /was revoked: it needs a join token/, 'node-not-active'),
      );
      await stage.used.db.query({ text: `update nodes set state = 'quarantined' where id = $1` }, [nodeId]);
      await assert.rejects(stage.ask(key, evidence, { csr }), refused('PERMISSION_DENIED', /is quarantined/, 'node-not-active'));
    });

    it('ID-034 a tenant’s machine attests nothing: neither as such, nor to become a node again', async () => {
      const nodeId = stage.list(stage.machine);
      await assert.rejects(
        stage.ask(newKey(), stage.machine.shown, { role: 'node-tenant' }),
        refused('INVALID_INPUT', /admits role node or site/, 'wrong-role'),
      );
      await addNode(stage.used.db, nodeId, 'node-tenant');
      const { key, csr, evidence } = await stage.answered(stage.machine);
      await assert.rejects(
        stage.ask(key, evidence, { csr }),
        refused('PERMISSION_DENIED', /is a node-tenant of site berlin/, 'node-differs'),
      );
    });

    it('of another site or tenant, it is another machine', async () => {
      const nodeId = stage.list(stage.machine, { siteId: 'fra1' });
      await addNode(stage.used.db, nodeId);
      const elsewhere = await stage.answered(stage.machine);
      await assert.rejects(
        stage.ask(elsewhere.key, elsewhere.evidence, elsewhere),
        refused('PERMISSION_DENIED', /names a node of fra1/, 'node-differs'),
      );
      stage.list(stage.machine, { nodeId, tenantId: 'acme' });
      await stage.used.db.query({ text: `insert into tenants (id, created_at) values ('acme', now())` });
      const theirs = await stage.answered(stage.machine);
      await assert.rejects(
        stage.ask(theirs.key, theirs.evidence, theirs),
        refused('PERMISSION_DENIED', /of another tenant/, 'node-differs'),
      );
    });
  });

  it('where a manufacturer has to vouch, a listed key with its certificate goes on; a certificate vouches for nobody who is not listed', async () => {
    const root = await makerOf('CN=Maker of TPMs');
    stage.trust = { find: async (ek) => stage.listed.get(ek), roots: parseEndorsementRoots(root.certificate.toString('pem')) };
    const { spki } = parseTpmPublic(evidenceOf(stage.machine.shown).ekPublic, 'ek');
    const der = new Uint8Array((await endorse(spki, root)).rawData);
    const evidence = changed(stage.machine.shown, (one) => ({ ...one, ekCertificates: [der] }));
    await assert.rejects(stage.ask(newKey(), evidence), refused('PERMISSION_DENIED', /lists no endorsement key/, 'tpm-unknown'));
    stage.list(stage.machine);
    assert.ok(deferredOf(await stage.ask(newKey(), evidence)).challenge.length > 0);
    await assert.rejects(
      stage.ask(newKey(), stage.machine.shown),
      refused('PERMISSION_DENIED', /showed no certificate/, 'tpm-ek-certificate'),
    );
  });

  it('a TPM’s attestation key of RSA counts too', async () => {
    const { tool } = stage.machine.tpm;
    const folder = scratchFolder();
    const path = (name: string): string => join(folder, name);
    tool('tpm2_createek', '-G', 'ecc', '-c', path('ek.ctx'), '-u', path('ek.pub'), '-f', 'tss');
    tool('tpm2_flushcontext', '--transient-object');
    const kind = ['-G', 'rsa', '-g', 'sha256', '-s', 'rsassa'];
    tool('tpm2_createak', '-C', path('ek.ctx'), '-c', path('ak.ctx'), ...kind, '-u', path('ak.pub'), '-f', 'tss', '-r', path('ak.priv'));
    tool('tpm2_flushcontext', '--transient-object');
    const dataDir = scratchFolder();
    await stage.machineWith(stage.machine.tpm, { dataDir });
    for (const name of ['ak.pub', 'ak.priv']) writeFileSync(join(dataDir, 'tpm', name), readFileSync(path(name)));
    const own = await stage.machineWith(stage.machine.tpm, { dataDir });
    assert.equal(parseTpmPublic(evidenceOf(own.shown).akPublic, 'ak').type, 'rsa');
    const nodeId = stage.list(own);
    assert.equal((await stage.join(own)).granted.nodeId, nodeId);
  });
});
