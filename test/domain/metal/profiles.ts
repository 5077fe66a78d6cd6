/** A profile for tests: complete, and good. */
import type { Profile } from '../../../domain/metal/profile.ts';
import type { InvokeDoing, ProfileStep, RequestDoing } from '../../../domain/metal/profile-steps.ts';
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

/** Behind the join of the system, through the site's agent: a write, which is declared. */
export const requestStep = (changes: Partial<ProfileStep> = {}, request: Partial<RequestDoing> = {}): ProfileStep => ({
  name: 'talos',
  after: 'provisioned-join',
  sends: ['site.httpProxy'],
  do: {
    'site.httpProxy': {
      method: 'POST',
      url: 'https://{machine}.example/apply',
      headers: [],
      body: 'run {run}',
      pinSha256: '',
      expect: [],
      ...request,
    },
  },
  ...changes,
});

/** Behind the diagnosis, in the ramdisk: not harmless, and declared. */
export const invokeStep = (changes: Partial<ProfileStep> = {}, call: Partial<InvokeDoing> = {}): ProfileStep => ({
  name: 'nic',
  after: 'diagnose',
  sends: ['driver.invoke'],
  do: { 'driver.invoke': { plugin: 'nic', manifestSha256: 'e'.repeat(64), method: 'flash', input: '{machine}', harmless: false, ...call } },
  ...changes,
});
