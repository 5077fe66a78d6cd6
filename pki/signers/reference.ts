/**
 * Where a key lives that is not in the bundle, as one line of text:
 *
 *   pkcs11:token=deployment;object=command-root      a key of a PKCS #11 token (RFC 7512, the part of it that names a key)
 *   external:alias/command-root                      a key of the operator's own signer program, named as that program names it
 *
 * A reference names a key and nothing else. Which library is loaded, which program runs and where the PIN lies is told to each
 * process by its own environment: a bundle, whoever wrote it, never decides what this host executes.
 */
import { ControlError } from '../../domain/errors.ts';

export interface TokenKeyReference {
  readonly kind: 'pkcs11';
  /** Label of the token; at least one of token and serial is there. */
  readonly token?: string;
  readonly serial?: string;
  /** Label of the key; at least one of object and id is there. */
  readonly object?: string;
  /** CKA_ID, lower-case hex. */
  readonly id?: string;
}

export interface ProgramKeyReference {
  readonly kind: 'external';
  readonly key: string;
}

export type SignerReference = TokenKeyReference | ProgramKeyReference;

const maxReferenceLength = 512;
const attributeNames = ['token', 'serial', 'object', 'id'] as const;
type AttributeName = (typeof attributeNames)[number];

/** RFC 7512 pk11-pchar without what has a meaning here; everything else is percent-encoded. */
const plainCharacter = /^[A-Za-z0-9_.~-]$/;
const programKey = /^[A-Za-z0-9][A-Za-z0-9._~:/@+=-]{0,255}$/;

const refuse = (text: string, what: string): ControlError =>
  new ControlError('INVALID_INPUT', `signer reference ${JSON.stringify(text.slice(0, 80))} ${what}`, {
    details: {
      reason: 'signer-reference',
      hint: 'write pkcs11:token=LABEL;object=LABEL, or external:NAME for a key of BETTER_COMPUTE_SIGNER_COMMAND',
    },
  });

/** @throws INVALID_INPUT (signer-reference) for anything but the two forms above */
export function parseSignerReference(text: string): SignerReference {
  if (text.length > maxReferenceLength) throw refuse(text, `is longer than ${maxReferenceLength} characters`);
  if (text.startsWith('external:')) return parseProgramKey(text);
  if (text.startsWith('pkcs11:')) return parseTokenKey(text);
  throw refuse(text, 'begins neither with pkcs11: nor with external:');
}

function parseProgramKey(text: string): ProgramKeyReference {
  const key = text.slice('external:'.length);
  if (!programKey.test(key)) throw refuse(text, 'has no key name of letters, digits and ._~:/@+=-');
  return Object.freeze({ kind: 'external', key });
}

function parseTokenKey(text: string): TokenKeyReference {
  if (text.includes('?')) throw refuse(text, 'has a query: the library and its PIN are told by the environment, never by a reference');
  const found: Partial<Record<AttributeName, string>> = {};
  for (const part of text.slice('pkcs11:'.length).split(';')) {
    const at = part.indexOf('=');
    const name = attributeNames.find((candidate) => candidate === part.slice(0, at));
    if (name === undefined) throw refuse(text, `has ${JSON.stringify(part.slice(0, 40))}, which is none of ${attributeNames.join('=, ')}=`);
    if (found[name] !== undefined) throw refuse(text, `names ${name} twice`);
    found[name] = valueOf(name, part.slice(at + 1), text);
  }
  if (found.token === undefined && found.serial === undefined) throw refuse(text, 'names no token: token= or serial=');
  if (found.object === undefined && found.id === undefined) throw refuse(text, 'names no key: object= or id=');
  return Object.freeze({ kind: 'pkcs11', ...found });
}

/** A label with one could write another line into a log. */
const isControl = (byte: number): boolean => byte < 0x20 || byte === 0x7f;

/** Labels are UTF-8, ids are bytes (hex here). */
function valueOf(name: AttributeName, encoded: string, text: string): string {
  if (!/^(?:[A-Za-z0-9_.~:@$&+!'()*,[\]-]|%[0-9A-Fa-f]{2})+$/.test(encoded)) throw refuse(text, `has no proper value for ${name}`);
  const bytes = Buffer.from(
    encoded.replace(/%([0-9A-Fa-f]{2})/g, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16))),
    'latin1',
  );
  if (name === 'id') return bytes.toString('hex');
  const label = bytes.toString('utf8');
  if (!Buffer.from(label, 'utf8').equals(bytes) || bytes.some(isControl)) throw refuse(text, `has a ${name} that is no label`);
  return label;
}

/** The one text of a reference: what the bundle keeps. */
export function formatSignerReference(reference: SignerReference): string {
  if (reference.kind === 'external') return `external:${reference.key}`;
  const parts = attributeNames.flatMap((name) => {
    const value = reference[name];
    return value === undefined ? [] : [`${name}=${percentEncode(Buffer.from(value, name === 'id' ? 'hex' : 'utf8'), name === 'id')}`];
  });
  return `pkcs11:${parts.join(';')}`;
}

const percentEncode = (bytes: Uint8Array, isBinary: boolean): string =>
  Array.from(bytes, (byte) => {
    const character = String.fromCharCode(byte);
    return !isBinary && plainCharacter.test(character) ? character : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`;
  }).join('');

/**
 * Where the next key of the same kind belongs: the same token or program under another name. The name is made of the rotation's
 * id, so that a step that is repeated finds the key it made before.
 */
export function successorReference(reference: SignerReference, rotationId: string): SignerReference {
  const name = `command-root-${rotationId}`.slice(0, 120);
  if (reference.kind === 'external')
    return { kind: 'external', key: `${reference.key.replace(/[^/]*$/, '')}${name.replaceAll(/[^A-Za-z0-9._-]/g, '-')}` };
  const { id: _id, ...place } = reference;
  return { ...place, object: name };
}
