/** Certificates, requests and identities: x509, csr, spiffe-id. */
import { ControlError } from '../../../domain/errors.ts';
import { parseCsr, parsePemCertificates, parseSpiffeId, verifyChain } from '../../../pki/x509/index.ts';
import { base64Field, type Case, findObject, oneOf, textField, textsField, toHex } from '../case.ts';

const derOf = (pem: string): Uint8Array => {
  const [der, ...more] = parsePemCertificates(pem);
  if (der !== undefined && more.length === 0) return der;
  throw new ControlError('MALFORMED', 'a PEM text of the case holds several certificates', { details: { reason: 'pem' } });
};

/** Revocation comes from the deployment's own records here (REV), so a case that wants a list consulted cannot be answered with yes. */
const assertNoLists = (read: Case): void => {
  if (Array.isArray(read['crls']) && read['crls'].length > 0)
    throw new ControlError('UNSUPPORTED', 'certificate revocation lists are not read', { details: { reason: 'crls' } });
};

const instantOf = (read: Case, now: number): number => {
  if ((read['validation_time'] ?? null) === null) return now;
  const instant = Date.parse(textField(read, 'validation_time'));
  if (Number.isNaN(instant))
    throw new ControlError('MALFORMED', "the case's validation_time is not an instant", {
      details: { reason: 'case', field: 'validation_time' },
    });
  return instant;
};

const serverNameOf = (read: Case): { serverName?: string } => {
  const name = findObject(read, 'peer_name');
  return name === undefined ? {} : { serverName: textField(name, 'value') };
};

const depthOf = (read: Case): { maxDepth?: number } => {
  const depth: unknown = read['max_chain_depth'];
  return typeof depth === 'number' && Number.isSafeInteger(depth) && depth >= 0 ? { maxDepth: depth } : {};
};

/** A case of x509-limbo. The names of what was accepted are the value. */
export const judgeX509 = (read: Case, now: number): unknown => {
  const isServer = oneOf(read, 'validation_kind', ['SERVER', 'CLIENT']) === 'SERVER';
  assertNoLists(read);
  const chain = [textField(read, 'peer_certificate'), ...textsField(read, 'untrusted_intermediates')].map(derOf);
  const { leaf } = verifyChain(chain, {
    anchors: textsField(read, 'trusted_certs').map(derOf),
    now: instantOf(read, now),
    purpose: isServer ? 'server' : 'client',
    ...(isServer ? serverNameOf(read) : {}),
    ...depthOf(read),
  });
  return { serial: leaf.serial, dns: leaf.dnsSans, ip: leaf.ipSans, uri: leaf.uriSans };
};

/** The key is all that is taken from a request. */
export const judgeCsr = (read: Case): unknown => ({ spki: toHex(parseCsr(base64Field(read, 'derB64')).spki) });

export const judgeSpiffeId = (read: Case): unknown => parseSpiffeId(textField(read, 'text'));
