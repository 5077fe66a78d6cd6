/** Real plugins for tests: small programs of the shell, each with the manifest that its owner would write. */
import { createHash } from 'node:crypto';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

export interface MethodInit {
  readonly destructive?: boolean;
  readonly timeoutSeconds?: number;
  readonly maxInputBytes?: number;
  readonly maxOutputBytes?: number;
}

export interface PluginInit {
  readonly name?: string;
  /** Behind `#!/bin/sh`; `$1` is the method. */
  readonly script: string;
  readonly methods?: Readonly<Record<string, MethodInit>>;
  /** Over the manifest as it would be. */
  readonly manifest?: Readonly<Record<string, unknown>>;
}

export interface WrittenPlugin {
  readonly folder: string;
  readonly executable: string;
  readonly manifestPath: string;
  readonly manifestSha256: string;
}

export const sha256Of = (content: string | Buffer): string => createHash('sha256').update(content).digest('hex');

export function writePlugin(plugins: string, { name = 'psu', script, methods = { read: {} }, manifest = {} }: PluginInit): WrittenPlugin {
  const folder = join(plugins, name);
  const executable = join(folder, 'plugin');
  const manifestPath = join(folder, 'manifest.json');
  const program = `#!/bin/sh\n${script}\n`;
  mkdirSync(folder, { recursive: true, mode: 0o755 });
  writeFileSync(executable, program);
  chmodSync(executable, 0o755);
  const whole = Object.entries(methods).map(([method, init]) => [
    method,
    { destructive: false, timeoutSeconds: 30, maxInputBytes: 1024, maxOutputBytes: 4096, ...init },
  ]);
  const text = JSON.stringify({
    name,
    version: '1.0.0',
    executable: 'plugin',
    sha256: sha256Of(program),
    methods: Object.fromEntries(whole),
    ...manifest,
  });
  writeFileSync(manifestPath, text);
  return { folder, executable, manifestPath, manifestSha256: sha256Of(text) };
}
