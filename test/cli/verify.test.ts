/** `rotation evidence` and `rotation verify`: out of the deployment into a file, and judged where nothing of it is at hand. */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { rotationEvidenceRun } from '../../cli/commands/rotation/evidence.ts';
import { type RotationVerifyOptions, rotationVerifyRun } from '../../cli/commands/rotation/verify.ts';
import type { ControlError } from '../../domain/errors.ts';
import { hour } from '../../domain/time.ts';
import type { StageFacts } from '../../pki/audit/evidence.ts';
import { encodeEvidenceFile } from '../../pki/audit/evidence-file.ts';
import { createKeyEvidence, type KeyStageFacts } from '../../pki/audit/key-evidence.ts';
import { createBundle, encodeBundle } from '../../pki/bundle/index.ts';
import { createDeployment, type FakeDeployment, now, type RunningApi, startApi } from '../api/support.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { change, createAuditKey, goodRotation, pick, signAll, startedAt } from '../pki/audit/support.ts';
import { createTestIo, createTestPorts, envFor, type TestIo } from './support.ts';

const key = createAuditKey();
const secret = 'a secret of at least thirty-two characters';
const quick = { overlapMs: 5_000, dropMarginMs: 1_000, workerLifetimeMs: 20_000 };
const overlap = { switchedAt: startedAt + hour, lastWorkerNotAfter: null, opensAt: startedAt + hour + 5_000, forcedReason: '' };
const demonstration: readonly StageFacts[] = [
  ...goodRotation.slice(0, 5),
  ...change('drop', { at: startedAt + hour + 6_000, overlap }, pick(['drop'])),
].map((facts) => ({ ...facts, times: quick }));

const verify: RotationVerifyOptions = { json: false, path: null, pin: key.pin, pki: null, demonstration: false };
const refusal = (code: string, message: RegExp) => (error: ControlError) => {
  assert.equal(error.code, code, error.message);
  assert.match(error.message, message);
  return true;
};

