/** SoftHSM 2, a PKCS #11 token that nobody here wrote; where it or the native module is missing, its tests are skipped. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { scratchFolder } from './scratch.ts';

const libraries = [
  '/usr/lib/softhsm/libsofthsm2.so',
  '/usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so',
  '/usr/lib/aarch64-linux-gnu/softhsm/libsofthsm2.so',
  '/usr/lib64/pkcs11/libsofthsm2.so',
  '/opt/homebrew/lib/softhsm/libsofthsm2.so',
];

export interface SoftHsm {
  readonly module: string;
  readonly token: string;
  readonly pin: string;
  readonly pinFile: string;
  /** What a process needs that uses it. */
  readonly env: Readonly<Record<string, string>>;
  /** pkcs11-tool of OpenSC, logged in. */
  tool(...args: string[]): string;
}

const library = (): string | undefined => libraries.find((path) => existsSync(path));

const hasProgram = (name: string): boolean => {
  try {
    execFileSync('which', [name], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
};

/** null when it can be used; else what is missing. */
export async function softHsmMissing(): Promise<string | null> {
  if (library() === undefined || !hasProgram('softhsm2-util')) return 'softhsm2 is not installed';
  if (!hasProgram('pkcs11-tool')) return 'opensc is not installed';
  const built = await import('pkcs11js').then(
    () => true,
    () => false,
  );
  return built ? null : 'pkcs11js is not built';
}

/** A token of its own in a folder of its own. */
export function createSoftHsm(token = 'compute'): SoftHsm {
  const folder = scratchFolder();
  const config = join(folder, 'softhsm2.conf');
  mkdirSync(join(folder, 'tokens'));
  writeFileSync(config, `directories.tokendir = ${join(folder, 'tokens')}\nobjectstore.backend = file\nlog.level = ERROR\n`);
  const pin = '493817';
  const pinFile = join(folder, 'pin');
  writeFileSync(pinFile, `${pin}\n`, { mode: 0o600 });
  const module = library() ?? '';
  const env = { ...process.env, SOFTHSM2_CONF: config };
  execFileSync('softhsm2-util', ['--init-token', '--free', '--label', token, '--pin', pin, '--so-pin', '00000000'], {
    env,
    stdio: 'ignore',
  });
  return {
    module,
    token,
    pin,
    pinFile,
    env: {
      SOFTHSM2_CONF: config,
      BETTER_COMPUTE_PKCS11_MODULE: module,
      BETTER_COMPUTE_PKCS11_PIN_FILE: pinFile,
      BETTER_COMPUTE_SIGNER_TIMEOUT_MS: '60000',
    },
    tool: (...args) =>
      execFileSync('pkcs11-tool', ['--module', module, '--token-label', token, '--login', '--pin', pin, ...args], {
        env,
        encoding: 'utf8',
        stdio: ['ignore', 'pipe', 'pipe'],
      }),
  };
}
