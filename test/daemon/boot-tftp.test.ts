import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { agree, parseTftp } from '../../daemon/site/boot/tftp-packets.ts';
import { ControlError } from '../../domain/errors.ts';
import { createDeployment, type TestDeployment } from '../harness/deployment.ts';
import { removeScratchFolders } from '../harness/scratch.ts';
import { type BootStage, bootStage } from './boot-stage.ts';

const run = promisify(execFile);
const loader = Buffer.from(Array.from({ length: 3_000 }, (_, at) => at & 0xff));

const read = (name: string, mode = 'octet', ...options: string[]): Buffer =>
  Buffer.concat([Buffer.from([0, 1]), Buffer.from([name, mode, ...options].map((text) => `${text}\0`).join(''), 'latin1')]);
const ack = (block: number): Buffer => Buffer.from([0, 4, block >> 8, block & 0xff]);

describe('the boot server over TFTP', () => {
  let deployment: TestDeployment;
  let stage: BootStage;
  let port: number;
  const clients: Socket[] = [];
  before(async () => {
    deployment = await createDeployment({ now: 1_799_999_000_000 });
  });
  beforeEach(async () => {
    stage = await bootStage(deployment, { tftpPort: 0, loaders: { bios: 'undionly.kpxe', efiX64: 'exact.efi' } });
    await writeFile(join(stage.artefacts, 'undionly.kpxe'), loader);
    await writeFile(join(stage.artefacts, 'exact.efi'), loader.subarray(0, 1_024));
    port = Number((await stage.start()).addresses['bootTftp']?.split(':').at(-1));
  });
  afterEach(async () => {
    for (const client of clients.splice(0)) client.close();
    await stage.close();
  });
  after(removeScratchFolders);

  async function client() {
    const socket = createSocket('udp4');
    clients.push(socket);
    socket.bind(0, '127.0.0.1');
    await once(socket, 'listening');
    let transfer = port;
    return {
      send: (bytes: Uint8Array, to = transfer) => socket.send(bytes, to, '127.0.0.1'),
      next: async (): Promise<{ bytes: Buffer; from: number }> => {
        const [bytes, from] = (await once(socket, 'message')) as [Buffer, { port: number }];
        transfer = from.port;
        return { bytes, from: from.port };
      },
    };
  }

  it('hands a loader to a client that nobody here wrote, with and without options, to the last full block', async () => {
    const got = async (...args: string[]) => (await run('curl', ['-s', '--max-time', '20', ...args], { encoding: 'buffer' })).stdout;
    const url = `tftp://127.0.0.1:${port}`;
    assert.deepEqual(await got(`${url}/undionly.kpxe`), loader);
    assert.deepEqual(await got('--tftp-blksize', '1400', `${url}/undionly.kpxe`), loader);
    assert.deepEqual(await got('--tftp-no-options', `${url}/undionly.kpxe`), loader);
    assert.deepEqual(await got('--tftp-no-options', `${url}/exact.efi`), loader.subarray(0, 1_024));
    await assert.rejects(got(`${url}/vmlinuz`), (error: { code?: number }) => error.code === 68, 'curl says: file not found');
  });

  it('RFC 2347 to 2349: says what it agrees to and nothing else; without options the first block comes at once', async () => {
    const one = await client();
    one.send(read('undionly.kpxe', 'octet', 'blksize', '65464', 'tsize', '0', 'timeout', '3', 'windowsize', '8'));
    assert.equal((await one.next()).bytes.toString('latin1'), '\0\x06blksize\x001468\0timeout\x003\0tsize\x003000\0');
    one.send(ack(0));
    const { bytes } = await one.next();
    assert.deepEqual([bytes.readUInt32BE(0), bytes.length], [0x00030001, 4 + 1_468]);
    const plain = await client();
    plain.send(read('/undionly.kpxe', 'OCTET', 'blksize', '7', 'timeout', '256'));
    assert.equal((await plain.next()).bytes.length, 4 + 512);
    assert.deepEqual(agree(new Map([['blksize', '1e3']]), 1), { blockBytes: 512, timeoutMs: 1_000, acknowledged: [] });
  });

  it('repeats a block that was lost, and nothing for an acknowledgement that comes twice; a stranger does not end a transfer', async () => {
    const one = await client();
    one.send(read('undionly.kpxe'));
    const first = await one.next();
    assert.deepEqual(await one.next(), first, 'nothing was acknowledged');
    const stranger = await client();
    stranger.send(Buffer.from([0, 5, 0, 0, 0]), first.from);
    assert.equal((await stranger.next()).bytes.readUInt32BE(0), 0x00050005);
    one.send(ack(1));
    const second = await one.next();
    one.send(ack(1));
    one.send(ack(2));
    assert.deepEqual([second.bytes.readUInt16BE(2), (await one.next()).bytes.readUInt16BE(2)], [2, 3]);
  });

  it('refuses to be written to, other modes, and every name but that of a loader', async () => {
    const told = async (bytes: Uint8Array) => {
      const one = await client();
      one.send(bytes);
      const said = (await one.next()).bytes;
      return [said.readUInt16BE(0), said.readUInt16BE(2), said.subarray(4, -1).toString()];
    };
    assert.deepEqual(await told(Buffer.from('\0\x02x\0octet\0', 'latin1')), [5, 2, 'this server only hands out']);
    assert.deepEqual(await told(read('undionly.kpxe', 'netascii')), [5, 4, 'only mode octet is served']);
    for (const name of ['vmlinuz', '../undionly.kpxe', '/etc/passwd', '..\\x', 'undionly.kpxe/..'])
      assert.deepEqual(await told(read(name)), [5, 1, 'no such file'], name);
  });

  it('outlives datagrams that are none, and holds a few transfers for one address at most', async () => {
    const one = await client();
    for (const bytes of [
      '',
      '\0',
      '\0\x01',
      '\0\x01\0\0\0',
      '\0\x01x',
      '\xff\xff\xff\xff',
      '\0\x01a\0octet\0b\x001\0b\x002\0',
      'x'.repeat(2_000),
    ])
      one.send(Buffer.from(bytes, 'latin1'));
    const many = await Promise.all(Array.from({ length: 12 }, client));
    const answered = new Set<number>();
    for (const [at, each] of many.entries())
      void each
        .next()
        .then(() => answered.add(at))
        .catch(() => undefined);
    for (const each of many) each.send(read('undionly.kpxe'));
    // Sent last, answered by the server's own port: what came before it was judged.
    one.send(Buffer.from('\0\x02x\0octet\0', 'latin1'));
    assert.equal((await one.next()).bytes.readUInt16BE(0), 5);
    while (answered.size < 8) await new Promise((resolve) => setImmediate(resolve));
    assert.equal(answered.size, 8);
  });

  it('reads any bytes as a packet or refuses them by name', () => {
    for (const bytes of [Buffer.alloc(0), Buffer.alloc(2_000), Buffer.from([0, 9, 0, 0]), Buffer.from('\0\x01a\x01b\0octet\0', 'latin1')])
      assert.throws(
        () => parseTftp(bytes),
        (error) => error instanceof ControlError && error.code === 'MALFORMED' && error.message.startsWith('no packet of TFTP: '),
      );
  });
});
