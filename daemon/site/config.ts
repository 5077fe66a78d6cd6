/** What a site agent is set to do for the machines of its site: the section `site` of bcd's configuration (daemon/config.ts). */
import { isIP } from 'node:net';
import { z } from 'zod';
import { problemOfKernelArgs } from '../../domain/metal/cmdline.ts';
import { parseAllowRule } from './proxy/allow.ts';

const port = z.number().int().min(0).max(65_535);
const hostName = z
  .string()
  .regex(/^(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|[0-9A-Fa-f:.]{2,45})$/, 'must be a host name or an address');
const address = z.string().refine((text) => isIP(text) !== 0, 'must be an IP address');

/** A name in the folder of artefacts: never a path, never hidden. */
export const artefactName = /^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$/;
const fileName = z.string().regex(artefactName, 'must be the name of a file in the folder, not a path');

const loaders = z
  .strictObject({
    /** For BIOS, over TFTP: undionly.kpxe of iPXE. */
    bios: fileName.optional(),
    /** For UEFI on x86-64, over TFTP and HTTP: snponly.efi or ipxe.efi. */
    efiX64: fileName.optional(),
    efiArm64: fileName.optional(),
  })
  .default({});

const boot = z.strictObject({
  /** The name or address that machines reach the boot server by; it stands in the scripts. */
  host: hostName,
  /** Where it listens; by default on every address. */
  listen: address.default('0.0.0.0'),
  httpPort: port.default(8_081),
  /** Without one, nothing is served over TFTP. */
  tftpPort: port.optional(),
  /** Of the loaders, kernels, initramfs and images. */
  folder: z.string().startsWith('/', 'must be an absolute path'),
  loaders,
  /** What a machine is told that nobody said anything about: wait, or boot the disk. */
  defaultAnswer: z.enum(['hold', 'local']).default('hold'),
  /** Goes onto the kernel's line of every machine of the site: its console. */
  kernelArgs: z
    .string()
    .default('')
    .superRefine((text, context) => {
      const problem = problemOfKernelArgs(text);
      if (problem !== null) context.addIssue({ code: 'custom', message: problem });
    }),
});

export const siteSection = z.strictObject({
  /** Without this section the agent has no boot server. */
  boot: boot.optional(),
  /** What site.httpProxy may reach; by default nothing. */
  proxyAllow: z
    .array(
      z.string().superRefine((text, context) => {
        const { problem } = parseAllowRule(text);
        if (problem !== null) context.addIssue({ code: 'custom', message: problem });
      }),
    )
    .max(256)
    .default([]),
  bmc: z
    .strictObject({
      /** host or host:port of controllers that are spoken to without TLS: emulators. */
      insecureHttp: z.array(z.string().min(1).max(255)).max(256).default([]),
    })
    .prefault({}),
});

export type SiteConfig = Readonly<z.infer<typeof siteSection>>;
export type BootConfig = NonNullable<SiteConfig['boot']>;
