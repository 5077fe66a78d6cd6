/** Evidence of disks, from the api into a file, and judged there without anything but a pin. Real certificates, real signatures. */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { evidenceVerifyRun } from '../../../cli/commands/evidence/verify.ts';
import { machineEvidenceRun } from '../../../cli/commands/machine/evidence.ts';
import type { ControlError } from '../../../domain/errors.ts';
import { hour } from '../../../domain/time.ts';
import { splitSignedEvidence } from '../../../pki/evidence/metal-evidence.ts';
import { issueLeaf, spkiOf, spkiPin } from '../../../pki/x509/index.ts';
import type { BootEntry } from '../../../services/metal/types.ts';
import { aMachine, aMetalRun } from '../../api/machine-support.ts';
import { createDeployment, type FakeDeployment, type RunningApi, startApi } from '../../api/support.ts';
import { removeScratchFolders, scratchFolder } from '../../harness/scratch.ts';
import { deployBody, type EvidenceChanges, eraseBody, signBody, now as signedAt } from '../../services/metal/support.ts';
import { newKey, testBundle, trustDomain } from '../../services/support.ts';
import { createTestIo, createTestPorts, envFor, type TestIo } from '../support.ts';

const runId = '0c4f5a6b7d8e';
const machineId = 'gpu-0117';
const commandId = (step: string): string => `machine/${machineId}/provision/${runId}/${step}.1`;
const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64');

