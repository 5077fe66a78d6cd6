/** The site of the demonstration: its agent with the boot server, a real `bcd site`, and the files that it hands out. */
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Artefact } from '../../../../domain/metal/profile.ts';
import { claimPort } from '../../../../scripts/lib/free-port.mjs';
import type { OperatorClient } from '../../../api-client.ts';
import { startChild } from '../../child-process.ts';
import { entryOf } from '../../entries.ts';
import { daemonEnv } from '../../processes.ts';
import type { Stack } from '../../stack.ts';
import { joinNode } from '../fleet.ts';

export const siteId = 'demonstration';
export const agentName = 'site-agent-1';

export interface Site {
  readonly bootUrl: string;
  readonly kernel: Artefact;
  readonly initramfs: Artefact;
  stop(): Promise<void>;
}

interface Scene {
  readonly stack: Stack;
  readonly api: OperatorClient;
  readonly rootOverlapMs: number;
  readonly say: (line: string) => void;
}

export async function startSite({ stack, api, rootOverlapMs, say }: Scene): Promise<Site> {
  const folder = join(stack.home.nodes, agentName);
  const artefacts = join(folder, 'artefacts');
  mkdirSync(artefacts, { recursive: true, mode: 0o700 });
  const kernel = artefact(artefacts, 'vmlinuz');
  const initramfs = artefact(artefacts, 'initramfs.gz');
  // The configuration names a port, and machines ask there before anybody could be told another one.
  const httpPort = await claimPort({ port: 0, who: 'the boot server', setBy: 'the demonstration' });
  const config = join(folder, 'config.json');
  writeFileSync(config, JSON.stringify({ site: { boot: { host: '127.0.0.1', listen: '127.0.0.1', httpPort, folder: artefacts } } }));
  const env = daemonEnv(stack.facts.env);
  if (!existsSync(join(folder, 'identity.json'))) await joinNode({ name: agentName, folder, api, env, as: { role: 'site', siteId } });
  const args = ['site', '--data-dir', folder, '--config', config, '--demonstration-only-root-overlap-ms', String(rootOverlapMs)];
  const logFile = join(stack.home.logs, `bcd-${agentName}.log`);
  const child = await startChild({ name: `bcd ${agentName}`, entry: entryOf('daemon/main'), args, env, logFile }, { say });
  return { bootUrl: `http://127.0.0.1:${httpPort}`, kernel, initramfs, stop: () => child.stop() };
}

/** Machines without firmware boot no kernel: what counts is that exactly these bytes would be handed out. */
export function artefact(folder: string, name: string): Artefact {
  const content = Buffer.from(`${name} of the demonstration\n`);
  writeFileSync(join(folder, name), content);
  return { name, sha256: createHash('sha256').update(content).digest('hex') };
}
