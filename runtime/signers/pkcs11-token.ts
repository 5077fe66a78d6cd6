/**
 * Keys of PKCS #11 tokens: found by reference, judged before use, asked for signatures.
 *
 * A key is used only when it is the one match, on P-256, and one that the token itself says cannot be exported: a key
 * that could leave its token is a key in a file with detours.
 */
import { createHash, randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type * as Pkcs11 from 'pkcs11js';
import { isControlError } from '../../domain/errors.ts';
import { parseSignerReference, type SignerRefusal, type TokenKeyReference } from '../../pki/signers/index.ts';

/** What is said to the other side instead of an exception. */
export class TokenRefusal extends Error {
  override readonly name = 'TokenRefusal';
  readonly code: SignerRefusal;

  constructor(code: SignerRefusal, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }

  /** The library's own error by its name (CKR_…); the code never carries a value. */
  static of(error: unknown): TokenRefusal {
    if (isControlError(error)) return new TokenRefusal('unsupported', error.message, { cause: error });
    const message = error instanceof Error ? error.message : String(error);
    return new TokenRefusal(/PIN|USER_NOT_LOGGED_IN|USER_TYPE/.test(message) ? 'denied' : 'unavailable', message, { cause: error });
  }
}

export interface Token {
  publicKey(reference: string): Uint8Array;
  createKey(reference: string): Uint8Array;
  sign(reference: string, input: Uint8Array): Uint8Array;
  close(): void;
}

/** OBJECT IDENTIFIER prime256v1, as CKA_EC_PARAMS has it. */
const p256Params = Buffer.from('06082a8648ce3d030107', 'hex');
/** SubjectPublicKeyInfo of P-256 before the 65 bytes of the point. */
const p256SpkiPrefix = Buffer.from('3059301306072a8648ce3d020106082a8648ce3d030107034200', 'hex');
const signatureBytes = 64;

type Library = typeof Pkcs11;

interface Place {
  readonly library: Library;
  readonly module: Pkcs11.PKCS11;
  readonly session: Buffer;
  readonly reference: TokenKeyReference;
}

/** @throws TokenRefusal `unsupported` without the native module, `unavailable` when the library does not load or start */
export async function openToken({ library: path, pinFile }: { library: string; pinFile: string | undefined }): Promise<Token> {
  const library = await loadBinding();
  const module = new library.PKCS11();
  try {
    module.load(path);
    module.C_Initialize();
  } catch (cause) {
    throw new TokenRefusal('unavailable', `${path} does not load: ${(cause as Error).message}`, { cause });
  }
  const sessions = new Map<string, Buffer>();
  const placeOf = (text: string): Place => {
    const reference = parseSignerReference(text);
    if (reference.kind !== 'pkcs11') throw new TokenRefusal('unsupported', 'the reference names no key of a token');
    const slot = findSlot(library, module, reference);
    const known = slot.toString('hex');
    const session = sessions.get(known) ?? openSession({ library, module, slot, pinFile });
    sessions.set(known, session);
    return { library, module, session, reference };
  };
  return {
    publicKey: (reference) => readPublicKey(placeOf(reference)),
    createKey: (reference) => createKey(placeOf(reference)),
    sign: (reference, input) => sign(placeOf(reference), input),
    close: () => module.C_Finalize(),
  };
}

async function loadBinding(): Promise<Library> {
  try {
    const loaded = (await import('pkcs11js')) as Library & { default?: Library };
    return loaded.default ?? loaded;
  } catch (cause) {
    throw new TokenRefusal('unsupported', 'the native module pkcs11js is not built here: npm rebuild pkcs11js', { cause });
  }
}

function findSlot(library: Library, module: Pkcs11.PKCS11, { token, serial }: TokenKeyReference): Buffer {
  const fits = module.C_GetSlotList(true).filter((slot) => {
    const info = module.C_GetTokenInfo(slot);
    const isReady = (info.flags & library.CKF_TOKEN_INITIALIZED) !== 0;
    return isReady && (token === undefined || token === info.label.trim()) && (serial === undefined || serial === info.serialNumber.trim());
  });
  const [slot] = fits;
  if (slot === undefined) throw new TokenRefusal('unavailable', `there is no token ${token ?? serial}`);
  if (fits.length > 1) throw new TokenRefusal('unsuitable-key', `there are ${fits.length} tokens ${token ?? serial}: name its serial`);
  return slot;
}

interface Login {
  readonly library: Library;
  readonly module: Pkcs11.PKCS11;
  readonly slot: Buffer;
  readonly pinFile: string | undefined;
}

function openSession({ library, module, slot, pinFile }: Login): Buffer {
  const session = module.C_OpenSession(slot, library.CKF_SERIAL_SESSION | library.CKF_RW_SESSION);
  if (pinFile === undefined) return session;
  try {
    module.C_Login(session, library.CKU_USER, readPin(pinFile));
  } catch (error) {
    if (error instanceof TokenRefusal) throw error;
    if (!/ALREADY_LOGGED_IN/.test((error as Error).message)) throw TokenRefusal.of(error);
  }
  return session;
}

function readPin(path: string): string {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch (cause) {
    throw new TokenRefusal('denied', `the file with the PIN cannot be read (${(cause as NodeJS.ErrnoException).code})`, { cause });
  }
}

type KeyClass = 'public' | 'private';

/** null: none. @throws TokenRefusal `unsuitable-key` when it is not one */
function findKey({ library, module, session, reference }: Place, which: KeyClass): Buffer | null {
  const template: Pkcs11.Template = [
    { type: library.CKA_CLASS, value: which === 'public' ? library.CKO_PUBLIC_KEY : library.CKO_PRIVATE_KEY },
    ...(reference.object === undefined ? [] : [{ type: library.CKA_LABEL, value: reference.object }]),
    ...(reference.id === undefined ? [] : [{ type: library.CKA_ID, value: Buffer.from(reference.id, 'hex') }]),
  ];
  module.C_FindObjectsInit(session, template);
  let found: Buffer[];
  try {
    found = module.C_FindObjects(session, 2);
  } finally {
    module.C_FindObjectsFinal(session);
  }
  if (found.length > 1) throw new TokenRefusal('unsuitable-key', `several ${which} keys have this name: name its id`);
  return found[0] ?? null;
}

function getKey(place: Place, which: KeyClass): Buffer {
  const key = findKey(place, which);
  if (key !== null) return key;
  throw new TokenRefusal('no-such-key', `the token has no ${which} key of this name`);
}

function attributeOf({ module, session }: Place, key: Buffer, type: number): Buffer {
  return module.C_GetAttributeValue(session, key, [{ type }])[0]?.value as Buffer;
}

const isTrue = (value: Buffer): boolean => value.length > 0 && value[0] !== 0;

function readPublicKey(place: Place): Uint8Array {
  assertUsable(place, getKey(place, 'private'));
  return publicKeyOf(place);
}

function publicKeyOf(place: Place): Uint8Array {
  const { library } = place;
  const key = getKey(place, 'public');
  if (!attributeOf(place, key, library.CKA_EC_PARAMS).equals(p256Params)) throw new TokenRefusal('unsuitable-key', 'it is not on P-256');
  const point = attributeOf(place, key, library.CKA_EC_POINT);
  // The specification wraps the point in an OCTET STRING; some tokens give it bare.
  const bare = point.length === 67 && point[0] === 0x04 && point[1] === 65 ? point.subarray(2) : point;
  if (bare.length !== 65 || bare[0] !== 0x04) throw new TokenRefusal('unsuitable-key', 'its point has another form than the uncompressed');
  return Buffer.concat([p256SpkiPrefix, bare]);
}

function assertUsable(place: Place, key: Buffer): void {
  const { library } = place;
  const type = attributeOf(place, key, library.CKA_KEY_TYPE);
  if (type.readUInt32LE(0) !== library.CKK_EC) throw new TokenRefusal('unsuitable-key', 'it is no elliptic-curve key');
  const leaves = isTrue(attributeOf(place, key, library.CKA_EXTRACTABLE)) || !isTrue(attributeOf(place, key, library.CKA_SENSITIVE));
  if (leaves) throw new TokenRefusal('unsuitable-key', 'the token would let it be exported');
}

function sign(place: Place, input: Uint8Array): Uint8Array {
  const { library, module, session } = place;
  const key = getKey(place, 'private');
  assertUsable(place, key);
  module.C_SignInit(session, { mechanism: library.CKM_ECDSA }, key);
  return module.C_Sign(session, createHash('sha256').update(input).digest(), Buffer.alloc(signatureBytes));
}

function createKey(place: Place): Uint8Array {
  const { library, module, session, reference } = place;
  if (findKey(place, 'private') !== null) return readPublicKey(place);
  const id = reference.id === undefined ? randomBytes(16) : Buffer.from(reference.id, 'hex');
  const name = [
    { type: library.CKA_TOKEN, value: true },
    { type: library.CKA_ID, value: id },
    ...(reference.object === undefined ? [] : [{ type: library.CKA_LABEL, value: reference.object }]),
  ];
  module.C_GenerateKeyPair(
    session,
    { mechanism: library.CKM_EC_KEY_PAIR_GEN },
    [...name, { type: library.CKA_VERIFY, value: true }, { type: library.CKA_EC_PARAMS, value: p256Params }],
    [
      ...name,
      { type: library.CKA_PRIVATE, value: true },
      { type: library.CKA_SENSITIVE, value: true },
      { type: library.CKA_EXTRACTABLE, value: false },
      { type: library.CKA_SIGN, value: true },
    ],
  );
  return readPublicKey(place);
}
