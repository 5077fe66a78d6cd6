import assert from 'node:assert/strict';
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import fc from 'fast-check';
import { type Asked, answerFor, situationOf } from '../../daemon/site/boot/answers.ts';
import { encodeProxyAnswer, parseDhcp } from '../../daemon/site/boot/dhcp-packets.ts';
import { cleanedUp, preparedWith } from '../../daemon/site/boot/entry-changes.ts';
import type { MachineRecord } from '../../daemon/site/boot/machine-record.ts';
import { isWantedOnNetwork, proxyAnswer, whyNotOurs } from '../../daemon/site/boot/proxy-answer.ts';
import type { BootServer } from '../../daemon/site/boot/server.ts';
import { siteSection } from '../../daemon/site/config.ts';
import { isControlError } from '../../domain/errors.ts';
import { site } from '../../proto/index.ts';
import { createDeployment, type TestDeployment } from '../harness/deployment.ts';
import { removeScratchFolders } from '../harness/scratch.ts';
import { type BootStage, bootStage, cleanUp, mac, prepare, prepareOf } from './boot-stage.ts';
import { architecture, caughtPackets, clientPacket, readAnswer } from './dhcp-packets.ts';

const server = '10.0.0.1';
const loaders = { bios: 'undionly.kpxe', efiX64: 'snponly.efi', efiArm64: 'arm64.efi' };
const scriptUrl = `http://${server}:8081/ipxe/${mac}`;
const malformed = (why: RegExp) => (error: unknown) => isControlError(error) && error.code === 'MALFORMED' && why.test(error.message);

describe('the packets of PXE clients', () => {
  it('reads what iPXE and UEFI send', () => {
    const facts = (bytes: Buffer) => {
      const { kind, macAddress, vendorClass, userClasses, architectures } = parseDhcp(bytes);
      return [kind, macAddress, vendorClass, userClasses, architectures];
    };
    assert.deepEqual(facts(caughtPackets.ipxeBios), ['discover', '52:54:00:77:00:01', 'PXEClient:Arch:00000:UNDI:002001', ['iPXE'], [0]]);
    assert.deepEqual(facts(caughtPackets.ipxeUefi), ['discover', '52:54:00:77:00:02', 'PXEClient:Arch:00007:UNDI:003010', ['iPXE'], [7]]);
    assert.deepEqual(facts(caughtPackets.ovmf), ['discover', '52:54:00:77:00:02', 'PXEClient:Arch:00007:UNDI:003000', [], [7]]);
  });

  it('reads user classes by RFC 3004 and as one bare word, and an option that comes in parts as one', () => {
    const classes = (value: Buffer) => parseDhcp(clientPacket({ options: { 77: value } })).userClasses;
    assert.deepEqual(classes(Buffer.from('\x04iPXE\x02ab')), ['iPXE', 'ab']);
    assert.deepEqual(classes(Buffer.from('iPXE')), ['iPXE']);
    assert.deepEqual(classes(Buffer.from('')), []);
    const inParts = Buffer.concat([
      clientPacket({ options: { 60: null } }).subarray(0, -1),
      Buffer.from('\x3c\x03PXE\x3c\x06Client\xff', 'latin1'),
    ]);
    assert.equal(parseDhcp(inParts).vendorClass, 'PXEClient');
  });

  const bad: [string, Buffer, RegExp][] = [
    ['an answer', Buffer.concat([Buffer.from([2]), clientPacket().subarray(1)]), /it is no request/],
    ['another hardware', Buffer.concat([Buffer.from([1, 6]), clientPacket().subarray(2)]), /not Ethernet/],
    ['BOOTP', clientPacket().fill(0, 236, 240), /without options/],
    ['half a packet', clientPacket().subarray(0, 239), /it has 239 bytes/],
    ['a packet beyond a frame', Buffer.concat([clientPacket().subarray(0, -1), Buffer.alloc(1_300), Buffer.from([255])]), /bytes/],
    ['options without an end', clientPacket().subarray(0, -1), /no end/],
    ['an option longer than what is left', Buffer.concat([clientPacket().subarray(0, -1), Buffer.from([43, 9, 1])]), /option 43 is longer/],
    ['a group address', clientPacket({ mac: '01:00:5e:00:00:01' }), /of no interface/],
    ['no address', clientPacket({ mac: '00:00:00:00:00:00' }), /of no interface/],
    ['no message type', clientPacket({ options: { 53: null } }), /no message type/],
    ['two message types', clientPacket({ options: { 53: Buffer.from([1, 3]) } }), /option 53 has 2 bytes/],
    ['a release', clientPacket({ messageType: 7 }), /message type 7/],
    ['an architecture of one byte', clientPacket({ options: { 93: Buffer.from([7]) } }), /option 93 has 1 bytes/],
    ['no architecture in its option', clientPacket({ options: { 93: Buffer.from('') } }), /option 93 has 0 bytes/],
    ['a UUID of another length', clientPacket({ options: { 97: Buffer.alloc(16) } }), /option 97 has 16 bytes/],
    ['a server id of another length', clientPacket({ options: { 54: Buffer.alloc(5) } }), /option 54 has 5 bytes/],
    ['many relays', clientPacket({ hops: 17 }), /over 17 relays/],
  ];
  for (const [what, bytes, why] of bad) it(`refuses ${what}`, () => assert.throws(() => parseDhcp(bytes), malformed(why)));

  it('answers or refuses whatever bytes come, and answers with the client’s transaction, address and no address to use', () => {
    const bytes = fc.oneof(
      fc.uint8Array({ maxLength: 1_600 }),
      fc.uint8Array({ maxLength: 700 }).map((tail) => Buffer.concat([clientPacket().subarray(0, 240), tail])),
      fc
        .record({
          mac: fc.uint8Array({ minLength: 6, maxLength: 6 }).map((six) => Buffer.from(six).toString('hex')),
          messageType: fc.constantFrom(1, 3),
          transaction: fc.uint8Array({ minLength: 4, maxLength: 4 }).map((four) => Buffer.from(four).toString('hex')),
          client: fc.constantFrom('0.0.0.0', '10.0.0.9'),
        })
        .map(clientPacket),
    );
    fc.assert(
      fc.property(bytes, fc.stringMatching(/^[a-z0-9/:._-]{1,255}$/), (input, file) => {
        let request: ReturnType<typeof parseDhcp>;
        try {
          request = parseDhcp(input);
        } catch (error) {
          return assert.ok(malformed(/^no packet of PXE: /)(error));
        }
        const packet = encodeProxyAnswer(request, { server, file });
        const said = readAnswer(packet);
        assert.ok(packet.length >= 300 && packet.length <= 1_024);
        assert.deepEqual(
          [said.operation, said.yourAddress, said.nextServer, said.mac, said.cookie],
          [2, '0.0.0.0', server, request.macAddress, 0x63825363],
        );
        assert.equal(said.transaction, Buffer.from(request.transaction).toString('hex'));
        assert.deepEqual([said.clientAddress, said.broadcast], [request.clientAddress, request.clientAddress === '0.0.0.0']);
        assert.equal(said.file === '' ? said.options.get(67)?.toString() : said.file, file);
        assert.deepEqual([...(said.options.get(53) ?? [])], [request.kind === 'discover' ? 2 : 5]);
        assert.equal(said.options.get(60)?.toString(), 'PXEClient');
        assert.equal(said.options.get(43)?.toString('hex'), '060108ff');
        assert.deepEqual(said.options.get(97) ?? null, request.clientUuid === null ? null : Buffer.from(request.clientUuid));
      }),
    );
  });
});