describe('evidence verify', () => {
  let deployment: FakeDeployment;
  let api: RunningApi;
  let pin: string;
  let folder: string;
  let files = 0;

  before(async () => {
    folder = scratchFolder();
    deployment = createDeployment();
    deployment.metal.machines = [aMachine(machineId, { runs: [aMetalRun('ffffffffffff'), aMetalRun(runId)] })];
    api = await startApi(deployment);
    pin = spkiPin((await testBundle()).rootCa.certificate.spki);
  });
  after(async () => {
    await api.close();
    removeScratchFolders();
  });

  /** As a ramdisk of the machine answers, and the api hands out. */
  async function signed(kind: 'erase' | 'deploy', changes: EvidenceChanges & { readonly role?: 'ramdisk' | 'node' } = {}) {
    const { nodeCa } = await testBundle();
    const key = newKey();
    const certificate = await issueLeaf({
      ca: { certificate: nodeCa.certificate.der, signer: nodeCa.signer() },
      profile: changes.role ?? 'ramdisk',
      spki: spkiOf(key.publicKey),
      identity: { trustDomain, siteId: 'berlin', nodeId: machineId },
      lifetimeMs: hour,
      now: signedAt,
    });
    const entry = { runId, bootNonce: 'ab'.repeat(16) } as BootEntry;
    const ramdisk = { machineId, entry, key, certificate };
    const step = kind === 'erase' ? 'wipe' : 'deploy';
    const body = kind === 'erase' ? eraseBody(ramdisk, commandId(step), changes) : deployBody(ramdisk, commandId(step));
    const split = splitSignedEvidence(kind, await signBody(ramdisk, body, `${kind}-evidence`));
    return { kind, commandId: commandId(step), document: base64(split.body), signature: base64(split.signature) };
  }

  /** Exported as an operator does it. @returns the path */
  async function exported(...documents: Awaited<ReturnType<typeof signed>>[]): Promise<string> {
    const anchors = [base64((await testBundle()).rootCa.certificate.der)];
    deployment.metal.evidence = [{ runId, machineId, trustDomain, anchors, documents }];
    files += 1;
    const out = join(folder, `evidence-${files}.json`);
    await machineEvidenceRun({ json: false, machine: machineId, run: null, out }, createTestPorts(createTestIo({ env: envFor(api.url) })));
    return out;
  }

  async function verify(path: string, more: { pin?: string; json?: boolean } = {}): Promise<{ io: TestIo; error: ControlError | null }> {
    const io = createTestIo();
    const options = { json: more.json ?? false, path, pin: more.pin ?? pin, pki: null };
    const error = await evidenceVerifyRun(options, createTestPorts(io)).then(
      () => null,
      (thrown: ControlError) => thrown,
    );
    return { io, error };
  }

  it('holds: who signed, which disks, by which method, which image', async () => {
    const path = await exported(await signed('erase', { disks: 2 }), await signed('deploy'));
    const { io, error } = await verify(path);
    assert.equal(error, null);
    const shown = io
      .stdout()
      .replaceAll(/certificate [0-9a-f]+/g, 'certificate SERIAL')
      .replaceAll(/\d{4}-[0-9T:-]+Z/g, 'AT')
      .replace(path, 'FILE');
    assert.equal(
      shown,
      `FILE: run 0c4f5a6b7d8e on gpu-0117 of fleet.example
  erase    AT  by the ramdisk with certificate SERIAL
    erased 0 B disk, serial D0: nvme-format-ses1, 1 range(s) read back
    erased 0 B disk, serial D1: nvme-format-ses1, 1 range(s) read back
  deploy   AT  by the ramdisk with certificate SERIAL
    image  , sha256 ${'c'.repeat(64)}
    disk   a disk that is not named: 10 B written and read back
verdict: VALID, everything was done
`,
    );
    const json = (await verify(path, { json: true })).io.json() as { valid: boolean; complete: boolean; documents: { kind: string }[] };
    assert.deepEqual([json.valid, json.complete, json.documents.map(({ kind }) => kind)], [true, true, ['erase', 'deploy']]);
  });

  it('M49 M50 holds and says that not everything was done: exit code 4, whatever the file is called', async () => {
    for (const [changes, words] of [
      [{ erased: false }, /was not erased/],
      [{ method: 'nvme-format-ses0' }, /"nvme-format-ses0" is no erasure/],
      [{ disks: 0 }, /it lists no disk/],
    ] as const) {
      const { io, error } = await verify(await exported(await signed('erase', changes)));
      assert.equal(error?.code, 'INVALID_STATE');
      assert.match(error?.message ?? '', words);
      assert.match(io.stdout(), /verdict: VALID, and it says that 1 thing\(s\) were not done\n$/);
    }
  });

  it('does not hold: another deployment, another signer, other bytes, another machine or run or command', async () => {
    const good = await signed('erase');
    const path = await exported(good);
    const foreign = await verify(path, { pin: `sha256/${base64(new Uint8Array(32))}` });
    assert.deepEqual(
      [foreign.error?.code, /no certificate in the file has the key sha256/.test(foreign.error?.message ?? '')],
      ['AUDIT_TAMPERED', true],
    );
    const file = JSON.parse(readFileSync(path, 'utf8')) as Record<string, any>;
    const changed = async (change: (copy: Record<string, any>) => void): Promise<string> => {
      const copy = structuredClone(file);
      change(copy);
      files += 1;
      const out = join(folder, `changed-${files}.json`);
      writeFileSync(out, JSON.stringify(copy));
      const { error, io } = await verify(out);
      assert.equal(error?.code, 'AUDIT_TAMPERED', error?.message);
      assert.match(io.stdout(), /verdict: NOT VALID, 1 problem\(s\)\n$/);
      return error?.message ?? '';
    };
    assert.match(await changed((copy) => (copy['machineId'] = 'gpu-0118')), /is of machine gpu-0117, filed under gpu-0118/);
    assert.match(await changed((copy) => (copy['runId'] = 'ffffffffffff')), /is of run 0c4f5a6b7d8e, filed under ffffffffffff/);
    assert.match(await changed((copy) => (copy['documents'][0].commandId = 'x')), /is of command .*, filed under x/);
    assert.match(await changed((copy) => (copy['documents'][0].signature = 'AAAA')), /./);
    assert.match(
      await changed((copy) => {
        const body = Buffer.from(copy['documents'][0].document as string, 'base64');
        body[body.length - 1] = (body.at(-1) ?? 0) ^ 1;
        copy['documents'][0].document = body.toString('base64');
      }),
      /./,
    );
    assert.match(await changed((copy) => (copy['documents'] = [])), /the file holds no document/);
    const node = await verify(await exported(await signed('erase', { role: 'node' })));
    assert.match(node.error?.message ?? '', /signed by a ramdisk, not by a node/);
    const late = await verify(await exported(await signed('erase', { finishedAtMs: signedAt + 2 * hour })));
    assert.equal(late.error?.code, 'AUDIT_TAMPERED', 'the certificate had ended');
    const other = await verify(await exported(await signed('erase', { nodeId: 'gpu-0118' })));
    assert.match(other.error?.message ?? '', /the ramdisk of gpu-0117 signed for machine gpu-0118/);
  });

  it('refuses what is no such file, with every field at fault, and overwrites none', async () => {
    const bad = join(folder, 'bad.json');
    writeFileSync(bad, JSON.stringify({ format: 'x', runId: 1, anchors: ['!'], documents: [{ kind: 'burn' }] }));
    const { error } = await verify(bad);
    assert.equal(error?.code, 'MALFORMED');
    assert.match(error?.message ?? '', /^not a machine evidence file: .*format.*runId.*machineId.*anchors/);
    writeFileSync(bad, 'no json');
    assert.match((await verify(bad)).error?.message ?? '', /it is not JSON$/);
    assert.equal((await verify(join(folder, 'none.json'))).error?.code, 'NOT_FOUND');
    assert.equal((await verify(bad, { pin: 'sha256/short' })).error?.code, 'MALFORMED');
    const ports = createTestPorts(createTestIo({ env: envFor(api.url) }));
    await assert.rejects(machineEvidenceRun({ json: false, machine: machineId, run: null, out: bad }, ports), /is there already$/);
    deployment.metal.evidence = [];
    await assert.rejects(
      machineEvidenceRun({ json: false, machine: machineId, run: null, out: join(folder, 'new.json') }, ports),
      /^ControlError: no run on gpu-0117 has left evidence$/,
    );
  });
});
