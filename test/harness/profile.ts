/** A profile that can be used, as people write it. */
export const profileYaml = `name: gpu-worker
description: a worker with eight GPUs
boot:
  kernel: { name: vmlinuz, sha256: ${'a'.repeat(64)} }
  initramfs: { name: initramfs.gz, sha256: ${'b'.repeat(64)} }
wipe:
  samples: 64
deploy:
  image:
    url: https://images.example/gpu-worker.raw.zst
    sha256: ${'c'.repeat(64)}
    compression: zstd
  disk: { transport: nvme }
  pick: smallest
start:
  by: kexec
`;
