/**
 * A machine that is reached over SSH: a real sshd on loopback whose logins see a folder of their own as the places of bcd, and a systemctl that keeps the
 * real bcd running. What it was told and what bcd said is kept in files.
 */
import { execFileSync } from 'node:child_process';
import { chmodSync, copyFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { findIdentity, type Identity } from '../../daemon/state/identity.ts';
import type { HostLayout } from '../../workers/hosts/layout.ts';
import { makeSshKey, publicLineOf, startSshd } from '../harness/sshd.ts';

const systemctl = fileURLToPath(new URL('../fakes/systemctl.sh', import.meta.url));

export interface SshMachine {
  readonly port: number;
  /** `SHA256:…` of the host key that it shows first. */
  readonly hostKey: string;
  readonly layout: HostLayout;
  /** Words of systemctl, in their order. */
  told(): string[];
  /** What bcd has said there. */
  log(): string;
  identity(): Promise<Identity | undefined>;
  /** Ends bcd as the loss of its process would. */
  killDaemon(): void;
  isEnabled(): boolean;
  stop(): Promise<void>;
}

export interface SshMachineOptions {
  readonly folder: string;
  readonly name: string;
  /** Whose logins are taken: the path of a private key. */
  readonly loginKey: string;
}

/** By its private key's path: what `ssh-keygen -lf` prints. */
export const fingerprintOf = (path: string): string =>
  execFileSync('ssh-keygen', ['-lf', `${path}.pub`], { encoding: 'utf8' }).split(' ')[1] ?? '';

export async function startSshMachine({ folder, name, loginKey }: SshMachineOptions): Promise<SshMachine> {
  const root = join(folder, name);
  const [bin, units, state, config] = ['bin', 'units', 'state', 'etc'].map((part) => join(root, part)) as [string, string, string, string];
  for (const part of [bin, units, state, config]) mkdirSync(part, { recursive: true });
  copyFileSync(systemctl, join(bin, 'systemctl'));
  chmodSync(join(bin, 'systemctl'), 0o755);
  const hostKeyPath = makeSshKey(root, 'host');
  writeFileSync(join(root, 'authorized_keys'), `${publicLineOf(loginKey)}\n`, { mode: 0o600 });
  const path = [bin, dirname(process.execPath), '/usr/bin', '/bin'].join(':');
  const sshd = await startSshd({
    folder: root,
    name,
    lines: [
      `HostKey ${hostKeyPath}`,
      `AuthorizedKeysFile ${join(root, 'authorized_keys')}`,
      'PermitRootLogin yes',
      'PasswordAuthentication no',
      `SetEnv PATH=${path} FAKE_UNITS=${units} FAKE_STATE=${state}`,
    ],
  });
  const layout = { program: join(bin, 'bcd'), dataDir: join(root, 'data'), configDir: config, unitDir: units };
  const read = (file: string): string => (existsSync(join(state, file)) ? readFileSync(join(state, file), 'utf8') : '');
  const signal = (what: NodeJS.Signals): void => {
    const pid = Number(read('pid'));
    if (pid > 0) {
      try {
        process.kill(pid, what);
      } catch {
        // It has ended by itself.
      }
    }
  };
  return {
    port: sshd.port,
    hostKey: fingerprintOf(hostKeyPath),
    layout,
    told: () =>
      read('told')
        .split('\n')
        .filter((line) => line !== ''),
    log: () => read('log'),
    identity: async () => (await findIdentity(layout.dataDir).catch(() => undefined))?.identity,
    killDaemon: () => signal('SIGKILL'),
    isEnabled: () => existsSync(join(state, 'enabled')),
    async stop() {
      signal('SIGTERM');
      await sshd.stop();
    },
  };
}
