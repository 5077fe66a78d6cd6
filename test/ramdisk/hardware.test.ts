/** What the ramdisk reads of a machine: /sys, the drives' tools, NVIDIA's diagnosis, the loader of a deployed system. */
import assert from 'node:assert/strict';
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { capabilitiesOfHdparm, capabilitiesOfNvme } from '../../daemon/ramdisk/disks/capabilities.ts';
import { realDisks, realMachine } from '../../daemon/ramdisk/disks/real.ts';
import { findKernel } from '../../daemon/ramdisk/jump/find-kernel.ts';
import { realJump } from '../../daemon/ramdisk/jump/real-jump.ts';
import { ControlError } from '../../domain/errors.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { stageRamdisk } from './stage.ts';

const put = (root: string, files: Readonly<Record<string, string | Buffer>>): string => {
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), content);
  }
  return root;
};
const { signal } = new AbortController();

describe('hardware of a machine', () => {
  after(removeScratchFolders);

  it('KIND-002 reads disks from /sys: what is no disk is left out, names and numbers are normalised', async () => {
    const root = put(scratchFolder(), {
      'sys/devices/pci/nvme0/block/x/size': '2048',
      'sys/devices/pci/nvme0/block/x/wwid': 'EUI.0025385B\n',
      'sys/devices/pci/nvme0/block/x/device/serial': '  S1  \n',
      'sys/devices/pci/nvme0/block/x/device/model': 'Fast one            \n',
      'sys/devices/pci/nvme0/block/x/queue/logical_block_size': '4096',
      'sys/devices/ata1/host/sda/size': '4096',
      'sys/devices/ata1/host/sda/queue/rotational': '1',
      'sys/devices/ata1/host/sda/device/wwid': 'naa.5000C500A',
      'sys/devices/ata1/host/sda/device/vpd_pg80': Buffer.from('\0\x80\0\x08  WD-123', 'latin1'),
      'sys/block/sr0/size': '100',
      'sys/block/loop0/size': '100',
      'sys/block/nvme0c0n1/size': '100',
      'sys/block/sdz/size': '0',
    });
    symlinkSync('../devices/pci/nvme0/block/x', join(root, 'sys/block/nvme0n1'));
    symlinkSync('../devices/ata1/host/sda', join(root, 'sys/block/sda'));
    assert.deepEqual(await realDisks({ root }).list(), [
      {
        name: 'nvme0n1',
        serial: 'S1',
        wwn: 'eui.0025385b',
        model: 'Fast one',
        sizeBytes: 1048576,
        transport: 'nvme',
        rotational: false,
        removable: false,
        logicalBlockBytes: 4096,
      },
      {
        name: 'sda',
        serial: 'WD-123',
        wwn: 'naa.5000c500a',
        model: '',
        sizeBytes: 2097152,
        transport: 'sata',
        rotational: true,
        removable: false,
        logicalBlockBytes: 512,
      },
    ]);
    put(root, {
      'sys/class/dmi/id/product_uuid': 'AB-CD\n',
      'sys/class/net/eth0/address': '02:00:00:00:00:AA',
      'sys/class/net/lo/address': '00:00:00:00:00:00',
    });
    const { systemUuid, macAddresses } = await realMachine(root);
    assert.deepEqual([systemUuid, macAddresses], ['ab-cd', ['02:00:00:00:00:aa']]);
  });

  it('M51 takes of a drive what its tool says, and nothing of one that is frozen or says nothing', () => {
    const nvme = (fna: number, oacs: number) => {
      const { nvmeFormat, nvmeCryptoErase } = capabilitiesOfNvme(JSON.stringify({ fna, oacs, sn: 'x' }));
      return [nvmeFormat, nvmeCryptoErase];
    };
    assert.deepEqual(
      [nvme(4, 2), nvme(0, 2), nvme(4, 0)],
      [
        [true, true],
        [true, false],
        [false, true],
      ],
    );
    assert.deepEqual(capabilitiesOfNvme('no JSON'), capabilitiesOfNvme('{}'));
    const security = (frozen: string) =>
      `Commands:\n\nSecurity: \n\tMaster password revision code = 65534\n\t\tsupported\n\tnot\tenabled\n\tnot\tlocked\n\t${frozen}frozen\n\tnot\texpired: security count\n\t\tsupported: enhanced erase\n\t2min for SECURITY ERASE UNIT.\nLogical Unit WWN\n`;
    const ata = (text: string) => {
      const { ataSecureErase, ataEnhancedErase } = capabilitiesOfHdparm(text);
      return [ataSecureErase, ataEnhancedErase];
    };
    assert.deepEqual(
      [ata(security('not\t')), ata(security('\t')), ata('')],
      [
        [true, true],
        [false, false],
        [false, false],
      ],
    );
  });

  it('reads the diagnosis of the GPUs: the worst result of each test counts, none is fine only where none is asked for', async () => {
    const stage = await stageRamdisk();
    const ask = (required: boolean, level = 1) => stage.run('diag.dcgm', { level, required });
    assert.deepEqual(await ask(false).then((end) => end.kind === 'succeeded' && end.value), { ran: false, version: '', tests: [] });
    await assert.rejects(ask(true), /^ControlError: the diagnosis is required, and there is no dcgmi$/);
    await assert.rejects(ask(true, 4), /level is 4/);
    const result = (status: string) => ({ gpu_id: '0', status, warnings: 'because' });
    const write = (memory: string) =>
      put(stage.folder, {
        'dcgmi.json': JSON.stringify({
          'DCGM Diagnostic': {
            version: '3.3',
            test_categories: [{ category: 'Hardware', tests: [{ name: 'Memory', results: [result('Pass'), result(memory)] }] }],
          },
        }),
      });
    write('Pass');
    assert.equal((await ask(true)).kind, 'succeeded');
    write('Fail');
    const failed = await ask(true);
    assert.ok(failed.kind === 'failed' && failed.code === 'DIAGNOSIS_FAILED' && failed.answer !== undefined);
    assert.equal(failed.message, '1 of 1 tests failed: Memory: because');
  });

  it('finds the kernel that a loader would start: by its entries, by GRUB, by the newest name; and nothing outside of the disk', async () => {
    const kernels = { 'boot/vmlinuz-6.9.0': 'k', 'boot/vmlinuz-6.10.0': 'k', 'boot/initrd.img-6.10.0': 'i' };
    const newest = put(scratchFolder(), kernels);
    assert.deepEqual(await findKernel(newest), {
      kernel: join(newest, 'boot/vmlinuz-6.10.0'),
      initrds: [join(newest, 'boot/initrd.img-6.10.0')],
      args: '',
    });
    const grub = put(scratchFolder(), {
      ...kernels,
      'boot/grub/grub.cfg':
        'set x\nmenuentry "a" {\n\tlinux\t/boot/vmlinuz-6.9.0 root=UUID=1 ro  quiet\n\tinitrd /boot/initrd.img-6.10.0\n}\nmenuentry "b" {\n\tlinux /boot/other\n}\n',
    });
    assert.deepEqual(await findKernel(grub), {
      kernel: join(grub, 'boot/vmlinuz-6.9.0'),
      initrds: [join(grub, 'boot/initrd.img-6.10.0')],
      args: 'root=UUID=1 ro quiet',
    });
    const bls = put(scratchFolder(), {
      'loader/entries/a.conf': 'linux /old\n',
      'loader/entries/b.conf': '# x\ntitle t\nlinux /new\ninitrd /i\noptions a=1\noptions b\n',
      old: '',
      new: '',
      i: '',
    });
    assert.deepEqual(await findKernel(bls), { kernel: join(bls, 'new'), initrds: [join(bls, 'i')], args: 'a=1 b' });
    const hostile = put(scratchFolder(), { 'loader/entries/a.conf': 'linux /../../../../etc/passwd\n' });
    await assert.rejects(findKernel(hostile), /names \/..\/..\/..\/..\/etc\/passwd, which is not on its disk/);
    symlinkSync('/etc/hostname', join(hostile, 'vmlinuz'));
    put(hostile, { 'loader/entries/a.conf': 'linux /vmlinuz\n' });
    await assert.rejects(findKernel(hostile), /is not on its disk/);
    assert.equal(await findKernel(scratchFolder()), undefined);
  });

  it('M12 loads by kexec, and says both refusals of a kernel that takes none', async () => {
    const scratch = scratchFolder();
    const calls: string[] = [];
    const root = put(scratchFolder(), { 'sys/block/nvme0n1/nvme0n1p2/size': '1', 'sys/block/nvme0n1/nvme0n1p1/size': '1' });
    const jump = (refuses: readonly string[]) =>
      realJump({
        scratch,
        root,
        run: async (name, args) => {
          calls.push([name, ...args].join(' '));
          if (name === 'mount') put(join(scratch, 'system'), args[2]?.endsWith('p2') === true ? { 'boot/vmlinuz-1': 'k' } : {});
          return { status: name === 'kexec' && refuses.includes(args[0] ?? '') ? 255 : 0, stdout: '', stderr: 'Operation not permitted' };
        },
      });
    const wanted = { diskPath: '/dev/nvme0n1', partition: 0, kernelArgs: 'console=ttyS0', reboot: false };
    assert.equal(await jump([]).load(wanted, signal), 'vmlinuz-1 from /dev/nvme0n1p2');
    assert.deepEqual(calls.at(-2), `kexec -s -l ${join(scratch, 'system/boot/vmlinuz-1')} --command-line=console=ttyS0`);
    assert.equal(calls.filter((call) => call.startsWith('mount')).length, calls.filter((call) => call.startsWith('umount')).length);
    await assert.rejects(jump(['-s', '-c']).load(wanted, signal), (error: unknown) => {
      assert.ok(error instanceof ControlError);
      assert.equal(error.details['reason'], 'kexec-refused');
      return /kexec -s: status 255, Operation not permitted; kexec -c: status 255/.test(error.message);
    });
    assert.equal(await jump([]).load({ ...wanted, reboot: true }, signal), '');
    await assert.rejects(jump(['-e']).go(wanted), /kexec did not happen: status 255, Operation not permitted/);
  });
});
