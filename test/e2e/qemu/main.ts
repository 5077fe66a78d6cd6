/**
 * `npm run e2e:qemu`: one machine, from its power button to its own identity, with nothing between that is not real: a management
 * controller (Redfish, over QMP) → iPXE over HTTP from the site agent's boot server → our kernel and ramdisk → discovery join → every
 * disk erased → an image written → kexec → the deployed system joins as provisioned. Skipped by name where something is missing.
 */
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { mkdtempSync, openSync, readFileSync, rmSync, truncateSync, writeFileSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fromBinary, type Message } from '@bufbuild/protobuf';
import { second } from '../../../domain/time.ts';
import {
  BootKexecResultSchema,
  DeployEvidenceSchema,
  type DeployImageResult,
  DeployImageResultSchema,
  type DiagDisksReport,
  DiagDisksReportSchema,
  type DiskWipeResult,
  DiskWipeResultSchema,
  EraseEvidenceSchema,
  site as siteMessages,
} from '../../../proto/index.ts';
import { buildRamdisk } from '../../../scripts/ramdisk/build.mjs';
import { startTestServer } from '../../harness/postgres.ts';
import { startImageServer } from '../../ramdisk/image-server.ts';
import { hasProgram } from '../../ramdisk/stage.ts';
import { buildSystemImage } from './image.ts';
import { macAddress, startQemuMachine } from './machine.ts';
import { hostOfGuest, machineId, runId, type Site, startSite } from './site.ts';

const needed = ['qemu-system-x86_64', 'busybox', 'kexec', 'mke2fs', 'apt-get', 'dpkg-deb'];
const credential = { username: 'admin', password: 'correct-horse-battery' };
const diskBytes = 192 * 1024 * 1024;
const serial = 'QEMU-DISK-1';

const startedAt = performance.now();
const steps: { step: string; atSeconds: number }[] = [];
function reached(step: string): void {
  steps.push({ step, atSeconds: Math.round((performance.now() - startedAt) / 100) / 10 });
  process.stderr.write(`${steps.at(-1)?.atSeconds.toFixed(1).padStart(6)} s  ${step}\n`);
}

async function untilSession(site: Site, role: string, look: () => string): Promise<{ role: string; generation: number }> {
  const until = performance.now() + 300 * second;
  for (;;) {
    const session = await site.session();
    if (session?.role === role) return session;
    if (performance.now() > until) throw new Error(`no session of role ${role}; the console ends in: ${look().slice(-3000)}`);
    await new Promise((resolve) => setTimeout(resolve, 250));
  }
}

