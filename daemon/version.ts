/** What this daemon calls itself in Hello and Join. */
import { readFileSync } from 'node:fs';

export const daemonVersion: string = readVersion();

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
