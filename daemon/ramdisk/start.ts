/**
 * The life of `bcd ramdisk`: one boot of one run. Reads the kernel's command line, joins by what the site agent asserts, and stays in a
 * session like every daemon, with the kinds of a ramdisk.
 *
 * Its state lies in a folder in memory and is of this boot alone: a folder of another boot is emptied, so that nothing that an earlier
 * run accepted is known, and nothing that it held is believed. A process that is started again in the same boot goes on: same key, same
 * journal, no second join (the token is spent).
 */
import { randomBytes } from 'node:crypto';
import { mkdir, rm } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import type { BootCmdline } from '../../domain/metal/cmdline.ts';
import type { AgentLog } from '../agent/log.ts';
import type { DaemonConfig } from '../config.ts';
import { joinNode } from '../join.ts';
import type { RoleHandlers, RoundState } from '../round.ts';
import { type RunningDaemon, startDaemon } from '../run.ts';
import { kernelBootId } from '../state/boot-id.ts';
import type { CrashHook } from '../state/crash-points.ts';
import { openPrivateFolder } from '../state/files.ts';
import { findIdentity, identityPath } from '../state/identity.ts';
import { readJsonFile, writeJsonFile } from '../state/json-file.ts';
import { assertionBy, bundleOf } from './discovery.ts';
import type { DiskHost, MachineFacts } from './disks/disk-host.ts';
import { evidenceSigner } from './evidence-signer.ts';
import { createRamdiskHandlers } from './index.ts';
import { type JumpDoer, journaledJump } from './jump/journaled-jump.ts';

export interface RamdiskOptions {
  readonly line: BootCmdline;
  readonly disks: DiskHost;
  readonly machine: () => Promise<MachineFacts>;
  /** In memory on a machine; a temporary folder elsewhere. */
  readonly root: string;
  readonly doer: JumpDoer;
  readonly config: DaemonConfig;
  /** Folder of the plugins that the ramdisk was built with; null: it has none. */
  readonly plugins: string | null;
  readonly minOverlapMs: number;
  /** How long the join may take. */
  readonly patienceMs: number;
  readonly log: AgentLog;
  readonly crash: CrashHook;
  readonly onFailed: (error: unknown) => void;
}

/** @throws what the join throws when patience ends or the control plane refuses */
export async function startRamdisk(options: RamdiskOptions): Promise<RunningDaemon> {
  const root = resolve(options.root);
  const folders = { dataDir: join(root, 'state'), scratch: join(root, 'scratch') };
  await openPrivateFolder(root);
  await ofThisBoot(folders, options.line);
  await joinOnce(options, folders.dataDir);
  let takeUp: () => Promise<void> = async () => undefined;
  const daemon = await startDaemon({
    dataDir: folders.dataDir,
    config: options.config,
    simulateReboot: false,
    minOverlapMs: options.minOverlapMs,
    log: options.log,
    crash: options.crash,
    onFailed: options.onFailed,
    roleHandlers: (around) => {
      const made = handlersOf(options, { around, ...folders });
      takeUp = made.takeUp;
      return made;
    },
  });
  await takeUp();
  return daemon;
}

function handlersOf(
  { line, disks, machine, doer, plugins, log }: RamdiskOptions,
  { around, dataDir, scratch }: { around: RoundState; dataDir: string; scratch: string },
): RoleHandlers & { takeUp: () => Promise<void> } {
  const { journal, secrets, identity, readBootId } = around;
  const jump = journaledJump({ folder: dataDir, readBootId, journal, doer, log });
  const handlers = createRamdiskHandlers({
    boot: { nodeId: line.nodeId, runId: line.runId, bootNonce: Buffer.from(line.bootNonce, 'hex') },
    disks,
    machine,
    // Of the moment of signing: certificates are renewed under a wipe of many hours.
    signer: () => evidenceSigner(identity.current),
    secrets,
    jump,
    plugins: plugins === null ? null : { folder: plugins, log },
    scratch,
    random: (length) => randomBytes(length),
    sleep: (ms, signal) => sleep(ms, undefined, { signal }),
  });
  return { handlers, onReceipted: jump.receipted, takeUp: jump.takeUp };
}

const bootSchema = z.strictObject({ runId: z.string(), entryId: z.string(), bootNonce: z.string(), nodeId: z.string() });

async function ofThisBoot({ dataDir, scratch }: { dataDir: string; scratch: string }, line: BootCmdline): Promise<void> {
  const { runId, entryId, bootNonce, nodeId } = line;
  const path = join(dataDir, 'boot.json');
  const found = await readJsonFile(path, bootSchema, 4096).catch(() => undefined);
  if (found?.bootNonce !== bootNonce || found.entryId !== entryId) {
    for (const folder of [dataDir, scratch]) await rm(folder, { recursive: true, force: true });
  }
  await openPrivateFolder(dataDir);
  await mkdir(scratch, { recursive: true, mode: 0o700 });
  await writeJsonFile(path, { runId, entryId, bootNonce, nodeId });
}

/** A join cut short is taken up with the same key: the token is good for that one alone (M68). */
async function joinOnce({ line, machine, patienceMs, log }: RamdiskOptions, dataDir: string): Promise<void> {
  if ((await findIdentity(dataDir)) !== undefined) return;
  const identity = await joinNode({
    dataDir,
    bundle: bundleOf(line),
    role: 'ramdisk',
    attestor: 'discovery',
    evidence: assertionBy(line, await machine()),
    replace: false,
    patienceMs,
    host: { root: '/', readBootId: () => kernelBootId.read() },
    random: Math.random,
    now: Date.now,
    say: (text) => log.info({}, text),
    sleep: (ms) => sleep(ms),
  });
  log.info({ nodeId: identity.nodeId, runId: line.runId, path: identityPath(dataDir) }, 'joined as the ramdisk of a run');
}
