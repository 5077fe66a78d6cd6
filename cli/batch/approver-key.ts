/**
 * The approver's own key: a PEM file that nobody else can read, or a key in a token or with a signer program (`pkcs11:…`, `external:…`). It
 * signs here and goes nowhere; no command sends it, prints it or asks for its passphrase on a command line.
 */
import { createPrivateKey, createPublicKey, type KeyObject } from 'node:crypto';
import { closeSync, fstatSync, openSync, readFileSync } from 'node:fs';
import { ControlError } from '../../domain/errors.ts';
import { kidOf, type Signer, signerFromPrivateKey, spkiOf } from '../../pki/x509/index.ts';
import { openExternalSigners, readSignerEnvironment } from '../../runtime/signers/external-signers.ts';

export const passphraseVariable = 'BETTER_COMPUTE_APPROVER_PASSPHRASE';

const longestFile = 65_536;

export const isReference = (key: string): boolean => /^(pkcs11|external):/.test(key);

/** The signer of `--key` for the time of `work`. */
export async function withApproverKey<T>(key: string, env: NodeJS.ProcessEnv, work: (signer: Signer) => Promise<T>): Promise<T> {
  if (!isReference(key)) return work(signerFromPrivateKey(readKey(key, env)));
  const signers = openExternalSigners(readSignerEnvironment(signerNames(env)), env);
  try {
    return await work((await signers.find(key)).signer);
  } finally {
    signers.close();
  }
}

/** The names that say where a token is; whatever else stands in an approver's environment is not this reader's to judge. */
export const signerNames = (env: NodeJS.ProcessEnv): NodeJS.ProcessEnv =>
  Object.fromEntries(Object.entries(env).filter(([name]) => /^BETTER_COMPUTE_(PKCS11_|SIGNER_)/.test(name)));

/**
 * @throws NOT_FOUND without the file; INVALID_STATE (`key-readable`) when others can read it; MISSING_ENV for an encrypted key without its
 *   passphrase; INVALID_INPUT for anything that is no P-256 private key
 */
function readKey(path: string, env: NodeJS.ProcessEnv): KeyObject {
  const pem = readPrivate(path);
  if (!pem.includes('PRIVATE KEY'))
    throw unusable(path, pem.includes('PUBLIC KEY') ? 'is a public key: name the file without .pub' : 'holds no private key in PEM');
  const key = openKey(path, pem, env);
  if (key.asymmetricKeyType === 'ec' && key.asymmetricKeyDetails?.namedCurve === 'prime256v1') return key;
  throw unusable(path, 'is no P-256 key: approvers have one of batch keygen');
}

function openKey(path: string, pem: string, env: NodeJS.ProcessEnv): KeyObject {
  const isEncrypted = /BEGIN ENCRYPTED PRIVATE KEY|Proc-Type: 4,ENCRYPTED/.test(pem);
  const passphrase = env[passphraseVariable] || null;
  if (isEncrypted && passphrase === null) {
    throw new ControlError('MISSING_ENV', `${path} is encrypted and ${passphraseVariable} is not set`, {
      details: { reason: 'no-passphrase', variable: passphraseVariable },
    });
  }
  try {
    return createPrivateKey(isEncrypted ? { key: pem, passphrase: passphrase ?? '' } : pem);
  } catch (cause) {
    throw unusable(
      path,
      isEncrypted ? `does not open with the passphrase of ${passphraseVariable}` : 'does not read as a private key',
      cause,
    );
  }
}

const unusable = (path: string, what: string, cause?: unknown): ControlError =>
  new ControlError('INVALID_INPUT', `${path} ${what}`, { details: { reason: 'bad-key-file', path }, cause });

/** Looked at and read by one descriptor, so that the file that was judged is the one that is used. */
function readPrivate(path: string): string {
  let file: number;
  try {
    file = openSync(path, 'r');
  } catch (cause) {
    throw new ControlError('NOT_FOUND', `${path} cannot be read`, {
      details: { reason: 'no-key-file', path, hint: 'make one: better-compute batch keygen' },
      cause,
    });
  }
  try {
    const { mode, size } = fstatSync(file);
    if (process.platform !== 'win32' && (mode & 0o077) !== 0) {
      throw new ControlError('INVALID_STATE', `${path} can be read by others (mode ${(mode & 0o777).toString(8).padStart(4, '0')})`, {
        details: { reason: 'key-readable', path, hint: `chmod 600 ${path}; if others had access, make a new key` },
      });
    }
    if (size > longestFile) throw unusable(path, `has ${size} bytes: that is no key`);
    return readFileSync(file, 'utf8');
  } finally {
    closeSync(file);
  }
}

/** One .pub file of `batch keygen`: a P-256 public key in PEM. @throws NOT_FOUND, INVALID_INPUT */
export function readApproverPublicKey(path: string): { readonly kid: string; readonly spki: Uint8Array } {
  let pem: string;
  try {
    pem = readFileSync(path, 'utf8');
  } catch (cause) {
    throw new ControlError('NOT_FOUND', `${path} cannot be read`, { details: { reason: 'no-key-file', path }, cause });
  }
  if (pem.includes('PRIVATE KEY')) throw unusable(path, 'holds a private key: name the .pub file');
  try {
    const spki = spkiOf(createPublicKey(pem));
    return { kid: kidOf(spki), spki };
  } catch (cause) {
    throw unusable(path, 'is no P-256 public key in PEM', cause);
  }
}
