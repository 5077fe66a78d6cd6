/** XC-034 and what a hostile machine can do to the one who dials it: against Debian's sshd, and against servers that lie. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmodSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer, type Server as NetServer } from 'node:net';
import { join } from 'node:path';
import ssh2 from 'ssh2';
import { claimPort } from '../../scripts/lib/free-port.mjs';
import { readHostCredential } from '../../workers/hosts/credential.ts';
import { type DialOptions, dialHost } from '../../workers/hosts/ssh.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { makeSshKey, publicLineOf, type Sshd, sshdIsMissing, startSshd } from '../harness/sshd.ts';
import { refused } from '../services/support.ts';
import { fingerprintOf } from './machine.ts';

const why = sshdIsMissing ?? (process.getuid?.() === 0 ? null : 'logins of sshd need root');
const somebodyElses = `SHA256:${'A'.repeat(43)}`;

describe(`SSH to machines, against the sshd of Debian${why === null ? '' : `, not run: ${why}`}`, function () {
  this.timeout(60_000);
  let folder: string;
  let sshd: Sshd;
  let login: string;
  let hostKeys: { ed25519: string; ecdsa: string; rsa: string };

  before(async function () {
    if (why !== null) return this.skip();
    folder = scratchFolder();
    login = makeSshKey(folder, 'login');
    writeFileSync(join(folder, 'authorized'), `${publicLineOf(login)}\n`, { mode: 0o600 });
    hostKeys = {
      ed25519: makeSshKey(folder, 'ed25519'),
      ecdsa: makeSshKey(folder, 'ecdsa', 'ecdsa'),
      rsa: makeSshKey(folder, 'rsa', 'rsa'),
    };
    sshd = await startSshd({
      folder,
      name: 'host',
      lines: [
        ...Object.values(hostKeys).map((path) => `HostKey ${path}`),
        `AuthorizedKeysFile ${join(folder, 'authorized')}`,
        'PermitRootLogin yes',
        'PasswordAuthentication no',
      ],
    });
  });
  after(async () => {
    await sshd?.stop();
    removeScratchFolders();
  });

  const to = (hostKey: string, more: Partial<DialOptions> = {}): DialOptions => ({
    access: { address: '127.0.0.1', port: sshd.port, login: 'root', becomeRoot: false },
    hostKey,
    credential: { kind: 'key', privateKey: readFileSync(login) },
    ...more,
  });

  for (const kind of ['ed25519', 'ecdsa', 'rsa'] as const) {
    it(`XC-034 meets a machine by its ${kind} key, whichever it shows first`, async () => {
      const connection = await dialHost(to(fingerprintOf(hostKeys[kind])));
      const { code, stdout, stderr } = await connection.run('cat; echo out; echo err >&2; exit 3', { stdin: Buffer.from('in ') });
      connection.close();
      assert.deepEqual({ code, stdout, stderr }, { code: 3, stdout: 'in out\n', stderr: 'err\n' });
    });
  }

  it('XC-034 names every key that a machine shows in the place of the expected one', async () => {
    await assert.rejects(dialHost(to(somebodyElses)), (error: Error) => {
      for (const path of Object.values(hostKeys)) assert.ok(error.message.includes(fingerprintOf(path)), error.message);
      return refused('PERMISSION_DENIED', /is not the expected machine/, 'ssh-hostkey-mismatch')(error);
    });
  });

  it('says that a credential is not taken, once', async () => {
    const stranger = makeSshKey(folder, 'stranger');
    const options = to(fingerprintOf(hostKeys.ed25519), { credential: { kind: 'key', privateKey: readFileSync(stranger) } });
    await assert.rejects(dialHost(options), refused('UNAUTHENTICATED', /does not take the credential for root/, 'ssh-auth'));
  });

  it('gives up on a step that takes too long, and hears a flood as far as it must', async () => {
    const connection = await dialHost(to(fingerprintOf(hostKeys.ed25519)));
    const { stdout } = await connection.run('head -c 4000000 /dev/zero | tr "\\0" x');
    assert.equal(stdout.length, 256 * 1024);
    await assert.rejects(
      connection.run('sleep 60', { withinMs: 500 }),
      refused('UNAVAILABLE', /took longer than 0.5 s/, 'host-unreachable'),
    );
  });

  it('says that nobody answers', async () => {
    const port = await claimPort({ port: 0, who: 'nobody', setBy: 'this test' });
    const access = { address: '127.0.0.1', port, login: 'root', becomeRoot: false };
    await assert.rejects(dialHost(to(somebodyElses, { access })), refused('UNAVAILABLE', /ECONNREFUSED/, 'host-unreachable'));
  });
});

describe('SSH to machines that lie', function () {
  this.timeout(60_000);
  let folder: string;
  let hostKey: string;
  const servers: (NetServer | ssh2.Server)[] = [];
  before(() => {
    folder = scratchFolder();
    hostKey = makeSshKey(folder, 'liar');
  });
  after(() => {
    for (const server of servers) server.close();
    removeScratchFolders();
  });

  const portOf = async (server: NetServer | ssh2.Server): Promise<number> => {
    servers.push(server);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return (server.address() as AddressInfo).port;
  };
  const dial = (port: number, more: Partial<DialOptions> = {}): ReturnType<typeof dialHost> =>
    dialHost({
      access: { address: '127.0.0.1', port, login: 'ops', becomeRoot: false },
      hostKey: fingerprintOf(hostKey),
      credential: { kind: 'password', password: 'correct horse' },
      withinMs: 5_000,
      ...more,
    });

  /** Of every try: which method, and with what. */
  const asking = (accept: (context: ssh2.AuthContext) => boolean): { server: ssh2.Server; seen: string[] } => {
    const seen: string[] = [];
    const server = new ssh2.Server({ hostKeys: [readFileSync(hostKey)] }, (client) => {
      client.on('error', () => undefined);
      client.on('authentication', (context) => {
        seen.push(context.method === 'password' ? `password ${context.password}` : context.method);
        if (accept(context)) context.accept();
        else context.reject(['keyboard-interactive', 'password']);
      });
    });
    return { server, seen };
  };

  it('XC-034 a machine with another host key is not even told who wants in', async () => {
    const { server, seen } = asking(() => true);
    const port = await portOf(server);
    await assert.rejects(
      dial(port, { hostKey: somebodyElses }),
      refused('PERMISSION_DENIED', /expected was SHA256:AAAA/, 'ssh-hostkey-mismatch'),
    );
    assert.deepEqual(seen, []);
    (await dial(port)).close();
    assert.deepEqual(seen, ['password correct horse'], 'the same server with the right key is');
    const login = { kind: 'key', privateKey: readFileSync(makeSshKey(folder, 'ops')) } as const;
    const unwilling = asking(() => false);
    await assert.rejects(
      dial(await portOf(unwilling.server), { credential: login }),
      refused('UNAUTHENTICATED', /does not take the credential/, 'ssh-auth'),
    );
    assert.deepEqual(unwilling.seen, ['publickey'], 'by the method of its credential alone, not even none');
  });

  it('a password is given to a single question of keyboard-interactive, and to no list of them', async () => {
    const answers: string[][] = [];
    const one = new ssh2.Server({ hostKeys: [readFileSync(hostKey)] }, (client) => {
      client
        .on('error', () => undefined)
        .on('authentication', (context) => {
          if (context.method !== 'keyboard-interactive') return context.reject(['keyboard-interactive']);
          context.prompt([{ prompt: 'Password: ', echo: false }], (given) => {
            answers.push(given);
            context.accept();
          });
        });
    });
    (await dial(await portOf(one))).close();
    const two = new ssh2.Server({ hostKeys: [readFileSync(hostKey)] }, (client) => {
      client
        .on('error', () => undefined)
        .on('authentication', (context) => {
          if (context.method !== 'keyboard-interactive') return context.reject(['keyboard-interactive']);
          context.prompt(
            ['Password: ', 'And the one of your bank: '].map((prompt) => ({ prompt, echo: true })),
            (given) => {
              answers.push(given);
              context.reject();
            },
          );
        });
    });
    await assert.rejects(dial(await portOf(two)), refused('UNAUTHENTICATED', /does not take the credential/, 'ssh-auth'));
    assert.deepEqual(answers, [['correct horse'], []]);
  });

  it('a lost connection and a server that runs nothing are waited for; a credential that does not open is refused, and dials nobody', async () => {
    const fickle = new ssh2.Server({ hostKeys: [readFileSync(hostKey)] }, (client) => {
      const running = (accept: () => ssh2.Session): void =>
        void accept().on('exec', (take, refuse, { command }) => {
          if (command === 'nothing') return refuse();
          take().write('so far');
          setImmediate(() => client.end());
        });
      client
        .on('error', () => undefined)
        .on('authentication', (context) => context.accept())
        .on('session', running);
    });
    const port = await portOf(fickle);
    const connection = await dial(port);
    await assert.rejects(connection.run('nothing'), refused('UNAVAILABLE', /it runs no command for this login/, 'host-unreachable'));
    await assert.rejects(connection.run('long'), refused('UNAVAILABLE', /the connection was lost/, 'host-unreachable'));
    let dialled = 0;
    const counting = createServer((socket) => {
      dialled += 1;
      socket.destroy();
    });
    const path = makeSshKey(folder, 'locked');
    execFileSync('ssh-keygen', ['-q', '-p', '-P', '', '-N', 'geheim', '-f', path]);
    const locked = { kind: 'key', privateKey: readFileSync(path) } as const;
    await assert.rejects(
      dial(await portOf(counting), { credential: locked }),
      refused('INVALID_CONFIG', /is no private key that can be read; one with a passphrase/, 'host-credential'),
    );
    assert.equal(dialled, 0);
  });

  it('a machine’s last words are not taken for what went wrong here', async () => {
    const talker = new ssh2.Server({ hostKeys: [readFileSync(hostKey)] }, (client) => {
      client
        .on('error', () => undefined)
        .on('authentication', () => {
          const { _protocol: protocol } = client as unknown as { _protocol: { disconnect(reason: number): void } };
          protocol.disconnect(2);
        });
    });
    await assert.rejects(dial(await portOf(talker)), refused('UNAVAILABLE', /it ended the connection/, 'host-unreachable'));
  });

  it('what is no SSH, and what never ends its greeting, is a typed error within time', async () => {
    const web = createServer((socket) => socket.on('error', () => undefined).end('HTTP/1.1 400 Bad Request\r\n\r\n'));
    await assert.rejects(dial(await portOf(web)), refused('UNAVAILABLE', /cannot be reached over SSH/, 'host-unreachable'));
    const silent = createServer((socket) => void socket.on('error', () => undefined).resume());
    const port = await portOf(silent);
    await assert.rejects(dial(port, { withinMs: 300 }), refused('UNAVAILABLE', /cannot be reached over SSH/, 'host-unreachable'));
  });
});

