/** What the machines of the demonstration are, and what is made of them. */
import { minute } from '../../../../domain/time.ts';
import type { ImageHost } from './image.ts';
import type { RackMachine } from './rack.ts';
import type { Site } from './site.ts';

export const machineOf = (_: unknown, at: number): RackMachine => {
  const two = String(at + 1).padStart(2, '0');
  const eight = (0x10000001 + at).toString(16).padStart(8, '0');
  return {
    name: `metal-${two}`,
    serial: `DEMO-${two}`,
    uuid: `${eight}-7b54-4d4c-8a2e-0c0ffee000${two}`,
    macAddress: `3c:ec:ef:00:01:${two}`,
  };
};

export const profileOf = ({ site, image }: { readonly site: Site; readonly image: ImageHost }): Readonly<Record<string, unknown>> => ({
  name: 'demonstration',
  description: 'what the demonstration writes',
  boot: {
    kernel: site.kernel,
    initramfs: site.initramfs,
    kernelArgs: '',
    graceful: false,
    bootTimeMs: 8 * minute,
    discoveryWindowMs: 60 * minute,
  },
  diagnose: {},
  wipe: { keep: [], methods: ['overwrite-random-zero'], samples: 16 },
  deploy: {
    image: { url: image.url, sha256: image.sha256, bytes: image.bytes, format: 'raw', compression: 'none' },
    disk: { transport: 'nvme' },
    pick: 'only',
    growPartition: 0,
    userDataRef: '',
    metaData: {},
    networkConfig: '',
  },
  start: { by: 'kexec', joinWithinMs: 5 * minute, kernelArgs: '' },
  steps: [],
});
