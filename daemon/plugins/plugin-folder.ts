/**
 * The folder of a machine's plugins: one folder a plugin, called as it is, with its `manifest.json` and the program that this names.
 * Everything is read anew for each call: a plugin is exchanged by exchanging its files, and no call runs what was checked for another one.
 */
import { createHash } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { ControlError } from '../../domain/errors.ts';
import { isPluginName, pluginBounds } from '../../domain/plugins/invocation.ts';
import { readIfPresent } from '../state/files.ts';
import { fileSha256 } from '../upgrade/program-file.ts';
import type { InstalledPlugin } from './judge.ts';
import { parseManifest } from './manifest.ts';
import { assertTrusted } from './trusted-path.ts';

export interface OpenedPlugin extends InstalledPlugin {
  readonly folder: string;
  /** Absolute. */
  readonly executable: string;
}

/** The account of this process. */
export const ownUid = (): number => process.geteuid?.() ?? 0;

/**
 * The manifest of a plugin; its program is looked at by assertProgram, once it is known that it is to run.
 *
 * @throws NOT_FOUND no-plugin naming those there are; INVALID_STATE plugin-untrusted; INVALID_CONFIG plugin-manifest
 */
export async function openPlugin(plugins: string, name: string): Promise<OpenedPlugin> {
  await assertTrusted(plugins, 'folder', ownUid());
  const there = await pluginNames(plugins);
  if (!there.includes(name))
    throw new ControlError(
      'NOT_FOUND',
      `this machine has no plugin ${name}: ${there.length === 0 ? `there is none in ${plugins}` : `it has ${there.slice(0, 20).join(', ')}`}`,
      { details: { reason: 'no-plugin' } },
    );
  const folder = join(plugins, name);
  const path = join(folder, 'manifest.json');
  await assertTrusted(folder, 'folder', ownUid());
  await assertTrusted(path, 'file', ownUid());
  const content = (await readIfPresent(path, pluginBounds.manifestBytes)) ?? Buffer.alloc(0);
  const manifest = parseManifest(path, content.toString('utf8'));
  if (manifest.name !== name)
    throw new ControlError('INVALID_CONFIG', `${path}: name is ${manifest.name}, and its folder is called ${name}: they must agree`, {
      details: { reason: 'plugin-manifest' },
    });
  const manifestSha256 = createHash('sha256').update(content).digest('hex');
  return { manifest, manifestSha256, folder, executable: join(folder, manifest.executable) };
}

/** @throws INVALID_STATE plugin-untrusted, plugin-program (not the one that the manifest names); NOT_FOUND */
export async function assertProgram({ executable, manifest }: OpenedPlugin): Promise<void> {
  await assertTrusted(executable, 'file', ownUid());
  const sha256 = await fileSha256(executable);
  if (sha256 === manifest.sha256) return;
  throw new ControlError(
    'INVALID_STATE',
    `${executable} has SHA-256 ${sha256}, and its manifest names ${manifest.sha256}; nothing of it is run: put both in place together`,
    { details: { reason: 'plugin-program' } },
  );
}

/** In their order; a name that is none of a plugin is passed over. */
export async function pluginNames(plugins: string): Promise<string[]> {
  return (await readdir(plugins)).filter(isPluginName).sort();
}