async function story(folder: string, cleanUps: (() => Promise<unknown>)[]): Promise<Record<string, unknown>> {
  const { manifest } = await buildRamdisk({ out: folder });
  reached(`ramdisk built: kernel ${manifest.kernel.version}, initramfs ${Math.round(manifest.initramfs.bytes / 1e6)} MB`);
  const image = buildSystemImage(folder, { kernel: join(folder, 'vmlinuz'), initramfs: join(folder, 'initramfs.gz') });
  const imageSha256 = createHash('sha256').update(image).digest('hex');
  const images = await startImageServer(image);
  cleanUps.push(() => images.close());
  const disk = join(folder, 'disk.img');
  const secretOfTenant = randomBytes(1024 * 1024);
  writeFileSync(disk, '');
  truncateSync(disk, diskBytes);
  writeSync(openSync(disk, 'r+'), secretOfTenant, 0, secretOfTenant.length, 64 * 1024 * 1024);
  const server = await startTestServer();
  cleanUps.push(() => server.stop());
  const database = await server.createMigrated();
  const db = database.connect({ max: 12 });
  cleanUps.push(() => db.close());
  const site = await startSite(db, folder);
  cleanUps.push(() => site.stop());
  const machine = await startQemuMachine({
    folder,
    disk,
    serial,
    credential,
    bootUrl: `${site.boot.baseUrl}/ipxe/${macAddress.replaceAll(':', '-')}`,
  });
  cleanUps.push(() => machine.stop());
  await site.storeCredential(JSON.stringify(credential));
  const { entryId, bootNonce, tokenRef, joinRef } = await site.openRun();
  reached('control plane, site agent and controller are up');

  const toAgent = { nodeId: 'site-agent' };
  const controller = {
    address: machine.bmc.address,
    nodeId: machineId,
    credentialRef: `secret://bmc/${machineId}`,
    pinSha256: machine.bmc.pinSha256,
    runId,
  };
  await site.command(
    {
      ...toAgent,
      step: 'prepare.1',
      kind: 'boot.prepareRamdisk',
      payload: {
        nodeId: machineId,
        runId,
        entryId,
        macAddresses: [macAddress],
        bootNonce: Buffer.from(bootNonce, 'hex'),
        discoveryTokenRef: tokenRef,
        expiresAtMs: BigInt(Date.now() + 3_600_000),
        kernel: { name: 'vmlinuz', sha256: manifest.kernel.sha256 },
        initramfs: { name: 'initramfs.gz', sha256: manifest.initramfs.sha256 },
      },
    },
    siteMessages.BootPrepareRamdiskResultSchema,
  );
  const { PowerAction, BootTarget } = siteMessages;
  await site.command(
    { ...toAgent, step: 'boot.1', kind: 'bmc.boot', payload: { ...controller, target: BootTarget.NETWORK, ordinal: 1 } },
    siteMessages.BmcBootResultSchema,
  );
  await site.command(
    { ...toAgent, step: 'power.1', kind: 'bmc.power', payload: { ...controller, action: PowerAction.ON, ordinal: 1 } },
    siteMessages.BmcPowerResultSchema,
  );
  reached('powered on over Redfish, from the network');
  const ramdisk = await untilSession(site, 'ramdisk', machine.console);
  reached(`bcd joined from the ramdisk by discovery, generation ${ramdisk.generation}`);

  const own = { runId, bootNonce: Buffer.from(bootNonce, 'hex') };
  const ask = (
    kind: 'diag.disks' | 'disk.wipe' | 'deploy.image' | 'boot.kexec',
    payload: object,
    schema: Parameters<Site['command']>[1],
  ): Promise<Message> => site.command({ step: `${kind}.1`, nodeId: machineId, kind, payload: { ...own, ...payload } }, schema);
  const { disks, systemUuid } = (await ask('diag.disks', {}, DiagDisksReportSchema)) as DiagDisksReport;
  assert.deepEqual(
    disks.map((one) => [one.serial, one.sizeBytes, one.transport]),
    [[serial, BigInt(diskBytes), 'virtio']],
  );
  reached(`disks reported: ${disks[0]?.name}, serial ${serial}, of the machine ${systemUuid}`);

  const wiped = (await ask('disk.wipe', { targets: [{ serial }] }, DiskWipeResultSchema)) as DiskWipeResult;
  const erase = fromBinary(EraseEvidenceSchema, wiped.evidence?.body ?? new Uint8Array());
  assert.ok(erase.disks.every(({ erased }) => erased));
  assert.equal(readFileSync(disk).includes(secretOfTenant.subarray(0, 64)), false, 'what lay there is gone');
  reached(`erased by ${erase.disks[0]?.method}, ${erase.disks[0]?.samples.length} samples`);

  const target = { target: { serial } };
  const deployed = (await ask(
    'deploy.image',
    {
      ...target,
      imageUrl: images.url.replace('127.0.0.1', hostOfGuest),
      imageSha256,
      imageBytes: BigInt(image.length),
      format: 1,
      compression: 'none',
      growPartition: 1,
      joinRef,
    },
    DeployImageResultSchema,
  )) as DeployImageResult;
  const deploy = fromBinary(DeployEvidenceSchema, deployed.evidence?.body ?? new Uint8Array());
  assert.equal(Buffer.from(deploy.readbackSha256).toString('hex'), imageSha256);
  reached(`image of ${Math.round(image.length / 1e6)} MB written, read back and grown`);

  await ask('boot.kexec', target, BootKexecResultSchema);
  reached('kexec answered, before the jump');
  const node = await untilSession(site, 'node', machine.console);
  assert.ok(node.generation > ramdisk.generation);
  reached(`the deployed system joined as provisioned, generation ${node.generation}`);
  assert.match(machine.console(), /installed: joined/);
  await site.command(
    { ...toAgent, step: 'power.4', kind: 'bmc.power', payload: { ...controller, action: PowerAction.OFF_HARD, ordinal: 4 } },
    siteMessages.BmcPowerResultSchema,
  );
  reached('powered off over Redfish');
  return {
    passed: true,
    ramdiskGeneration: ramdisk.generation,
    nodeGeneration: node.generation,
    eraseMethod: erase.disks[0]?.method,
    imageBytes: image.length,
    resets: machine.bmc.effects.resets,
  };
}

const missing = needed.filter((name) => !hasProgram(name));
if (missing.length > 0) {
  process.stdout.write(
    `${JSON.stringify({ skipped: true, missing, hint: 'apt-get install --no-install-recommends qemu-system-x86 ipxe-qemu busybox-static kexec-tools e2fsprogs' })}\n`,
  );
} else {
  const folder = mkdtempSync(join(tmpdir(), 'bc-qemu-'));
  const cleanUps: (() => Promise<unknown>)[] = [
    () => Promise.resolve(process.env['BC_KEEP'] === '1' || rmSync(folder, { recursive: true, force: true })),
  ];
  // Whoever ends the story early finds no machine left running.
  const ended = new Promise<never>((_resolve, reject) => {
    for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, () => reject(new Error(`ended by ${signal}`)));
  });
  try {
    const facts = await Promise.race([story(folder, cleanUps), ended]);
    process.stdout.write(`${JSON.stringify({ ...facts, steps })}\n`);
  } catch (error) {
    process.stderr.write(`error: ${error instanceof Error ? error.stack : String(error)}\n`);
    process.stdout.write(`${JSON.stringify({ passed: false, steps })}\n`);
    process.exitCode = 1;
  } finally {
    for (const cleanUp of cleanUps.toReversed()) await cleanUp();
  }
}
