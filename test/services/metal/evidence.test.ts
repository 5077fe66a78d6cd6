import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { AnySchema, anyPack } from '@bufbuild/protobuf/wkt';
import { hour } from '../../../domain/time.ts';
import { splitSignedEvidence, verifyMetalEvidence } from '../../../pki/evidence/index.ts';
import { DeployImageSchema, SignedSchema } from '../../../proto/index.ts';
import { enqueueCommands } from '../../../services/command-queue.ts';
import { finishRun, planRun, recordEvidence, standingOfRun } from '../../../services/metal/index.ts';
import type { RunPlan } from '../../../services/metal/types.ts';
import { useDatabase } from '../../harness/postgres.ts';
import { batchWorker, publishQuorum } from '../batch-support.ts';
import { certify, enrol, newKey, refused, testBundle, trustDomain } from '../support.ts';
import {
  addSite,
  availableMachine,
  bootRamdisk,
  commandIdOf,
  deployBody,
  type EvidenceChanges,
  eraseBody,
  evidenceContext,
  now,
  type Ramdisk,
  runOf,
  sendWipe,
  signBody,
} from './support.ts';

const zeros = createHash('sha256').update(Buffer.alloc(4096)).digest();

describe('evidence of erasures and deployments', () => {
  const used = useDatabase();
  let plan: RunPlan;
  let ramdisk: Ramdisk;
  let commandId: string;
  let context: Awaited<ReturnType<typeof evidenceContext>>;

  before(async function () {
    this.timeout(30_000);
    await publishQuorum(used.db, null);
    await addSite(used.db);
    await availableMachine(used.db, 'proven');
    plan = await planRun(used.db, runOf('proven', 'provision'));
    ramdisk = await bootRamdisk(used.db, plan);
    commandId = await sendWipe(used.db, plan);
    context = await evidenceContext();
  });

  const record = async (changes: EvidenceChanges = {}, by: Pick<Ramdisk, 'key' | 'certificate'> = ramdisk) =>
    recordEvidence(
      used.db,
      { runId: plan.runId, commandId, kind: 'erase', signed: await signBody(by, eraseBody(ramdisk, commandId, changes)) },
      context,
    );
  const verdictOf = async (changes: EvidenceChanges) => {
    const evidence = splitSignedEvidence('erase', await signBody(ramdisk, eraseBody(ramdisk, commandId, changes)));
    return verifyMetalEvidence({ evidence, anchors: context.anchors, trustDomain }).shortcomings;
  };

  it('M50 counts only a method that erases, and samples that prove it by their digests', async () => {
    assert.deepEqual(await verdictOf({}), []);
    assert.deepEqual(await verdictOf({ method: 'nvme-format-ses0' }), ['disk 1 (D0): "nvme-format-ses0" is no erasure']);
    assert.deepEqual(await verdictOf({ method: '' }), ['disk 1 (D0): no method is no erasure']);
    assert.deepEqual(await verdictOf({ erased: false }), ['disk 1 (D0): was not erased']);
    const same = Buffer.alloc(32, 7);
    assert.deepEqual(await verdictOf({ before: same, after: same }), ['disk 1 (D0): 1 of 1 samples do not show that it was']);
    assert.deepEqual(await verdictOf({ method: 'overwrite-random-zero' }), ['disk 1 (D0): 1 of 1 samples do not show that it was']);
    assert.deepEqual(await verdictOf({ method: 'overwrite-random-zero', after: zeros }), []);
    assert.deepEqual(await verdictOf({ before: new Uint8Array(0) }), ['disk 1 (D0): 1 of 1 samples do not show that it was']);
    assert.deepEqual(await verdictOf({ before: new Uint8Array(0), after: zeros }), []);
    assert.deepEqual(await verdictOf({ disks: 0 }), ['it lists no disk']);
  });

  it('is refused unless it is of this run, command, boot and time', async () => {
    await assert.rejects(record({ runId: 'ffffffffffff' }), refused('INVALID_STATE', /is of run ffffffffffff/, 'other-run'));
    await assert.rejects(record({ bootNonce: '00'.repeat(16) }), refused('INVALID_STATE', /of a boot that is none of run/, 'other-boot'));
    await assert.rejects(
      recordEvidence(
        used.db,
        { runId: plan.runId, commandId: `${commandId}0`, kind: 'erase', signed: await signBody(ramdisk, eraseBody(ramdisk, commandId)) },
        context,
      ),
      refused('INVALID_STATE', /not of .*wipe\.10/, 'other-command'),
    );
    const never = commandIdOf(plan, 'wipe.7');
    await assert.rejects(
      recordEvidence(
        used.db,
        { runId: plan.runId, commandId: never, kind: 'erase', signed: await signBody(ramdisk, eraseBody(ramdisk, never)) },
        context,
      ),
      refused('INVALID_STATE', /is no disk\.wipe of machine proven/, 'other-command'),
    );
    await assert.rejects(record({ finishedAtMs: now + hour }), refused('INVALID_STATE', /outside of run/, 'other-time'));
  });

  it('is refused unless a ramdisk of this machine and deployment signed it, with a certificate in force', async () => {
    await assert.rejects(
      record({ nodeId: 'another' }),
      refused('PERMISSION_DENIED', /the ramdisk of proven signed for machine another/, 'wrong-machine'),
    );
    await assert.rejects(
      record({ trustDomain: 'evil.example' }),
      refused('PERMISSION_DENIED', /of trust domain evil\.example/, 'wrong-trust-domain'),
    );
    await assert.rejects(record({ finishedAtMs: now - 3 * hour }), refused('CERTIFICATE_EXPIRED', /not valid before/, 'not-yet-valid'));
    const node = await enrol(used.db, 'plain', { now });
    await assert.rejects(
      record({ nodeId: 'plain' }, node),
      refused('PERMISSION_DENIED', /signed by a ramdisk, not by a node/, 'wrong-role'),
    );
    const other = { key: newKey(), certificate: ramdisk.certificate };
    await assert.rejects(record({}, other), refused('BAD_SIGNATURE', /names key/, 'other-key'));
  });

  it('is refused when a byte of it changed, it lost its chain, or it was signed for something else', async () => {
    const signed = fromBinary(SignedSchema, await signBody(ramdisk, eraseBody(ramdisk, commandId)));
    const input = { runId: plan.runId, commandId, kind: 'erase' as const };
    const changed = toBinary(
      SignedSchema,
      create(SignedSchema, { ...signed, body: eraseBody(ramdisk, commandId, { erased: true, disks: 2 }) }),
    );
    await assert.rejects(
      recordEvidence(used.db, { ...input, signed: changed }, context),
      refused('BAD_SIGNATURE', /does not match its bytes/),
    );
    const purpose = await signBody(ramdisk, eraseBody(ramdisk, commandId), 'deploy-evidence');
    await assert.rejects(
      recordEvidence(used.db, { ...input, signed: purpose }, context),
      refused('BAD_SIGNATURE', /does not match its bytes/),
    );
    if (signed.signature !== undefined) signed.signature.chain = [];
    await assert.rejects(
      recordEvidence(used.db, { ...input, signed: toBinary(SignedSchema, signed) }, context),
      refused('BAD_SIGNATURE', /does not carry the certificate/, 'no-chain'),
    );
    await assert.rejects(
      recordEvidence(used.db, { ...input, signed: Buffer.from([0xff]) }, context),
      refused('MALFORMED', /does not decode/),
    );
  });

  it('is refused from a certificate that was revoked before, or that we never stored', async () => {
    const key = newKey();
    const certificate = await certify(used.db, { id: 'proven', key, now });
    await used.db.query({ text: `update node_certs set revoked_at = $2 where serial = $1` }, [certificate.serial, new Date(now - 1_000)]);
    await assert.rejects(record({}, { key, certificate }), refused('REVOKED', /was revoked before/, 'certificate-revoked'));
    await used.db.query({ text: 'delete from node_certs where serial = $1' }, [certificate.serial]);
    await assert.rejects(record({}, { key, certificate }), refused('PERMISSION_DENIED', /was not issued here/, 'unknown-certificate'));
  });

  it('M49 M50 makes a machine clean, stands once for its command, and verifies from what is stored, by the root alone', async () => {
    assert.equal((await standingOfRun(used.db, plan.runId)).remains, 'dirty');
    const first = await record();
    assert.deepEqual([first.complete, first.existing], [true, false]);
    assert.match(first.summary, /1 disk\(s\) erased: D0 by nvme-format-ses1 \(1 samples\)/);
    assert.equal((await record()).existing, true, 'the same again changes nothing');
    await assert.rejects(record({ disks: 3 }), refused('CONFLICT', /other erase evidence of command/, 'evidence-differs'));
    assert.equal((await standingOfRun(used.db, plan.runId)).remains, 'clean');
    const [row] = await used.db.query<{ body: Buffer; signature: Buffer }>(
      { text: 'select body, signature from metal_evidence where command_id = $1' },
      [commandId],
    );
    assert.ok(row !== undefined);
    const root = [(await testBundle()).rootCa.certificate.der];
    const verified = verifyMetalEvidence({ evidence: { kind: 'erase', ...row }, anchors: root, trustDomain });
    assert.deepEqual([verified.nodeId, verified.commandId, verified.shortcomings], ['proven', commandId, []]);
  });

  it('M49 a deployment after the wipe is dirty again for whoever stops, and deployed by evidence whose reading back agrees', async () => {
    const id = commandIdOf(plan, 'deploy.1');
    const payload = toBinary(AnySchema, anyPack(DeployImageSchema, create(DeployImageSchema, { runId: plan.runId })));
    const command = { id, nodeId: 'proven', kind: 'deploy.image', payload, deadlineMs: now + hour, requestedBy: 'olga' };
    await enqueueCommands({ db: used.db, worker: await batchWorker(used.db), trustDomain, now, commands: [command] });
    await used.db.query({ text: 'update node_commands set state = 1, acked_at = now() where id = $1' }, [id]);
    assert.deepEqual(await standingOfRun(used.db, plan.runId), { remains: 'dirty', deployed: false });
    const input = { runId: plan.runId, commandId: id, kind: 'deploy' as const };
    const torn = splitSignedEvidence('deploy', await signBody(ramdisk, deployBody(ramdisk, id, 'something else'), 'deploy-evidence'));
    assert.deepEqual(verifyMetalEvidence({ evidence: torn, anchors: context.anchors, trustDomain }).shortcomings, [
      'what was read back is not what was written',
    ]);
    const signed = await signBody(ramdisk, deployBody(ramdisk, id), 'deploy-evidence');
    assert.equal((await recordEvidence(used.db, { ...input, signed }, context)).complete, true);
    assert.deepEqual(await standingOfRun(used.db, plan.runId), { remains: 'dirty', deployed: true });
    const finished = await finishRun(used.db, {
      runId: plan.runId,
      end: 'cancelled',
      remains: 'clean',
      reason: 'a test',
      actor: 'olga',
      now,
    });
    assert.equal(finished.remains, 'dirty');
  });
});
