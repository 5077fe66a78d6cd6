/** What this daemon calls itself in Hello and Join. */
import { readFileSync } from 'node:fs';

/** Set when bcd is bundled into one file (scripts/bcd.mjs), which has no package.json beside it. */
declare const bcdBundleVersion: string | undefined;

export const daemonVersion: string = typeof bcdBundleVersion === 'string' ? bcdBundleVersion : readVersion();

/** package.json is one folder up in the sources and two up in a build. */
function readVersion(): string {
  for (const path of ['../package.json', '../../package.json']) {
    try {
      const found: unknown = JSON.parse(readFileSync(new URL(path, import.meta.url), 'utf8'));
      if (typeof found === 'object' && found !== null && 'version' in found && typeof found.version === 'string') return found.version;
    } catch {
      // Not in this layout.
    }
  }
  return '0.0.0';
}
