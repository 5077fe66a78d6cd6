/** A task queue is a trust boundary: which worker can do what, and what the workflow bundle may contain. */
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { createApproverSetActivities, createApproverSetSigningActivities } from '../../activities/approver-set-control.ts';
import { createAuditSigningActivities } from '../../activities/audit-signing.ts';
import { createBatchProducerActivities } from '../../activities/batch-producers.ts';
import { createBatchControlActivities } from '../../activities/batches-control.ts';
import { createBatchSigningActivities } from '../../activities/batches-signing.ts';
import { createBootControlActivities, createBootSigningActivities } from '../../activities/boots.ts';
import { createCommandControlActivities } from '../../activities/commands-control.ts';
import { createCommandSigningActivities } from '../../activities/commands-signing.ts';
import { createEnrolmentControlActivities } from '../../activities/enrolments-control.ts';
import { createHostActivities } from '../../activities/hosts.ts';
import { createIdentityActivities } from '../../activities/identities.ts';
import { createKeyRotationControlActivities } from '../../activities/key-rotation-control.ts';
import { createKeyRotationSigningActivities } from '../../activities/key-rotation-signing.ts';
import { createMetalControlActivities } from '../../activities/metal-control.ts';
import { createMetalSigningActivities } from '../../activities/metal-signing.ts';
import { createRotationControlActivities } from '../../activities/rotation-control.ts';
import { createRotationSigningActivities } from '../../activities/rotation-signing.ts';
import { createSpecSigningActivities } from '../../activities/spec-signing.ts';
import { createSshSigningActivities } from '../../activities/ssh-signing.ts';
import { taskQueues } from '../../temporal.config.ts';
import { activitiesOf, boundaries } from '../../workers/boundaries.ts';
import { loadWorkflowBundle } from '../../workers/bundle.ts';
import { readControlConfig, readHostsConfig } from '../../workers/config.ts';
import { controlWorkerSettings } from '../../workers/worker-settings.ts';
import { ApproverWorld } from '../workflows/approver-world.ts';
import { BatchWorld } from '../workflows/batch-world.ts';
import { CommandWorld } from '../workflows/command-world.ts';
import { EnrolmentWorld } from '../workflows/enrolment-world.ts';
import { KeyWorld } from '../workflows/key-world.ts';
import { MetalWorld } from '../workflows/metal-world.ts';
import { RotationWorld } from '../workflows/rotation-world.ts';

const root = fileURLToPath(new URL('../..', import.meta.url));
const rotation = new RotationWorld();
const commands = new CommandWorld(1);
const keys = new KeyWorld('ticket');
const batches = new BatchWorld();
const approvers = new ApproverWorld();
const metal = new MetalWorld([]);
const enrolment = new EnrolmentWorld('enrol');
const control = [
  createMetalControlActivities(metal),
  createBootControlActivities({ boots: { look: async () => [] }, workflows: { isRunning: async () => false } }),
  createBatchControlActivities(batches),
  createBatchProducerActivities(commands),
  createApproverSetActivities(approvers),
  createRotationControlActivities(rotation),
  createKeyRotationControlActivities(keys),
  createCommandControlActivities(commands),
  createIdentityActivities(commands),
  createEnrolmentControlActivities(enrolment),
];
const signing = [
  createRotationSigningActivities(rotation),
  createKeyRotationSigningActivities(keys),
  createAuditSigningActivities({ audit: { checkpoint: async () => [] } }),
  createCommandSigningActivities(commands),
  createSshSigningActivities(commands),
  createSpecSigningActivities(commands),
  createBatchSigningActivities(batches),
  createApproverSetSigningActivities(approvers),
  createMetalSigningActivities(metal),
  createBootSigningActivities({ boots: { orders: async () => [] }, queue: metal.queue, now: metal.now }),
];

