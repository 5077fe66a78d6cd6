/**
 * One run of ssh into the guest of a sandbox: a key made for it, the certificate for that key, and the one line of known_hosts that the api
 * gave. It trusts nothing on first use, and uses no other key, agent or file of the caller (SBX-024). Everything lies in a folder that
 * goes with it.
 */
import { spawn } from 'node:child_process';
import { generateKeyPairSync } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ControlError } from '../../domain/errors.ts';
import { encodeSshKeyLine, sshKeyOf } from '../../pki/ssh/index.ts';

export interface GuestLogin {
  readonly account: string;
  /** As its host certificate names it. */
  readonly host: string;
  readonly certificate: string;
  readonly knownHosts: string;
}

export interface GuestLoginOptions {
  /** A certificate for this key, one line of OpenSSH form. */
  readonly certify: (publicKey: string) => Promise<GuestLogin>;
  /** Program and arguments that carry the bytes there. */
  readonly proxy: readonly string[];
  /** What runs there; empty: a shell. */
  readonly command: readonly string[];
  readonly env: NodeJS.ProcessEnv;
}

/** ssh hands the command to a shell, and reads % itself. */
const quoted = (words: readonly string[]): string =>
  words.map((word) => `'${word.replaceAll("'", `'\\''`).replaceAll('%', '%%')}'`).join(' ');

/** @returns the exit code of ssh: of the command, or 255 when there was no login @throws NOT_FOUND when there is no ssh; what `certify` throws */
export async function loginToGuest({ certify, proxy, command, env }: GuestLoginOptions): Promise<number> {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const login = await certify(encodeSshKeyLine(sshKeyOf(privateKey), 'sandbox exec'));
  const folder = await mkdtemp(join(tmpdir(), 'bc-sandbox-'));
  try {
    const file = async (name: string, content: string): Promise<string> => {
      await writeFile(join(folder, name), content, { mode: 0o600 });
      return join(folder, name);
    };
    const key = await file('key', String(privateKey.export({ type: 'sec1', format: 'pem' })));
    const options = sshOptions({
      CertificateFile: await file('key-cert.pub', `${login.certificate}\n`),
      UserKnownHostsFile: await file('known_hosts', login.knownHosts),
      HostKeyAlias: login.host,
      ProxyCommand: quoted(proxy),
    });
    const words = ['-F', 'none', '-i', key, ...options, '-l', login.account, '--', login.host, ...command];
    return await runSsh(words, env);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

const sshOptions = (own: Readonly<Record<string, string>>): string[] =>
  Object.entries({
    ...own,
    GlobalKnownHostsFile: 'none',
    StrictHostKeyChecking: 'yes',
    UpdateHostKeys: 'no',
    IdentitiesOnly: 'yes',
    IdentityAgent: 'none',
    PreferredAuthentications: 'publickey',
  }).flatMap(([name, value]) => ['-o', `${name}=${value}`]);

async function runSsh(words: readonly string[], env: NodeJS.ProcessEnv): Promise<number> {
  const child = spawn('ssh', words, { stdio: 'inherit', env });
  try {
    const [code] = (await once(child, 'close')) as [number | null];
    return code ?? 255;
  } catch (cause) {
    throw new ControlError('NOT_FOUND', 'ssh cannot be started: it logs in to the guest', {
      details: { reason: 'no-ssh', hint: 'install the OpenSSH client' },
      cause,
    });
  }
}
