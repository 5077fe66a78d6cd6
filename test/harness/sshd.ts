/** A real sshd and a real ssh, for the tests that let them judge: both of Debian, each started with files that a test wrote. */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { claimPort } from '../../scripts/lib/free-port.mjs';

const sshdPath = ['/usr/sbin/sshd', '/usr/local/sbin/sshd'].find((path) => existsSync(path));

export const hasSshKeygen = spawnSync('ssh-keygen', ['-?']).error === undefined;

/** Why a test of a real sshd cannot run here; null when it can. */
export const sshdIsMissing: string | null =
  sshdPath !== undefined && hasSshKeygen && process.platform !== 'win32' ? null : 'openssh-server is absent';

export interface Sshd {
  readonly port: number;
  stop(): Promise<void>;
}

const canConnect = (address: string, port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connect(port, address);
    const answer = (is: boolean): void => {
      socket.destroy();
      resolve(is);
    };
    socket.once('connect', () => answer(true)).once('error', () => answer(false));
  });

/** What a machine's own sshd_config says, and then the lines of the test; of two words sshd takes the first. */
const aroundLines = ['UsePAM no', 'StrictModes no', 'PidFile none', 'PrintMotd no'];

export interface SshdOptions {
  readonly folder: string;
  readonly name: string;
  readonly lines: readonly string[];
  /** Default: loopback, and any port that is free. */
  readonly at?: { readonly address: string; readonly port: number };
}

/** Starts one on loopback with these lines, and waits until it takes connections. */
export async function startSshd({ folder, name, lines, at }: SshdOptions): Promise<Sshd> {
  // It wants its folder for children without rights, and makes none.
  if (process.getuid?.() === 0) mkdirSync('/run/sshd', { recursive: true });
  const { address, port } = at ?? { address: '127.0.0.1', port: await claimPort({ port: 0, who: 'sshd', setBy: 'this test' }) };
  const config = join(folder, `${name}-sshd`);
  writeFileSync(config, [`Port ${port}`, `ListenAddress ${address}`, ...lines, ...aroundLines, ''].join('\n'), { mode: 0o600 });
  const child: ChildProcess = spawn(sshdPath as string, ['-D', '-e', '-f', config], { stdio: ['ignore', 'ignore', 'pipe'] });
  let log = '';
  child.stderr?.on('data', (data) => (log += data));
  for (let attempt = 0; !(await canConnect(address, port)); attempt++) {
    assert.ok(attempt < 400 && child.exitCode === null, `sshd does not start: ${log}`);
    await setTimeout(25);
  }
  return {
    port,
    async stop() {
      if (child.exitCode !== null) return;
      const ended = once(child, 'exit');
      child.kill('SIGTERM');
      await ended;
    },
  };
}

/** A key pair in two files; the path of the private one. */
export function makeSshKey(folder: string, name: string, type: 'ed25519' | 'ecdsa' | 'rsa' = 'ed25519'): string {
  const path = join(folder, name);
  assert.equal(spawnSync('ssh-keygen', ['-q', '-t', type, '-N', '', '-C', name, '-f', path]).status, 0);
  return path;
}

export const publicLineOf = (path: string): string => readFileSync(`${path}.pub`, 'utf8').trimEnd();

export interface SshLogin {
  readonly account: string;
  /** Private half of the user's key. */
  readonly key: string;
  /** File of the certificate. */
  readonly certificate: string;
  readonly knownHosts: string;
  /** The name the host's certificate must have. */
  readonly host: string;
  /** Of sshd on loopback; or a command that brings the bytes there. */
  readonly to: { readonly port: number } | { readonly proxyCommand: string };
  readonly command?: string;
  readonly stdin?: string | Buffer;
  readonly env?: NodeJS.ProcessEnv;
}

export interface SshAnswer {
  readonly out: string;
  readonly err: string;
  readonly code: number | null;
}

/** Runs a command there ("echo in"), as a client that trusts nothing on first use. Not blocking: sshd logs to this process. */
export async function sshLogin(login: SshLogin): Promise<SshAnswer> {
  const { account, key, certificate, knownHosts, host, to, command = 'echo in', stdin } = login;
  const options = [
    `CertificateFile=${certificate}`,
    'IdentitiesOnly=yes',
    'IdentityAgent=none',
    'BatchMode=yes',
    `HostKeyAlias=${host}`,
    `UserKnownHostsFile=${knownHosts}`,
    'GlobalKnownHostsFile=none',
    'StrictHostKeyChecking=yes',
    'ConnectTimeout=20',
    ...('proxyCommand' in to ? [`ProxyCommand=${to.proxyCommand}`] : [`Port=${to.port}`]),
  ].flatMap((option) => ['-o', option]);
  const child = spawn('ssh', ['-F', 'none', '-i', key, ...options, `${account}@127.0.0.1`, command], {
    stdio: [stdin === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
    env: { ...process.env, ...login.env },
  });
  child.stdin?.on('error', () => undefined).end(stdin);
  let [out, err] = ['', ''];
  child.stdout?.on('data', (data) => (out += data));
  child.stderr?.on('data', (data) => (err += data));
  const [code] = (await once(child, 'close')) as [number | null];
  return { out: out.trim(), err, code };
}
