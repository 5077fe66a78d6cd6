/** The first Python that has a package: the one on PATH, then the system's own, for which Debian's packages are. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

const run = promisify(execFile);
const candidates = ['python3', '/usr/bin/python3'];

/** null when none has it. */
export async function findPython(module: string): Promise<string | null> {
  for (const python of candidates) {
    const found = await run(python, ['-c', `import ${module}`]).then(
      () => true,
      () => false,
    );
    if (found) return python;
  }
  return null;
}
