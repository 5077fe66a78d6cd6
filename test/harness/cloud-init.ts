/** Does what cloud-init does with the `write_files` of user data, under a folder that stands for the root of a guest. */
import assert from 'node:assert/strict';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { parse } from 'yaml';

export interface CloudConfig {
  readonly write_files: readonly {
    readonly path: string;
    readonly owner: string;
    readonly permissions: string;
    readonly content: string;
  }[];
  readonly users?: readonly (string | { readonly name: string; readonly lock_passwd: boolean })[];
  readonly runcmd: readonly (readonly string[])[];
}

/** Read as YAML 1.1, as cloud-init reads it. */
export function parseCloudConfig(userData: string): CloudConfig {
  assert.match(userData, /^#cloud-config\n/);
  return parse(userData, { version: '1.1' }) as CloudConfig;
}

/** Writes every file; where a text names the folder of sshd, it names the one under `root`. */
export function writeCloudFiles(userData: string, root: string): void {
  for (const { path, permissions, content } of parseCloudConfig(userData).write_files) {
    const at = join(root, path);
    mkdirSync(dirname(at), { recursive: true, mode: 0o755 });
    writeFileSync(at, content.replaceAll('/etc/ssh/', `${root}/etc/ssh/`));
    chmodSync(at, Number.parseInt(permissions, 8));
  }
}