describe('whom a proxy answers', () => {
  const told = (options: Record<number, Buffer | null>) => proxyAnswer(parseDhcp(clientPacket({ options })), { loaders, scriptUrl });

  it('names the loader of each architecture, and to iPXE its script whatever it runs on', () => {
    const file = (code: number) => told({ 93: architecture(code) });
    assert.deepEqual(file(0), { kind: 'file', file: 'undionly.kpxe' });
    for (const code of [7, 9]) assert.deepEqual(file(code), { kind: 'file', file: 'snponly.efi' });
    assert.deepEqual(file(11), { kind: 'file', file: 'arm64.efi' });
    for (const code of [6, 10, 15, 65_535]) assert.deepEqual(file(code), { kind: 'no-loader', architecture: code });
    assert.deepEqual(told({ 93: architecture(9, 7) }), { kind: 'file', file: 'snponly.efi' });
    assert.equal(told({ 93: null }).kind, 'silence');
    for (const options of [{ 93: architecture(6) }, { 93: null }, {}])
      assert.deepEqual(told({ ...options, 77: Buffer.from('\x04iPXE') }), { kind: 'file', file: scriptUrl });
    assert.deepEqual(proxyAnswer(parseDhcp(clientPacket()), { loaders: { efiX64: 'snponly.efi' }, scriptUrl }), {
      kind: 'no-loader',
      architecture: 0,
    });
  });

  it('passes over what is not for it', () => {
    const why = (packet: Parameters<typeof clientPacket>[0], door: 'dhcp' | 'boot-server' = 'dhcp') =>
      whyNotOurs(parseDhcp(clientPacket(packet)), { door, server });
    const named = (address: string) => ({ 54: Buffer.from(address.split('.').map(Number)) });
    assert.equal(why({}), null);
    assert.match(why({ relay: '10.9.9.9' }) ?? '', /relay/);
    for (const text of ['', 'udhcp 1.36', 'HTTPClient:Arch:00016', 'PXEClientele'])
      assert.match(why({ options: { 60: Buffer.from(text) } }) ?? '', /no PXE client/);
    assert.equal(why({ options: { 60: Buffer.from('PXEClient') } }), null);
    assert.match(why({ messageType: 3, options: named('10.0.0.2') }) ?? '', /another server/);
    assert.match(why({ messageType: 3 }) ?? '', /asks for an address/);
    assert.match(why({ messageType: 3, client: '10.0.0.9' }) ?? '', /asks for an address/);
    assert.equal(why({ messageType: 3, options: named(server) }), null);
    assert.equal(why({ messageType: 3 }, 'boot-server'), null);
    assert.match(why({}, 'boot-server') ?? '', /DHCPREQUEST/);
    assert.match(why({ messageType: 3, options: named('10.0.0.2') }, 'boot-server') ?? '', /another server/);
  });

  it('M6 answers a machine in every state in which its script is not the disk’s, and no stranger and no machine that may boot its disk', () => {
    const now = 1_000_000;
    const entryOf = (run: string, entry: number) => {
      const { nodeId: _, expiresAtMs: __, bootNonce: ___, discoveryTokenRef, ...given } = prepareOf();
      const { kernelArgs, macAddresses } = given;
      const file = { name: 'vmlinuz', sha256: 'a'.repeat(64) };
      const facts = { workflowId: 'w', bootNonce: '0'.repeat(32), tokenRef: discoveryTokenRef, tokenSha256: 'b'.repeat(64) };
      return {
        ...facts,
        kernelArgs,
        macAddresses,
        entryId: `e-${entry}`,
        runId: run.repeat(12),
        expiresAtMs: now + 50,
        kernel: file,
        initramfs: file,
      };
    };
    const step = fc.oneof(
      fc.record({ kind: fc.constant('prepare' as const), entry: fc.integer({ min: 1, max: 3 }), run: fc.constantFrom('a', 'b') }),
      fc.record({
        kind: fc.constant('clean' as const),
        answer: fc.constantFrom('hold' as const, 'local' as const),
        run: fc.constantFrom('a', 'b'),
      }),
    );
    const seen = new Set<string>();
    fc.assert(
      fc.property(
        fc.array(step, { maxLength: 8 }),
        fc.record({
          laterMs: fc.integer({ min: 0, max: 100 }),
          recordsDamaged: fc.boolean(),
          defaultAnswer: fc.constantFrom('hold' as const, 'local' as const),
        }),
        (steps, { laterMs, recordsDamaged, defaultAnswer }) => {
          let record: MachineRecord | undefined;
          for (const one of steps) {
            try {
              record =
                one.kind === 'prepare'
                  ? preparedWith(record, { nodeId: 'm', wanted: entryOf(one.run, one.entry), now })
                  : cleanedUp(record, { clean: { nodeId: 'm', runId: one.run.repeat(12), macAddresses: [mac], answer: one.answer }, now });
            } catch {
              // Refused: nothing changes.
            }
          }
          const asked: Asked = { record, recordsDamaged, defaultAnswer };
          const situation = situationOf(asked, now + laterMs);
          seen.add(situation);
          const wanted = isWantedOnNetwork(asked, now + laterMs);
          if (answerFor(asked, now + laterMs).kind === 'local') assert.equal(wanted, false);
          else if (situation !== 'unknown') assert.equal(wanted, true);
          if (record === undefined && !recordsDamaged) assert.equal(wanted, false);
          if (situation === 'held' || situation === 'expired' || situation === 'open') assert.equal(wanted, true);
        },
      ),
      { numRuns: 400 },
    );
    assert.deepEqual([...seen].sort(), ['damaged', 'expired', 'held', 'open', 'released', 'unknown']);
  });
});

