/**
 * Distinguished names: a sequence of single attributes, each a UTF8String, PrintableString or IA5String. Equality is equality
 * of the bytes. The role travels here, as one `OU=bc-role:<role>` (ID-022 to ID-024).
 */
import { ControlError } from '../../domain/errors.ts';
import { DerReader, tags } from './der-reader.ts';
import { encodeDer, encodeDerOid, encodeDerSequence, encodeDerSet } from './der-writer.ts';
import { malformed } from './malformed.ts';
import { oids } from './oids.ts';
import type { DistinguishedName, NameAttribute } from './types.ts';

const maxAttributes = 16;
const maxValueBytes = 1_024;
/** X.520 upper bound of CN, O and OU: what we write keeps to it. */
const maxWrittenCharacters = 64;

const rolePrefix = 'bc-role:';
const rolePattern = /^[a-z][a-z0-9-]{0,31}$/;
const printablePattern = /^[A-Za-z0-9 '()+,./:=?-]*$/;
const controlPattern = /[\u0000-\u001f\u007f]/;

/** 1 to 32 of a-z, 0-9 and `-`, a letter first (ID-023). */
export const isRole = (text: string): boolean => rolePattern.test(text);

export const roleAttribute = (role: string): NameAttribute => ({ oid: oids.organizationalUnit, value: rolePrefix + role });

/** DER of a name; INVALID_INPUT for an empty or overlong value, or one with control characters. */
export const encodeName = (attributes: readonly NameAttribute[]): Uint8Array =>
  encodeDerSequence(
    ...attributes.map(({ oid, value }) => {
      if (
        value.length === 0 ||
        value.length > maxWrittenCharacters ||
        controlPattern.test(value) ||
        Buffer.from(value, 'utf8').toString('utf8') !== value
      )
        throw new ControlError(
          'INVALID_INPUT',
          `a name attribute has 1 to ${maxWrittenCharacters} printable characters: ${JSON.stringify(value)}`,
          {
            details: { reason: 'name-attribute', oid },
          },
        );
      return encodeDerSet(encodeDerSequence(encodeDerOid(oid), encodeDer(tags.utf8String, Buffer.from(value, 'utf8'))));
    }),
  );

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

const textReaders: Readonly<Record<number, (content: Uint8Array) => string | null>> = Object.freeze({
  [tags.utf8String]: (content: Uint8Array) => {
    try {
      return utf8.decode(content);
    } catch {
      return null;
    }
  },
  [tags.printableString]: (content: Uint8Array) => {
    const text = Buffer.from(content).toString('latin1');
    return printablePattern.test(text) ? text : null;
  },
  [tags.ia5String]: (content: Uint8Array) => (content.every((octet) => octet < 0x80) ? Buffer.from(content).toString('latin1') : null),
});

const readAttribute = (reader: DerReader): NameAttribute => {
  const set = reader.open(tags.set);
  const pair = set.open(tags.sequence);
  set.close();
  const oid = pair.readOid();
  const read = textReaders[pair.peek()];
  if (read === undefined) throw malformed('name', `a name attribute ${oid} is in a string type that is not taken`);
  const value = read(pair.read(pair.peek()));
  pair.close();
  if (value === null || value.length === 0 || value.length > maxValueBytes || controlPattern.test(value))
    throw malformed('name', `a name attribute ${oid} is empty, too long or holds characters that its type does not have`);
  return Object.freeze({ oid, value });
};

const maxKnownNames = 256;
const knownNames = new Map<string, readonly NameAttribute[]>();

/**
 * Reads the next value as a name; MALFORMED for attributes of several values, other string types, NUL and the like. Issuers and
 * roles come again and again: their attributes are read once and found by their bytes (the oldest make room).
 */
export const readName = (reader: DerReader): DistinguishedName => {
  const der = reader.readWhole(tags.sequence);
  const key = reader.bytes.toString('latin1', reader.at - der.length, reader.at);
  const attributes = knownNames.get(key) ?? rememberName(key, readAttributes(der));
  return Object.freeze({ der, attributes });
};

const rememberName = (key: string, attributes: readonly NameAttribute[]): readonly NameAttribute[] => {
  if (knownNames.size >= maxKnownNames) knownNames.delete(knownNames.keys().next().value as string);
  knownNames.set(key, attributes);
  return attributes;
};

const readAttributes = (der: Uint8Array): readonly NameAttribute[] => {
  const inner = new DerReader(der).open(tags.sequence);
  const attributes: NameAttribute[] = [];
  while (!inner.isAtEnd) {
    if (attributes.length === maxAttributes) throw malformed('name', `a name has more than ${maxAttributes} attributes`);
    attributes.push(readAttribute(inner));
  }
  return Object.freeze(attributes);
};

/** The role of a subject; null when it names none; MALFORMED for two roles or a role that is not one (ID-024). */
export const roleOf = (attributes: readonly NameAttribute[]): string | null => {
  const roles = attributes.filter(({ oid, value }) => oid === oids.organizationalUnit && value.startsWith(rolePrefix));
  if (roles.length > 1) throw malformed('two-roles', 'a subject names two roles');
  const role = roles[0]?.value.slice(rolePrefix.length);
  if (role === undefined) return null;
  if (!isRole(role)) throw malformed('role', `a subject names a role that is not one: ${JSON.stringify(role)}`);
  return role;
};
