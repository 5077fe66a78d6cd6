/** The plugins of a ramdisk: a folder of them as on a machine (docs/plugins.md), at the place where bcd ramdisk looks for it. */
import { lstatSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { SetupError } from '../lib/failure.mjs';
import { modes } from './cpio.mjs';

/** As daemon/cli/ramdisk.ts has it. */
const place = 'usr/lib/better-compute/plugins';

/** Each plugin's own files, and no folder below: a program that anybody may run, everything else to be read. @param {string} folder */
export function pluginEntries(folder) {
  const entries = readdirSync(folder).flatMap((plugin) =>
    readdirSync(join(folder, plugin)).map((name) => {
      const path = join(folder, plugin, name);
      const facts = lstatSync(path);
      if (!facts.isFile()) throw new SetupError(`${path} is no regular file`, 'a plugin is a folder of files, without links and folders');
      const mode = (facts.mode & 0o100) === 0 ? modes.file : modes.program;
      return { path: `${place}/${plugin}/${name}`, mode, content: readFileSync(path) };
    }),
  );
  if (entries.length === 0) throw new SetupError(`there is no plugin in ${folder}`, 'leave --plugins out for a ramdisk without any');
  return entries;
}