describe('better-compute rotation evidence and verify', () => {
  let deployment: FakeDeployment;
  let api: RunningApi;
  let folder: string;

  beforeEach(async () => {
    deployment = createDeployment();
    deployment.auditKey = key.spki;
    api = await startApi(deployment);
    folder = scratchFolder();
  });
  afterEach(async () => {
    await api.close();
    removeScratchFolders();
  });

  const set = (env: NodeJS.ProcessEnv = {}): { io: TestIo; ports: ReturnType<typeof createTestPorts> } => {
    const io = createTestIo({ env: { ...envFor(api.url), ...env } });
    return { io, ports: createTestPorts(io) };
  };
  /** No API, no bundle: the machine of an auditor. */
  const offline = (env: NodeJS.ProcessEnv = {}): ReturnType<typeof set> => set({ BETTER_COMPUTE_API_URL: 'http://127.0.0.1:1', ...env });
  const write = async (name: string, facts: readonly StageFacts[]): Promise<string> => {
    const path = join(folder, name);
    writeFileSync(path, encodeEvidenceFile({ auditKey: key.spki, documents: await signAll(key, facts) }));
    return path;
  };

  it('carries the newest rotation out, and the file verifies offline', async () => {
    deployment.evidence.set('rotation-1', await signAll(key, goodRotation));
    const out = join(folder, 'evidence.json');
    const exported = set();
    await rotationEvidenceRun({ json: false, rotationId: null, out }, exported.ports);
    assert.equal(exported.io.stdout(), `8 document(s) of rotation rotation-1 in ${out}\n`);

    const { io, ports } = offline();
    await rotationVerifyRun({ ...verify, path: out }, ports);
    assert.match(io.stdout(), new RegExp(`^${out}: rotation rotation-1 of compute.example.com$`, 'm'));
    assert.match(
      io.stdout(),
      /^ {2}switch {5}2030-01-01T01:00:00Z {2}by system, signing bbbbbbbbbbbb, version 2, 2 node\(s\) at version 2$/m,
    );
    assert.match(io.stdout(), /^ {2}overlap {4}24 h 5 min$/m);
    assert.match(io.stdout(), /^verdict: VALID, completed$/m);
    assert.equal(io.stderr(), '');
  });

  it('never overwrites a file', async () => {
    deployment.evidence.set('rotation-1', await signAll(key, goodRotation));
    const out = join(folder, 'evidence.json');
    writeFileSync(out, 'mine');
    await assert.rejects(
      rotationEvidenceRun({ json: false, rotationId: 'rotation-1', out }, set().ports),
      refusal('INVALID_STATE', / exists already$/),
    );
    assert.equal(readFileSync(out, 'utf8'), 'mine');
  });

  it('asks the running deployment when no file is named', async () => {
    deployment.evidence.set('rotation-1', await signAll(key, goodRotation));
    const { io, ports } = set();
    await rotationVerifyRun({ ...verify, json: true }, ports);
    const [one] = (io.json() as { verified: { valid: boolean; source: string; outcome: string }[] }).verified;
    assert.deepEqual(one && [one.valid, one.outcome, one.source], [true, 'completed', 'rotation rotation-1 of the running deployment']);
    deployment.evidence.clear();
    await assert.rejects(rotationVerifyRun(verify, set().ports), refusal('NOT_FOUND', /^no rotation has left evidence yet$/));
  });

  it('AUD-006 names every problem and ends as AUDIT_TAMPERED', async () => {
    const path = await write('bad.json', change('switch', { fleet: { version: 2, nodes: [] } }));
    const { io, ports } = offline();
    await assert.rejects(
      rotationVerifyRun({ ...verify, path }, ports),
      refusal('AUDIT_TAMPERED', /^the evidence does not hold: switch the gate passed on no node at all$/),
    );
    assert.match(io.stdout(), /^ {2}PROBLEM {4}fleet: switch the gate passed on no node at all$/m);
    assert.match(io.stdout(), /^verdict: NOT VALID, 1 problem\(s\)$/m);
  });

  it('takes a folder, and one bad file spoils it', async () => {
    await write('1.json', goodRotation);
    await write('2.json', change('drop', { at: startedAt + 2 * hour }));
    writeFileSync(join(folder, 'notes.txt'), 'not evidence');
    const { io, ports } = offline();
    await assert.rejects(rotationVerifyRun({ ...verify, path: folder }, ports), refusal('AUDIT_TAMPERED', /overlap/));
    assert.deepEqual(io.stdout().match(/^verdict: .*$/gm), ['verdict: VALID, completed', 'verdict: NOT VALID, 2 problem(s)']);
  });

  it('H-17 judges the evidence of another key by the same pin, and names it', async () => {
    const facts: KeyStageFacts = {
      trustDomain: 'fleet.example',
      rotationId: 'renew-ca/node/r',
      key: 'ca',
      subject: 'node',
      stage: 'plan',
      at: startedAt,
      actor: 'system',
      bundle: { digest: 'd'.repeat(64), generation: 4 },
      keys: [{ id: '0a', state: 'signing', opensAt: null }],
      from: '0a',
      to: null,
      processes: null,
      overrides: [],
    };
    const writeKey = async (name: string, { signer }: ReturnType<typeof createAuditKey>): Promise<string> => {
      const path = join(folder, name);
      writeFileSync(
        path,
        encodeEvidenceFile({ auditKey: key.spki, documents: [await createKeyEvidence({ signer, facts, previous: null })] }),
      );
      return path;
    };
    const { io, ports } = offline();
    const good = await writeKey('good.json', key);
    await rotationVerifyRun({ ...verify, path: good }, ports);
    assert.match(
      io.stdout(),
      /: exchange renew-ca\/node\/r of fleet\.example, node ca\n {2}plan .* 0a → .*\nverdict: VALID, in-progress\n$/,
    );
    const forged = await writeKey('forged.json', createAuditKey());
    await assert.rejects(
      rotationVerifyRun({ ...verify, path: forged }, offline().ports),
      refusal('AUDIT_TAMPERED', /^the evidence does not hold: #1 is not signed by the audit key$/),
    );
  });

  describe('the overlap of a demonstration', () => {
    it('is refused, with the flag that accepts it', async () => {
      const path = await write('quick.json', demonstration);
      await assert.rejects(rotationVerifyRun({ ...verify, path }, offline().ports), (error: ControlError) => {
        assert.equal(error.code, 'AUDIT_TAMPERED');
        assert.equal(error.details['hint'], 'the rotation ran with the times of a demonstration: check it as one with --demonstration');
        return true;
      });
    });

    it('is accepted by the flag or the environment, with a warning', async () => {
      const path = await write('quick.json', demonstration);
      const env = { BETTER_COMPUTE_DEMONSTRATION_ONLY_ROTATION_TIMES: 'yes-for-demonstrations-only:5000,1000,20000' };
      for (const [options, more] of [
        [{ demonstration: true }, {}],
        [{}, env],
      ] as const) {
        const { io, ports } = offline(more);
        await rotationVerifyRun({ ...verify, ...options, path }, ports);
        assert.match(io.stdout(), /^verdict: VALID, completed$/m);
        assert.match(io.stderr(), /^warning: checked with the overlap of a demonstration; this proves nothing/m);
      }
    });

    it('does not weaken the check of a production rotation', async () => {
      const path = await write('short.json', change('drop', { at: startedAt + 2 * hour }));
      await assert.rejects(
        rotationVerifyRun({ ...verify, path, demonstration: true }, offline().ports),
        refusal('AUDIT_TAMPERED', /overlap/),
      );
    });
  });

  describe('AUD-005 the pin', () => {
    it('comes from --pin, then the environment', async () => {
      const path = await write('good.json', goodRotation);
      const other = createAuditKey().pin;
      await rotationVerifyRun({ ...verify, path }, offline({ BETTER_COMPUTE_AUDIT_PIN: other }).ports);
      await rotationVerifyRun({ ...verify, path, pin: null }, offline({ BETTER_COMPUTE_AUDIT_PIN: key.pin }).ports);
      await assert.rejects(
        rotationVerifyRun({ ...verify, path, pin: null }, offline({ BETTER_COMPUTE_AUDIT_PIN: other }).ports),
        refusal('AUDIT_TAMPERED', /^the evidence is signed by sha256\//),
      );
      await assert.rejects(
        rotationVerifyRun({ ...verify, path, pin: 'sha256/short' }, offline().ports),
        refusal('INVALID_INPUT', /^"sha256\/short" is no pin/),
      );
    });

    it('AUD-007 comes from the bundle, checked against its seal with the secret, with a warning without', async () => {
      const bundle = await createBundle({ trustDomain: 'compute.example.com', now });
      const pki = join(folder, 'pki.json');
      writeFileSync(pki, encodeBundle(bundle, { secret }));
      const signer = bundle.auditSigning;
      assert.ok(signer !== undefined);
      const path = join(folder, 'by-bundle.json');
      const documents = await signAll({ signer: signer.signer(), spki: signer.spki, pin: '' }, goodRotation);
      writeFileSync(path, encodeEvidenceFile({ auditKey: signer.spki, documents }));

      const checked = offline({ BETTER_COMPUTE_SECRET: secret });
      await rotationVerifyRun({ ...verify, path, pin: null, pki }, checked.ports);
      assert.equal(checked.io.stderr(), '');
      const unchecked = offline();
      await rotationVerifyRun({ ...verify, path, pin: null, pki }, unchecked.ports);
      assert.match(
        unchecked.io.stderr(),
        /^warning: the bundle is not checked against its seal; whoever can write the file chooses the pin$/m,
      );
      await assert.rejects(
        rotationVerifyRun({ ...verify, path, pin: null, pki: join(folder, 'none') }, offline().ports),
        refusal('NOT_FOUND', /cannot be read$/),
      );
    });
  });

  it('tells a file that is none, and a path that is not there', async () => {
    const path = join(folder, 'x.json');
    writeFileSync(path, '{}');
    await assert.rejects(rotationVerifyRun({ ...verify, path }, offline().ports), refusal('MALFORMED', /^not a rotation evidence file: /));
    await assert.rejects(
      rotationVerifyRun({ ...verify, path: join(folder, 'nothing') }, offline().ports),
      refusal('NOT_FOUND', /cannot be read$/),
    );
  });
});
