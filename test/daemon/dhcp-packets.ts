/** Packets of PXE clients: made by a test, and as they were caught from firmware that nobody here wrote. */

export interface ClientPacket {
  readonly messageType?: number;
  readonly mac?: string;
  readonly relay?: string;
  readonly client?: string;
  readonly transaction?: string;
  readonly hops?: number;
  /** Code → value; null leaves one of those of PXE out. */
  readonly options?: Readonly<Record<number, Buffer | null>>;
}

const octets = (address: string): Buffer => Buffer.from(address.split('.').map(Number));

export const architecture = (...codes: number[]): Buffer => Buffer.concat(codes.map((code) => Buffer.from([code >> 8, code & 0xff])));

/** By itself a DHCPDISCOVER of a BIOS machine. */
export function clientPacket({ messageType = 1, mac = '52:54:00:00:00:01', options = {}, ...given }: ClientPacket = {}): Buffer {
  const head = Buffer.alloc(240);
  head.set([1, 1, 6, given.hops ?? 0]);
  head.write(given.transaction ?? '0badcafe', 4, 'hex');
  head.set(octets(given.client ?? '0.0.0.0'), 12);
  head.set(octets(given.relay ?? '0.0.0.0'), 24);
  head.write(mac.replaceAll(':', ''), 28, 'hex');
  head.writeUInt32BE(0x63825363, 236);
  const all: Record<number, Buffer | null> = {
    53: Buffer.from([messageType]),
    60: Buffer.from('PXEClient:Arch:00000:UNDI:002001'),
    93: architecture(0),
    97: Buffer.alloc(17, 5).fill(0, 0, 1),
    ...options,
  };
  const written = Object.entries(all).flatMap(([code, value]) =>
    value === null ? [] : [Buffer.from([Number(code), value.length]), value],
  );
  return Buffer.concat([head, ...written, Buffer.from([255])]);
}

const caught = (macAndBefore: string, options: string): Buffer => {
  const head = Buffer.alloc(240);
  head.write(macAndBefore, 0, 'hex');
  head.writeUInt32BE(0x63825363, 236);
  return Buffer.concat([head, Buffer.from(options, 'hex')]);
};

const ipxeOptions = (archAndUndi: string, rest: string): string =>
  `350101390205c0${archAndUndi}4d04695058453717010306070c0f111a2b3c4243778081828384858687afcbaf${rest}61110000000000000000000000000000000000ff`;

/** DHCPDISCOVER as QEMU's cards and OVMF sent them. */
export const caughtPackets = Object.freeze({
  ipxeBios: caught(
    '01010600bb97ee15000400000000000000000000000000000000000052540077000100',
    ipxeOptions(
      '5d0200005e030102013c20505845436c69656e743a417263683a30303030303a554e44493a303032303031',
      '30b105011af41000eb030100001701012201011301011101012701011901012901011001022101011501011801011201013d0701525400770001',
    ),
  ),
  ipxeUefi: caught(
    '01010600ffb53e3e000400000000000000000000000000000000000052540077000200',
    ipxeOptions(
      '5d0200075e0301030a3c20505845436c69656e743a417263683a30303030373a554e44493a303033303130',
      '24b105011af41000eb030100001701012401011301011101012701012901011501011201013d0701525400770002',
    ),
  ),
  ovmf: caught(
    '010106007a8276e300008000000000000000000000000000000000005254007700020000',
    '350101390205c037230102030405060c0d0f111216171c28292a2b3233363a3b3c4243618081828384858687611100000000000000000000000000000000005e030103005d0200073c20505845436c69656e743a417263683a30303030373a554e44493a303033303030ff',
  ),
});

/** What an answer says, read by its offsets. */
export function readAnswer(bytes: Buffer) {
  const options = new Map<number, Buffer>();
  for (let at = 240; bytes[at] !== 255; at += 2 + (bytes[at + 1] ?? 0))
    options.set(bytes[at] ?? 0, bytes.subarray(at + 2, at + 2 + (bytes[at + 1] ?? 0)));
  const address = (at: number): string => [...bytes.subarray(at, at + 4)].join('.');
  return {
    operation: bytes[0],
    transaction: bytes.subarray(4, 8).toString('hex'),
    broadcast: (bytes.readUInt16BE(10) & 0x8000) !== 0,
    clientAddress: address(12),
    yourAddress: address(16),
    nextServer: address(20),
    mac: bytes.subarray(28, 34).toString('hex').match(/../g)?.join(':'),
    file: bytes.subarray(108, 236).toString('latin1').replace(/\0+$/, ''),
    cookie: bytes.readUInt32BE(236),
    options,
  };
}
