/**
 * What a fake controller shows: a captured tree of ../shared/vectors/redfish, unpacked once into .cache and read file by file, or the
 * small one of our own. Nothing captured is kept in this repository.
 */

import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { projectRoot } from '../../harness/imports.ts';
import { minimalTree } from './minimal-tree.ts';
import type { FakeTree } from './types.ts';

export type Body = Readonly<Record<string, unknown>>;

export interface Tree {
  /** undefined: there is no such resource. */
  read(path: string): Body | undefined;
  readonly system: string;
  readonly manager: string;
  /** Of the account that is logged in with. */
  readonly account: string;
}

/** Where the parts of a captured tree are that behave. */
const captured: Readonly<Record<Exclude<FakeTree, 'minimal'>, Omit<Tree, 'read'>>> = Object.freeze({
  gh200: {
    system: '/redfish/v1/Systems/System_0',
    manager: '/redfish/v1/Managers/BMC_0',
    account: '/redfish/v1/AccountService/Accounts/root',
  },
  dell_poweredge_r750: {
    system: '/redfish/v1/Systems/System.Embedded.1',
    manager: '/redfish/v1/Managers/iDRAC.Embedded.1',
    account: '/redfish/v1/AccountService/Accounts/2',
  },
});

const archiveOf = (name: string): string => join(projectRoot, '..', 'shared', 'vectors', 'redfish', `${name}.tgz`);

/** Whether a tree can be served here; `minimal` always can. */
export const hasTree = (name: FakeTree): boolean => name === 'minimal' || existsSync(archiveOf(name));

export function openTree(name: FakeTree): Tree {
  if (name === 'minimal') return minimalTree;
  const folder = unpacked(name);
  const known = new Map<string, Body | undefined>();
  return {
    ...captured[name],
    read(path) {
      if (!known.has(path)) known.set(path, readResource(folder, path));
      return known.get(path);
    },
  };
}

function readResource(folder: string, path: string): Body | undefined {
  if (!path.startsWith('/redfish/') || path.split('/').includes('..')) return undefined;
  const file = join(folder, ...path.split('/').map(decodeURIComponent), 'index.json');
  return existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as Body) : undefined;
}

function unpacked(name: string): string {
  const archive = archiveOf(name);
  const { size, mtimeMs } = statSync(archive);
  const mark = createHash('sha256').update(`${size} ${mtimeMs}`).digest('hex').slice(0, 8);
  const folder = join(projectRoot, '.cache', 'redfish', `${name}-${mark}`);
  if (existsSync(folder)) return folder;
  mkdirSync(dirname(folder), { recursive: true });
  const fresh = mkdtempSync(`${folder}.`);
  execFileSync('tar', ['-xzf', archive, '-C', fresh]);
  try {
    renameSync(fresh, folder);
  } catch {
    // Another process was first.
    rmSync(fresh, { recursive: true, force: true });
  }
  return folder;
}
