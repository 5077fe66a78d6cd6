/**
 * Enrolment over SSH as an operator meets it (XC-033 to XC-044): the whole stack as processes, a real sshd, the bcd that is published as one file, and
 * the command line.
 */
import assert from 'node:assert/strict';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Payload } from '@temporalio/common';
import { decodeArrayFromPayloads } from '@temporalio/common/lib/internal-non-workflow/index.js';
import { bundledDaemon } from '../../scripts/bcd.mjs';
import { eventually } from '../harness/eventually.ts';
import { type LiveStack, startLiveStack } from '../harness/live-stack.ts';
import { processesOf } from '../harness/run-start.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { makeSshKey, sshdIsMissing } from '../harness/sshd.ts';
import { type SshMachine, startSshMachine } from '../hosts/machine.ts';

const why = sshdIsMissing ?? (process.getuid?.() === 0 ? null : 'logins of sshd need root');

describe(`enrolment over SSH, as an operator meets it${why === null ? '' : `, not run: ${why}`}`, function () {
  this.timeout(300_000);
  let stack: LiveStack;
  let machine: SshMachine;
  let folder: string;

  before(async function () {
    if (why !== null) return this.skip();
    folder = scratchFolder();
    const credentials = join(folder, 'credentials');
    mkdirSync(credentials, { mode: 0o700 });
    const loginKey = makeSshKey(folder, 'login');
    writeFileSync(join(credentials, 'web'), readFileSync(loginKey), { mode: 0o600 });
    const program = join(folder, 'bcd');
    writeFileSync(program, await bundledDaemon({ executable: true }), { mode: 0o755 });
    machine = await startSshMachine({ folder, name: 'web-7', loginKey });
    const { layout } = machine;
    stack = await startLiveStack(
      { overlapMs: 1_000, marginMs: 1_000, workerLifetimeMs: 3_600_000 },
      {
        BETTER_COMPUTE_HOST_CREDENTIALS: credentials,
        BETTER_COMPUTE_HOST_BCD: program,
        BETTER_COMPUTE_HOST_PROGRAM: layout.program,
        BETTER_COMPUTE_HOST_DATA: layout.dataDir,
        BETTER_COMPUTE_HOST_CONFIG: layout.configDir,
        BETTER_COMPUTE_HOST_UNITS: layout.unitDir,
      },
    );
  });

  after(async () => {
    await machine?.stop();
    await stack?.stop();
    removeScratchFolders();
  });

  const enrol = (...more: string[]) => {
    const at = ['--address', '127.0.0.1', '--port', String(machine.port), '--credential', 'file://web'];
    return stack.betterCompute('nodes', 'enrol', 'web-7', '--site', 'eu-1', '--reason', 'new rack', '--wait', ...at, ...more);
  };

  /** The control plane knows it first: its answer is on the way. */
  const inGeneration = (generation: bigint) =>
    eventually(`the machine has generation ${generation}`, async () => {
      const found = await machine.identity();
      return found?.generation === generation ? found : undefined;
    });

  it('XC-034 dials nothing without a host key, and says nothing to a machine with another one', async () => {
    const none = await enrol();
    assert.equal(none.code, 2, none.err);
    assert.match(none.err, /the host key is not known, and none is trusted on first use/);
    const other = await enrol('--expect-hostkey', `SHA256:${'A'.repeat(42)}A`);
    assert.equal(other.code, 4, other.err);
    assert.match(other.err, /is not the expected machine: it shows ssh-ed25519 SHA256:/);
    assert.deepEqual(machine.told(), []);
    assert.equal(await stack.api.getNode('web-7').catch(() => null), null);
  });

  it('XC-039 XC-040 XC-041 XC-043 XC-044 brings bcd, has it make its key, and the machine comes with it', async () => {
    const { code, err, out } = await enrol('--expect-hostkey', machine.hostKey);
    assert.equal(code, 0, `${err}\n${out}\n${machine.log()}`);
    assert.match(out, /web-7 has its first identity/);
    const node = await eventually('web-7 is connected', async () => {
      const found = await stack.api.getNode('web-7');
      return found.connected ? found : undefined;
    });
    assert.equal(node.state, 'active');
    await inGeneration(1n);
    assert.deepEqual(machine.told(), ['daemon-reload', 'enable bcd.service', 'restart bcd.service']);
    assert.ok(machine.isEnabled());
  });

  it('XC-033 XC-035 XC-037 XC-038 gives a node that serves its next generation, by what is known of it', async () => {
    const before = await machine.identity();
    const { code, err, out } = await stack.betterCompute('nodes', 'reenrol', 'web-7', '--reason', 'its key was copied', '--wait');
    assert.equal(code, 0, `${err}\n${out}\n${machine.log()}`);
    const after = await inGeneration(2n);
    assert.notDeepEqual(after.chain[0], before?.chain[0]);
    await eventually('web-7 is connected again', async () => (await stack.api.getNode('web-7')).connected || undefined);
  });

  it('XC-044 enrolment 45 goes on when the hosts worker and the control worker are killed in the middle; a second order is refused meanwhile', async () => {
    const started = await stack.betterCompute('nodes', 'reenrol', 'web-7', '--reason', 'once more', '--json');
    assert.equal(started.code, 0, started.err);
    const { id } = JSON.parse(started.out) as { id: string };
    const second = await stack.betterCompute('nodes', 'reenrol', 'web-7', '--reason', 'twice');
    assert.match(second.err, /node web-7 is being enrolled already/);
    const hosts = processesOf(stack.home).find(({ command }) => /workers\/hosts\.[jt]s/.test(command));
    process.kill(hosts?.pid ?? 0, 'SIGKILL');
    await stack.kill('control');
    const ended = await eventually(
      'the enrolment is over',
      async () => {
        const found = await stack.api.getEnrolment(id);
        return found.endedAt === null ? undefined : found;
      },
      180_000,
    );
    assert.equal(ended.state, 'completed', ended.endReason);
    await inGeneration(3n);
    const [row] = await stack.db.query<{ generation: number; valid: number }>({
      text: `select n.identity_generation as generation, (select count(*)::int from node_certs c where c.node_id = n.id and c.revoked_at is null) as valid
             from nodes n where n.id = 'web-7'`,
    });
    assert.deepEqual(row, { generation: 3, valid: 1 }, 'the generations before are revoked');
  });

  it('enrolment 47 nothing of the credential or of the machine’s key stands in a history, a log or the database', async () => {
    const login = readFileSync(join(folder, 'login'), 'utf8').split('\n')[2] ?? '';
    const node = readFileSync(join(machine.layout.dataDir, 'identity.json'), 'utf8');
    assert.match(node, /"keyFile"/);
    const secrets = [
      login,
      ...readdirSync(machine.layout.dataDir)
        .filter((name) => name.endsWith('.pem'))
        .map((name) => readFileSync(join(machine.layout.dataDir, name), 'utf8').split('\n')[1] ?? ''),
    ];
    const histories: string[] = [];
    for await (const { workflowId, runId } of stack.client.workflow.list({ query: `WorkflowId = 'node/web-7/identity'` })) {
      const { events } = await stack.client.workflow.getHandle(workflowId, runId).fetchHistory();
      const converter = stack.client.options.loadedDataConverter;
      for (const event of events ?? [])
        for (const payloads of payloadsIn(event)) histories.push(JSON.stringify(await decodeArrayFromPayloads(converter, payloads)));
    }
    assert.ok(
      histories.some((text) => text.includes('csrSha256')),
      'they were read',
    );
    const logs = readdirSync(join(stack.home, 'logs')).map((name) => readFileSync(join(stack.home, 'logs', name), 'utf8'));
    const rows = await stack.db.query<{ row: string }>({
      text: `select row_to_json(t)::text as row from enrolments t union all select row_to_json(t)::text from audit_events t`,
    });
    for (const secret of secrets) {
      assert.ok(secret.length > 20);
      for (const text of [...histories, ...logs, ...rows.map(({ row }) => row)]) assert.equal(text.includes(secret), false);
    }
  });

  it('words of the namespace alone enrol nobody: an order of an operator is needed, and is for one node', async () => {
    const forged = JSON.stringify({ nodeId: 'db-1', enrolmentId: `enr-${'f'.repeat(24)}` });
    const words = ['--task-queue', 'bc-control', '--workflow-id', 'node/db-1/identity', '--input', forged];
    const answer = await stack.temporal('workflow', 'execute', '--type', 'enrolNode', ...words);
    assert.notEqual(answer.code, 0);
    assert.match(`${answer.out}${answer.err}`, /no enrolment is called enr-f+/);
  });
});

/** Every list of payloads in an event, wherever it stands. */
function payloadsIn(value: unknown): Payload[][] {
  if (typeof value !== 'object' || value === null) return [];
  const own = (value as { payloads?: unknown }).payloads;
  const here = Array.isArray(own) ? [own as Payload[]] : [];
  return [...here, ...Object.values(value).flatMap(payloadsIn)];
}
