/** A profile for tests: complete, and good. */
import type { Profile } from '../../../domain/metal/profile.ts';
import { hour, minute } from '../../../domain/time.ts';

export const goodProfile = (changes: Partial<Profile> = {}): Profile => ({
  name: 'debian-13',
  description: '',
  boot: {
    kernel: { name: 'vmlinuz', sha256: 'a'.repeat(64) },
    initramfs: { name: 'initramfs.gz', sha256: 'b'.repeat(64) },
    kernelArgs: '',
    graceful: false,
    bootTimeMs: 10 * minute,
    discoveryWindowMs: hour,
  },
  diagnose: {},
  wipe: { keep: [], methods: [], samples: 64 },
  deploy: {
    image: { url: 'https://images.example/debian-13.raw.zst', sha256: 'c'.repeat(64), bytes: 0, format: 'raw', compression: 'zstd' },
    disk: { transport: 'nvme' },
    pick: 'smallest',
    growPartition: 1,
    userDataRef: '',
    metaData: {},
    networkConfig: '',
  },
  start: { by: 'kexec', joinWithinMs: 20 * minute, kernelArgs: '' },
  steps: [],
  ...changes,
});
