/**
 * Critical options and extensions of certificates (OpenSSH PROTOCOL.certkeys): names in ascending order, each once; a flag has
 * no data, an option of words has one string inside its string. ssh-keygen forgives the order, other readers do not.
 */
import { ipOctets } from '../x509/general-names.ts';
import { malformed, unsupported } from './refusals.ts';
import { decodeText, encodeString, SshReader } from './wire.ts';

/** Name → its words; null for a flag. */
export type SshOptions = ReadonlyMap<string, string | null>;

const maxOptions = 32;
const maxValueBytes = 4_096;

/** Reads the list. The words of names that are not known stay as hex of their bytes: nobody acts on them. */
export const parseOptions = (bytes: Uint8Array, field: string): SshOptions => {
  const reader = new SshReader(bytes, field);
  const options = new Map<string, string | null>();
  let last = '';
  while (!reader.isAtEnd) {
    const name = reader.readText('name', 256);
    if (name === '') throw malformed(field, 'has a name that is empty');
    if (options.size > 0 && Buffer.compare(Buffer.from(name), Buffer.from(last)) <= 0)
      throw malformed(field, 'is not in order, or names one twice');
    if (options.size === maxOptions) throw malformed(field, `has more than ${maxOptions} entries`);
    options.set(name, readValue(name, reader.readString('data'), `${field}.${name.slice(0, 64)}`));
    last = name;
  }
  return options;
};

const readValue = (name: string, data: Uint8Array, field: string): string | null => {
  if (isFlag(name)) {
    if (data.length > 0) throw malformed(field, 'is a flag and has data');
    return null;
  }
  if (!wordOptions.has(name)) return data.length === 0 ? null : Buffer.from(data).toString('hex');
  const reader = new SshReader(data, field);
  const words = decodeText(reader.readString('value'), field, maxValueBytes);
  reader.close();
  if (name === 'source-address' && !isAddressList(words)) throw malformed(field, 'is no list of addresses');
  return words;
};

const wordOptions: ReadonlySet<string> = new Set(['force-command', 'source-address']);
const isFlag = (name: string): boolean => name.startsWith('permit-') || name === 'no-touch-required' || name === 'verify-required';

/** Addresses, each with an optional length of its network, between commas. */
export const isAddressList = (words: string): boolean =>
  words.split(',').every((word) => {
    const [address = '', length, ...more] = word.split('/');
    const octets = ipOctets(address);
    const isLength = length === undefined || (/^\d{1,3}$/.test(length) && Number(length) <= 8 * (octets?.length ?? 0));
    return octets !== null && isLength && more.length === 0;
  });

/** What sshd must enforce, it must know: an option outside this list makes a certificate that no rule of ours covers. */
export const assertCriticalOptions = (options: SshOptions): void => {
  for (const name of options.keys())
    if (!wordOptions.has(name) && name !== 'verify-required')
      throw unsupported('certificate.critical_options', `has ${JSON.stringify(name.slice(0, 64))}, which is not known`);
};

/** The list in its order. */
export const encodeOptions = (options: SshOptions): Buffer => {
  const names = [...options.keys()].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  return Buffer.concat(
    names.flatMap((name) => {
      const words = options.get(name) ?? null;
      return [encodeString(name), words === null ? encodeString('') : encodeString(encodeString(words))];
    }),
  );
};