describe('proxyDHCP on the wire', () => {
  let deployment: TestDeployment;
  let stage: BootStage;
  let boot: BootServer;
  let client: Socket;
  const heard: Buffer[] = [];

  before(async () => {
    deployment = await createDeployment({ now: 1_799_999_000_000 });
  });
  beforeEach(async () => {
    heard.length = 0;
    client = createSocket('udp4');
    client.on('message', (bytes) => void heard.push(bytes));
    client.bind(0, '0.0.0.0');
    await once(client, 'listening');
    client.setBroadcast(true);
    const proxyDhcp = { port: 0, bootServerPort: 0, clientPort: client.address().port, broadcast: '127.255.255.255' };
    stage = await bootStage(deployment, { tftpPort: 0, loaders, proxyDhcp });
    boot = await stage.start();
  });
  afterEach(async () => {
    client.close();
    await stage.close();
  });
  after(removeScratchFolders);

  const portOf = (name: 'bootDhcp' | 'bootServer'): number => Number(boot.addresses[name]?.split(':').at(-1));
  const broadcast = (packet: Buffer): void => client.send(packet, portOf('bootDhcp'), '127.255.255.255');
  const unicast = (packet: Buffer): void => client.send(packet, portOf('bootServer'), '127.0.0.1');
  const next = async () => {
    while (heard.length === 0) await once(client, 'message');
    return readAnswer(heard.shift() as Buffer);
  };
  /** Everything sent before is judged when this one, which is answered, has its answer. */
  const onlyAnswerIsTo = async (transaction: string): Promise<void> => {
    broadcast(clientPacket({ transaction, options: { 93: architecture(7) } }));
    assert.equal((await next()).transaction, transaction);
    assert.equal(heard.length, 0);
  };

  it('names a loader to firmware and the script of its run to iPXE, and gives no address', async () => {
    await prepare(boot);
    broadcast(clientPacket({ options: { 93: architecture(7) } }));
    const offer = await next();
    assert.deepEqual(
      [offer.file, offer.yourAddress, offer.nextServer, offer.broadcast, offer.transaction],
      ['snponly.efi', '0.0.0.0', '127.0.0.1', true, '0badcafe'],
    );
    assert.equal(offer.options.get(54)?.toString('hex'), '7f000001');
    broadcast(clientPacket({ options: { 77: Buffer.from('iPXE') } }));
    assert.equal((await next()).file, `${boot.baseUrl}/ipxe/${mac}`);
    assert.deepEqual(
      stage.log.filter(({ message }) => message === 'a machine was named what to boot').map(({ facts }) => facts['file']),
      ['snponly.efi', `${boot.baseUrl}/ipxe/${mac}`],
    );
  });

  it('answers at the port of boot servers whom it came from', async () => {
    await prepare(boot);
    unicast(clientPacket({ messageType: 3, client: '127.0.0.1', options: { 93: architecture(0) } }));
    const ack = await next();
    assert.deepEqual([ack.file, ack.clientAddress, ack.options.get(53)?.[0]], ['undionly.kpxe', '127.0.0.1', 5]);
  });

  it('is silent to strangers, to relayed packets, to machines that boot their disk, and to what is no packet', async () => {
    await prepare(boot);
    await cleanUp(boot, { nodeId: 'machine-2', runId: 'b'.repeat(12), macAddresses: ['52:54:00:00:00:02'] });
    broadcast(clientPacket({ mac: '52:54:00:00:00:99' }));
    broadcast(clientPacket({ mac: '52:54:00:00:00:02' }));
    broadcast(clientPacket({ relay: '127.0.0.1' }));
    broadcast(clientPacket({ options: { 93: architecture(6) } }));
    broadcast(Buffer.from('nonsense'));
    unicast(clientPacket({ mac: '52:54:00:00:00:99', messageType: 3 }));
    await onlyAnswerIsTo('00000001');
    assert.ok(
      stage.log.some(({ level, facts }) => level === 'error' && facts['architecture'] === 6),
      'a loader that is missing is said',
    );
  });

  it('M6 answers a machine that is held: its script tells it to wait', async () => {
    await cleanUp(boot, { answer: site.BootAnswer.HOLD });
    broadcast(clientPacket({ options: { 77: Buffer.from('iPXE') } }));
    assert.equal((await next()).file, `${boot.baseUrl}/ipxe/${mac}`);
  });

  it('answers one machine ten times a second and not more, whoever floods, and others meanwhile', async () => {
    await prepare(boot);
    const other = '52:54:00:00:00:03';
    await prepare(boot, { nodeId: 'machine-3', entryId: 'entry-3', macAddresses: [other] });
    for (let n = 0; n < 60; n++) broadcast(clientPacket());
    broadcast(clientPacket({ mac: other, transaction: '0000000f' }));
    const transactions: string[] = [];
    while (transactions.at(-1) !== '0000000f') transactions.push((await next()).transaction);
    assert.equal(transactions.length, 10 + 1);
    stage.state.now += 1_001;
    await onlyAnswerIsTo('00000010');
  });

  it('says what its configuration lacks', () => {
    const of = (over: object) => siteSection.safeParse({ boot: { host: 'boot.site.example', folder: '/srv', proxyDhcp: {}, ...over } });
    assert.deepEqual(
      of({}).error?.issues.map(({ path, message }) => `${path.join('.')} ${message}`),
      [
        'boot.proxyDhcp.address is needed: host is boot.site.example, and clients are told an IPv4 address',
        'boot.tftpPort is needed with proxyDhcp: firmware loads over TFTP, from port 69',
        'boot.loaders at least one is needed with proxyDhcp',
      ],
    );
    assert.equal(of({ proxyDhcp: { address: '10.0.0.1' }, tftpPort: 69, loaders }).success, true);
    assert.equal(siteSection.parse({ boot: { host: 'boot.site.example', folder: '/srv' } }).boot?.proxyDhcp, undefined);
  });
});
