/**
 * Enrolment over SSH as an operator meets it (XC-033 to XC-044): the whole stack as processes, a real sshd, the bcd that is published as one file, and
 * the command line.
 */
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { bundledDaemon } from '../../scripts/bcd.mjs';
import { eventually } from '../harness/eventually.ts';
import { type LiveStack, startLiveStack } from '../harness/live-stack.ts';
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
    assert.equal((await machine.identity())?.generation, 1n);
    assert.deepEqual(machine.told(), ['daemon-reload', 'enable bcd.service', 'restart bcd.service']);
    assert.ok(machine.isEnabled());
  });

  it('XC-033 XC-035 XC-037 XC-038 gives a node that serves its next generation, by what is known of it', async () => {
    const before = await machine.identity();
    const { code, err, out } = await stack.betterCompute('nodes', 'reenrol', 'web-7', '--reason', 'its key was copied', '--wait');
    assert.equal(code, 0, `${err}\n${out}\n${machine.log()}`);
    const after = await machine.identity();
    assert.equal(after?.generation, 2n);
    assert.notDeepEqual(after?.chain[0], before?.chain[0]);
    await eventually('web-7 is connected again', async () => (await stack.api.getNode('web-7')).connected || undefined);
  });
});
