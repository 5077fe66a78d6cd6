/**
 * What one end of TLS is made of: its key and chain, and the authorities that the other end's certificate must chain to.
 * Checked as a whole before anything takes effect, so a half-written set is never put to use (TLS-009, TLS-018).
 */
import { createSecureContext } from 'node:tls';
import { ControlError } from '../../domain/errors.ts';
import { parsePemCertificates } from '../../pki/x509/index.ts';

export interface TlsMaterial {
  /** PEM. */
  readonly key: string | Buffer;
  /** PEM, leaf first. */
  readonly cert: string | Buffer;
  /** PEM: the authorities that the other end chains to. */
  readonly ca?: string | Buffer;
}

export interface CheckedMaterial {
  readonly key: string | Buffer;
  readonly cert: string | Buffer;
  readonly ca: string | Buffer;
  /** The certificates of `ca`, DER. */
  readonly anchors: readonly Uint8Array[];
}

/**
 * @param current whose `ca` stays when `material` brings none
 * @throws INVALID_CONFIG when the key is not the certificate's, a part does not parse, or no authority is named
 */
export function checkMaterial(material: TlsMaterial, current: CheckedMaterial | null): CheckedMaterial {
  const ca = material.ca ?? current?.ca;
  if (ca === undefined)
    throw new ControlError('INVALID_CONFIG', 'no authority is named that the other end must chain to (ca)', {
      details: { reason: 'no-ca' },
    });
  try {
    createSecureContext({ key: material.key, cert: material.cert, ca });
    return Object.freeze({ key: material.key, cert: material.cert, ca, anchors: parsePemCertificates(String(ca)) });
  } catch (cause) {
    throw new ControlError('INVALID_CONFIG', describe(cause), { details: { reason: 'tls-material' }, cause });
  }
}

function describe(cause: unknown): string {
  const code = (cause as { code?: unknown }).code;
  if (code === 'ERR_OSSL_X509_KEY_VALUES_MISMATCH') return 'the private key does not belong to the certificate';
  return 'the key, the certificate or the authorities do not parse';
}
