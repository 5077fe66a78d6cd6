import { randomFillSync } from 'node:crypto';
import { ControlError } from '../../domain/errors.ts';

const randomOctets = 16;
const pool = Buffer.alloc(randomOctets * 256);
let poolAt = pool.length;

/** Random octets in batches, as hex: one call of the generator costs more than the octets. Each is handed out once, then wiped. */
const pooledHex = (): string => {
  if (poolAt === pool.length) {
    randomFillSync(pool);
    poolAt = 0;
  }
  const hex = pool.toString('hex', poolAt, poolAt + randomOctets);
  pool.fill(0, poolAt, poolAt + randomOctets);
  poolAt += randomOctets;
  return hex;
};

/**
 * A new serial number as 34 hex digits: 128 random bits behind one octet 01 (H-15). The 01 makes it positive and never zero,
 * and gives all serials one length, 17 of the 20 octets that RFC 5280 4.1.2.2 allows.
 */
export const createSerial = (random?: (count: number) => Uint8Array): string =>
  `01${random === undefined ? pooledHex() : Buffer.from(random(randomOctets)).toString('hex')}`;

const serialPattern = /^(?!00)[0-9a-f]{2}(?:[0-9a-f]{2}){0,19}$/;

/** The octets of a serial in its canonical text; INVALID_INPUT when it is not, or needs more than 20 octets in DER. */
export const serialOctets = (serial: string): Uint8Array => {
  const octets = Buffer.from(serial, 'hex');
  if (!serialPattern.test(serial) || (octets.length === 20 && (octets[0] as number) >= 0x80))
    throw new ControlError(
      'INVALID_INPUT',
      `not a serial number in lower-case hex of 1 to 20 octets: ${JSON.stringify(serial.slice(0, 50))}`,
      { details: { reason: 'serial' } },
    );
  return octets;
};
