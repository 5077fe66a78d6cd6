/** A small operating system for the machine: our kernel, and an initramfs whose init joins with what lies beside the image. */
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { appendFileSync, copyFileSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { encodeGpt } from '../../../daemon/ramdisk/deploy/gpt.ts';
import { encodeCpio, modes } from '../../../scripts/ramdisk/cpio.mjs';

const mebibyte = 1024 * 1024;

const init = `#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin:/usr/bin:/usr/sbin HOME=/root
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
echo "installed: $(cat /etc/ramdisk-version)"
while read -r module; do insmod "/lib/modules/$module" 2>/dev/null; done < /etc/modules-in-order
ip link set lo up
for nic in /sys/class/net/*; do nic=\${nic##*/}; [ "$nic" = lo ] && continue; ip link set "$nic" up; udhcpc -q -n -t 10 -T 2 -i "$nic" -s /etc/udhcpc.script; done
mkdir -p /seed /var/lib/better-compute
mount -t vfat -o ro "$(findfs LABEL=CIDATA)" /seed || echo "installed: no seed"
echo "installed: found $(ls /seed | tr '\\n' ' ')"
/usr/bin/node /usr/lib/bcd.mjs join --attestor provisioned --data-dir /var/lib/better-compute/bcd @/seed/bc-join && echo "installed: joined"
/usr/bin/node /usr/lib/bcd.mjs run --data-dir /var/lib/better-compute/bcd
echo "installed: bcd ended"
sleep 100000
`;

/** @returns a raw image with one ext4 partition that a loader of the Boot Loader Specification would start */
export function buildSystemImage(folder: string, { kernel, initramfs }: { kernel: string; initramfs: string }): Buffer {
  const root = join(folder, 'system');
  mkdirSync(join(root, 'loader', 'entries'), { recursive: true });
  copyFileSync(kernel, join(root, 'vmlinuz'));
  copyFileSync(initramfs, join(root, 'initramfs.gz'));
  // Archives one after the other are unpacked in order: the later init is the one that runs.
  appendFileSync(join(root, 'initramfs.gz'), gzipSync(encodeCpio([{ path: 'init', mode: modes.program, content: Buffer.from(init) }])));
  writeFileSync(
    join(root, 'loader', 'entries', 'system.conf'),
    'title system\nlinux /vmlinuz\ninitrd /initramfs.gz\noptions console=ttyS0 quiet\n',
  );
  const used = statSync(join(root, 'vmlinuz')).size + statSync(join(root, 'initramfs.gz')).size;
  const partitionBytes = Math.ceil((used * 1.1 + 8 * mebibyte) / mebibyte) * mebibyte;
  const file = join(folder, 'system.ext4');
  execFileSync('mke2fs', ['-q', '-t', 'ext4', '-L', 'system', '-d', root, file, `${partitionBytes / 1024}k`], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const image = Buffer.alloc(partitionBytes + 2 * mebibyte);
  const last = 2048 + partitionBytes / 512 - 1;
  const linux = Buffer.from('af3dc60f838472478e793d69d8477de4', 'hex');
  const partition = { number: 1, typeGuid: linux, guid: randomBytes(16), first: 2048, last, attributes: 0n, name: 'system' };
  const gpt = {
    blockBytes: 512,
    diskGuid: randomBytes(16),
    firstUsable: 2048,
    lastUsable: last,
    entryCount: 128,
    entryBytes: 128,
    partitions: [partition],
  };
  const { primary, backup } = encodeGpt(gpt, image.length);
  image.set([0xee], 450);
  image.writeUInt32LE(1, 454);
  image.writeUInt32LE(image.length / 512 - 1, 458);
  image.set([0x55, 0xaa], 510);
  image.set(primary, 512);
  image.set(backup.bytes, backup.offset);
  image.set(readFileSync(file), mebibyte);
  return image;
}
