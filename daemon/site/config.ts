/** What a site agent is set to do for the machines of its site: the section `site` of bcd's configuration (daemon/config.ts). */
import { isIP, isIPv4 } from 'node:net';
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

const ipv4 = z.string().refine((text) => isIPv4(text), 'must be an IPv4 address');

const proxyDhcp = z.strictObject({
  /** Ours on the provisioning network: answers go out there, and name it as TFTP server. By default `host`, where that is an address. */
  address: ipv4.optional(),
  /** Of DHCP servers, of boot servers and of clients: others are for tests, for no firmware asks anywhere else. */
  port: port.default(67),
  bootServerPort: port.default(4_011),
  clientPort: port.default(68),
  /** Where clients without an address are answered. */
  broadcast: ipv4.default('255.255.255.255'),
});

const bootFields = z.strictObject({
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
  /** Beside the site's own DHCP server, names loader and script to the machines that a run waits for. Without it the site's server must. */
  proxyDhcp: proxyDhcp.optional(),
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

/** Firmware that is offered what cannot be had goes to its disk. */
const boot = bootFields.superRefine(({ host, tftpPort, loaders: named, proxyDhcp: proxy }, context) => {
  if (proxy === undefined) return;
  const problem = (path: string[], message: string): void => context.addIssue({ code: 'custom', path, message });
  if (proxy.address === undefined && !isIPv4(host))
    problem(['proxyDhcp', 'address'], `is needed: host is ${host}, and clients are told an IPv4 address`);
  if (tftpPort === undefined) problem(['tftpPort'], 'is needed with proxyDhcp: firmware loads over TFTP, from port 69');
  if (Object.values(named).every((name) => name === undefined)) problem(['loaders'], 'at least one is needed with proxyDhcp');
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
