/** A real boot server on loopback, with a site agent's identity, over a clock and secrets that a test sets. */
import { createHash } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { create, type MessageInitShape } from '@bufbuild/protobuf';
import type { KindContext, KindEnd } from '../../daemon/kinds/handler.ts';
import type { SecretBinding } from '../../daemon/secrets/port.ts';
import { encodeAssertRequest } from '../../daemon/site/boot/assert-request.ts';
import { createBootHandlers } from '../../daemon/site/boot/handlers.ts';
import { type BootServer, createBootServer } from '../../daemon/site/boot/server.ts';
import { type BootConfig, siteSection } from '../../daemon/site/config.ts';
import type { Identity } from '../../daemon/state/identity.ts';
import { ControlError } from '../../domain/errors.ts';
import { site } from '../../proto/index.ts';
import { joinedNode, type TestDeployment } from '../harness/deployment.ts';
import { scratchFolder } from '../harness/scratch.ts';

export const mac = '52:54:00:00:00:01';
export const runId = '0123456789ab';
export const token = Buffer.alloc(32, 7);
export const files = { vmlinuz: Buffer.from('the kernel '.repeat(100)), initramfs: Buffer.from('the ramdisk '.repeat(1_000)) };
export const hash = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

export interface LogLine {
  readonly level: string;
  readonly facts: Record<string, unknown>;
  readonly message: string;
}

export async function bootStage(
  deployment: TestDeployment,
  over: Record<string, unknown> = {},
  onLog: (line: LogLine) => void = () => undefined,
) {
  const folder = scratchFolder();
  const artefacts = join(folder, 'artefacts');
  await mkdir(artefacts);
  for (const [name, content] of Object.entries(files)) await writeFile(join(artefacts, name), content);
  const stored = await joinedNode(deployment, {
    gatewayUrl: 'https://gateway.test:7443',
    nodeId: 'agent-1',
    role: 'site',
    now: 1_800_000_000_000,
  });
  const log: LogLine[] = [];
  const write = (level: string) => (facts: Record<string, unknown>, message: string) => {
    const line = { level, facts, message };
    log.push(line);
    onLog(line);
  };
  const state = { now: 1_800_000_000_000, secret: token as Uint8Array | null, identity: {} as Partial<Identity> };
  const asked: (SecretBinding & { ref: string })[] = [];
  const refusals: string[] = [];
  const agent = {
    stored: () => ({ ...stored, identity: { ...stored.identity, ...state.identity } }),
    now: () => state.now,
    refused: (reason: string) => void refusals.push(reason),
    secrets: {
      read: async (ref: string, binding: SecretBinding) => {
        asked.push({ ref, ...binding });
        if (state.secret === null)
          throw new ControlError('UNAVAILABLE', `${ref}: no answer came within 10 s`, { details: { reason: 'no-answer' } });
        return state.secret;
      },
    },
  };
  const config = siteSection.parse({ boot: { host: '127.0.0.1', listen: '127.0.0.1', httpPort: 0, folder: artefacts, ...over } })
    .boot as BootConfig;
  const open: BootServer[] = [];
  const start = async (): Promise<BootServer> => {
    const server = await createBootServer({
      config,
      stateFolder: join(folder, 'boot'),
      wallMs: () => state.now,
      log: { debug: write('debug'), info: write('info'), warn: write('warn'), error: write('error') },
    });
    server.attach(agent);
    open.push(server);
    return server;
  };
  return {
    folder,
    artefacts,
    stateFolder: join(folder, 'boot'),
    state,
    stored,
    log,
    asked,
    refusals,
    start,
    close: async () => {
      for (const server of open.splice(0)) await server.close();
    },
  };
}

export type BootStage = Awaited<ReturnType<typeof bootStage>>;

export const context = (commandId: string): KindContext => ({
  commandId,
  signal: new AbortController().signal,
  now: () => 1_800_000_000_000,
  progress: () => undefined,
  note: {},
});

export const prepareOf = (over: MessageInitShape<typeof site.BootPrepareRamdiskSchema> = {}) =>
  create(site.BootPrepareRamdiskSchema, {
    nodeId: 'machine-1',
    runId,
    entryId: 'entry-1',
    macAddresses: [mac],
    bootNonce: Buffer.alloc(16, 3),
    discoveryTokenRef: `secret://run/${runId}/boot/entry-1`,
    expiresAtMs: 1_800_000_600_000n,
    kernel: { name: 'vmlinuz', sha256: hash(files.vmlinuz) },
    initramfs: { name: 'initramfs', sha256: hash(files.initramfs) },
    kernelArgs: 'console=ttyS0',
    ...over,
  } as MessageInitShape<typeof site.BootPrepareRamdiskSchema>);

export const prepare = (server: BootServer, over: MessageInitShape<typeof site.BootPrepareRamdiskSchema> = {}): Promise<KindEnd> =>
  createBootHandlers({ desk: server.desk })['boot.prepareRamdisk'].run(
    prepareOf(over),
    context(`machine/machine-1/provision/${runId}/prepare.1`),
  );

export const cleanUp = (server: BootServer, over: MessageInitShape<typeof site.BootCleanUpSchema> = {}): Promise<KindEnd> =>
  createBootHandlers({ desk: server.desk })['boot.cleanUp'].run(
    create(site.BootCleanUpSchema, { nodeId: 'machine-1', runId, macAddresses: [mac], answer: site.BootAnswer.LOCAL, ...over }),
    context(`machine/machine-1/provision/${runId}/clean.1`),
  );

export const scriptOf = async (server: BootServer, address = mac): Promise<string> =>
  (await fetch(`${server.baseUrl}/ipxe/${address}`)).text();

/** Which of the three answers a script is. */
export function answerIn(script: string): 'ramdisk' | 'hold' | 'local' {
  if (/^kernel /m.test(script)) return 'ramdisk';
  return /sanboot|^exit/m.test(script) ? 'local' : 'hold';
}

export const assertion = (
  server: BootServer,
  over: { token?: Uint8Array; csrSha256?: string; macAddress?: string } = {},
): Promise<Response> =>
  fetch(`${server.baseUrl}/v1/assert`, {
    method: 'POST',
    body: encodeAssertRequest({
      token,
      csrSha256: 'a'.repeat(64),
      macAddress: mac,
      systemUuid: 'uuid-1',
      systemSerial: 'serial-1',
      ...over,
    }),
  });