describe('the trust boundary of a task queue', () => {
  it('the control worker registers exactly its rows', () => {
    assert.deepEqual(Object.keys(activitiesOf(taskQueues.control, control)).sort(), [...boundaries[taskQueues.control]].sort());
  });

  it('the signing worker registers exactly its rows', () => {
    assert.deepEqual(Object.keys(activitiesOf(taskQueues.signing, signing)).sort(), [...boundaries[taskQueues.signing]].sort());
  });

  it('the hosts worker registers exactly its rows', () => {
    const hosts = [createHostActivities(enrolment)];
    assert.deepEqual(Object.keys(activitiesOf(taskQueues.hosts, hosts)).sort(), [...boundaries[taskQueues.hosts]].sort());
  });

  it('an activity that signs is refused on another queue, and a missing one is named', () => {
    assert.throws(
      () => activitiesOf(taskQueues.control, [...control, ...signing]),
      /queue bc-control: not allowed here: .*planCommandRoot, .*; missing: none/,
    );
    assert.throws(
      () => activitiesOf(taskQueues.signing, [signing[0] as never]),
      /missing: planKeyExchange, .*, sealAudit, .*, enqueueCommands, signExpiringAgain/,
    );
    assert.throws(() => activitiesOf(taskQueues.rootSigning, signing), /not allowed here/);
  });

  it('no activity stands on two queues', () => {
    const all = Object.values(boundaries).flat();
    assert.equal(new Set(all).size, all.length);
  });

  it('the control worker reads no secret, even when it is given one', () => {
    const config = readControlConfig({
      BETTER_COMPUTE_DATABASE_URL: 'postgres://x',
      BETTER_COMPUTE_SECRET: 's'.repeat(40),
      BETTER_COMPUTE_PKI: '/x',
    });
    assert.deepEqual(Object.keys(config).sort(), ['codecKey', 'databaseUrl', 'metrics', 'trustDomain']);
    const source = readFileSync(join(root, 'workers/control.ts'), 'utf8');
    assert.equal(/pki\/bundle|bundle-store|bundle-holder|worker-keys/.test(source), false);
  });

  it('the hosts worker opens no key bundle, even when it is given the secret', () => {
    const config = readHostsConfig({
      BETTER_COMPUTE_DATABASE_URL: 'postgres://x',
      BETTER_COMPUTE_GATEWAY_URL: 'https://gw.example',
      BETTER_COMPUTE_SECRET: 's'.repeat(40),
    });
    assert.equal(JSON.stringify(config).includes('sss'), false);
    const sources = ['hosts.ts', ...readdirSync(join(root, 'workers/hosts')).map((name) => `hosts/${name}`)];
    for (const source of sources) {
      const text = readFileSync(join(root, 'workers', source), 'utf8');
      assert.equal(/openBundle|bundle-holder|worker-keys|BETTER_COMPUTE_SECRET/.test(text), false, source);
    }
  });

  it('sizes are set by hand', () => {
    assert.equal(controlWorkerSettings.maxCachedWorkflows, 300);
    assert.equal(controlWorkerSettings.maxConcurrentWorkflowTaskExecutions, 40);
  });
});

describe('the workflow bundle', function () {
  this.timeout(60_000);

  it('is built once per content and small', async () => {
    const cacheFolder = mkdtempSync(join(tmpdir(), 'bc-bundle-'));
    const first = await loadWorkflowBundle({ cacheFolder });
    const second = await loadWorkflowBundle({ cacheFolder });
    assert.ok('codePath' in first && 'codePath' in second);
    assert.equal(first.codePath, second.codePath);
    assert.deepEqual(readdirSync(join(cacheFolder, 'workflow-bundles')).length, 1);
    assert.ok(statSync(first.codePath).size < 3_000_000, `${statSync(first.codePath).size} bytes`);
    rmSync(cacheFolder, { recursive: true });
  });

  it('refuses a module of node in whatever depth', async () => {
    const cacheFolder = mkdtempSync(join(tmpdir(), 'bc-bundle-'));
    const workflowsPath = join(root, 'test/workers/fixtures/forbidden/index.ts');
    await assert.rejects(loadWorkflowBundle({ cacheFolder, workflowsPath }), (error: Error) =>
      /^the workflows do not bundle: .*node:crypto/.test(error.message),
    );
    rmSync(cacheFolder, { recursive: true });
  });

  it('no workflow module keeps state between runs; one counts within a run, as the SDK has the modules of each run apart', () => {
    const withinRun = ['shared/inbox.ts'];
    const files = readdirSync(join(root, 'workflows'), { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.ts'));
    assert.ok(files.length > 10);
    const bad = files.filter((name) => /^(?:export )?(?:let|var) /m.test(readFileSync(join(root, 'workflows', name), 'utf8')));
    assert.deepEqual(bad, withinRun);
  });

  it('index exports workflows and nothing else', async () => {
    const text = readFileSync(join(root, 'workflows/index.ts'), 'utf8');
    const names = [...text.matchAll(/export \{ ([\w, ]+) \}/g)].flatMap((match) => String(match[1]).split(', '));
    assert.deepEqual(names.toSorted(), [
      'approveBatch',
      'checkpointAudit',
      'enrolNode',
      'inspectMachine',
      'provisionMachine',
      'rebootNodes',
      'reconcileBatches',
      'reconcileBoots',
      'reconcileCommands',
      'reenrolNode',
      'reimageFleet',
      'renewCa',
      'resignExpiring',
      'retireMachine',
      'revokeIdentity',
      'revokeSshCertificate',
      'rotateApproverSet',
      'rotateBmcCredentials',
      'rotateCommandRoot',
      'rotateGatewayCertificate',
      'rotateTicketKey',
      'rotateWorkloadKey',
      'runCommand',
      'setNodeCredential',
    ]);
  });
});