describe('credentials of hosts', () => {
  let folder: string;
  before(() => {
    folder = scratchFolder();
  });
  after(removeScratchFolders);

  const put = (name: string, content: string, mode = 0o600): void => writeFileSync(join(folder, name), content, { mode });
  const bad = (reference: string, message: RegExp): Promise<void> =>
    assert.rejects(readHostCredential(folder, reference), refused('INVALID_CONFIG', message, 'host-credential'));

  it('a password of one line, a private key, and a link to either', async () => {
    put('password', 'correct horse\n');
    put('key', '-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----\n');
    symlinkSync(join(folder, 'password'), join(folder, 'link'));
    assert.deepEqual(await readHostCredential(folder, 'file://password'), { kind: 'password', password: 'correct horse' });
    assert.deepEqual(await readHostCredential(folder, 'file://link'), { kind: 'password', password: 'correct horse' });
    assert.equal((await readHostCredential(folder, 'file://key')).kind, 'key');
  });

  it('what others may read, what is not there, and what is neither is refused, and never shown', async () => {
    put('open', 'correct horse');
    chmodSync(join(folder, 'open'), 0o644);
    put('two', 'correct\nhorse\n');
    put('empty', '\n');
    put('large', 'x'.repeat(65 * 1024));
    mkdirSync(join(folder, 'folder'), { mode: 0o700 });
    await bad('file://open', /others than its owner may read it/);
    await bad('file://two', /neither a private key nor a password of one line/);
    await bad('file://empty', /neither a private key nor/);
    await bad('file://large', /larger than 64 KiB/);
    await bad('file://folder', /there is no such file/);
    await bad('file://absent', /there is no such file/);
    await bad('file://../etc/shadow', /is not file:\/\/<name>/);
    await bad('env://PASSWORD', /is not file:\/\/<name>/);
    await assert.rejects(
      readHostCredential(null, 'file://password'),
      refused('INVALID_CONFIG', /has no folder of credentials/, 'host-credential'),
    );
  });
});
