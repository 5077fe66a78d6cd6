/**
 * One SSH connection to one machine: its host key is compared before a byte of authentication leaves (XC-034), on every connection.
 *
 * Threat model: whoever answers at the address. He learns the name of the login only with the expected host key; what he prints is bounded and is
 * text; he can keep us waiting as long as the time limits say. A password is sent to the expected key alone.
 */
import { Client, type ClientErrorExtensions, type ConnectConfig, type ServerHostKeyAlgorithm } from 'ssh2';
import type { HostAccess } from '../../domain/enrolment/order.ts';
import { ControlError, isControlError } from '../../domain/errors.ts';
import { second } from '../../domain/time.ts';
import { sshFingerprint } from '../../pki/ssh/index.ts';
import type { HostCredential } from './credential.ts';

export interface HostConnection {
  /** Its output, whatever its exit code. @throws UNAVAILABLE when the connection is lost or time is over */
  run(command: string, input?: RunInput): Promise<HostOutput>;
  close(): void;
}

export interface RunInput {
  readonly stdin?: Uint8Array;
  /** Default: 60 s. */
  readonly withinMs?: number;
}

export interface HostOutput {
  /** null: ended by a signal. */
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface DialOptions {
  readonly access: HostAccess;
  /** `SHA256:…` */
  readonly hostKey: string;
  readonly credential: HostCredential;
  /** Default: 20 s. */
  readonly withinMs?: number;
}

/** By the age of their mathematics; SHA-1 signs nothing here. */
const hostKeyAlgorithms: readonly ServerHostKeyAlgorithm[] = [
  'ssh-ed25519',
  'ecdsa-sha2-nistp256',
  'ecdsa-sha2-nistp384',
  'ecdsa-sha2-nistp521',
  'rsa-sha2-512',
  'rsa-sha2-256',
];
const longestOutput = 256 * 1024;

/**
 * A fingerprint does not say of which kind its key is, and a server shows one kind a connection: those that do not fit are left out of the next
 * try. Every try ends before authentication but the one that meets the expected key.
 *
 * @throws PERMISSION_DENIED (ssh-hostkey-mismatch), UNAUTHENTICATED (ssh-auth), UNAVAILABLE (host-unreachable), UNSUPPORTED (ssh-handshake)
 */
export async function dialHost(options: DialOptions): Promise<HostConnection> {
  const shown: string[] = [];
  let kinds = hostKeyAlgorithms;
  for (;;) {
    const seen: { key?: Buffer } = {};
    try {
      return await dialOnce({ ...options, kinds, seen });
    } catch (error) {
      const key = seen.key;
      if (key === undefined || sshFingerprint(key) === options.hostKey) {
        // It has no key of another kind to show: what it showed is all there is.
        if (shown.length > 0 && isControlError(error) && error.code === 'UNSUPPORTED') throw mismatch(options, shown);
        throw error;
      }
      const kind = key.subarray(4, 4 + key.readUInt32BE(0)).toString('latin1');
      shown.push(`${kind} ${sshFingerprint(key)}`);
      kinds = kinds.filter((one) => one !== kind && !(kind === 'ssh-rsa' && one.startsWith('rsa-')));
      if (kinds.length === 0 || shown.length >= hostKeyAlgorithms.length) throw mismatch(options, shown);
    }
  }
}

const where = ({ address, port }: HostAccess): string => (address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`);

const mismatch = ({ access, hostKey }: DialOptions, shown: readonly string[]): ControlError =>
  new ControlError(
    'PERMISSION_DENIED',
    `${where(access)} is not the expected machine: it shows ${shown.join(', ')}, expected was ${hostKey}`,
    {
      details: {
        reason: 'ssh-hostkey-mismatch',
        hint: 'nothing was said to it; find out whose key that is before the expected one is changed',
      },
    },
  );

interface Dialling extends DialOptions {
  readonly kinds: readonly ServerHostKeyAlgorithm[];
  /** The key that was shown, for the caller. */
  readonly seen: { key?: Buffer };
}

function dialOnce({ access, hostKey, credential, withinMs = 20 * second, kinds, seen }: Dialling): Promise<HostConnection> {
  const client = new Client();
  const config: ConnectConfig = {
    host: access.address,
    port: access.port,
    username: access.login,
    readyTimeout: withinMs,
    keepaliveInterval: 10 * second,
    keepaliveCountMax: 3,
    agentForward: false,
    algorithms: { serverHostKey: [...kinds] },
    hostVerifier: (key: Buffer) => {
      seen.key = key;
      return sshFingerprint(key) === hostKey;
    },
    ...authentication(credential),
  };
  return new Promise((resolve, reject) => {
    const dialled = client
      .once('ready', () => resolve({ run: (command, input) => run({ client, access }, command, input), close: () => client.destroy() }))
      .on('keyboard-interactive', (...asked) => {
        const [, , , prompts, finish] = asked;
        finish(credential.kind === 'password' && prompts.length === 1 ? [credential.password] : []);
      })
      // Also after it is open: an error that nobody hears ends the process.
      .on('error', (error) => {
        client.destroy();
        reject(toHostError(access, error));
      })
      .once('close', () => reject(unreachable(access, 'the connection was closed before it was open')));
    try {
      dialled.connect(config);
    } catch (error) {
      reject(notDialled(error));
    }
  });
}

/** Before anything is dialled the credential is read; what the library says of it can name its form, and is not passed on. */
const notDialled = (error: unknown): unknown =>
  error instanceof Error && error.message.includes('privateKey')
    ? new ControlError('INVALID_CONFIG', 'the credential is no private key that can be read; one with a passphrase cannot be used', {
        details: { reason: 'host-credential' },
      })
    : error;

/** The methods of the credential, and no other: not even the question which ones there are. */
const authentication = (credential: HostCredential): Partial<ConnectConfig> =>
  credential.kind === 'key'
    ? { privateKey: credential.privateKey, authHandler: ['publickey'] }
    : { password: credential.password, tryKeyboard: true, authHandler: ['password', 'keyboard-interactive'] };

/** The one translator of what the library says; its texts can hold nothing of the credential, and are not passed on where they may. */
function toHostError(access: HostAccess, error: Error & Partial<ClientErrorExtensions> & { code?: unknown }): ControlError {
  const at = where(access);
  if (error.level === 'client-authentication')
    return new ControlError('UNAUTHENTICATED', `${at} does not take the credential for ${access.login}`, {
      details: { reason: 'ssh-auth', hint: 'check the login, and that the credential is the one of this machine' },
    });
  if (error.level === 'handshake' || /handshake failed|no matching/i.test(error.message))
    return new ControlError('UNSUPPORTED', `${at} and this worker share no method, or it does not speak SSH`, {
      details: { reason: 'ssh-handshake' },
      cause: error,
    });
  if (error.level === 'client-timeout') return unreachable(access, 'no answer in time', error);
  return unreachable(access, typeof error.code === 'string' ? error.code : 'it ended the connection', error);
}

const unreachable = (access: HostAccess, why: string, cause?: unknown): ControlError =>
  new ControlError('UNAVAILABLE', `${where(access)} cannot be reached over SSH: ${why}`, {
    details: { reason: 'host-unreachable' },
    ...(cause === undefined ? {} : { cause }),
  });

interface Connected {
  readonly client: Client;
  readonly access: HostAccess;
}

function run({ client, access }: Connected, command: string, { stdin, withinMs = 60 * second }: RunInput = {}): Promise<HostOutput> {
  return new Promise((resolve, reject) => {
    const fail = (why: string): void => {
      over();
      reject(unreachable(access, why));
    };
    const lost = (): void => fail('the connection was lost');
    const timer = setTimeout(() => {
      fail(`a step took longer than ${withinMs / second} s`);
      client.destroy();
    }, withinMs);
    const over = (): void => {
      clearTimeout(timer);
      client.off('close', lost);
    };
    client.once('close', lost);
    client.exec(command, (error, channel) => {
      if (error !== undefined) return fail('it runs no command for this login');
      const out = new Bounded();
      const err = new Bounded();
      let code: number | null = null;
      channel.on('data', (data: Buffer) => out.add(data));
      channel.stderr.on('data', (data: Buffer) => err.add(data));
      // What does not read to the end closes its side: it says by its exit code why.
      channel.on('error', () => undefined);
      channel.on('exit', (status: number | null) => {
        code = status;
      });
      channel.on('close', () => {
        over();
        resolve({ code, stdout: out.text(), stderr: err.text() });
      });
      channel.end(stdin === undefined ? undefined : Buffer.from(stdin));
    });
  });
}

/** A machine that prints without end is heard as long as this. */
class Bounded {
  readonly #parts: Buffer[] = [];
  #room = longestOutput;

  add(data: Buffer): void {
    if (this.#room <= 0) return;
    this.#parts.push(data.subarray(0, this.#room));
    this.#room -= data.length;
  }

  text(): string {
    return Buffer.concat(this.#parts).toString('utf8');
  }
}
