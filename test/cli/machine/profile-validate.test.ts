/** What `profile validate` says of a file, exactly. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { profileValidateRun } from '../../../cli/commands/profile/validate.ts';
import type { ControlError } from '../../../domain/errors.ts';
import { profileYaml } from '../../harness/profile.ts';
import { removeScratchFolders, scratchFolder } from '../../harness/scratch.ts';
import { createTestIo, createTestPorts } from '../support.ts';

describe('profile validate', () => {
  let folder: string;
  before(() => void (folder = scratchFolder()));
  after(removeScratchFolders);

  const file = (name: string, text: string): string => {
    const path = join(folder, name);
    writeFileSync(path, text);
    return path;
  };
  const set = () => {
    const io = createTestIo();
    return { io, ports: createTestPorts(io) };
  };
  const refusal = (code: string, message: RegExp) => (error: ControlError) => {
    assert.equal(error.code, code, error.message);
    assert.match(error.message, message);
    return true;
  };

  it('BAT-035 profile validate says what a run would send, and of a bad file everything at once', async () => {
    const { io, ports } = set();
    await profileValidateRun({ json: false, path: file('worker.yaml', profileYaml) }, ports);
    assert.equal(
      io.stdout(),
      `profile  gpu-worker: a worker with eight GPUs
boots    vmlinuz, initramfs.gz, after a shutdown where a system runs
wipes    every disk
writes   https://images.example/gpu-worker.raw.zst (raw, zstd)
starts   kexec
sends    boot.prepareRamdisk, bmc.boot, bmc.power, diag.disks, disk.wipe, deploy.image, boot.kexec, boot.cleanUp
`,
    );
    const bad = profileYaml
      .replace(/sha256: c+/, 'sha256: abc')
      .replace('url: https', 'url: ftp')
      .replace('pick: smallest', 'pick: first');
    await assert.rejects(
      profileValidateRun({ json: false, path: file('bad.yaml', bad) }, ports),
      refusal(
        'INVALID_INPUT',
        /bad\.yaml cannot be used:\nline 10, deploy\.image\.url: .*\nline 11, deploy\.image\.sha256: .*\nline 14, deploy\.pick: /,
      ),
    );
  });

  it('BAT-036 BAT-037 profile validate shows a profile’s own steps, and refuses one that has not declared what it sends', async () => {
    const { io, ports } = set();
    const steps = `steps:
  - name: poll
    after: provisioned-join
    do: { site.httpProxy: { method: GET, url: 'https://{machine}.example/healthz' } }
  - name: reboot
    after: provisioned-join
    sends: [node.reboot]
    do: { node.reboot: { reason: firmware } }
`;
    await profileValidateRun({ json: false, path: file('steps.yaml', `${profileYaml}${steps}`) }, ports);
    assert.match(
      io.stdout(),
      /^step +poll, behind provisioned-join: site\.httpProxy\nstep +reboot, behind provisioned-join: node\.reboot\nsends .*boot\.cleanUp, node\.reboot$/m,
    );
    assert.equal(io.stderr(), '');
    const silent = steps.replace('method: GET', 'method: POST').replace('    sends: [node.reboot]\n', '');
    await assert.rejects(
      profileValidateRun({ json: false, path: file('silent.yaml', `${profileYaml}${silent}`) }, ports),
      refusal(
        'INVALID_INPUT',
        /silent\.yaml cannot be used:\nline \d+, steps\[0\]\.sends: does not declare site\.httpProxy, which may destroy: .*\nline \d+, steps\[1\]\.sends: does not declare node\.reboot/,
      ),
    );
  });
});
