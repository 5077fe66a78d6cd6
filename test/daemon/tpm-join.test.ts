/** bcd with a TPM: joins and renews through the real gateway and services; the TPM is swtpm, spoken to by tpm2-tools. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { renewIdentity } from '../../daemon/agent/renewal.ts';
import { generateNodeKey, getIdentity, type StoredIdentity, saveIdentity } from '../../daemon/state/identity.ts';
import { attestByTpm } from '../../daemon/tpm/attest.ts';
import { withTpm } from '../../daemon/tpm/machine-tpm.ts';
import { callGateway } from '../../daemon/transport/call.ts';
import { dialPinned } from '../../daemon/transport/pinned-connection.ts';
import { createServerClock } from '../../daemon/trust/server-clock.ts';
import { day, minute, second } from '../../domain/time.ts';
import { encodePinsFile } from '../../pki/enroll/index.ts';
import { parseTpmPublic, spkiDigest } from '../../pki/tpm/index.ts';
import { createCsr, parseCertificate, tpmAkUri } from '../../pki/x509/index.ts';
import { bounds } from '../../proto/index.ts';
import { createGatewayServices } from '../../services/gateway-services.ts';
import type { TpmEnrolment } from '../../services/join/types.ts';
import { settleAndPublish } from '../../services/trust-publication.ts';
import { MemoryStore } from '../gateway/memory-store.ts';
import { createDeployment, joinBundleOf, type TestDeployment } from '../harness/deployment.ts';
import { useDatabase } from '../harness/postgres.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { type SoftwareTpm, startSwtpm, swtpmMissing } from '../harness/swtpm.ts';
import { recordingLog, refused } from '../services/support.ts';
import { bcdHere, type Ran } from './bcd-here.ts';
import { type RealGateway, startRealGateway } from './real-gateway.ts';

describe('bcd with a TPM', function () {
  this.timeout(120_000);
  const used = useDatabase({ max: 5 });
  const enrolments = new Map<string, TpmEnrolment>();
  let deployment: TestDeployment;
  let gateway: RealGateway;
  let tpm: SoftwareTpm;
  let other: SoftwareTpm;
  let pinsFile: string;
  /** Certificates end at whole seconds: one that is renewed at once would not live longer. */
  let aheadMs = 0;
  const now = (): number => Date.now() + aheadMs;

  before(async function () {
    const missing = swtpmMissing();
    if (missing !== null) return this.skip();
    deployment = await createDeployment({ now: Date.now() - minute });
    const { bundle } = deployment;
    await settleAndPublish({ db: used.db, bundle, floorOption: 0, overlapMs: day, processId: 'api', now: Date.now(), log: recordingLog() });
    const trust = { find: async (ek: string) => enrolments.get(ek), roots: null };
    const services = createGatewayServices({ db: used.db, bundle: () => bundle, tpm: trust, log: recordingLog(), now });
    gateway = await startRealGateway(deployment, { store: new MemoryStore(), services });
    [tpm, other] = [await startSwtpm(), await startSwtpm()];
    const { token: _, ...pins } = joinBundleOf(deployment, gateway.url);
    pinsFile = join(scratchFolder(), 'pins.json');
    writeFileSync(pinsFile, encodePinsFile(pins));
  });
  beforeEach(() => enrolments.clear());
  after(async () => {
    await gateway?.stop();
    await tpm?.stop();
    await other?.stop();
    removeScratchFolders();
  });

  async function list(one: SoftwareTpm, nodeId: string | null, ek: 'rsa' | 'ecc' = 'ecc'): Promise<string> {
    const place = { tcti: one.tcti, ek };
    return withTpm({ dataDir: scratchFolder(), place, mayCreate: true }, async ({ shown }) => {
      const ekSha256 = spkiDigest(parseTpmPublic(shown.ekPublic, 'ek'));
      enrolments.set(ekSha256, { ekSha256, siteId: 'site-1', role: 'node', tenantId: 'default', nodeId });
      return ekSha256;
    });
  }
  const bcd = (...args: string[]): Promise<Ran> => bcdHere(args);
  const joinByTpm = (dataDir: string, one: SoftwareTpm, ...more: string[]) =>
    bcd(
      'join',
      '--attestor',
      'tpm',
      '--pins',
      pinsFile,
      '--data-dir',
      dataDir,
      '--tpm',
      one.tcti,
      '--tpm-ek',
      'ecc',
      '--wait',
      '0',
      ...more,
    );
  const leafOf = ({ identity }: StoredIdentity) => parseCertificate(identity.chain[0] as Uint8Array);

  async function renew(stored: StoredIdentity, dataDir: string, attest = attestByTpm(dataDir)): Promise<StoredIdentity> {
    const { identity, key } = stored;
    aheadMs += 2 * second;
    const call = async (request: Uint8Array): Promise<Uint8Array> => {
      const connection = await dialPinned({
        gateway: identity,
        client: { chain: identity.chain, key },
        now: Date.now(),
        timeoutMs: 10_000,
      });
      try {
        return await callGateway(connection, { method: 'Renew', request, maxAnswerBytes: bounds.renewResponse, timeoutMs: 10_000 });
      } finally {
        connection.destroy();
      }
    };
    const clock = createServerClock({ wallMs: now, steadyMs: () => performance.now() });
    return renewIdentity(stored, { call, clock, attest });
  }

  it('JOIN-014 JOIN-026 ID-013 A-PRO-06 joins by its TPM alone, with no token, and its certificate states the attestation key', async () => {
    await list(tpm, 'metal-7');
    const dataDir = scratchFolder();
    const { code, out, err } = await joinByTpm(dataDir, tpm);
    assert.equal(code, 0, err);
    assert.match(out, /joined as node metal-7 of site site-1/);
    const stored = await getIdentity(dataDir);
    const ak = parseTpmPublic(readFileSync(join(dataDir, 'tpm', 'ak.pub')), 'ak');
    assert.deepEqual(leafOf(stored).uriSans.slice(1), [tpmAkUri(ak.name)]);
    assert.deepEqual(stored.identity.tpm, { tcti: tpm.tcti, ek: 'ecc' });
    assert.deepEqual(readdirSync(join(dataDir, 'tpm')).toSorted(), ['ak.priv', 'ak.pub'], 'nothing of a use stays');
  });

  it('ID-017 RENEW-008 RENEW-010 renews with the word of its TPM, also after the TPM was restarted, and keeps the statement', async () => {
    await list(tpm, 'metal-8');
    const dataDir = scratchFolder();
    assert.equal((await joinByTpm(dataDir, tpm)).code, 0);
    const stored = await getIdentity(dataDir);
    await tpm.restart();
    const renewed = await renew(stored, dataDir);
    assert.deepEqual(leafOf(renewed).uriSans, leafOf(stored).uriSans);
    assert.notEqual(leafOf(renewed).serial, leafOf(stored).serial);
    await saveIdentity(dataDir, renewed);
    assert.deepEqual(leafOf(await renew(await getIdentity(dataDir), dataDir)).uriSans, leafOf(stored).uriSans);
  });

  it('RENEW-008 does not renew by a TPM that is another, was cleared, or whose key is gone; and says what to do', async () => {
    await list(tpm, 'metal-9');
    const dataDir = scratchFolder();
    assert.equal((await joinByTpm(dataDir, tpm)).code, 0);
    const stored = await getIdentity(dataDir);
    const at = (place: StoredIdentity['identity']['tpm']): StoredIdentity => ({ ...stored, identity: { ...stored.identity, tpm: place } });
    const elsewhere = at({ tcti: other.tcti, ek: 'ecc' });
    await assert.rejects(renew(elsewhere, dataDir), refused('INVALID_STATE', /does not load the attestation key/, 'tpm-key'));
    await assert.rejects(renew(stored, scratchFolder()), refused('INVALID_STATE', /holds no attestation key/, 'tpm-key'));
    const foreign = scratchFolder();
    await withTpm({ dataDir: foreign, place: { tcti: tpm.tcti, ek: 'ecc' }, mayCreate: true }, async () => undefined);
    await assert.rejects(renew(stored, foreign), refused('INVALID_STATE', /not the one that the certificate names/, 'tpm-key'));
    await assert.rejects(renew(at(null), dataDir), refused('INVALID_STATE', /does not say where that is/, 'tpm-key'));
    const nowhere = at({ tcti: `swtpm:path=${dataDir}/none`, ek: 'ecc' });
    await assert.rejects(renew(nowhere, dataDir), refused('INVALID_STATE', /tpm2_createek failed with the TPM at swtpm:/, 'tpm'));
    const silent = renew(stored, dataDir, async () => new Uint8Array());
    await assert.rejects(silent, (error: Error) => /needs that TPM's attestation|refused|key-attestation/.test(error.message));
    await renew(stored, dataDir);
  });

  it('gives a renewal up when it is stopped, and leaves nothing behind in a TPM that has no resource manager', async () => {
    await list(tpm, 'metal-10');
    const dataDir = scratchFolder();
    assert.equal((await joinByTpm(dataDir, tpm)).code, 0);
    const { identity } = await getIdentity(dataDir);
    const stop = new AbortController();
    const statement = { csr: await createCsr({ key: generateNodeKey() }), nodeId: identity.nodeId, timeMs: now() };
    const attesting = attestByTpm(dataDir)({ identity, statement }, stop.signal);
    stop.abort(new Error('the daemon stops'));
    await assert.rejects(attesting, /the daemon stops|does not load/);
    assert.deepEqual(readdirSync(join(dataDir, 'tpm')).toSorted(), ['ak.priv', 'ak.pub']);
    for (const what of ['handles-transient', 'handles-loaded-session']) assert.equal(tpm.tool('tpm2_getcap', what).trim(), '', what);
  });

  it('joins again after its TPM was exchanged, when the inventory says so: the same node, another statement', async () => {
    await list(tpm, 'metal-11');
    const dataDir = scratchFolder();
    assert.equal((await joinByTpm(dataDir, tpm)).code, 0);
    const before_ = await getIdentity(dataDir);
    const refusedJoin = await joinByTpm(dataDir, other, '--replace');
    assert.notEqual(refusedJoin.code, 0);
    assert.match(refusedJoin.err, /the inventory of TPMs lists no endorsement key/);
    enrolments.clear();
    await list(other, 'metal-11');
    const again = await joinByTpm(dataDir, other, '--replace');
    assert.equal(again.code, 0, again.err);
    const after_ = await getIdentity(dataDir);
    assert.deepEqual([after_.identity.nodeId, after_.identity.generation], ['metal-11', 2n]);
    assert.notDeepEqual(leafOf(after_).uriSans, leafOf(before_).uriSans);
  });
});
